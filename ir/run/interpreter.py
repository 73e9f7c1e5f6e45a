"""`Interpreter`: runs a graph node by node, on arrays or on any values that a `call` takes.

Ground floor. By default ops run by their declarations (kernels, geometry of views) on
`ArrayValue`s. That is the reference semantics of graphs, with views and writes. The hooks have the
names of torch.fx's Interpreter, for subclasses to override. Spec: `specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aotlite.ir.arrays import array_over, copied, host_array, kernel_on
from aotlite.ir.dtypes import uint8, uint64
from aotlite.ir.effects import EffectOp, TokenOp, library_of
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    RngError,
    ShapeError,
    UnsupportedError,
    in_words,
    noted,
)
from aotlite.ir.graph import Constant, Graph, Node, map_nodes
from aotlite.ir.graph.node_text import node_line
from aotlite.ir.graph.role import RNG_INPUTS
from aotlite.ir.graph.symbolic.inputs import NO_SIZES, RunSizes, holds_symbols
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, Op, PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.provenance.location import place_of
from aotlite.ir.provenance.scope import TAPE_NODE

__all__ = [
    "ArrayValue",
    "Interpreter",
    "array_value",
    "call_arrays",
    "computed",
    "explain",
    "run_graph",
]

Call = Callable[[Op, tuple[Any, ...]], Any]


def explain(error: Exception, node: Node, graph: Graph) -> None:
    """Adds notes to an error: the node that raised it, its tape node, and the user's line.

    A failed allocation or an overflow becomes an error of aotlite's, which it raises with the
    notes.
    """
    told = in_words(getattr(node.target, "name", str(node.target)), node.args, error)
    if told is not error:
        explain(told, node, graph)
        raise told from error
    error.add_note(f"while running: {node_line(node, graph.names)}")
    if node.scope is not None and TAPE_NODE in node.scope.tags:
        error.add_note(f"for {node.scope.tags[TAPE_NODE]}")
    if node.location is not None:
        error.add_note(place_of(node.location).note())


# ------------------------------------------------------------------------------ values of arrays
class ArrayValue:
    """A strided view of a buffer: a tensor without autograd history.

    The buffer is the whole storage, so that `as_strided` reaches memory outside the view.
    """

    __slots__ = ("_array", "buffer", "meta", "start")

    def __init__(self, buffer: Any, meta: TensorMeta, start: int = 0) -> None:
        self.buffer = buffer
        self.meta = meta
        self.start = start
        """The offset of the first element in the buffer, in elements."""
        self._array: Any = None

    @property
    def array(self) -> Any:
        """The library's array of this view; it shares the buffer's memory."""
        if self._array is None:
            meta = self.meta
            self._array = array_over(meta.device.arrays, self.buffer, meta, self.start)
        return self._array

    def window(self, meta: TensorMeta, start: int) -> ArrayValue:
        """A view with this meta, `start` elements after the first one of this view."""
        return ArrayValue(self.buffer, meta, self.start + start)

    def aligned(self, size: int) -> ArrayValue:
        """The same view, of a buffer in which it starts at a multiple of `size` bytes.

        A view as a wider dtype counts its offset in wider elements. A member of a synthetic base
        may start between two of these; then the buffer has to begin later.
        """
        own = self.meta.dtype.itemsize
        rest = self.start * own % size
        if not rest:
            return self
        left = (uint8, (self.buffer.nbytes - rest,), (1,), rest)
        buffer = self.meta.device.arrays.strided(self.buffer, *left)
        return ArrayValue(buffer, self.meta, (self.start * own - rest) // own)

    def __repr__(self) -> str:
        return f"ArrayValue({meta_text(self.meta)}, start={self.start})"


def array_value(source: object, meta: TensorMeta) -> ArrayValue:
    """A copy of the array `source` in a new buffer, with the shape and strides of `meta`."""
    return ArrayValue(copied(meta.device.arrays, source, meta), meta)


def call_arrays(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of `op` on `ArrayValue`s and canonical literals, by the op's declaration.

    Results have the strides of the meta rule. Raises UnsupportedError for an op that draws from a
    generator: an interpreter has none, so that it runs the pure form only.
    """
    match op:
        case PureOp():
            return computed(op, args, op.infer(args))
        case ViewOp():
            meta = op.infer(args)
            operand = args[0].aligned(meta.dtype.itemsize) if op.recasts else args[0]
            return operand.window(meta, _moved(op, (operand, *args[1:])))
        case MultiViewOp():
            return tuple(call_arrays(part, (args[0], *rest)) for part, rest in op.parts(args))
        case InplaceOp():
            target = args[0]
            value = computed(op.functional, args, op.functional.infer(args))
            target.meta.device.arrays.copy(target.array, value.array)
            return target
        case GeometryOp():
            return call_arrays(op.view, args)
        case EffectOp() | TokenOp():
            return _happened(op, args)
    raise UnsupportedError(
        f"{op.name}: it draws from a generator, expected its pure form; functionalize first"
    )


