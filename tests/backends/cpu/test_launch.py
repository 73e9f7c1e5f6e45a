"""Calls from Python to C: the right addresses, from any thread, and nothing left behind."""

import gc
import sys
import threading
import time
import weakref

import attrs
import numpy as np
import pytest

from aotlite.backends.cpu.runtime import launch as launching
from aotlite.backends.cpu.runtime.launch import Signature, launcher
from aotlite.backends.cpu.runtime.runtime_library import declarations, load_runtime
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.ir.errors import BackendError

TEXT = (
    declarations()
    + """
/* slots: a, b, c, a constant, scratch */
int add(void **slots, const al_runtime *runtime)
{
    const float *a = slots[0], *b = slots[1], *constant = slots[3];
    float *c = slots[2], *scratch = slots[4];
    for (int i = 0; i < 4; i++) scratch[i] = a[i] + b[i];
    for (int i = 0; i < 4; i++) c[i] = scratch[i] + constant[i];
    return runtime->threads > 0 ? 0 : 1;
}
/* slots: an array for the addresses of the others */
int where(void **slots, const al_runtime *runtime)
{
    (void)runtime;
    for (int i = 1; i < 5; i++) ((void **)slots[0])[i] = slots[i];
    return 0;
}
/* slots: {value}, {how long}, {differences found}, scratch of 64 KiB */
int hold(void **slots, const al_runtime *runtime)
{
    (void)runtime;
    al_int64 value = *(al_int64 *)slots[0], steps = *(al_int64 *)slots[1];
    volatile al_int64 *scratch = slots[3];
    for (al_int64 step = 0; step < steps; step++) {
        for (int i = 0; i < 8192; i++) scratch[i] = value;
        for (int i = 0; i < 8192; i++) *(al_int64 *)slots[2] += scratch[i] != value;
    }
    return 0;
}
/* slots: {flag}, {patience} */
int wait(void **slots, const al_runtime *runtime)
{
    (void)runtime;
    volatile al_int64 *flag = slots[0];
    for (al_int64 i = 0; i < *(al_int64 *)slots[1] && !*flag; i++) {}
    return *flag ? 0 : 1;
}
int code(void **slots, const al_runtime *runtime)
{
    (void)runtime;
    return *(al_int32 *)slots[0];
}
"""
)


@pytest.fixture(params=["fast", "slow"])
def library(request, monkeypatch):
    """Both ways: data pointers that are read, and addresses that are asked for."""
    if request.param == "slow":
        monkeypatch.setattr(launching, "_maker", lambda runtime: None)
    elif launching.layout(load_runtime()) is None:
        pytest.skip("this Python keeps pointers elsewhere")
    return load_c(TEXT, "launches")


def floats(*values):
    return np.array(values, np.float32)


def signature(*sizes, **more):
    return Signature(sizes, **more)


def test_fast_way_is_what_this_python_gets():
    """Otherwise every other test would try the slow way twice."""
    launch = launcher(load_c(TEXT, "launches").code, signature(4))
    assert (sys.implementation.name == "cpython") is (type(launch) is type(len))


def test_arrays_windows_constants_and_scratch_are_where_the_kernel_looks(library):
    constant = floats(10, 20, 30, 40)
    launch = launcher(library.add, signature(4, 4, 4, constants=(constant,), arena_bytes=64))
    a, b, c = np.arange(10, dtype="f"), floats(1, 2, 3, 4), np.zeros(6, "f")
    assert 0 == launch([a, b, c])
    assert [11, 23, 35, 47, 0, 0] == c.tolist()
    assert 0 == launch([(a, 3), b, (c, 2)])
    assert [11, 23, 14, 26, 38, 50] == c.tolist()


def test_constants_may_be_windows_and_live_as_long_as_the_function(library):
    constant = np.arange(1000, dtype="f")
    alive = weakref.ref(constant)
    launch = launcher(library.add, signature(4, 4, 4, constants=((constant, 5),), arena_bytes=64))
    del constant
    gc.collect()
    litter = [np.full(1000, -1, "f") for _ in range(50)]
    c = floats(0, 0, 0, 0)
    launch([c, c, c])
    assert [5, 6, 7, 8] == c.tolist() and alive() is not None
    del launch, litter
    gc.collect()
    assert alive() is None


def test_arrays_are_left_with_the_references_they_had(library):
    launch = launcher(
        library.add, signature(4, 4, 4, constants=(floats(0, 0, 0, 0),), arena_bytes=64)
    )
    a = floats(1, 2, 3, 4)
    values = [a, (a, 0), a]
    before = sys.getrefcount(a), sys.getrefcount(values), sys.getrefcount(values[1])
    for _ in range(1000):
        launch(values)
    assert before == (sys.getrefcount(a), sys.getrefcount(values), sys.getrefcount(values[1]))


def test_every_kind_of_array_is_found(library):
    """Views, subclasses, memory of any alignment, arrays without elements, of no dimension."""
    launch = launcher(library.where, signature(8, 4, 4, 8, 1))
    raw = np.zeros(400, np.uint8)
    odd = np.ndarray((5,), "f", raw, 3)
    given = [odd, np.zeros((4, 6), "f").T[1:, 1:], np.zeros(0), np.array(7, np.uint8).view(Sub)]
    found = np.zeros(5, np.int64)
    launch([found, *given])
    assert [each.ctypes.data for each in given] == found[1:].tolist()
    launch([found, (odd, 3), (given[1], 0), (given[2], 0), (raw, 399)])
    expected = [odd.ctypes.data + 12, given[1].ctypes.data, given[2].ctypes.data]
    assert [*expected, raw.ctypes.data + 399] == found[1:].tolist()


