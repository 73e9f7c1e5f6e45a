"""Backends in the short form: a function from a graph to a function from arrays to arrays.

`ArrayFunctionBackend` makes a backend of such a function; `GraphFunction` is a lowered graph as a
function of arrays, for those who build theirs on another. Spec: `specs/s9_lower.md`. Rules: BOX-1,
LOW-5 to LOW-8.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotlite.backends.protocol import Run, Window, ran
from aotlite.backends.reference import REFERENCE
from aotlite.ir.arrays import copied
from aotlite.ir.errors import ArgumentError, BackendError, UnsupportedError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.effect_chains import same_effects
from aotlite.ir.graph.role import Role
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import InplaceOp, Op
from aotlite.ir.op.operand import Operand


class ExampleInput(Operand):
    """What a compiler learns of an input of its graph: all but the data (LOW-7).

    Shape, strides, dtype and device are asked as of a tensor. `role` says why it exists; `static`,
    that it is a parameter or buffer, the same memory call after call; `donated`, that it is a saved
    value which nobody else has, so that a backward that retains nothing could overwrite it (SAV-4).
    """

    __slots__ = ("donated", "meta", "role", "static")

    def __init__(
        self, meta: TensorMeta, role: Role, *, static: bool, donated: bool = False
    ) -> None:
        self.meta = meta
        self.role = role
        self.static = static
        self.donated = donated

    def _apply(self, op: Op, args: tuple[Any, ...]) -> Any:
        raise UnsupportedError(
            f"{op.name}: the operand is the example input {self.role}, which has no data, expected "
            "a tensor; compilers learn shapes, strides, dtypes and devices"
        )

    def __repr__(self) -> str:
        marks = ", static" * self.static + ", donated" * self.donated
        return f"ExampleInput({self.role}: {self.meta}{marks})"


class ArrayFunctionBackend:
    """A backend from a function of a graph, or of a graph and its example inputs.

    What the function gives is called with the arrays of the graph's inputs, which have the metas'
    strides, or with one list of them if it says `_boxed_call = True`; its results may have any
    strides. It may also give a `Graph`, which the reference backend then runs.
    """

    trusted = True

    def __init__(
        self,
        compile_graph: Callable[..., Any],
        option: str = "backend",
        static: frozenset[Role] = frozenset(),
        donated: frozenset[Role] = frozenset(),
    ) -> None:
        self.name = getattr(compile_graph, "__name__", "function")
        self.static = static
        """The roles of inputs that are the same memory call after call."""
        self.donated = donated
        """The roles of saved values that nobody else has."""
        self._option = option
        self._function = compile_graph
        self._takes_inputs = _takes_inputs(compile_graph, option)

    def told(self, static: frozenset[Role], donated: frozenset[Role]) -> ArrayFunctionBackend:
        """The same, told which inputs are static, and which saved values nobody else has."""
        return ArrayFunctionBackend(self._function, self._option, static, donated)

    def compile(self, graph: Graph) -> Run:
        function = self._function(graph, *([self._examples(graph)] if self._takes_inputs else []))
        if isinstance(function, Graph):
            _check_same(self.name, graph, function)
            return graph_function(function).run
        if isinstance(function, GraphFunction):
            _check_same(self.name, graph, function.graph)
            return function.run
        if not callable(function):
            raise BackendError(
                f"backend: {self.name!r} gave {function!r} for graph {graph.name}, expected a "
                "function of arrays"
            )
        return _ArrayRun(self.name, graph, function)

    def _examples(self, graph: Graph) -> list[ExampleInput]:
        return [
            ExampleInput(
                node.meta,  # type: ignore[arg-type]
                node.role,  # type: ignore[arg-type]
                static=node.role in self.static,
                donated=node.role in self.donated,
            )
            for node in graph.placeholders
        ]


def _takes_inputs(function: Callable[..., Any], option: str) -> bool:
    """Whether a compiler requires the example inputs too. Raises ArgumentError for a third."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.default is p.empty and p.kind in positional]
    named = [p for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    takes_any = any(p.kind is p.VAR_POSITIONAL or p.kind in positional for p in parameters)
    if len(required) > 2 or named or not takes_any:
        raise ArgumentError(
            f"compile: {option} {getattr(function, '__name__', function)!r} requires "
            f"{len(required) + len(named)} arguments, expected a graph, or a graph and its example "
            "inputs"
        )
    return len(required) == 2


# ------------------------------------------------------------------------------ graphs as functions
class GraphFunction:
    """A lowered graph as a function from a list of arrays, which it empties, to a list of arrays.

    Arrays may have any strides. Used as it is by `ArrayFunctionBackend`, without a detour.
    """

    _boxed_call = True

    def __init__(self, graph: Graph, run: Run) -> None:
        self.graph = graph
        self.run = run

    def _metas(self) -> list[Any]:
        return [node.meta for node in self.graph.placeholders]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results for these arrays, one by one or as one list, which is emptied.

        Inputs that the graph writes are written.
        """
        boxed = len(arrays) == 1 and type(arrays[0]) is list
        given, metas = list(arrays[0] if boxed else arrays), self._metas()
        if boxed:
            arrays[0].clear()
        if len(given) != len(metas):
            raise ArgumentError(
                f"graph {self.graph.name}: it is given {len(given)} arrays, expected {len(metas)}"
            )
        buffers = [
            copied(meta.device.arrays, array, meta)
            for meta, array in zip(metas, given, strict=True)
        ]
        results = self.run([(buffer, 0) for buffer in buffers])
        written = {n.args[0] for n in self.graph.calls if isinstance(n.target, InplaceOp)}
        for node, array, buffer in zip(self.graph.placeholders, given, buffers, strict=True):
            if node in written:
                node.meta.device.arrays.copy(array, _array(node.meta, (buffer, 0)))  # type: ignore[union-attr]
        pairs = zip(results, self.graph.outputs, strict=True)
        return [None if window is None else _array(value.meta, window) for window, value in pairs]

    def __repr__(self) -> str:
        return f"<compiled graph {self.graph.name}>"


def graph_function(graph: Graph) -> GraphFunction:
    """The graph as a function, run op by op by the reference backend."""
    return GraphFunction(graph, REFERENCE.compile(graph))


def _check_same(name: str, graph: Graph, given: Graph) -> None:
    """Raises BackendError for a graph that takes or gives something else than the compiler's own,
    GraphError for one that is not valid (LOW-8)."""
    if given is graph:
        return
    same_effects(f"graph of {name!r}", graph, given)
    verify(given, functional=True, closing_copies=True, stage=f"graph of {name!r}")
    for what, mine, its in (
        ("inputs", _signature(graph.placeholders), _signature(given.placeholders)),
        ("results", _signature(graph.outputs), _signature(given.outputs)),
        ("roles of results", graph.output_roles, given.output_roles),
    ):
        if mine != its:
            raise BackendError(
                f"backend: {name!r} gave a graph with other {what} for graph {graph.name}, "
                "expected the same"
            )


def _signature(values: Sequence[Any]) -> list[Any]:
    """Metas; roles too, of inputs."""
    return [(v.meta, v.role) if type(v) is Node else v for v in values]


# --------------------------------------------------------------------------- functions of arrays
class _ArrayRun:
    """Calls a function of arrays on windows, and looks at what it gives."""

    def __init__(self, name: str, graph: Graph, function: Callable[..., Any]) -> None:
        self.name = name
        self.graph = graph
        self.function = function
        self.boxed = bool(getattr(function, "_boxed_call", False))
        self.ins = [node.meta for node in graph.placeholders]
        self.outs: list[Any] = [v.meta if type(v) is Node else None for v in graph.outputs]
        written = {n.args[0] for n in graph.calls if isinstance(n.target, InplaceOp)}
        self.read_only = [node not in written for node in graph.placeholders]

    def __call__(self, windows: list[Window]) -> list[Window | None]:
        arrays = [_array(meta, window) for meta, window in zip(self.ins, windows, strict=True)]
        self._protect(arrays)
        windows.clear()
        try:
            results = self.function(arrays) if self.boxed else self.function(*arrays)
        except Exception as error:
            error.add_note(ran(self.name, self.graph))
            raise
        del arrays
        if len(self.outs) == 1 and hasattr(results, "dtype"):
            results = [results]
        self._check(results)
        # What the function keeps of its results, or returns twice, stays its own: a refcount tells.
        kept = _holders(results) > _LISTED
        found: list[Window | None] = []
        for index, meta in enumerate(self.outs):
            result = results[index]
            if meta is None:
                found.append(None)
            elif kept or _holders(result) > _RESULT:
                found.append((copied(meta.device.arrays, result, meta), 0))
            else:
                found.append((meta.device.arrays.adopt(result, meta), 0))
        return found

    def _protect(self, arrays: list[Any]) -> None:
        """Makes read-only what the graph does not write: the caller's memory, or saved values."""
        for array, read_only in zip(arrays, self.read_only, strict=True):
            if read_only and type(array) is np.ndarray:
                array.setflags(write=False)

    def _check(self, results: Any) -> None:
        """Raises BackendError for results of another number, shape or dtype than the graph's."""
        metas = self.outs
        if not isinstance(results, (list, tuple)) or len(results) != len(metas):
            got = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
            raise self._wrong(f"{got}", "", f"a list or tuple of {len(metas)} results")
        for index, (meta, result) in enumerate(zip(metas, results, strict=True)):
            if meta is None:
                continue
            as_result = f" as result {index}"
            dtype = getattr(result, "dtype", None)
            if dtype is None:
                raise self._wrong(type(result).__name__, as_result, f"an array of {meta}")
            if tuple(result.shape) != meta.shape:
                raise self._wrong(f"shape {tuple(result.shape)}", as_result, f"{meta.shape}")
            if dtype != meta.dtype.numpy:
                raise self._wrong(f"dtype {dtype}", as_result, f"{meta.dtype.numpy}")

    def _wrong(self, got: str, which: str, expected: str) -> BackendError:
        return BackendError(
            f"backend: {self.name!r} returned {got}{which} for graph {self.graph.name}, "
            f"expected {expected}"
        )


_holders: Callable[[Any], int] = getattr(sys, "getrefcount", lambda value: sys.maxsize)
"""How many references there are; where nobody counts them, everything is copied."""


def _counted() -> tuple[int, int]:
    """The references to a list of results, and to a result, that nobody else keeps."""
    results = [object()]
    result = results[0]
    return _holders(results), _holders(result)


_LISTED, _RESULT = _counted()


def _array(meta: Any, window: Window) -> Any:
    buffer, start = window
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)
