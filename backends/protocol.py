"""The protocol of backends: `compile(graph)` turns a pure graph into a callable on windows.

A window is (buffer, start): the buffer of a storage, and the element of it at which a value starts.
Shape, strides and dtype are those of the node's meta. For a graph (x) -> (x[1], None):

    run([(buffer, 0)]) == [(buffer, 3), None]        # x of shape (2, 3)

The callable takes its inputs as one list, which it may empty (BOX-1). It returns a window for each
output in order, and None for an output that is None. Spec: `specs/s9_lower.md`.
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
    """Compiles pure graphs. The results of a backend with `trusted = True` are not checked
    (LOW-6): the check costs time at each call, and aotlite's own backends are tested instead."""

    name: str

    def compile(self, graph: Graph) -> Run:
        """Returns a callable that computes the graph.

        The callable writes no input except by the `copy_` calls that close the graph, and keeps no
        reference to a buffer when it has returned.
        """


def checked_run(name: str, graph: Graph, run: Run) -> Run:
    """Returns `run` with a check of its results: their number, and that each is a window (LOW-6).

    Without it the mistake of a user's backend would surface as an error far inside stage 10.
    """
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
    """Returns the note for an error of compiled code: it names the backend and the graph."""
    return f"raised by what {name!r} made of graph {graph.name}"