def _moved(op: ViewOp, args: tuple[Any, ...]) -> int:
    """The view's offset minus the operand's, each in elements of its own dtype."""
    return op.at(args, args[0].start) - int(args[0].start)


def computed(op: PureOp | TokenOp, args: tuple[object, ...], metas: Any) -> Any:
    """The result of the op's kernel with this meta; a tuple of results for a tuple of metas."""
    arrays = (metas[0] if type(metas) is tuple else metas).device.arrays
    kernel = kernel_on(arrays, op.kernel)
    result = kernel(arrays, metas, *[_array_of(value) for value in args])
    if type(metas) is not tuple:
        return ArrayValue(arrays.adopt(result, metas), metas)
    pairs = zip(result, metas, strict=True)
    return tuple([ArrayValue(meta.device.arrays.adopt(part, meta), meta) for part, meta in pairs])


def _happened(op: EffectOp | TokenOp, args: tuple[object, ...]) -> object:
    """Runs an effect now, and returns its results (TOK-1)."""
    metas: Any = op.infer(args)
    result = op.kernel(library_of(op, args), metas, *[_array_of(value) for value in args])
    if type(metas) is not tuple:
        return array_value(result, metas)
    return tuple([array_value(part, meta) for part, meta in zip(result, metas, strict=True)])


def _array_of(value: object) -> Any:
    if type(value) is ArrayValue:
        return value.array
    if type(value) is tuple:
        return tuple([_array_of(item) for item in value])
    return value


# ----------------------------------------------------------------------------------- interpreter
class Interpreter:
    """Runs a graph. Values are freed after their last use.

    With `call`, each op runs as `call(op, args)`, on the inputs as they are given;
    `constant(value, meta)` makes the value of a constant. Without it, outputs are arrays, and an
    input is an array, which is copied, or an `ArrayValue`, which is used itself: writes reach it,
    and inputs may overlap.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder()
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> Interpreter(build.finish([x * 2.0])).run(np.float32([1, 2]))
    (array([2., 4.], dtype=float32),)
    """

    def __init__(
        self,
        graph: Graph,
        call: Call | None = None,
        *,
        constant: Callable[[Any, TensorMeta], Any] | None = None,
    ) -> None:
        self.graph = self._given = graph
        self.node: Node = graph.nodes[0]
        """The node that is running, for hooks that need more than its target and arguments."""
        self.env: dict[Node, Any] = {}
        self._on_arrays = call is None
        self._apply: Call = call_arrays if call is None else call
        self._constant = constant or (array_value if call is None else _unchanged)
        self._inputs: list[object] = []
        self._sizes: RunSizes | None = None
        """The sizes of this run, if it computes some of them."""

    def run(self, *inputs: object, sizes: Mapping[str, int] = NO_SIZES) -> Any:
        """The graph's outputs for these inputs. Raises ArgumentError if their number is wrong.

        Symbols get their values from the shapes of arrays, and from what the graph computes
        (GRA-16); `sizes` are those of symbols that neither gives. An error in a node gets the node
        and the user's line as notes.
        """
        wanted = len(self._given.placeholders)
        if len(inputs) != wanted:
            raise ArgumentError(
                f"graph {self._given.name}: it is given {len(inputs)} inputs, expected {wanted}"
            )
        self._sizes = None
        if self._on_arrays and self._given.symbols:
            found = RunSizes(self._given, list(map(_shape_of, inputs)), sizes)
            self.graph, self._sizes = found.graph, found if found.awaited else None
        self._inputs = list(reversed(inputs))
        self.env = {}
        with np.errstate(all="ignore"):
            return self._run_nodes() if self._sizes is None else self._run_counting(self._sizes)

    def _run_nodes(self) -> Any:
        env, last_uses = self.env, self.graph.last_uses
        result = None
        for node in self.graph.nodes:
            self.node = node
            try:
                result = env[node] = self.run_node(node)
            except Exception as error:
                explain(error, node, self.graph)
                raise
            for dead in last_uses[node]:
                del env[dead]
        return result

    def _run_counting(self, sizes: RunSizes) -> Any:
        """Runs the nodes; where one computes a size, those behind it get the number."""
        result = None
        for position in range(len(self.graph.nodes)):
            node = self.node = self.graph.nodes[position]
            try:
                result = self.env[node] = self.run_node(node)
                if sizes.awaited and node is self._awaited(sizes):
                    self._count(sizes, result)
            except Exception as error:
                explain(error, node, self.graph)
                raise
            for dead in self.graph.last_uses[self.graph.nodes[position]]:
                del self.env[dead]
        return result

    def _awaited(self, sizes: RunSizes) -> Node:
        """The node of the run that computes the next size."""
        return self.graph.nodes[self._given.nodes.index(sizes.awaited[0].node)]

    def _count(self, sizes: RunSizes, value: ArrayValue) -> None:
        """Puts the number that a node has computed into the rest of the graph."""
        before = self.graph.nodes
        sizes.computed(int(host_array(value.array)))
        self.graph = sizes.graph
        env, self.env = self.env, {}
        for old, new in zip(before, self.graph.nodes, strict=True):
            if old in env:
                late = holds_symbols(old) and not holds_symbols(new) and new.op == "placeholder"
                self.env[new] = _checked_input(env[old], new) if late else env[old]

    # --- hooks
    def run_node(self, node: Node) -> Any:
        """The value of a node: calls the hook with the name of `node.op`."""
        args = self.fetch_args(node)
        match node.op:
            case "call":
                return self.call(node.target, args)
            case "placeholder":
                return self.placeholder(node.target, args)
            case "get_attr":
                return self.get_attr(node.target, args)
        return self.output(node.target, args)

    def fetch_args(self, node: Node) -> tuple[Any, ...]:
        """The arguments of a node, with nodes replaced by their values."""
        args: tuple[Any, ...] = map_nodes(node.args, self.env.__getitem__)
        return args

    def placeholder(self, target: object, args: tuple[object, ...]) -> Any:
        """The next input."""
        value = self._inputs.pop()
        if not self._on_arrays or (self._sizes is not None and holds_symbols(self.node)):
            return value  # in the latter case it is checked when its sizes are known
        return _checked_input(value, self.node)

    def get_attr(self, target: Constant, args: tuple[object, ...]) -> Any:
        """The value of a constant."""
        return self._constant(target.value, self.node.meta)  # type: ignore[arg-type]

    def call(self, target: Op, args: tuple[Any, ...]) -> Any:
        """The result of an op. `getitem` indexes the tuple of results, for any kind of values."""
        return args[0][args[1]] if target is GETITEM else self._apply(target, args)

    def output(self, target: object, args: tuple[object, ...]) -> Any:
        """The result of `run`."""
        return _array_of(args[0]) if self._on_arrays else args[0]


