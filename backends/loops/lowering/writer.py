"""The writer: the language in which an op's declaration says its loops.

`PureOp.loops(k, meta, *args)` gets a `LoopWriter`, and a `LoopOperand` for each tensor. It returns
the result, a tuple of results, or None where these arguments have no loop form. Each method of the
writer adds one kernel, given a function from positions to an element, as in TVM's `compute`:

    k.map(meta, lambda i, j: a[j, i])                               # a transposed copy
    k.reduce("sum", meta, (n,), lambda i, j: a[i[0], j[0]])         # sums of rows

Spec: `specs/lowering.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotlite.backends.loops.analysis.size_proofs import is_repeated
from aotlite.backends.loops.lowering import matrix_products, value_checks
from aotlite.backends.loops.lowering.axis_index import AxisIndex, points_of
from aotlite.backends.loops.lowering.builder import NoLoops, ProgramBuilder
from aotlite.backends.loops.lowering.scalar_rewrite import called
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
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.precision import accumulator, number_in
from aotlite.ir.scalar import expression
from aotlite.ir.scalar.expression import Affine, Scalar
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.proving import is_proved
from aotlite.ir.symbols.symint import SymInt

Position = Any
"""An AxisIndex, an int, or an integer Scalar: a position that is loaded or computed."""
Computed = Scalar | int | float | complex
"""A Scalar or a Python number."""


class LoopOperand:
    """A tensor in a program: a window of a buffer. `a[i, j]` is the load of an element."""

    __slots__ = ("dtype", "meta", "placed", "shape", "stride", "writer")

    def __init__(self, writer: LoopWriter, placed: Placed) -> None:
        self.writer = writer
        self.placed = placed
        self.meta = placed.meta
        self.shape = placed.meta.shape
        self.stride = without_few(placed.meta.shape, placed.meta.stride)
        self.dtype = placed.meta.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, positions: Position | tuple[Position, ...]) -> Scalar:
        """Returns the load at these positions. They may be out of range only in a branch of `where`
        that is not taken there."""
        return self.load(self.address(positions if type(positions) is tuple else (positions,)))

    def load(self, address: Affine) -> Scalar:
        """Returns the load at an address of the buffer, in the operand's dtype."""
        stored = self.writer.program.buffers[self.placed.buffer].dtype
        return expression.bits(expression.load(self.placed.buffer, address, stored), self.dtype)

    def at(self, positions: Sequence[Position]) -> Scalar:
        """Returns the load at these positions of a shape to which the operand broadcasts."""
        own = positions[len(positions) - len(self.shape) :]
        pairs = zip(self.shape, own, strict=True)
        return self[tuple([0 if is_repeated(n, points_of(i)) else i for n, i in pairs])]

    def view(self, shape: Sequence[int], stride: Sequence[int], start: int = 0) -> LoopOperand:
        """Returns another window of its memory. `start` counts from its first element."""
        meta = tensor_meta(tuple(shape), tuple(stride), self.dtype, self.meta.device)
        return LoopOperand(self.writer, Placed(self.placed.buffer, self.placed.start + start, meta))

    def address(self, positions: Sequence[Position]) -> Affine:
        """Returns the address in the buffer of the element at these positions."""
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
                dynamic.append((expression.cast(i, dtypes.int64), step))
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
        """Returns a new tensor of this meta. The caller must store each of its elements."""
        return LoopOperand(self, self.program.new(meta))

    def table(self, values: object) -> LoopOperand:
        """Returns an array of the host as a constant."""
        array = np.ascontiguousarray(values)
        meta = tensor_meta(array.shape, None, dtypes.from_numpy(array.dtype))
        return LoopOperand(self, self.program.new(meta, BufferKind.CONSTANT, array.reshape(-1)))

    # ------------------------------------------------------------------------------------- verbs
    def map(self, meta: TensorMeta, element: Callable[..., Computed]) -> LoopOperand:
        """Returns the tensor whose element at positions i, j, ... is `element(i, j, ...)`."""
        return self.store(self.new(meta), element)

    def store(self, out: LoopOperand, element: Callable[..., Computed]) -> LoopOperand:
        """Writes `element(i, j, ...)` to each element of `out`, and returns `out`."""
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
        """Returns the tensor whose elements are `element(load)`, where `load(a)` is the element of
        a at the same place. The form of `map` for elements that need no positions: it is faster,
        since addresses are made without indexes."""
        out, shape, rank = self.new(meta), meta.shape, len(meta.shape)
        plain = is_symbolic(meta.stride) or meta.contiguous or meta.dense  # no result overlaps
        if 0 in shape or not plain:
            return self.store(out, lambda *i: element(lambda a: a.at(i)))
        order = range(rank) if meta.contiguous else by_stride(out.stride)
        places = [k for k in order if shape[k] != 1]

        def load(a: LoopOperand) -> Scalar:
            sizes, stride, more = a.shape, a.stride, rank - len(a.shape)
            steps = [
                0 if k < more or is_repeated(sizes[k - more], shape[k]) else stride[k - more]
                for k in places
            ]
            return a.load(Affine(tuple(steps), a.placed.start))

        value = self.cast(element(load), meta.dtype)
        address = Affine(tuple([out.stride[k] for k in places]))
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
        """Returns tensors whose elements combine `values(positions, inner positions)`.

        `kind` names the combiner. `over` has the extents of the inner positions. `values` returns a
        scalar, or a tuple for a combiner of several parts. `finish(*parts)` returns what is stored;
        by default the parts themselves. `stride` orders the axes: one stride for each position and
        each inner position, largest outermost. By default positions go by the results' strides, and
        inner positions as given.
        """
        several = type(metas) is tuple
        outs = [self.new(meta) for meta in _listed(metas)]
        shape = outs[0].shape
        outer = by_stride(outs[0].stride if stride is None else stride[: len(shape)])
        inner = range(len(over)) if stride is None else _along_memory(stride[len(shape) :])
        axes = self._axes(shape, outer, over, list(inner))
        if axes is not None:
            extents, positions = axes
            space = len([k for k in outer if shape[k] != 1])
            row = positions[: len(shape)]
            given = values(row, positions[len(shape) :])
            parts = given if type(given) is tuple else (given,)
            names = tuple(range(len(parts)))
            made: Any = [expression.name(k, part.dtype) for k, part in enumerate(parts)]
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
        """Returns tensors whose element at i, j, ... combines `values` at all positions up to there
        along dimension `dim`: a cumulative sum, for instance. Parameters as those of `reduce`."""
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
            made: Any = [expression.name(k, part.dtype) for k, part in enumerate(parts)]
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
        """Writes into `out`: `element(i, j, ...)` returns positions in `out` and a value for them.

        i, j, ... run over `extents`. Only positions that differ along the dimensions `ordered` may
        write one element: they do so in ascending order, and the last one stays, or, with
        `combine`, all are combined with what is there.
        """
        outer = [k for k in range(len(extents)) if k not in ordered]
        apart = [extents[k] for k in outer]
        axes = self._axes(apart, range(len(outer)), [extents[k] for k in ordered])
        if axes is None or 0 in extents:
            return out
        own, found = axes
        positions = dict(zip((*outer, *ordered), found, strict=True))
        where, value = element(*[positions[k] for k in range(len(extents))])
        space = len([k for k in outer if extents[k] != 1])
        self._kernel(own, space, [self._stored(out, where, value, combine=combine)])
        return out

    def add(self, step: Step) -> None:
        """Adds a step of another kind than a kernel."""
        self.program.steps.append(step)

    def product(
        self, meta: TensorMeta, a: LoopOperand, b: LoopOperand, dtype: DType
    ) -> LoopOperand:
        """Returns the product (*batch, m, k) (*batch, k, n) -> (*batch, m, n), in `dtype`."""
        made: LoopOperand = matrix_products.product(self, meta, a, b, dtype)
        return made

    def gemm(self, out: LoopOperand, a: LoopOperand, b: LoopOperand) -> None:
        """Writes the matrix product into `out`, of float32 or float64, by BLAS."""
        matrix_products.gemm(self, out, a, b)

    def refuse(
        self, shape: Sequence[int], wrong: Callable[..., Scalar], *, once: object = None
    ) -> None:
        """Adds a check that abandons the program where `wrong(i, j, ...)` holds anywhere.

        The graph is then run by the ops' own kernels, of which one raises. Checks with the same key
        `once` are added once.
        """
        value_checks.refuse(self, shape, wrong, once)

    def check_index(
        self, index: LoopOperand, low: int, high: int, *, ignored: int | None = None
    ) -> None:
        """Adds a check that each element is `ignored`, or low <= element < high. The op raises
        otherwise, as eager does."""
        value_checks.check_index(self, index, low, high, ignored)

    # ----------------------------------------------------------------------------------- scalars
    def number(self, value: Any, dtype: DType) -> Scalar:
        """Returns the number in a dtype; an integer dtype cuts fractions off. Raises NoLoops for a
        number that the dtype does not hold."""
        if type(value) is complex:
            raise NoLoops
        if type(value) is SymInt and (dtype is dtypes.int64 or dtype.kind == dtypes.FLOATING):
            return expression.const(value, dtype)
        if type(value) is SizeFloat:
            if dtype is not dtypes.float64 and dtype is not dtypes.float32:
                raise NoLoops
            return expression.const(value, dtype)
        if type(value) is SymInt and dtype is dtypes.uint64 and is_proved(value >= 0):
            return expression.cast(expression.const(value, dtypes.int64), dtype)
        if dtype.kind == dtypes.INTEGER:
            if not math.isfinite(value) or number_in(dtype, int(value)) != int(value):
                raise NoLoops
        return expression.const(value, dtype)

    def cast(self, value: Computed, dtype: DType) -> Scalar:
        """Returns the value in a dtype; the value itself if it has that dtype."""
        return expression.cast(value, dtype) if type(value) is Scalar else self.number(value, dtype)

    def bits(self, value: Scalar, dtype: DType) -> Scalar:
        """Returns the value's bits as another dtype of the same size."""
        return expression.bits(value, dtype)

    def wide(self, value: Scalar) -> Scalar:
        """Returns the value in its accumulator's dtype: float32 for 16-bit floats."""
        return expression.cast(value, accumulator(value.dtype))

    def where(self, condition: Scalar, then: Computed, other: Computed) -> Scalar:
        """Returns `then` where the condition holds, else `other`; only that branch is computed."""
        return expression.where(condition, then, other)

    def truth(self, value: Scalar) -> Scalar:
        """Returns whether the value is not 0."""
        return value if value.dtype is dtypes.bool_ else expression.make("ne", value, 0)

    def all(self, *conditions: Scalar) -> Scalar:
        """Returns whether all conditions hold."""
        left = dict.fromkeys(c for c in conditions if c.op != "const" or not c.args[0])
        total: Scalar | None = None
        for condition in left:
            if condition.op == "const":
                return condition
            total = condition if total is None else total & condition
        return expression.const(True, dtypes.bool_) if total is None else total

    def inside(self, i: Position, low: int, high: int) -> Scalar:
        """Returns whether low <= i < high."""
        return self.all(i >= low, i < high)

    def position(self, i: Position) -> Scalar:
        """Returns the position as an int64 Scalar."""
        return i.scalar if type(i) is AxisIndex else self.cast(i, dtypes.int64)

    def make(self, op: str, *operands: Computed) -> Scalar:
        """A primitive by name ("eq", "sqrt", "not", ...) where there is no operator."""
        return expression.make(op, *operands)

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
        """Returns (extents of the axes, positions of `shape` and of `over`); None for no elements.

        A dimension of one element has no axis. But if there are inner dimensions, there is at least
        one inner axis.
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
        return Store(
            out.placed.buffer, out.address(positions), expression.bits(value, stored), **how
        )

    def _kernel(self, extents: tuple[int, ...], space: int, body: Sequence[Statement]) -> None:
        name = f"{self.name}_{len(self.program.steps)}"
        self.program.steps.append(Kernel(name, extents, space, tuple(body)))


# The names in the release before, for one release.
Operand, Writer = LoopOperand, LoopWriter


def _listed(metas: TensorMeta | tuple[TensorMeta, ...]) -> tuple[TensorMeta, ...]:
    return metas if isinstance(metas, tuple) else (metas,)


def by_stride(stride: Sequence[int]) -> list[int]:
    """Returns the dimensions ordered from the largest stride to the smallest."""
    return sorted(range(len(stride)), key=lambda k: -hint_of(stride[k]))


def _along_memory(stride: Sequence[int]) -> list[int]:
    """Returns the dimensions of a tensor that is only loaded, by stride; broadcast ones (stride 0)
    come outermost."""
    return sorted(range(len(stride)), key=lambda k: (bool(stride[k]), -hint_of(stride[k])))


def _apart(positions: tuple[Position, ...], out: LoopOperand) -> tuple[Position, ...]:
    """Returns positions of which no two have one address. Along a dimension of stride 0 the last
    element is written, as eager's copy leaves it. Raises NoLoops for other overlaps."""
    shape, stride = out.shape, out.stride
    if out.meta.dense or not has_internal_overlap(shape, stride):
        return positions
    steps = tuple([1 if s == 0 else n for n, s in zip(shape, stride, strict=True)])
    if has_internal_overlap(steps, stride):
        raise NoLoops
    return tuple([n - 1 if s == 0 else i for i, n, s in zip(positions, shape, stride, strict=True)])
