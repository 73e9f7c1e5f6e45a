"""LOW-9: compiled graphs are called with values, and functions of users through adapters.

A user's backend gives a function on windows, or a compiler one on arrays. Either may be beside one
of aotlite's: forward and backward of different kinds pass each other their saved values.
"""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.calling_convention import Run, as_value, window_of
from aotlite.backends.cpu.backend import CPU
from aotlite.backends.loops.backend import LOOPS
from aotlite.backends.reference import REFERENCE
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import ArrayValue, Interpreter


class OnWindows:
    """A user's backend, written for windows alone: it interprets the graph."""

    name = "on windows"

    def __init__(self) -> None:
        self.given: list[int] = []

    def compile(self, graph: Graph) -> Any:
        def function(windows: list[Any]) -> list[Any]:
            self.given.append(len(windows))
            assert len(windows) == len(graph.placeholders)
            assert all(buffer is not None for buffer, _ in windows)
            values = [
                ArrayValue(buffer, node.meta, start)  # type: ignore[arg-type]
                for (buffer, start), node in zip(windows, graph.placeholders, strict=True)
            ]
            windows.clear()
            found: Any = Values(graph).run(*values)
            return [None if value is None else (value.buffer, value.start) for value in found]

        return function


class Values(Interpreter):
    def output(self, target: Any, args: tuple[Any, ...]) -> Any:
        return list(args[0])


def on_arrays(graph: Graph) -> Callable[..., Any]:
    """A user's compiler, which gives a function of arrays."""
    inner = al.compilers.nop(graph, [])

    def function(*arrays: Any) -> Any:
        assert len(arrays) == len(graph.placeholders)
        assert all(array is not None for array in arrays)
        return inner(*arrays)

    return function


KINDS: dict[str, Callable[[], Any]] = {
    "windows": OnWindows,
    "arrays": lambda: on_arrays,
    "reference": lambda: "reference",
    "loops": lambda: "loops",
}


def program(x: Any, y: Any, unused: Any) -> Any:
    """Contiguous and strided inputs, one that is not read, a write, a view, and saved values."""
    y.mul_(2.0)
    z = (x.t().exp() * y.t()).sin()
    return z, z[1:], (x * 3.0).cos().sum()


@pytest.mark.rules("LOW-9")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("forward, backward", [*itertools.product(KINDS, KINDS)])
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_halves_of_different_kinds_pass_each_other_their_values(
    forward: str, backward: str, partition: str
) -> None:
    compiled = al.aot_function(
        program, KINDS[forward](), bw_compiler=KINDS[backward](), partition_fn=partition
    )
    found = []
    for function in (program, *[compiled] * 4):
        x = al.linspace(-1, 1, 6).view(2, 3).clone().requires_grad_()
        y = al.linspace(0, 1, 12).view(2, 6)[:, ::2]
        results = function(x, y, al.ones(2))
        loss = results[0].sum() + results[2]
        loss.backward()
        found.append([each.tolist() for each in (*results, x.grad, y)])
    for each in found[1:]:
        for expected, value in zip(found[0], each, strict=True):
            np.testing.assert_allclose(np.array(value), np.array(expected), rtol=1e-5, atol=1e-6)


def two(x: Any) -> Any:
    return (x * 2.0).sin(), x.exp().sin()


@pytest.mark.rules("LOW-9")
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_backward_finds_the_values_that_the_first_left(kind: str) -> None:
    """One result's gradient arrives first, the other's later: a user's function gets all inputs."""
    compiled = al.compile(two, backend=KINDS[kind]())
    found = []
    for function in (two, compiled):
        x: Any = al.ones(3).requires_grad_()
        a, b = function(x)
        a.sum().backward()
        b.sum().backward()
        found.append(x.grad.tolist())
    np.testing.assert_allclose(np.array(found[1]), np.array(found[0]), rtol=1e-6)


FLAG: contextvars.ContextVar[str] = contextvars.ContextVar("FLAG", default="none")


@pytest.mark.rules("LOW-9")
@pytest.mark.parametrize("windows", [True, False])
def test_a_users_function_runs_in_the_callers_context(windows: bool) -> None:
    """Its context variables are the caller's, and so is what NumPy does about division by 0."""
    seen: list[tuple[str, str, bool]] = []

    def note() -> None:
        seen.append((FLAG.get(), np.geterr()["divide"], al.is_grad_enabled()))

    def compiler(graph: Graph) -> Any:
        inner = al.compilers.nop(graph, [])

        def function(*arrays: Any) -> Any:
            note()
            return inner(*arrays)

        return function

    class Noting(OnWindows):
        def compile(self, graph: Graph) -> Any:
            inner = super().compile(graph)

            def function(windows: list[Any]) -> Any:
                note()
                return inner(windows)

            return function

    compiled = al.compile(lambda x: x * 2.0, backend=Noting() if windows else compiler)
    token = FLAG.set("mine")
    try:
        with np.errstate(divide="raise"):
            compiled(al.ones(2))
    finally:
        FLAG.reset(token)
    assert [("mine", "raise", False)] == seen


@pytest.mark.rules("LOW-5", "LOW-9")
def test_an_argument_can_be_written_after_a_function_of_arrays_had_it() -> None:
    """The function may not write it; the caller may."""

    def compiler(graph: Graph) -> Any:
        def function(array: Any) -> Any:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
            return [array * 2]

        return function

    x = al.ones(3)
    array = x.numpy()
    assert [2.0, 2.0, 2.0] == al.compile(lambda x: x * 2.0, backend=compiler)(x).tolist()
    x.add_(1.0)
    array[0] = 5.0
    assert [5.0, 2.0, 2.0] == x.tolist()


def graph_of_windows() -> Graph:
    build = Builder()
    x, _, y = [build.placeholder(each.meta) for each in (al.ones(2, 3), al.ones(4), al.ones(3).t())]
    z = build.placeholder(al.ones(4, 3)[:, ::2].meta)
    return build.finish([build.call(OPS["add"], (x, y)), build.call(OPS["mul"], (z, z)), x])


@pytest.mark.rules("LOW-9")
@pytest.mark.parametrize("backend", [REFERENCE, LOOPS, CPU], ids=lambda each: each.name)
def test_a_run_that_is_called_itself_takes_and_returns_windows(backend: Any) -> None:
    """Of all inputs; `call` takes the values of those that are read."""
    graph = graph_of_windows()
    run: Run = backend.compile(graph)
    assert [True, False, True, True] == run.reads

    def windows() -> list[Any]:
        metas: list[Any] = [node.meta for node in graph.placeholders]
        return [(np.arange(meta.span + 2, dtype=np.float32), 2) for meta in metas]

    def arrays(found: list[Any]) -> list[Any]:
        metas: list[Any] = [value.meta for value in graph.outputs]
        both = zip(found, metas, strict=True)
        return [ArrayValue(w[0], meta, w[1]).array.tolist() for w, meta in both]

    given = windows()
    by_windows = arrays(run(given))
    assert [] == given
    pairs = zip(windows(), graph.placeholders, run.reads, strict=True)
    values = [as_value(window, node.meta) for window, node, read in pairs if read]
    assert [np.ndarray, np.ndarray, tuple] == [type(value) for value in values]
    by_values = run.call(values)
    assert [] == values
    assert by_windows == arrays([window_of(value) for value in by_values])
