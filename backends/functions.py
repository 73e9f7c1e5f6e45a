"""Backends in the short form: a function from a graph to a function from arrays to arrays.

    def my_compiler(graph):                      # ArrayFunctionBackend(my_compiler) is a `Backend`
        inner = graph_function(graph)            # a GraphFunction: the graph run op by op
        return lambda *arrays: inner(*arrays)    # arrays in, a list of arrays out

This is what most users' compilers look like. The adapter makes arrays of windows, checks what the
function returns, and copies results to which other references exist. Spec: `specs/s9_lower.md`.
Rules: BOX-1, LOW-5 to LOW-8.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotlite.backends.calling_convention import Run, Value, array_of, returned_as_arrays
from aotlite.backends.protocol import WindowFunction, ran
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
    """An input of a compiler's graph, without data (LOW-7).

    It has shape, strides, dtype and device, as a tensor has them. `role` says why the input exists.
    `static`: it is a parameter or buffer, at the same address in each call, so that a compiler may
    keep its address or a copy in another layout. `donated`: it is a saved value to which no
    other reference exists, so that a backward which runs once may overwrite it (SAV-4).
    """

    __slots__ = ("donated", "meta", "role", "static")

    def __init__(
        self, meta: TensorMeta, role: Role, *, static: bool, donated: bool = False
    ) -> None:
        self.meta = meta
        self.role = role
        self.static = static
        self.donated = donated

    def _apply(self, op: Op, args: tuple[object, ...]) -> Any:
        raise UnsupportedError(
            f"{op.name}: the operand is the example input {self.role}, which has no data, expected "
            "a tensor; a compiler may read its shape, strides, dtype and device only"
        )

    def __repr__(self) -> str:
        marks = ", static" * self.static + ", donated" * self.donated
        return f"ExampleInput({self.role}: {self.meta}{marks})"


class ArrayFunctionBackend:
    """A backend made of a compiler: a function of a graph, or of a graph and its example inputs.

    The compiler returns a function of arrays. That is called with an array for each input, which
    has the strides of the input's meta, or with one list of them if its attribute `_boxed_call` is
    True. Its results may have any strides. A compiler may also return a `Graph`, which the
    reference backend runs.
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
        """The roles of inputs that lie at the same address in each call."""
        self.donated = donated
        """The roles of saved values to which no other reference exists."""
        self._option = option
        self._function = compile_graph
        self._takes_inputs = _takes_inputs(compile_graph, option)

    def with_marked_inputs(
        self, static: frozenset[Role], donated: frozenset[Role]
    ) -> ArrayFunctionBackend:
        """Returns this backend with these roles marked in the example inputs."""
        marked = copy.copy(self)
        marked.static, marked.donated = static, donated
        return marked

    def compile(self, graph: Graph) -> Run | WindowFunction:
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
        return ArrayRun(self.name, graph, function)

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


