"""Libraries of graphs go when their graphs do, and never while one of them may be called."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.runtime.launch import Signature, launcher
from aotlite.backends.cpu.runtime.runtime_library import declarations, load_runtime
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of, read
from aotlite.backends.native.compiler.toolchain import compile_c, find_compiler
from aotlite.backends.native.libraries import library_loading, memory_mappings
from aotlite.backends.native.libraries.library_loading import load, load_c
from aotlite.backends.native.single_flight import OnceAlive
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import DOUBLE, compiles, in_child, warns_once

linux = pytest.mark.skipif(
    not os.path.exists(memory_mappings._MAPS), reason="no file says what this process has mapped"
)
pytestmark = [compiles, linux]

TWICE = (
    declarations()
    + """
int run(void **slots, const al_runtime *runtime) { *(double *)slots[0] *= 2; return 0; }
"""
)
SLOW = (
    declarations()
    + """
static void wait(void *context, al_int64 chunk)
{
    al_int64 *slots = context;
    __atomic_store_n(&slots[1], 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&slots[0], __ATOMIC_SEQ_CST)) ;
    __atomic_fetch_add(&slots[2], 1, __ATOMIC_SEQ_CST);
}
/* Says in the second of three numbers that it runs, until the first is not 0. */
int run(void **slots, const al_runtime *runtime)
{
    runtime->parallel(wait, slots[0], 4);
    return 0;
}
"""
)


def mapped(part="/kernels/"):
    """How many mappings are of files with this in their path."""
    with open(memory_mappings._MAPS) as file:
        return sum(part in line for line in file)


def small(text=TWICE, name="twice"):
    """A library as graphs have one, whose name no graph has: other tests may keep graphs."""
    return load_c(text, name, libraries=False)


def launch_of(loaded, sizes=(8,)):
    return launcher(loaded.function("run"), Signature(list(sizes)))


# -------------------------------------------------------------------------------------- one library
def test_a_library_takes_two_mappings_and_none_when_nobody_has_it(cache):
    """Not even the collector is needed: nothing refers to itself."""
    find_compiler()
    load_runtime()
    gc.collect()
    before = mapped(str(cache))
    gc.disable()
    try:
        launch, x = launch_of(small()), np.ones(1)
        assert 2 == mapped(str(cache)) - before
        assert 0 == launch([x]) and [2.0] == x.tolist()
        del launch
        assert 0 == mapped(str(cache)) - before
    finally:
        gc.enable()


def test_a_library_leaves_nothing_to_the_collector(cache):
    """No class of ctypes, either: one collection after a graph would not find what that left."""
    launch_of(small())
    gc.collect()
    gc.disable()
    try:
        launch = launch_of(small(), (8,) * 23)
        assert 0 == launch([np.ones(1)] * 23)
        del launch
        assert 0 == gc.collect()
    finally:
        gc.enable()


def test_what_may_have_started_threads_stays(cache):
    """Its text calls the C library, which may call it at the end of a process, or after a fork."""
    find_compiler()
    load_c(DOUBLE, "double")
    gc.collect()
    assert 1 < mapped("/double.")
    assert load_c(DOUBLE, "double") is load_c(DOUBLE, "double")


def test_a_library_that_was_unloaded_is_loaded_again(cache):
    for _ in range(3):
        launch, x = launch_of(small()), np.ones(1)
        assert 0 == launch([x]) and [2.0] == x.tolist()
        del launch
    assert 0 == mapped("/twice.")


# ----------------------------------------------------------------------------------- many libraries
def copies(folder, count):
    """Paths of entries with the bytes of one library."""
    data, cache = read(compile_c(TWICE, "run", libraries=False)), DiskCache(str(folder))
    return [cache.keep(key_of(str(n)), "run", ".so", data) for n in range(count)]


@pytest.mark.usefixtures("cache")
def test_mappings_are_bounded_while_thousands_of_libraries_come_and_go(tmp_path, monkeypatch):
    """CC-19; one file a key, as compiled graphs have one, and the last 50 of them are in use."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    paths, x, alive, most = copies(tmp_path / "many", 2000), np.ones(1), [], 0
    before = mapped("/many/")
    monkeypatch.setattr(library_loading, "key_of_c", lambda text, **options: text)
    monkeypatch.setattr(library_loading, "compile_c", lambda text, *args, **options: text)
    for number, path in enumerate(paths):
        alive.append(launch_of(small(path)))
        del alive[:-50]
        assert 0 == alive[-1]([x])
        if number % 100 == 99:
            most = max(most, mapped("/many/"))
    assert 0 == before and 100 == most
    alive.clear()
    assert 0 == mapped("/many/")


