"""What a backend is: something that turns a pure graph into a callable on windows.

A window is (buffer, start): a storage's buffer and the element at which a value starts in it; its
shape, strides and dtype are those of the node's meta. Inputs come as one list that the callable may
empty (BOX-1); it returns the outputs' windows in order, None where the graph returns None.
Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from aotlite.ir.arrays import copied
from aotlite.ir.errors import ArgumentError, BackendError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta

Window = tuple[Any, int]
Run = Callable[[list[Window]], list[Window | None]]


@runtime_checkable
class Backend(Protocol):
    """Compiles pure graphs."""

    name: str

    def compile(self, graph: Graph) -> Run:
        """A callable that computes the graph. It never writes its inputs, and may keep nothing."""


class ArrayFunctionBackend:
    """A backend from a function `graph -> (arrays -> arrays)`: the short way to write one.

    Inputs are arrays of the device's library with the metas' strides; results may have any strides.
    """

    def __init__(self, compile_graph: Callable[[Graph], Callable[..., Any]], name: str) -> None:
        self.name = name
        self._compile = compile_graph

    def compile(self, graph: Graph) -> Run:
        function = self._compile(graph)
        if not callable(function):
            raise BackendError(
                f"backend: {self.name!r} gave {function!r} for graph {graph.name}, expected a "
                "function of arrays"
            )
        ins = [node.meta for node in graph.placeholders]
        outs: list[Any] = [v.meta if isinstance(v, Node) else None for v in graph.outputs]

        def run(windows: list[Window]) -> list[Window | None]:
            arrays = [_array(meta, window) for meta, window in zip(ins, windows, strict=True)]
            windows.clear()
            results = function(*arrays)
            self._check(graph, outs, results)
            return [
                None if meta is None else (_adopted(meta, result, results[:i]), 0)
                for i, (meta, result) in enumerate(zip(outs, results, strict=True))
            ]

        return run


    def _check(self, graph: Graph, metas: list[Any], results: Any) -> None:
        """Raises BackendError for results of another number or shape than the graph's."""
        if not isinstance(results, (list, tuple)) or len(results) != len(metas):
            count = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
            raise BackendError(
                f"backend: {self.name!r} returned {count} for graph {graph.name}, expected a list "
                f"or tuple of {len(metas)} results"
            )
        for index, (meta, result) in enumerate(zip(metas, results, strict=True)):
            shape = tuple(getattr(result, "shape", ()))
            if meta is not None and shape != meta.shape:
                raise BackendError(
                    f"backend: {self.name!r} returned shape {shape} as result {index} of graph "
                    f"{graph.name}, expected {meta.shape}"
                )


def _adopted(meta: TensorMeta, result: Any, earlier: Sequence[Any]) -> Any:
    """A buffer of its own for a result, which the function may have returned before."""
    arrays = meta.device.arrays
    if any(result is other for other in earlier):
        return copied(arrays, result, meta)
    return arrays.adopt(result, meta)


def _array(meta: Any, window: Window) -> Any:
    buffer, start = window
    assert isinstance(meta, TensorMeta)
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)


def backend_from(given: Any) -> Backend:
    """The backend of a name, a backend, or a function `graph -> (arrays -> arrays)`."""
    if given == "reference":
        from aotlite.backends.reference import REFERENCE

        return REFERENCE
    if isinstance(given, str):
        raise ArgumentError(
            f"compile: backend is {given!r}, expected 'reference', a Backend or a function"
        )
    if isinstance(given, Backend):
        return given
    if callable(given):
        return ArrayFunctionBackend(given, getattr(given, "__name__", "function"))
    raise ArgumentError(f"compile: backend is {given!r}, expected a name, a Backend or a function")