def _takes_inputs(function: Callable[..., object], option: str) -> bool:
    """Whether a compiler takes the example inputs, too: whether it requires two arguments.

    Raises ArgumentError if it requires more, or none.
    """
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
    """A lowered graph as a function from arrays to a list of arrays, for compilers built on it.

    Arrays may have any strides. A compiler may return one: `ArrayFunctionBackend` then calls its
    `run` on windows.
    """

    _boxed_call = True

    def __init__(self, graph: Graph, run: WindowFunction) -> None:
        self.graph = graph
        self.run = run

    def _metas(self) -> list[Any]:
        return [node.meta for node in self.graph.placeholders]

    def __call__(self, *arrays: Any) -> list[object]:
        """Returns the results for these arrays, given one by one or as one list.

        A list is emptied (BOX-1). An array whose input the graph writes is written.
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
                meta: Any = node.meta
                meta.device.arrays.copy(array, array_of((buffer, 0), meta))
        outs = [value.meta if type(value) is Node else None for value in self.graph.outputs]
        return [None if w is None else array_of(w, m) for w, m in zip(results, outs, strict=True)]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<compiled graph {self.graph.name}>"


def graph_function(graph: Graph) -> GraphFunction:
    """Returns the graph as a function of arrays, run op by op by the reference backend."""
    return GraphFunction(graph, REFERENCE.compile(graph))


def _check_same(name: str, graph: Graph, given: Graph) -> None:
    """Checks a graph that a compiler returned instead of a function (LOW-8).

    Raises BackendError if its inputs or outputs differ from those of the compiler's graph, and
    GraphError if it is not valid.
    """
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


def _signature(values: Sequence[object]) -> list[object]:
    """Returns (meta, role) of each node; other values as they are."""
    return [(v.meta, v.role) if type(v) is Node else v for v in values]


# --------------------------------------------------------------------------- functions of arrays
class ArrayRun(Run):
    """A user's function of arrays as a `Run`, with its results checked. It gets all inputs."""

    runs_user_code = True

    def __init__(self, name: str, graph: Graph, function: Callable[..., Any]) -> None:
        super().__init__(graph)
        self.name = name
        self.reads = [True] * len(graph.placeholders)
        self.function = function
        self.boxed = bool(getattr(function, "_boxed_call", False))
        self.ins: list[TensorMeta] = [node.meta for node in graph.placeholders]  # type: ignore[misc]
        self.outs: list[Any] = [v.meta if type(v) is Node else None for v in graph.outputs]
        self.as_arrays = returned_as_arrays(graph)
        written = {n.args[0] for n in graph.calls if isinstance(n.target, InplaceOp)}
        self.read_only = [node not in written for node in graph.placeholders]

    def call(self, values: list[Value]) -> list[Value]:
        """Calls the function with an array for each input."""
        arrays = [array_of(value, meta) for meta, value in zip(self.ins, values, strict=True)]
        values.clear()
        self._protect(arrays)
        try:
            results = self.function(arrays) if self.boxed else self.function(*arrays)
        except Exception as error:
            error.add_note(ran(self.name, self.graph))
            raise
        del arrays
        if len(self.outs) == 1 and hasattr(results, "dtype"):
            results = [results]
        self._check(results)
        # A result that the function keeps, or returns twice, is copied: it may be written later.
        # The reference count tells: with more references than ours, somebody else holds it.
        kept = _holders(results) > _LISTED
        found: list[Value] = []
        for index, meta in enumerate(self.outs):
            result = results[index]
            if meta is None:
                found.append(None)
            elif kept or _holders(result) > _RESULT or _is_frozen(result):
                found.append((copied(meta.device.arrays, result, meta), 0))
            else:
                found.append((meta.device.arrays.adopt(result, meta), 0))
        return [
            array_of(value, meta) if as_array else value
            for value, meta, as_array in zip(found, self.outs, self.as_arrays, strict=True)
        ]

    def _protect(self, arrays: list[Any]) -> None:
        """Makes arrays read-only that the graph does not write: they are tensors of the caller or
        saved values. They are views then: the arrays themselves can be written."""
        for place, read_only in enumerate(self.read_only):
            if read_only and type(arrays[place]) is np.ndarray:
                arrays[place] = arrays[place].view()
                arrays[place].setflags(write=False)

    def _check(self, results: object) -> None:
        """Raises BackendError unless number, shapes and dtypes of the results are the graph's."""
        metas = self.outs
        if not isinstance(results, (list, tuple)) or len(results) != len(metas):
            got = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
            raise self._wrong(f"{got}", "", f"a list or tuple of {len(metas)} results")
        for index, (meta, result) in enumerate(zip(metas, results, strict=True)):
            if meta is None:
                continue
            as_result = f" as result {index}"
            dtype = getattr(result, "dtype", None)
            if dtype is None or isinstance(result, Operand):
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


def _is_frozen(result: object) -> bool:
    """Whether the array cannot be written; a result of a call can."""
    return type(result) is np.ndarray and not result.flags.writeable


_holders: Callable[[object], int] = getattr(sys, "getrefcount", lambda value: sys.maxsize)
"""Returns an object's number of references; without reference counts each result is copied."""


def _counted() -> tuple[int, int]:
    """Returns the reference counts of a list of results and of a result that nobody else holds."""
    results = [object()]
    result = results[0]
    return _holders(results), _holders(result)


_LISTED, _RESULT = _counted()
