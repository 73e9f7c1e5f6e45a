"""What a backend is: something that turns a pure graph into a callable on windows.

A window is (buffer, start): a storage's buffer and the element at which a value starts in it; its
shape, strides and dtype are those of the node's meta. Inputs come as one list that the callable may
empty (BOX-1); it returns the outputs' windows in order, None where the graph returns None.
Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph, Node

Window = tuple[Any, int]
Run = Callable[[list[Window]], list[Window | None]]


@runtime_checkable
class Backend(Protocol):
    """Compiles pure graphs. One with a true attribute `trusted` vouches for its results: they are
    not looked at (LOW-6)."""

    name: str

    def compile(self, graph: Graph) -> Run:
        """A callable that computes the graph.

        It never writes its inputs, except for the copies that close the graph, and may keep
        nothing.
        """


def checked_run(name: str, graph: Graph, run: Run) -> Run:
    """`run` with its results looked at: their number, and that each is a window (LOW-6)."""
    absent = [type(value) is not Node for value in graph.outputs]

    def call(windows: list[Window]) -> list[Window | None]:
        try:
            results = run(windows)
        except Exception as error:
            error.add_note(ran(name, graph))
            raise
        expected = f"a list of {len(absent)} results"
        if not isinstance(results, (list, tuple)) or len(results) != len(absent):
            got = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
            raise BackendError(
                f"backend: {name!r} returned {got} for graph {graph.name}, expected {expected}"
            )
        for index, (result, none) in enumerate(zip(results, absent, strict=True)):
            if none is not (result is None) or not (none or _is_window(result)):
                raise BackendError(
                    f"backend: {name!r} returned {type(result).__name__} as result {index} of "
                    f"graph {graph.name}, expected {'None' if none else '(buffer, start)'}"
                )
        return list(results)

    return call


def _is_window(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and type(value[1]) is int and value[1] >= 0


def ran(name: str, graph: Graph) -> str:
    """The note on an error that compiled code raised."""
    return f"raised by what {name!r} made of graph {graph.name}"