def test_compiled_functions_that_are_dropped_leave_no_library(cache, monkeypatch):
    """Forwards and backwards of functions that differ; each keeps the collector's pace."""

    def scaled(k):
        return lambda x: ((x * k).sin() + k).sum()

    def use(k):
        x = al.ones(3).requires_grad_()
        al.compile(scaled(k), backend="cpu")(x).backward()
        return x.grad

    use(-1.0)
    gc.collect()
    before, used, left = mapped(), [], []
    for number in range(20):
        use(number % 5 + 0.5)
        used.append(mapped())
        gc.collect()
        left.append(mapped())
    assert before < min(used) and max(left) <= before


@pytest.mark.usefixtures("cache")
def test_many_graphs_are_alive_at_two_mappings_each(tmp_path, monkeypatch):
    """The 65,530 mappings of a process are enough for 28,000, with an eighth left for all else."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)

    def load_all():
        paths, before = copies(tmp_path / "many", 1000), mapped("")
        alive = []
        for path in paths:
            loaded = load(path)
            loaded.unload_when_dropped()
            alive.append(launch_of(loaded))
        x = np.ones(1)
        assert mapped("") - before <= 2 * len(alive) + 100
        for launch in alive:
            x[0] = 1.0
            assert 0 == launch([x]) and 2.0 == x[0]

    in_child(load_all)


# -------------------------------------------------------------------------------------- the limit
def full(monkeypatch, spare):
    """Until then: a process that may have so many mappings more than it has."""
    monkeypatch.setattr(memory_mappings, "EVERY", 1)
    monkeypatch.setattr(memory_mappings, "limit", lambda: (mapped("") + spare) * 8 // 7)


@pytest.mark.usefixtures("cache")
def test_a_process_with_too_many_mappings_loads_no_more_and_says_what_to_do(monkeypatch):
    x = np.ones(1)
    launch = launch_of(small())
    full(monkeypatch, -100)
    with pytest.raises(
        BackendError,
        match=r"^cpu: this process has [\d,]+ mappings of the [\d,]+ that its system allows, "
        r"expected an eighth of them left for a library; drop compiled functions, or raise vm\.max",
    ):
        small(TWICE + "// another")
    assert 0 == launch([x]) and [2.0] == x.tolist()
    full(monkeypatch, 100)
    assert small(TWICE + "// another")


@pytest.mark.usefixtures("cache")
def test_what_nobody_has_is_collected_before_there_are_too_many(monkeypatch):
    loaded = small()
    loop = [launch_of(loaded)]
    loop.append(loop)
    del loaded
    collected = []
    monkeypatch.setattr(memory_mappings, "EVERY", 1)
    monkeypatch.setattr(memory_mappings, "_is_roomy", lambda: not mapped("/twice."))
    monkeypatch.setattr(memory_mappings.gc, "collect", lambda: collected.append(loop.clear()))
    assert small(TWICE + "// another") and [None] == collected


@pytest.mark.usefixtures("cache")
def test_a_function_runs_op_by_op_where_there_are_too_many_mappings(monkeypatch):
    load_runtime()
    find_compiler()
    full(monkeypatch, -100)
    with warns_once(r"this process has .* mappings .*runs op by op"):
        assert 6.0 == al.compile(lambda x: (x * 2).sum(), backend="auto")(al.ones(3)).item()


def test_mappings_are_counted_now_and_then(monkeypatch):
    counted = []
    monkeypatch.setattr(memory_mappings, "_since_counted", 0)
    monkeypatch.setattr(memory_mappings, "mapped", lambda: counted.append(1) or 1000)
    for _ in range(3 * memory_mappings.EVERY):
        memory_mappings.make_room()
    assert 3 == len(counted)


def test_where_no_limit_is_known_there_is_room(monkeypatch):
    monkeypatch.setattr(memory_mappings, "EVERY", 1)
    monkeypatch.setattr(memory_mappings, "_LIMIT", "/nowhere")
    assert memory_mappings.limit() is None
    memory_mappings.make_room()


def test_the_limit_is_the_systems():
    with open("/proc/sys/vm/max_map_count") as file:
        assert int(file.read()) == memory_mappings.limit()
    assert mapped("") == pytest.approx(memory_mappings.mapped(), abs=20)


# ----------------------------------------------------------------------------------------- threads
@pytest.mark.usefixtures("cache")
def test_a_library_stays_while_a_thread_is_in_it_although_nobody_else_has_it():
    """In a function of its own, and in that of a pool's threads."""
    load_runtime()

    def stay():
        slots = np.zeros(3, np.int64)
        launches = [launch_of(small(SLOW, "slow"))]
        thread = threading.Thread(target=lambda: launches.pop()([slots]))
        thread.start()
        word = (ctypes.c_int64 * 3).from_address(slots.ctypes.data)
        while not word[1]:
            pass
        gc.collect()
        assert [] == launches and 2 == mapped("/slow.")
        word[0] = 1
        thread.join()
        assert 4 == slots[2] and 0 == mapped("/slow.")

    in_child(stay)