class Sub(np.ndarray):
    """Arrays of users' own kinds."""


def test_input_of_another_alignment_gives_the_same(library):
    launch = launcher(
        library.add, signature(4, 4, 4, constants=(floats(1, 1, 1, 1),), arena_bytes=64)
    )
    for offset in range(0, 64, 4):
        a = np.ndarray((4,), "f", np.zeros(128, np.uint8), offset)
        a[:] = (1, 2, 3, 4)
        c = np.zeros(4, "f")
        launch([a, a, c])
        assert [3, 5, 7, 9] == c.tolist()


NUMBER = "launch: values are not a list, or not as many as the kernel has"
KIND = "expected an ndarray or a window (ndarray, start)"


def test_wrong_values_are_refused_before_anything_runs(library):
    launch = launcher(library.code, signature(4, 4))
    a = np.zeros(1, np.int32)
    for values in ([], [a], [a, a, a], (a, a), None, a):
        with pytest.raises(BackendError) as caught:
            launch(values)
        assert NUMBER == str(caught.value)
    for value in (3, None, (a,), (a, -1), (a, "1"), (a, None), (a, 0, 0), (3, 0), [a], a.data):
        with pytest.raises(BackendError) as caught:
            launch([a, value])
        assert str(caught.value).startswith("launch: a value is of ")
        assert str(caught.value).endswith(KIND)
    assert 0 == launch([a, (a, 0)])


def test_what_run_returns_is_returned(library):
    launch = launcher(library.code, signature(4))
    for code in (0, 1, 77, 2**31 - 1):
        assert code == launch([np.array([code], np.int32)])


def test_scratch_that_cannot_be_had_is_a_memory_error(library):
    launch = launcher(library.code, signature(4, arena_bytes=1 << 55))
    with pytest.raises(MemoryError):
        launch([np.zeros(1, np.int32)])


@pytest.mark.parametrize("count", [1022, 1023, 1024, 20_000])
def test_any_number_of_slots_is_taken(count):
    """More than a stack should hold lie elsewhere; 20,000 were an error of the default backend."""
    launch = launcher(load_c(TEXT, "launches").code, signature(*[4] * count))
    assert 5 == launch([np.array([5], np.int32)] * count)
    with pytest.raises(BackendError):
        launch([np.array([5], np.int32)] * (count - 1) + [5])


def test_eight_threads_have_scratch_of_their_own(library):
    launch = launcher(library.hold, signature(8, 8, 8, arena_bytes=1 << 16))
    steps, differences = np.array([40]), [np.zeros(1, np.int64) for _ in range(8)]

    def work(number):
        for _ in range(5):
            launch([np.array([number]), steps, differences[number]])

    run_threads(work, 8)
    assert [0] * 8 == [int(each[0]) for each in differences]


def run_threads(work, count):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_scratch_stays_warm_and_has_a_limit(library):
    runtime = load_runtime()
    runtime.limit_idle_bytes(0)
    assert 0 == runtime.idle_bytes()
    found = np.zeros(5, np.int64)
    try:
        runtime.limit_idle_bytes(3 << 20)
        launch = launcher(library.where, signature(8, 1, 1, 1, arena_bytes=1 << 20))
        addresses = {launch([found] * 4) or int(found[4]) for _ in range(5)}
        assert 1 == len(addresses) and 1 << 20 == runtime.idle_bytes()
        assert 0 == addresses.pop() % 4096
        for megabytes in (1, 2, 3, 4, 1):
            launcher(library.where, signature(8, 1, 1, 1, arena_bytes=megabytes << 20))([found] * 4)
            assert runtime.idle_bytes() <= 3 << 20
    finally:
        runtime.limit_idle_bytes(1 << 30)


def waited(library, patience, **more):
    """What a run that waits for a flag returns, while another thread tries to set it."""
    launch, flag = launcher(library.wait, signature(8, 8, **more)), np.zeros(1, np.int64)
    found = []
    waiter = threading.Thread(target=lambda: found.append(launch([flag, np.array([patience])])))
    waiter.start()
    time.sleep(0.05)
    flag[0] = 1
    waiter.join()
    return found


def test_other_threads_run_meanwhile(library):
    assert [0] == waited(library, 10**11)


def test_brief_runs_keep_the_lock(library):
    """A flag that nobody can set: the run gives up. The slow way lets others run all the same."""
    if launching._maker(load_runtime()) is None:
        pytest.skip("the slow way has no such choice")
    assert [1] == waited(library, 3 * 10**8, brief=True)


def test_layout_is_looked_at():
    """Where pointers are not what arrays say, nothing is read."""

    shim = load_c("void *al_pointer_at(char *o, long n) { return *(char **)(o + n) + 1; }", "off")
    assert launching.layout(load_runtime()) is not None
    assert launching.layout(attrs.evolve(load_runtime(), library=shim)) is None
