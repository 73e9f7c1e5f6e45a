"""The writer: how the declaration of an op says its loops.

`PureOp.loops(k, meta, *args)` is told a `LoopWriter` and a `LoopOperand` for each tensor; it gives
the result, a tuple of them for several, or None where these arguments have no loop form. The verbs
each add one kernel: `map` and `store` of independent elements, `reduce`, `scan`, `scatter`. What a
kernel computes is a function of its positions. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotlite.backends.loops import expr
from aotlite.backends.loops.expr import Affine, Scalar
from aotlite.backends.loops.lowering import matrix_products, value_checks
from aotlite.backends.loops.lowering.axis_index import AxisIndex
from aotlite.backends.loops.lowering.builder import NoLoops, ProgramBuilder
from aotlite.backends.loops.lowering.typed_scalars import called
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    Placed,
    Reduce,
    Scan,
    Statement,
    Step,
    Store,
)
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.precision import accumulator, number_in

Position = Any
"""An Index, an int, or an integer Scalar: a position that is read or computed."""
Computed = Any
"""A Scalar or a Python number."""


class LoopOperand:
    """A tensor in a program: a window of a buffer. `a[i, j]` is its element there."""

    __slots__ = ("dtype", "meta", "placed", "shape", "stride", "writer")

    def __init__(self, writer: LoopWriter, placed: Placed) -> None:
        self.writer = writer
        self.placed = placed
        self.meta = placed.meta
        self.shape = placed.meta.shape
        self.stride = placed.meta.stride
        self.dtype = placed.meta.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, positions: Position | tuple[Position, ...]) -> Scalar:
        """The element at these positions. Out of range only where a `where` does not take it."""
        return self.load(self.address(positions if type(positions) is tuple else (positions,)))

    def load(self, address: Affine) -> Scalar:
        """The element at an address of the buffer, in the operand's dtype."""
        stored = self.writer.program.buffers[self.placed.buffer].dtype
        return expr.bits(expr.load(self.placed.buffer, address, stored), self.dtype)

    def at(self, positions: Sequence[Position]) -> Scalar:
        """The element at these positions of a shape that it broadcasts to."""
        own = positions[len(positions) - len(self.shape) :]
        return self[tuple([0 if n == 1 else i for n, i in zip(self.shape, own, strict=True)])]

    def view(self, shape: Sequence[int], stride: Sequence[int], start: int = 0) -> LoopOperand:
        """A window of its memory. Elements, `start` from its own first one."""
        meta = tensor_meta(tuple(shape), tuple(stride), self.dtype, self.meta.device)
        return LoopOperand(self.writer, Placed(self.placed.buffer, self.placed.start + start, meta))

    def address(self, positions: Sequence[Position]) -> Affine:
        """Where the element at these positions lies in the buffer."""
        if len(positions) != len(self.shape):
            raise GraphError(
                f"loops: {len(positions)} positions of {self.meta}, expected {len(self.shape)}"
            )
        start = self.placed.start
        total = [0] * self.writer.rank
        dynamic = []
        for i, step in zip(positions, self.stride, strict=True):
            kind = type(i)
            if kind is AxisIndex:
                start += i.start * step
                for k, coefficient in enumerate(i.coefficients):
                    total[k] += coefficient * step
            elif kind is Scalar:
                dynamic.append((expr.cast(i, dtypes.int64), step))
            else:
                start += i * step
        return Affine(tuple(total), start, tuple(dynamic))


