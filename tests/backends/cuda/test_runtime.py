"""Compiled functions on a CUDA device that is this process: memory, launches, results, errors."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver import nvrtc
from aotlite.ir.errors import BackendError
from tests.backends.cuda.helpers.devices import Relabeled, device, moved, plain, results

F = al.nn.functional
EXACT = CudaBackend(contract=False)
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler is here")


def gelu(x: Any, w: Any) -> Any:
    return F.gelu(x * w[0] + w[1]) + x


def rows(x: Any, w: Any) -> Any:
    return (F.layer_norm(x, (6,)) @ w.t()).softmax(-1)


def sorted_between(x: Any, w: Any) -> Any:
    """An op without loops between two kernels."""
    return (x * 2).sort(-1)[0].exp() * w.sum(0)


def written(x: Any, w: Any) -> Any:
    y = x * 1.0
    y[1:].mul_(w[0])
    return y.t().roll(2, 0), y[0]


def of_half(x: Any, w: Any) -> Any:
    return (x.to(al.float16) @ w.to(al.float16).t()).to(al.bfloat16) + 1.0


def batched(x: Any, w: Any) -> Any:
    return (x[None, :, None, :] * w[:, None, None, :]).transpose(1, 2) @ x.t()


FUNCTIONS = (gelu, rows, sorted_between, written, of_half, batched)


def made(to: Any = None) -> tuple[Any, Any]:
    al.manual_seed(3)
    tensors = [al.randn(n, 6).requires_grad_(True) for n in (5, 4)]
    return tuple(tensors if to is None else [moved(each, to) for each in tensors])  # type: ignore[return-value]


def results_of(run: Callable[..., Any], given: Any) -> list[np.ndarray]:
    """The results, and the gradients of their sum of squares."""
    found = run(*given)
    found = found if isinstance(found, tuple) else (found,)
    squares = [(result.float() * result.float()).sum() for result in found]
    loss = squares[0] if len(squares) == 1 else squares[0] + squares[1]
    return results((*found, *al.autograd.grad(loss, given)))


def check(function: Callable[..., Any], on: Any) -> None:
    mine = results_of(al.compile(function, backend=EXACT), made(on))
    its = results_of(al.compile(function, backend="loops"), made())
    for a, b in zip(mine, its, strict=True):
        assert a.strides == b.strides
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_compiled_function_computes_what_the_interpreter_does(function: Any) -> None:
    """The launches, the arena and the addresses; work is divided for another machine."""
    check(function, plain())


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", range(3))
def test_printed_kernels_run_checked_in_every_order_of_threads(function: Any, order: int) -> None:
    """Each access is checked: bounds, races, alignment."""
    on = device(interprets=False, order=order, checked=True)
    check(function, on)


@needs_compiler
def test_the_printed_kernels_themselves_run_through_the_same_launches() -> None:
    """Two compilations, a second."""
    on = device(interprets=False)
    check(rows, on)
    assert on.arrays.driver.launches > 0


def test_an_input_is_written_in_its_place() -> None:
    def add(x: Any) -> Any:
        x.mul_(2.0)
        return x.sum()

    x = moved(al.ones(4, 3), plain())
    memory = x.storage.buffer
    total = al.compile(add, backend="cuda")(x)
    assert results([total])[0] == 24.0
    assert memory.view(np.float32).tolist() == [2.0] * 12
    assert x._version == 1


def test_windows_of_a_storage_are_read_where_they_start() -> None:
    whole = moved(al.arange(12.0), plain())
    tail = whole[5:9]
    assert results(al.compile(lambda x: x + 1.0, backend="cuda")(tail))[0].tolist() == [6, 7, 8, 9]


def test_a_call_does_not_wait_for_the_device() -> None:
    on = device()
    run = al.compile(rows, backend="cuda")
    run(*made(on))
    assert on.arrays.driver.waits == 0


def test_checks_are_read_at_once_and_the_ops_error_is_raised() -> None:
    on = device()

    def pick(x: Any, i: Any, j: Any) -> Any:
        return x[i] + x.index_select(0, j)

    run = al.compile(pick, backend="cuda")
    x, i = moved(al.arange(4.0), on), moved(al.tensor([3, 0]), on)
    driver = on.arrays.driver
    before = driver.waits
    assert results(run(x, i, i))[0].tolist() == [6.0, 0.0]
    assert driver.waits == before + 1
    with pytest.raises(al.IndexOutOfRangeError, match="an index is 4"):
        run(x, i, moved(al.tensor([0, 4]), on))


def test_nothing_is_written_where_a_check_refuses() -> None:
    on = plain()

    def put(x: Any, i: Any) -> Any:
        x.mul_(3.0)
        return x[i]

    x = moved(al.ones(3), on)
    with pytest.raises(al.IndexOutOfRangeError):
        al.compile(put, backend="cuda")(x, moved(al.tensor([7]), on))
    assert results([x])[0].tolist() == [1.0, 1.0, 1.0]


def test_draws_are_those_of_the_cpu_and_go_on_alike() -> None:
    on = plain()

    def noisy(x: Any) -> Any:
        return x + al.rand(4, device=x.device)

    mine, its = al.compile(noisy, backend="cuda"), al.compile(noisy, backend="reference")
    al.manual_seed(5)
    first = [results(mine(moved(al.zeros(4), on)))[0] for _ in range(2)]
    al.manual_seed(5)
    second = [results(its(al.zeros(4)))[0] for _ in range(2)]
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()


def test_a_graph_without_values_on_a_device_is_refused() -> None:
    with pytest.raises(BackendError, match="has no value on a CUDA device, expected one"):
        al.compile(lambda x: x + 1.0, backend="cuda")(al.ones(2))


def test_two_devices_in_a_graph_are_refused() -> None:
    a, b = device(name="plain:1"), device(name="plain:2")
    with pytest.raises(BackendError, match="has values on plain:1 and plain:2, expected one"):
        al.compile(lambda x, y: (x + 1.0, y + 1.0), backend="cuda")(
            moved(al.ones(2), a), moved(al.ones(2), b)
        )


def test_two_devices_in_a_graph_run_op_by_op_under_auto() -> None:
    a, b = device(), device(name="plain:1")
    run = al.compile(lambda x, y: (x + 3.0, y * 7.0), backend="auto")
    with pytest.warns(RuntimeWarning, match="expected one device; graph .* runs op by op"):
        found = run(moved(al.ones(2), a), moved(al.ones(2), b))
    assert [[4.0, 4.0], [7.0, 7.0]] == [each.tolist() for each in results(found)]
    assert [a, b] == [each.device for each in found]


def test_auto_compiles_for_the_device_of_the_values() -> None:
    on = device()
    run = al.compile(rows, backend="auto")
    run(*made(on))
    assert on.arrays.driver.launches > 0


def test_the_backend_cpu_refuses_values_of_a_device() -> None:
    with pytest.raises(BackendError, match="has values on other devices, expected cpu alone"):
        al.compile(lambda x: x + 1.0, backend="cpu")(moved(al.ones(2), plain()))


def test_a_kernel_that_does_not_compile_falls_back_under_auto_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = device()

    def broken(*given: Any) -> Any:
        raise BackendError("cuda: NVRTC gives NVRTC_ERROR_COMPILATION, expected a text")

    monkeypatch.setattr(on.arrays.driver, "module", broken)
    x = moved(al.ones(2), on)
    with pytest.raises(BackendError, match="NVRTC_ERROR_COMPILATION"):
        al.compile(lambda x: x * 5.0, backend="cuda")(x)
    with pytest.warns(RuntimeWarning, match="runs op by op, as with backend='reference'"):
        found = al.compile(lambda x: x * 5.0, backend="auto")(x)
    assert results(found)[0].tolist() == [5.0, 5.0]


def test_what_was_compiled_is_shown_to_observers() -> None:
    seen: dict[str, Any] = {}
    al.compile(rows, backend="cuda", observer=seen.__setitem__)(*made(plain()))
    kernels = seen["9 lower, forward_kernels"]
    assert "__global__" in kernels.text
    assert set(kernels.seconds) == {"lowering", "fusing", "printing", "compiling"}
    assert kernels.program.steps
    assert re.search(r"\d launches, 1 other steps, 0 waits, \d+ bytes of temporaries", str(kernels))
    assert re.search(r"kernel_0: \d+ blocks of \d+ threads", str(kernels))
    if nvrtc.is_installed():
        found = kernels.resources()
        assert found.keys() == {launch.name for launch in kernels.plan.printed.launches}


def test_an_error_keeps_no_memory_of_the_call() -> None:
    """Its trace holds the frame of the call, whose variables are let go."""
    on = device()
    run = al.compile(lambda x: (x.sort()[0] * 2.0).sort()[0], backend="cuda")
    x = moved(al.ones(8), on)
    run(x)
    allocate, given = on.arrays.allocate, list[Any]()

    def limited(size: int, dtype: Any) -> Any:
        if len(given) == 1:
            raise MemoryError("no room")
        given.append(allocate(size, dtype))
        return given[-1]

    on.arrays.allocate = limited
    fresh = al.compile(lambda x: (x.sort()[0] * 2.0).sort()[0] + 1.0, backend="cuda")
    with pytest.raises(MemoryError) as caught:
        fresh(x)
    frames = [frame for frame in _frames(caught.value) if frame.f_code.co_name == "run"]
    assert frames
    kept = [value for frame in frames for value in frame.f_locals.values()]
    assert not any(isinstance(value, np.ndarray) for value in kept)


def _frames(error: BaseException) -> list[Any]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def test_threads_that_call_at_the_same_time_have_tables_of_their_own() -> None:
    on = plain()
    run = al.compile(lambda x: (x * 2.0).softmax(-1).sum(0) + x, backend="cuda")
    given = [moved(al.randn(4, 4), on) for _ in range(8)]
    wanted = [results(run(x))[0] for x in given]
    wrong: list[int] = []

    def calling(number: int) -> None:
        for k in range(30):
            at = (number + k) % len(given)
            if not (results(run(given[at]))[0] == wanted[at]).all():
                wrong.append(at)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=calling, args=(number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_graphs_of_the_cpu_run_relabeled() -> None:
    """What the random programs are run with: the same memory, seen as a device's."""
    run = al.compile(written, backend=Relabeled(plain()))
    for mine, its in zip(run(*made()), written(*made()), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), its.detach().numpy())


def test_what_the_generator_gives_is_not_waited_for() -> None:
    on = device()
    run = al.compile(lambda x: F.dropout(x, 0.5), backend="cuda")
    run(moved(al.ones(8), on))
    assert on.arrays.driver.waits == 0


def test_values_of_the_host_are_refused_before_anything_is_launched() -> None:
    """A generator's place that no generator has, as an argument of the user's."""
    on = device()

    def drawn(x: Any, seed: Any, offset: Any) -> Any:
        return x + al.ops.uniform(seed, offset, 0, (4,), device=on)

    run, x = al.compile(drawn, backend="cuda"), moved(al.zeros(4), on)
    seed = al.tensor(7, dtype=al.uint64)
    places = [al.tensor(n, dtype=al.uint64) for n in (8, 9)]
    expected = al.ops.uniform(seed, places[0], 0, (4,)).numpy()
    np.testing.assert_array_equal(results(run(x, seed, places[0]))[0], expected)
    before = on.arrays.driver.launches
    with pytest.raises(al.RngError):
        run(x, seed, places[1])
    assert on.arrays.driver.launches == before
    assert on.arrays.driver.waits == 0
