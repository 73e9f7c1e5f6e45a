"""What run-time functions keep alive: nothing; what they leave behind: nothing. And threads."""

from __future__ import annotations

import gc
import linecache
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.arrays import QUIET

WEIGHT = al.ones(3).requires_grad_()


def trains() -> Callable[[], None]:
    compiled = al.compile(lambda x: ((x * WEIGHT).sum(), x * 2))

    def call() -> None:
        compiled(al.ones(3).requires_grad_())[0].backward()

    return call


def writes() -> Callable[[], None]:
    compiled = al.compile(lambda x: (x.add_(1), x[0], x.t_()))

    def call() -> None:
        compiled(al.ones(3, 3))

    return call


@pytest.mark.rules("SAV-1")
@pytest.mark.parametrize("made", [trains, writes])
def test_calls_leave_neither_objects_nor_cycles(made: Any) -> None:
    call = made()
    for _ in range(10):
        call()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(100):
            call()
        assert before == len(gc.get_objects())
        assert 0 == gc.collect()
    finally:
        gc.enable()


@pytest.mark.rules("BOX-2")
@pytest.mark.parametrize("count", [1, 5, 20])
@pytest.mark.parametrize("calls", [1, 5])
def test_entries_keep_no_argument_alive(count: int, calls: int) -> None:
    compiled = al.compile(lambda *xs: [x * 2 for x in xs])
    tensors = [al.ones(3).requires_grad_() for _ in range(count)]
    alive: list[weakref.ref[Any]] = [weakref.ref(tensor) for tensor in tensors]
    alive += [weakref.ref(tensor.storage) for tensor in tensors]
    for _ in range(calls):
        results = compiled(*tensors)
    results[0].sum().backward()
    del tensors, results
    gc.collect()
    assert [None] * 2 * count == [each() for each in alive]


def test_entries_keep_no_module_argument_alive() -> None:
    compiled = al.compile(lambda model, x: model(x).sum())
    model = al.nn.Linear(3, 3)
    alive = [weakref.ref(each) for each in (model, *model.parameters())]
    for _ in range(4):
        compiled(model, al.ones(3)).backward()
    del model
    gc.collect()
    assert [None] * 3 == [each() for each in alive]


@pytest.mark.rules("SAV-1", "BOX-3")
def test_saved_values_go_with_the_backward() -> None:
    """SAV-1."""
    compiled = al.compile(lambda x: (x.exp() * x.exp()).sum())
    x = al.ones(100).requires_grad_()
    for _ in range(4):
        result = compiled(x)
        node: Any = result.grad_fn
        saved = [weakref.ref(value) for value in node.saved if isinstance(value, np.ndarray)]
        assert saved
        result.backward(retain_graph=True)
        assert all(each() is not None for each in saved)
        result.backward()
        assert [None] * len(saved) == [each() for each in saved]


def test_the_source_goes_with_the_function() -> None:
    before = set(linecache.cache)
    compiled = al.compile(lambda x: (x * x).sum())
    compiled(al.ones(2).requires_grad_()).backward()
    mine = set(linecache.cache) - before
    assert 2 == len([name for name in mine if name.startswith("<aotlite ")])
    del compiled
    gc.collect()
    assert not mine & set(linecache.cache)


# ------------------------------------------------------------------------------------- failures
class Stop(BaseException):
    """As Ctrl-C in the middle of a kernel."""


@pytest.mark.rules("RT-10")
def test_an_interrupt_in_a_call_leaves_everything_as_it_was() -> None:
    """RT-10; and the way into a quiet context is put back."""
    calls = []

    def backend(graph: Any) -> Any:
        def run(*arrays: Any) -> Any:
            calls.append(graph)
            raise Stop

        return run

    x = al.ones(3)
    compiled = al.compile(lambda x: (x.add_(1), al.rand(3)), backend=backend)
    state = al.get_rng_state()
    for _ in range(3):
        with pytest.raises(Stop):
            compiled(x)
    assert 3 == len(calls)
    assert ([1.0, 1.0, 1.0], 0, state) == (x.tolist(), x._version, al.get_rng_state())


@pytest.mark.rules("RT-10")
def test_a_call_that_runs_out_of_stack_is_made_whole_or_not_at_all() -> None:
    compiled = al.compile(lambda x: (x * al.rand(2), x.add_(1)))
    for _ in range(4):
        compiled(al.ones(2))
    outcomes = set()

    def call_at(depth: int, x: Any) -> Any:
        return call_at(depth - 1, x) if depth else compiled(x)

    here = len(_frames())
    for left in range(5, 60):
        x, (seed, offset) = al.ones(2), al.get_rng_state()
        try:
            call_at(sys.getrecursionlimit() - here - left, x)
        except RecursionError:
            found = x.tolist(), x._version, al.get_rng_state()
            assert ([1.0, 1.0], 0, (seed, offset)) == found
            outcomes.add("not at all")
        else:
            assert ([2.0, 2.0], 1) == (x.tolist(), x._version)
            assert offset < al.get_rng_state()[1]
            outcomes.add("whole")
    assert {"whole", "not at all"} == outcomes
    assert [2.0, 2.0] == compiled(al.ones(2))[1].tolist()


def _frames() -> list[Any]:
    frames, frame = [], sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


def test_a_compiled_function_may_run_in_another_ones_kernel() -> None:
    """NumPy's context that is entered cannot be entered again: the inner call takes another."""
    inner = al.compile(lambda x: x / 0)

    def backend(graph: Any) -> Any:
        def run(*arrays: Any) -> Any:
            inner(al.ones(2))
            return [array * 2 for array in arrays]

        return run

    outer = al.compile(lambda x: x * 2, backend=backend)
    for _ in range(4):
        assert [2.0, 2.0] == outer(al.ones(2)).tolist()


# -------------------------------------------------------------------------------------- threads
@pytest.mark.parametrize(("dynamic", "counts"), [(False, (6,)), (None, (3, 4))])
def test_threads_may_call_one_function_at_once(
    dynamic: bool | None, counts: tuple[int, ...]
) -> None:
    """Also its first time, also with tensors that they share; each gets what it asked for."""
    shared = [al.ones(4) for _ in range(4)]

    def arguments(i: int) -> list[Any]:
        if i % 5 == 0:
            return shared
        made = [al.full((4 + i % 3,), float(i)) for _ in range(4)]
        return [each.requires_grad_() for each in made] if i % 2 else made

    compiled = al.compile(lambda a, b, c, d: ((a * b + c).sum() * d).sum(), dynamic=dynamic)
    found: list[list[Any]] = [[] for _ in range(5)]

    def work(results: list[Any]) -> None:
        for i in range(30):
            given = arguments(i)
            result = compiled(*given)
            if result.requires_grad:
                result.backward()
            grads = [tensor.grad.tolist() for tensor in given if tensor.grad is not None]
            results.append((result.item(), grads))

    _run_at_once([lambda each=each: work(each) for each in found])  # type: ignore[misc]
    assert 30 == len(found[0])
    assert [found[0]] * 5 == found
    assert len(compiled.entries) in counts
    assert len(QUIET) >= 1


def test_no_two_draws_of_threads_are_the_same() -> None:
    compiled = al.compile(lambda x: x + al.rand(4))
    found: list[Any] = []

    def work() -> None:
        for _ in range(50):
            found.append(tuple(compiled(al.zeros(4)).tolist()))

    _run_at_once([work] * 4)
    assert 200 == len(set(found))


def _run_at_once(works: list[Callable[[], None]]) -> None:
    """Runs each in a thread that is switched as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