def run_graph(
    graph: Graph, *inputs: object, sizes: Mapping[str, int] = NO_SIZES
) -> tuple[Any, ...]:
    """The outputs of a graph for these arrays, as arrays. `sizes`: see `Interpreter.run`."""
    outputs: tuple[Any, ...] = Interpreter(graph).run(*inputs, sizes=sizes)
    return outputs


def _shape_of(value: object) -> tuple[int, ...]:
    if type(value) is ArrayValue:
        return value.meta.shape
    return tuple(np.shape(value))  # type: ignore[call-overload]


def _unchanged(value: object, meta: TensorMeta) -> object:
    return value


def _checked_input(value: Any, node: Node) -> ArrayValue:
    """The input of a placeholder as an `ArrayValue` of its meta."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    if type(value) is ArrayValue:
        if value.meta is not meta:
            got, expected = meta_text(value.meta), meta_text(meta)
            raise ArgumentError(f"run: input {node.role} is {got}, expected {expected}")
        return value
    source = np.asarray(value) if isinstance(value, (int, float, bool, complex, list)) else value
    if type(node.role) in RNG_INPUTS and meta.dtype is uint64 and not meta.shape:
        _check_state(node, value, source)
    if tuple(source.shape) != meta.shape:
        raise ShapeError(
            f"run: input {node.role} has shape {tuple(source.shape)}, expected {meta.shape}"
        )
    if source is value and source.dtype != meta.dtype.numpy:
        raise DTypeError(f"run: input {node.role} is {source.dtype}, expected {meta.dtype}")
    return array_value(source, meta)


def _check_state(node: Node, value: object, source: Any) -> None:
    """Raises RngError for an invalid seed or offset: they are 0-d uint64, or ints (RNG-2)."""
    is_number = source is not value and source.dtype.kind in "iu"
    if source.shape or not (is_number or source.dtype == np.uint64):
        raise noted(
            RngError(
                f"run: input {node.role} is {source.dtype}{list(source.shape)}, expected a number, "
                "or an array of uint64 without dimensions"
            ),
            "Seeds and offsets are tensors of unsigned 64-bit integers. (RNG-2)",
        )