@pytest.mark.usefixtures("cache")
def test_threads_load_call_and_drop_the_same_libraries():
    """Each call computes; none is of a library that another thread has just unloaded."""
    texts = [f"{TWICE}// {n}" for n in range(3)]
    for text in texts:
        small(text)

    def load_and_drop():
        errors = []

        def work(first):
            try:
                for turn in range(150):
                    x = np.ones(1)
                    launch = launch_of(small(texts[(first + turn) % 3]))
                    assert 0 == launch([x]) and [2.0] == x.tolist()
                    del launch
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == errors and 0 == mapped("/twice.")

    in_child(load_and_drop)


@pytest.mark.usefixtures("cache")
def test_threads_call_compiled_functions_that_others_drop_and_compile():
    def work_all():
        functions = [lambda x, k=k: (x * k).sin().sum() for k in range(1, 4)]
        x = al.arange(4.0)
        expected = [f(x).item() for f in functions]
        held, errors = [al.compile(f, backend="cpu") for f in functions], []

        def call(number):
            try:
                for turn in range(25):
                    which = (number + turn) % 3
                    compiled = held[which]
                    held[which] = al.compile(functions[which], backend="cpu")
                    assert expected[which] == pytest.approx(compiled(x).item(), rel=1e-6)
                    del compiled
                    gc.collect(0)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=call, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == errors

    in_child(work_all)


@pytest.mark.usefixtures("cache")
def test_a_forked_child_that_drops_a_library_leaves_it_to_its_parent():
    launches, x = [launch_of(small())], np.ones(1)

    def drop():
        launches.clear()
        assert 0 == mapped("/twice.")

    in_child(drop)
    assert 0 == launches[0]([x]) and [2.0] == x.tolist()


EXIT = """
import sys, threading, time
import numpy as np
from tests.backends.cpu.test_unloading import SLOW, launch_of, small

slots = np.zeros(3, np.int64)
launch = launch_of(small(SLOW, "slow"))
threading.Thread(target=lambda: launch([slots]), daemon=True).start()
while not slots[1]:
    time.sleep(0.001)
del launch
"""


@pytest.mark.usefixtures("cache")
def test_python_exits_while_a_thread_is_in_a_library():
    """Where nothing is unloaded any more, and the system ends the thread."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(EXIT)],
        cwd=os.path.dirname(os.path.dirname(al.__file__)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (0, b"") == (ended.returncode, ended.stderr)


# ------------------------------------------------------------------------------------- once, alive
class Value:
    """Something that can be referred to weakly."""


def test_a_value_that_nobody_has_is_made_again():
    made = OnceAlive[Value]()
    first = made.get("a", Value)
    assert first is made.get("a", lambda: 1 // 0)
    del first
    again = made.get("a", Value)
    assert again is made.get("a", Value) and again is not made.get("b", Value)
    made.forget()
    assert again is not made.get("a", Value)


def test_an_error_is_not_kept_and_no_lock_is_left():
    made = OnceAlive[Value]()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            made.get("a", lambda: 1 // 0)
    with warnings.catch_warnings():
        assert isinstance(made.get("a", Value), Value)
    assert 0 == len(made._making)
