"""The protocol of backends: `compile(graph)` turns a pure graph into a `Run`, or into a function.

aotlite's backends give a `Run` (`calling_convention`). A user's may give a function on windows. A
window is (buffer, start): memory of a storage, and the element of it at which a value starts.
Shape, strides and dtype are those of the node's meta. For a graph (x) -> (x[1], None):

    function([(buffer, 0)]) == [(buffer, 3), None]        # x of shape (2, 3)

The function takes a window for each input as one list, which it may empty (BOX-1). It returns a
window for each output in order, and None for an output that is None. `WindowRun` calls it. Spec:
`specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from aotlite.backends.calling_convention import (
    Run,
    Value,
    Window,
    array_of,
    travels_as_array,
    window_of,
)
from aotlite.ir.errors import BackendError
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import MutatedInput, Saved
from aotlite.ir.meta import TensorMeta, tensor_meta

WindowFunction = Callable[[list[Window]], list[Window | None]]


@runtime_checkable
class Backend(Protocol):
    """Compiles pure graphs. The results of a backend with `trusted = True` are not checked
    (LOW-6): the check costs time at each call, and aotlite's own backends are tested instead."""

    name: str

    def compile(self, graph: Graph) -> Run | WindowFunction:
        """Returns a `Run` or a function on windows that computes the graph.

        It writes no input except by the `copy_` calls that close the graph, and keeps no
        reference to a buffer when it has returned.
        """


class SizedRun(Protocol):
    """What a graph with symbolic sizes is compiled to, once for all sizes.

    A backend that makes them has a method `compile_sized(graph, refused)`: it returns a `SizedRun`,
    or None after it has called `refused` with the reason. Spec: `specs/sized_kernels.md`.
    """

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for the sizes that the symbols have, by name. It compiles at most where
        an order of sizes differs from that of all sizes before."""


class WindowRun(Run):
    """A user's function on windows as a `Run`. It gets a window for each input, read or not.

    Unless the backend is trusted, the results are checked: their number, and that each is a window
    (LOW-6). Without it a mistake would surface as an error far inside stage 10.
    """

    runs_user_code = True

    def __init__(
        self, name: str, graph: Graph, function: WindowFunction, *, trusted: bool = False
    ) -> None:
        super().__init__(graph)
        self.name = name
        self.reads = [True] * len(graph.placeholders)
        self.output_strides = getattr(function, "output_strides", None)
        self._function = function
        self._trusted = trusted

    def call(self, values: list[Value]) -> list[Value]:
        """Calls the function with the values as windows."""
        windows = [window_of(value) for value in values]
        values.clear()
        results = self._function(windows) if self._trusted else self._checked(windows)
        return [
            window if meta is None else array_of(window, meta)
            for window, meta in zip(results, self._arrays, strict=True)
        ]

    @cached_property
    def _arrays(self) -> list[Any]:
        """For each output its meta if it is returned as an array, else None. Saved values have the
        strides that the function reports (SAV-6)."""
        reported: Sequence[object] = self.output_strides or [None] * len(self.graph.outputs)
        return [
            _relaid(value, strides) if isinstance(role, (Saved, MutatedInput)) else None
            for role, value, strides in zip(
                self.graph.output_roles, self.graph.outputs, reported, strict=True
            )
        ]

    def _checked(self, windows: list[Window]) -> Sequence[Window | None]:
        """Returns the function's results, checked."""
        graph, outputs = self.graph, self.graph.outputs
        try:
            results = self._function(windows)
        except Exception as error:
            error.add_note(ran(self.name, graph))
            raise
        expected = f"a list of {len(outputs)} results"
        if not isinstance(results, (list, tuple)) or len(results) != len(outputs):
            got = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
            raise BackendError(
                f"backend: {self.name!r} returned {got} for graph {graph.name}, expected {expected}"
            )
        for index, (result, value) in enumerate(zip(results, outputs, strict=True)):
            none = type(value) is not Node
            if none is not (result is None) or not (none or _is_window(result)):
                raise BackendError(
                    f"backend: {self.name!r} returned {type(result).__name__} as result {index} of "
                    f"graph {graph.name}, expected {'None' if none else '(buffer, start)'}"
                )
        return results


def as_run(name: str, graph: Graph, made: Run | WindowFunction, *, trusted: bool) -> Run:
    """Returns what a backend has made of a graph as a `Run`."""
    return made if isinstance(made, Run) else WindowRun(name, graph, made, trusted=trusted)


def _relaid(value: object, strides: Any) -> TensorMeta | None:
    """Returns the meta of an output in these strides if it travels as an array, else None."""
    if type(value) is not Node:
        return None
    meta: Any = value.meta
    if strides is not None and tuple(strides) != meta.stride:
        meta = tensor_meta(meta.shape, tuple(strides), meta.dtype, meta.device)
    return meta if travels_as_array(meta) else None


def _is_window(value: object) -> bool:
    return type(value) is tuple and len(value) == 2 and type(value[1]) is int and value[1] >= 0


def ran(name: str, graph: Graph) -> str:
    """Returns the note for an error of compiled code: it names the backend and the graph."""
    return f"raised by what {name!r} made of graph {graph.name}"


__all__ = [
    "Backend",
    "Run",
    "SizedRun",
    "Value",
    "Window",
    "WindowFunction",
    "WindowRun",
    "as_run",
    "ran",
]
