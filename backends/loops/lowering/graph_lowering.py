"""`lower`: one walk over a graph, which gives each value a place in a buffer.

    x.t().exp()  of x: f32[2, 3]       x    Placed(b0, 0, f32[2, 3])
                                       t    Placed(b0, 0, f32[3, 2] with strides (1, 3))
                                       exp  a kernel that stores into a new b1

Input: a verified pure graph, which may end with `copy_` into inputs (FUN-22). Output: a
`LoopProgram`. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.loops.lowering.builder import NoLoops, ProgramBuilder
from aotlite.backends.loops.lowering.op_templates import OpTemplates
from aotlite.backends.loops.lowering.pointwise import pointwise_loops
from aotlite.backends.loops.lowering.writer import LoopOperand, LoopWriter
from aotlite.backends.loops.program import BufferKind, Extern, LoopProgram, Placed, ValueCheck
from aotlite.ir import dtypes
from aotlite.ir.arrays import array_over
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import AotliteError, BackendError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.effect_chains import has_tokens
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import MultiViewOp, PureOp, ViewOp
from aotlite.ir.ops.shape.copies import COPY, COPY_
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.reinterpret import VIEW_DTYPE_COPY
from aotlite.ir.symbols.proving import Unproved

_WITH_LOOPS = frozenset(
    set(dtypes.DTYPES)
    - {dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.complex64, dtypes.complex128}
)


def lower(graph: Graph) -> LoopProgram:
    """Returns the program of a pure graph: one kernel or several for each op, or an `Extern` step.

    Raises BackendError for a graph that is not pure.
    """
    return _Lowering(graph).program()


def has_loops(dtype: DType) -> bool:
    """Whether kernels compute with this dtype. Float8 and complex numbers they do not."""
    return dtype in _WITH_LOOPS


@attrs.define
class _Lowering:
    """The state of the walk."""

    graph: Graph
    builder: ProgramBuilder = attrs.field(factory=ProgramBuilder)
    values: dict[Node, Any] = attrs.field(factory=dict)
    """The place of each value, or a tuple of places; None for a result that nothing needs."""
    readable: dict[Node, Placed] = attrs.field(factory=dict)
    """The copy of a value whose dtype has another size than its buffer's: kernels load that."""
    copies: dict[int, int] = attrs.field(factory=dict)
    """The copy of each constant's buffer that is returned."""
    templates: OpTemplates = attrs.field(init=False)
    """The ops that are lowered by now: equal ones are not lowered again (REG-5)."""
    checks_late: bool = attrs.field(init=False, default=False)
    """Whether the graph has effects. A failed check would run them twice, so that an op which needs
    a check becomes an extern, and raises by itself (TOK-6)."""

    def program(self) -> LoopProgram:
        self.checks_late = has_tokens(self.graph)
        self.templates = OpTemplates(self.builder)
        inputs = [self._input(node) for node in self.graph.placeholders]
        closing = []
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self._constant(node)
            elif node.target is COPY_:
                closing.append(node)
            elif node.op == "call":
                self._call(node)
        self._close(closing)
        outputs = [self._output(value) for value in self.graph.outputs]
        return self.builder.finish(self.graph.name, inputs, outputs)

    # --- inputs and constants
    def _input(self, node: Node) -> int | None:
        if not self.graph.users[node]:
            return None
        placed = self.builder.new(_meta(node), BufferKind.INPUT)
        self.values[node] = placed
        return placed.buffer

    def _constant(self, node: Node) -> Placed:
        meta = _meta(node)
        buffer = meta.device.arrays.allocate(meta.span, meta.dtype)
        flat = meta.device.arrays.strided(buffer, meta.dtype, (meta.span,), (1,), 0)
        window = array_over(meta.device.arrays, buffer, meta)
        meta.device.arrays.copy(window, node.target.value)
        return self.builder.new(meta, BufferKind.CONSTANT, flat)

    # --- calls
    def _call(self, node: Node) -> None:
        op = node.target
        if op is GETITEM:
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif type(op) is ViewOp:
            self.values[node] = self._viewed(node, op, self.values[node.args[0]])
        elif type(op) is MultiViewOp:
            whole = self.values[node.args[0]]
            metas: Any = node.meta
            starts = [view.start((node.args[0], *rest)) for view, rest in op.parts(node.args)]
            self.values[node] = tuple(
                [
                    Placed(whole.buffer, whole.start + start, meta)
                    for start, meta in zip(starts, metas, strict=True)
                ]
            )
        elif isinstance(op, PureOp):
            self.values[node] = self._computed(node, op)
        elif isinstance(op, TokenOp):
            self.values[node] = self._extern(node, op, tuple([self._read(a) for a in node.args]))
        else:
            raise BackendError(
                f"loops: the graph calls {op.name}, expected pure ops and views only"
            )

    def _viewed(self, node: Node, op: ViewOp, source: Placed) -> Placed:
        meta, copy = _meta(node), self.readable.get(node.args[0])
        if copy is not None:
            self.readable[node] = self._window(copy.buffer, op.at(node.args, copy.start), meta)
        placed = Placed(source.buffer, op.at(node.args, source.start), meta)
        if copy is None and not self._fits(placed.buffer, meta.dtype):
            self.readable[node] = self._window(placed.buffer, placed.start, meta)
        return placed

    def _window(self, buffer: int, start: int, meta: TensorMeta) -> Placed:
        """Returns a window of the buffer; of a copy of its bytes where item sizes differ."""
        if self._fits(buffer, meta.dtype):
            return Placed(buffer, start, meta)
        old = self.builder.buffers[buffer]
        count = old.size * old.dtype.itemsize // meta.dtype.itemsize
        copied = tensor_meta((count,), None, meta.dtype, meta.device)
        taken = count * meta.dtype.itemsize // old.dtype.itemsize
        flat = Placed(buffer, 0, tensor_meta((taken,), None, old.dtype, meta.device))
        placed = self.builder.new(copied)
        step = Extern(VIEW_DTYPE_COPY, (flat, meta.dtype), (placed,), copied)
        self.builder.steps.append(step)
        return Placed(placed.buffer, start, meta)

    def _fits(self, buffer: int, dtype: DType) -> bool:
        """Whether kernels can load a window of this dtype from the buffer."""
        stored = self.builder.buffers[buffer].dtype
        if stored is dtype:
            return True
        return stored.itemsize == dtype.itemsize and has_loops(stored) and has_loops(dtype)

    def _computed(self, node: Node, op: PureOp) -> object:
        args = tuple([self._read(a) for a in node.args])
        if op.loops is not None or (op.scalar is not None and op.computes is not None):
            made = self._loops(node, op, args)
            if made is not None:
                return made
        return self._extern(node, op, args)

    def _read(self, argument: object) -> Any:
        """Returns the argument with places in the stead of nodes."""
        if type(argument) is Node:
            return self.readable.get(argument) or self.values[argument]
        if type(argument) is tuple:
            return tuple([self._read(item) for item in argument])
        return argument

    def _loops(self, node: Node, op: PureOp, args: tuple[object, ...]) -> object:
        """Adds the op's kernels and returns its results' places; None where it has no loop form."""
        call = self.templates.call(op, node.meta, args)
        again = self.templates.again(call)
        if again is not None:
            return again
        mark = self.builder.mark
        k = LoopWriter(self.builder, op.name)
        try:
            operands = tuple([_operand(k, a) for a in args])
            _check_dtypes(node.meta)
            if op.loops is not None:
                made = op.loops(k, node.meta, *operands)
            else:
                made = pointwise_loops(k, op, _meta(node), operands)
        except (NoLoops, AotliteError, ArithmeticError):
            # An op that raises here becomes an extern, and raises when the graph is run.
            made = None
        if made is not None and self._gives_up(mark):
            if op.loops is not None:
                _require_elements(node)
            made = None if self.checks_late else made
        if made is None:
            self.builder.back_to(mark)
            return None
        found = tuple([each.placed for each in made]) if type(made) is tuple else made.placed
        self.templates.keep(call, mark, found)
        return found

    def _gives_up(self, mark: tuple[int, int]) -> bool:
        """Whether a step since the mark is a check. If it failed, the graph would run once more,
        and its effects would happen twice (TOK-6)."""
        return any(type(step) is ValueCheck for step in self.builder.steps[mark[1] :])

    def _extern(self, node: Node, op: PureOp | TokenOp, args: tuple[object, ...]) -> Any:
        metas: Any = node.meta
        if type(metas) is not tuple:
            placed = self.builder.new(metas)
            self.builder.steps.append(Extern(op, args, (placed,), metas))
            return placed
        needed = {user.args[1] for user in self.graph.users[node] if user.target is GETITEM}
        results = tuple(
            [self.builder.new(meta) if i in needed else None for i, meta in enumerate(metas)]
        )
        self.builder.steps.append(Extern(op, args, results, metas))
        return results

    # --- outputs
    def _output(self, value: object) -> Placed | None:
        if type(value) is not Node:
            return None
        placed: Placed = self.values[value]
        buffer = self.builder.buffers[placed.buffer]
        if buffer.kind is not BufferKind.CONSTANT:
            return placed
        return attrs.evolve(placed, buffer=self._given_away(placed.buffer))

    def _given_away(self, constant: int) -> int:
        """Returns the buffer of a constant's copy, which the caller may write. Outputs share it."""
        if constant not in self.copies:
            buffer = self.builder.buffers[constant]
            flat = Placed(constant, 0, tensor_meta((buffer.size,), None, buffer.dtype))
            self.copies[constant] = self._copied(flat).buffer
        return self.copies[constant]

    def _copied(self, placed: Placed) -> Placed:
        """Adds a copy of a value in the same layout."""
        copy = self.builder.new(placed.meta)
        self._write(copy, placed)
        return copy

    def _write(self, into: Placed, value: Placed) -> None:
        k = LoopWriter(self.builder, "copy")
        if has_loops(into.meta.dtype) and has_loops(value.meta.dtype):
            source = LoopOperand(k, value)
            try:
                k.store(LoopOperand(k, into), lambda *i: k.cast(source.at(i), into.meta.dtype))
                return
            except NoLoops:  # places that several elements have: the library's copy orders them
                pass
        self.builder.steps.append(Extern(COPY, (into, value), (into,), into.meta))

    def _close(self, copies: Sequence[Node]) -> None:
        """Adds the copies into inputs, behind all other steps (FUN-22, K-9)."""
        values = [self._read(node.args[1]) for node in copies]
        kinds = [self.builder.buffers[value.buffer].kind for value in values]
        # A value that lies in an input is copied first: another copy may write that input.
        values = [
            self._copied(value) if kind is BufferKind.INPUT else value
            for value, kind in zip(values, kinds, strict=True)
        ]
        for node, value in zip(copies, values, strict=True):
            self._write(self.values[node.args[0]], value)


def _meta(node: Node) -> TensorMeta:
    assert type(node.meta) is TensorMeta
    return node.meta


def _require_elements(node: Node) -> None:
    """Demands that the result of an op with checks has elements: eager may look at no index if it
    has none, and the checks do."""
    metas = node.meta if isinstance(node.meta, tuple) else (_meta(node),)
    for meta in metas:
        if is_symbolic((meta.numel,)) and not meta.numel > 0:
            raise Unproved(f"whether the result of {node.target.name} has elements, {meta}")


def _operand(k: LoopWriter, value: object) -> Any:
    """Returns the argument with a LoopOperand for each tensor. Raises NoLoops for a dtype that
    kernels do not compute with."""
    if type(value) is Placed:
        _check_dtypes(value.meta)
        return LoopOperand(k, value)
    return tuple([_operand(k, item) for item in value]) if type(value) is tuple else value


def _check_dtypes(meta: object) -> None:
    for each in meta if type(meta) is tuple else (meta,):
        if each.dtype not in _WITH_LOOPS:
            raise NoLoops