class LoopWriter:
    """Adds the kernels of one op to a program."""

    def __init__(self, program: ProgramBuilder, name: str) -> None:
        self.program = program
        self.name = name
        self.rank = 0
        """Axes of the kernel that is being written."""

    # ------------------------------------------------------------------------------------ memory
    def new(self, meta: TensorMeta) -> LoopOperand:
        """New memory laid out as the meta says; every element must be stored."""
        return LoopOperand(self, self.program.new(meta))

    def table(self, values: Any) -> LoopOperand:
        """An array of the host as a constant."""
        array = np.ascontiguousarray(values)
        meta = tensor_meta(array.shape, None, dtypes.from_numpy(array.dtype))
        return LoopOperand(self, self.program.new(meta, BufferKind.CONSTANT, array.reshape(-1)))

    # ------------------------------------------------------------------------------------- verbs
    def map(self, meta: TensorMeta, element: Callable[..., Computed]) -> LoopOperand:
        """The tensor whose element at positions i, j, ... is `element(i, j, ...)`."""
        return self.store(self.new(meta), element)

    def store(self, out: LoopOperand, element: Callable[..., Computed]) -> LoopOperand:
        """Writes `element(i, j, ...)` to each element of `out`, and gives `out`."""
        axes = self._axes(out.shape, by_stride(out.stride))
        if axes is None:
            return out
        positions = _apart(axes[1], out)
        value = element(*positions)
        self._kernel(axes[0], len(axes[0]), [self._stored(out, positions, value)])
        return out

    def elementwise(
        self, meta: TensorMeta, element: Callable[[Callable[[LoopOperand], Scalar]], Computed]
    ) -> LoopOperand:
        """The tensor whose elements are `element(load)`, where `load(a)` is that of a at the same
        place. As `map`, without indexes."""
        out, shape, rank = self.new(meta), meta.shape, len(meta.shape)
        if 0 in shape or not (meta.contiguous or meta.dense):
            return self.store(out, lambda *i: element(lambda a: a.at(i)))
        order = range(rank) if meta.contiguous else by_stride(meta.stride)
        places = [k for k in order if shape[k] != 1]

        def load(a: LoopOperand) -> Scalar:
            sizes, stride, more = a.shape, a.stride, rank - len(a.shape)
            steps = [0 if k < more or sizes[k - more] == 1 else stride[k - more] for k in places]
            return a.load(Affine(tuple(steps), a.placed.start))

        value = self.cast(element(load), meta.dtype)
        address = Affine(tuple([meta.stride[k] for k in places]))
        store = Store(out.placed.buffer, address, value)
        self._kernel(tuple([shape[k] for k in places]), len(places), [store])
        return out

    def stores(
        self, outs: Sequence[LoopOperand], element: Callable[..., Sequence[Computed]]
    ) -> None:
        """Writes the elements that `element(i, j, ...)` gives, one for each of several operands of
        one shape.
        """
        axes = self._axes(outs[0].shape, by_stride(outs[0].stride))
        if axes is not None:
            values = zip(outs, element(*axes[1]), strict=True)
            body = [self._stored(out, axes[1], value) for out, value in values]
            self._kernel(axes[0], len(axes[0]), body)

    def reduce(
        self,
        kind: str,
        metas: TensorMeta | tuple[TensorMeta, ...],
        over: Sequence[int],
        values: Callable[..., Any],
        *,
        finish: Callable[..., Any] | None = None,
        stride: Sequence[int] | None = None,
    ) -> Any:
        """Results whose elements are combinations of `values(positions, inner positions)`.

        `kind` names the combiner, `over` are the extents of the inner positions, and `values` gives
        a scalar, or a tuple for a combiner of several parts. `finish(*parts)` gives what is stored,
        the parts themselves by default. Axes are in order of `stride`, one for each position, then
        each inner position: by the results' and as given if there is none.
        """
        several = type(metas) is tuple
        outs = [self.new(meta) for meta in _listed(metas)]
        shape = outs[0].shape
        outer = by_stride(outs[0].stride if stride is None else stride[: len(shape)])
        inner = range(len(over)) if stride is None else _along_memory(stride[len(shape) :])
        axes = self._axes(shape, outer, over, list(inner))
        if axes is not None:
            extents, positions = axes
            space = sum(shape[k] != 1 for k in outer)
            row = positions[: len(shape)]
            given = values(row, positions[len(shape) :])
            parts = given if type(given) is tuple else (given,)
            names = tuple(range(len(parts)))
            made: Any = [expr.name(k, part.dtype) for k, part in enumerate(parts)]
            body: list[Statement] = [Reduce(names, kind, parts)]
            made = made if finish is None else finish(*made)
            made = made if type(made) in (tuple, list) else (made,)
            for out, value in zip(outs, made, strict=several):
                body.append(self._stored(out, row, value, each_row=space < len(extents)))
            self._kernel(extents, space, body)
        return tuple(outs) if several else outs[0]

    def scan(
        self,
        kind: str,
        metas: TensorMeta | tuple[TensorMeta, ...],
        dim: int,
        values: Callable[..., Any],
        *,
        finish: Callable[..., Any] | None = None,
    ) -> Any:
        """Results whose element at i, j, ... combines `values` at all positions up to there.

        "Up to" is along dimension `dim`. Else as `reduce`.
        """
        several = type(metas) is tuple
        outs = [self.new(meta) for meta in _listed(metas)]
        shape = outs[0].shape
        outer = [k for k in by_stride(outs[0].stride) if k != dim]
        moved = [*[n for k, n in enumerate(shape) if k != dim], shape[dim]]
        order = [k - (k > dim) for k in outer]
        axes = self._axes(moved[:-1], order, moved[-1:])
        if axes is not None and shape[dim]:
            extents, given = axes
            positions = (*given[:dim], given[-1], *given[dim:-1])
            wanted = values(*positions)
            parts = wanted if type(wanted) is tuple else (wanted,)
            made: Any = [expr.name(k, part.dtype) for k, part in enumerate(parts)]
            body: list[Statement] = [Scan(tuple(range(len(parts))), kind, parts)]
            made = made if finish is None else finish(*made)
            made = made if type(made) in (tuple, list) else (made,)
            for out, value in zip(outs, made, strict=several):
                body.append(self._stored(out, positions, value))
            self._kernel(extents, len(extents) - 1, body)
        return tuple(outs) if several else outs[0]

    def scatter(
        self,
        out: LoopOperand,
        extents: Sequence[int],
        element: Callable[..., tuple[Sequence[Position], Computed]],
        *,
        ordered: Sequence[int] = (),
        combine: str | None = None,
    ) -> LoopOperand:
        """Writes into `out`: `element(i, j, ...)` gives positions in `out`, and a value for there.

        Over positions of `extents`. Those at `ordered` may meet at one element: they come in
        ascending order, and the last one stays, or all are combined with what is there (`combine`).
        """
        outer = [k for k in range(len(extents)) if k not in ordered]
        apart = [extents[k] for k in outer]
        axes = self._axes(apart, range(len(outer)), [extents[k] for k in ordered])
        if axes is None or 0 in extents:
            return out
        own, found = axes
        positions = dict(zip((*outer, *ordered), found, strict=True))
        where, value = element(*[positions[k] for k in range(len(extents))])
        space = sum(extents[k] != 1 for k in outer)
        self._kernel(own, space, [self._stored(out, where, value, combine=combine)])
        return out

    def add(self, step: Step) -> None:
        """Adds a step that is no kernel."""
        self.program.steps.append(step)

    def product(
        self, meta: TensorMeta, a: LoopOperand, b: LoopOperand, dtype: DType
    ) -> LoopOperand:
        """The matrix product (*batch, m, k) (*batch, k, n) -> (*batch, m, n), formed in a dtype."""
        made: LoopOperand = matrix_products.product(self, meta, a, b, dtype)
        return made

    def gemm(self, out: LoopOperand, a: LoopOperand, b: LoopOperand) -> None:
        """Writes the matrix product into `out`, of float32 or float64, by BLAS."""
        matrix_products.gemm(self, out, a, b)

    def refuse(
        self, shape: Sequence[int], wrong: Callable[..., Scalar], *, once: Any = None
    ) -> None:
        """Gives the program up where `wrong(i, j, ...)` holds at any positions of the shape.

        The graph is then run by the ops' own kernels, of which one raises. Of checks with one key
        `once` there is one.
        """
        value_checks.refuse(self, shape, wrong, once)

    def check_index(
        self, index: LoopOperand, low: int, high: int, *, ignored: int | None = None
    ) -> None:
        """Gives the program up unless low <= i < high for each element, or it is `ignored`."""
        value_checks.check_index(self, index, low, high, ignored)

    # ----------------------------------------------------------------------------------- scalars
    def number(self, value: Any, dtype: DType) -> Scalar:
        """The number as the dtype holds it, fractions cut off where it is of integers."""
        if type(value) is complex:
            raise NoLoops
        if dtype.kind == dtypes.INTEGER:
            if not math.isfinite(value) or number_in(dtype, int(value)) != int(value):
                raise NoLoops
        return expr.const(value, dtype)

    def cast(self, value: Computed, dtype: DType) -> Scalar:
        """The value in a dtype; itself if it has it."""
        return expr.cast(value, dtype) if type(value) is Scalar else self.number(value, dtype)

    def bits(self, value: Scalar, dtype: DType) -> Scalar:
        """The same bits as another dtype of the same size."""
        return expr.bits(value, dtype)

    def wide(self, value: Scalar) -> Scalar:
        """The value in the dtype in which sums of its dtype are formed."""
        return expr.cast(value, accumulator(value.dtype))

    def where(self, condition: Scalar, then: Computed, other: Computed) -> Scalar:
        """`then` where the condition holds; only that branch is computed."""
        return expr.where(condition, then, other)

    def truth(self, value: Scalar) -> Scalar:
        """Whether the value is not 0."""
        return value if value.dtype is dtypes.bool_ else expr.make("ne", value, 0)

    def all(self, *conditions: Scalar) -> Scalar:
        """Whether all hold."""
        left = dict.fromkeys(c for c in conditions if c.op != "const" or not c.args[0])
        total: Scalar | None = None
        for condition in left:
            if condition.op == "const":
                return condition
            total = condition if total is None else total & condition
        return expr.const(True, dtypes.bool_) if total is None else total

    def inside(self, i: Position, low: int, high: int) -> Scalar:
        """Whether low <= i < high."""
        return self.all(i >= low, i < high)

    def position(self, i: Position) -> Scalar:
        """The position as an int64."""
        return i.scalar if type(i) is AxisIndex else self.cast(i, dtypes.int64)

    def make(self, op: str, *operands: Computed) -> Scalar:
        """A primitive by name ("eq", "sqrt", "not", ...) where there is no operator."""
        return expr.make(op, *operands)

    def call(self, function: str, *operands: Scalar, dtype: DType | None = None) -> Scalar:
        """A function of the library ("exp", "pow", ...), by default of its operand's dtype."""
        return called(function, *operands, dtype=dtype)

    # ---------------------------------------------------------------------------------- inside
    def _axes(
        self,
        shape: Sequence[int],
        order: Sequence[int],
        over: Sequence[int] = (),
        inner: Sequence[int] | None = None,
    ) -> tuple[tuple[int, ...], tuple[Position, ...]] | None:
        """(extents, positions of `shape`, then of `over`); None where there is nothing to do.

        Dimensions of one element have no axis, but inner ones have at least one if there are any.
        """
        if 0 in shape:
            return None
        sizes = (*shape, *over)
        inside = [len(shape) + k for k in (range(len(over)) if inner is None else inner)]
        kept = [k for k in inside if sizes[k] != 1] or inside[-1:]
        places = [*[k for k in order if sizes[k] != 1], *kept]
        extents = tuple([sizes[k] for k in places])
        positions: list[Position] = [0] * len(sizes)
        self.rank = rank = len(extents)
        for axis, k in enumerate(places):
            ones = tuple([int(n == axis) for n in range(rank)])
            positions[k] = AxisIndex(extents, ones)
        return extents, tuple([self._origin(extents) if i == 0 else i for i in positions])

    def _origin(self, extents: tuple[int, ...]) -> AxisIndex:
        return AxisIndex(extents, (0,) * len(extents))

    def _stored(
        self, out: LoopOperand, positions: Sequence[Position], value: Computed, **how: Any
    ) -> Store:
        value = self.cast(value, out.dtype)
        stored = self.program.buffers[out.placed.buffer].dtype
        return Store(out.placed.buffer, out.address(positions), expr.bits(value, stored), **how)

    def _kernel(self, extents: tuple[int, ...], space: int, body: Sequence[Statement]) -> None:
        name = f"{self.name}_{len(self.program.steps)}"
        self.program.steps.append(Kernel(name, extents, space, tuple(body)))


def _listed(metas: TensorMeta | tuple[TensorMeta, ...]) -> tuple[TensorMeta, ...]:
    return metas if isinstance(metas, tuple) else (metas,)


def by_stride(stride: Sequence[int]) -> list[int]:
    """The dimensions from the largest stride to the smallest."""
    return sorted(range(len(stride)), key=lambda k: -stride[k])


def _along_memory(stride: Sequence[int]) -> list[int]:
    """The same of what is only loaded: what repeats itself (0) is gone over last, as a whole."""
    return sorted(range(len(stride)), key=lambda k: (stride[k] != 0, -stride[k]))


def _apart(positions: tuple[Position, ...], out: LoopOperand) -> tuple[Position, ...]:
    """The positions, of which no two have one address: of those in one place the last ones."""
    shape, stride = out.shape, out.stride
    if out.meta.dense or not has_internal_overlap(shape, stride):
        return positions
    steps = tuple([1 if s == 0 else n for n, s in zip(shape, stride, strict=True)])
    if has_internal_overlap(steps, stride):
        raise NoLoops
    return tuple([n - 1 if s == 0 else i for i, n, s in zip(positions, shape, stride, strict=True)])
