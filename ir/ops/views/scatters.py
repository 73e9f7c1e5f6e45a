"""Scatters of views: `select_scatter` and its like, which replace a part of a copy, and
`strided_accumulate`, the adjoint of `as_strided`, which adds elements that share an address.

As loops: where a condition on positions decides whether an element is in the part, one kernel
selects, which fuses with the producers of both. Else the part is stored over the copy. Spec:
`specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir.arrays import Array, ArrayBackend, Namespace, copied
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import (
    DTypeError,
    ShapeError,
)
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import (
    Cost,
    PureOp,
    ViewOp,
    parse_vjp,
    register,
    schema_of,
)
from aotlite.ir.op.dims import along
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.schema import listed
from aotlite.ir.ops.declare import Formulas, pure
from aotlite.ir.ops.index.positions import blocks
from aotlite.ir.ops.loops import Element, Loops, LoopTensor, Place, Position
from aotlite.ir.ops.precision import accumulator
from aotlite.ir.ops.views.view_ops import (
    AS_STRIDED,
    DIAGONAL,
    SELECT,
    SLICE,
    UNFOLD,
    Ints,
    window_on_operand,
)
from aotlite.ir.scalar.expression import Scalar


def scatter_of(
    viewed: ViewOp, *, vjp: Formulas = None, loops: Callable[..., object] | None = None
) -> PureOp:
    """Derives `<view>_scatter(self, src, ...)`: a copy of `self` with the viewed part replaced.

    One kernel serves every view: it copies the parent, takes the view of the copy, and writes `src`
    to it. The copy has the parent's exact strides, gaps included, as in PyTorch. `vjp` is for
    `as_strided`, whose gradients must have the result's strides.
    """
    view_args = viewed.schema.parameters[1:]
    viewed_names = [parameter.name for parameter in view_args]
    schema = schema_of(
        f"{viewed.name}_scatter(Tensor self, Tensor src{listed(view_args)}) -> Tensor"
    )

    def rule(self: TensorMeta, src: TensorMeta, *args: object) -> TensorMeta:
        seen, start = viewed.rule(self, *args)
        if seen.shape != src.shape:
            raise ShapeError(
                f"{schema.name}: argument 'src' has shape {src.shape}, expected {seen.shape}"
            )
        if seen.dtype is not src.dtype:
            raise DTypeError(
                f"{schema.name}: argument 'src' has dtype {src.dtype}, expected {seen.dtype}"
            )
        if seen.numel and (start < 0 or start + seen.span > self.span):
            raise ShapeError(
                f"{schema.name}: the window {seen} at {start} leaves the memory of {self}, "
                "expected one inside it"
            )
        if not self.dense and has_internal_overlap(self.shape, self.stride):
            return self.with_stride(layout.clone_strides(self.shape, self.stride))
        return self

    def kernel(
        arrays: ArrayBackend, meta: TensorMeta, parent: Array, src: Array, *args: Any
    ) -> Array:
        buffer = copied(arrays, parent, meta)
        seen, start = viewed.rule(meta, *args)
        target = arrays.strided(buffer, seen.dtype, seen.shape, seen.stride, start)
        arrays.copy(target, src)
        return arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0)

    op: PureOp = register(
        PureOp(
            schema,
            rule,
            cost=Cost.INDEXING,
            kernel=kernel,
            vjp=parse_vjp(schema, vjp or _scatter_formulas(viewed)),
            loops=loops or stored_over(viewed),
            dims=along("dim") if "dim" in viewed_names else None,
            linear=(("self", "src"),),
            moves=("self", "src"),
        )
    )
    return op


def _scatter_formulas(viewed: ViewOp) -> dict[str, Callable[..., Any]]:
    names = ", ".join(p.name for p in viewed.schema.parameters[1:])
    scope: dict[str, Any] = {"view_name": viewed.name}
    # A formula's parameter names say what it reads, so these two are made with the view's own
    # names.
    exec(
        f"def to_self(grad, src_meta, {names}):\n"
        f"    hole = grad.new_zeros(src_meta.shape)\n"
        f"    return grad._do(view_name + '_scatter', hole, {names})\n"
        f"def to_src(grad, {names}):\n"
        f"    return grad._do(view_name, {names})\n",
        scope,
    )
    return {"self": scope["to_self"], "src": scope["to_src"]}


def stored_over(viewed: ViewOp) -> Callable[..., LoopTensor]:
    """The loops of the scatter of a view: copies the whole, then stores the part over it."""

    def loops(
        k: Loops, meta: TensorMeta, whole: LoopTensor, part: LoopTensor, *args: object
    ) -> LoopTensor:
        seen, start = viewed.rule(meta, *args)
        # A view that sees a place twice may have as many elements and leave others out.
        is_all = seen.numel == meta.numel and seen.dense and meta.dense
        out = k.new(meta) if is_all else k.map(meta, lambda *i: whole[i])
        k.store(out.view(seen.shape, seen.stride, start), lambda *i: part[i])
        return out

    return loops


def select_loops(
    k: Loops, meta: TensorMeta, whole: LoopTensor, part: LoopTensor, dim: int, index: int
) -> LoopTensor:
    """Element `index` of a dimension is the part."""
    dim, index = dim % meta.ndim, index % meta.shape[dim]

    def element(*i: Position) -> Scalar:
        rest = i[:dim] + i[dim + 1 :]
        return k.where(k.inside(i[dim], index, index + 1), part[rest], whole[i])

    return k.map(meta, element)


def slice_loops(viewed: ViewOp) -> Callable[..., LoopTensor]:
    """A run of positions of a dimension is the part."""

    def loops(
        k: Loops,
        meta: TensorMeta,
        whole: LoopTensor,
        part: LoopTensor,
        dim: int,
        start: int | None,
        end: int | None,
        step: int,
    ) -> LoopTensor:
        dim = dim % meta.ndim
        first, last = sizes.slice_bounds(start, end, meta.shape[dim])
        if step > 1 and last - first > 1:
            return stored_over(viewed)(k, meta, whole, part, dim, start, end, step)

        def element(*i: Position) -> Scalar:
            at = (*i[:dim], i[dim] - first, *i[dim + 1 :])
            stop = first + part.shape[dim]
            return k.where(k.inside(i[dim], first, stop), part[at], whole[i])

        return k.map(meta, element)

    return loops


def diagonal_loops(
    k: Loops,
    meta: TensorMeta,
    whole: LoopTensor,
    part: LoopTensor,
    offset: int,
    dim1: int,
    dim2: int,
) -> LoopTensor:
    """Where two positions are `offset` apart the part is."""
    rows, columns = dim1 % meta.ndim, dim2 % meta.ndim
    if not part.shape[-1]:
        return k.map(meta, lambda *i: whole[i])

    def element(*i: Position) -> Scalar:
        rest = [x for dim, x in enumerate(i) if dim not in (rows, columns)]
        place = i[rows] if offset >= 0 else i[columns]
        on_it = (i[columns] - i[rows]).equals(offset)
        return k.where(on_it, part[(*rest, place)], whole[i])

    return k.map(meta, element)


# ---------------------------------------------------------------------- derived and companions
SELECT_SCATTER = scatter_of(SELECT, loops=select_loops)
SLICE_SCATTER = scatter_of(SLICE, loops=slice_loops(SLICE))
DIAGONAL_SCATTER = scatter_of(DIAGONAL, loops=diagonal_loops)
UNFOLD_SCATTER = scatter_of(UNFOLD)


def _in_memory_of(grad: Operand, meta: TensorMeta) -> Operand:
    """The gradient with the strides of `meta`, which `as_strided` refers to; zeros in the gaps."""
    if meta.dense:
        return grad if grad.meta.stride == meta.stride else grad.restride(meta.stride)
    room = grad.new_zeros((meta.span,))
    flat = room._do("as_strided_scatter", grad, meta.shape, meta.stride, 0)
    return window_on_operand(flat, meta.shape, meta.stride, 0)


def _window_to_self(
    grad: Operand, result_meta: TensorMeta, size: Ints, stride: Ints, offset: int
) -> Operand:
    hole = grad.new_zeros(size)
    memory = _in_memory_of(grad, result_meta)
    return memory._do("as_strided_scatter", hole, size, stride, offset)


def _window_to_src(
    grad: Operand, result_meta: TensorMeta, size: Ints, stride: Ints, offset: int
) -> Operand:
    return window_on_operand(_in_memory_of(grad, result_meta), size, stride, offset)


AS_STRIDED_SCATTER = scatter_of(AS_STRIDED, vjp={"self": _window_to_self, "src": _window_to_src})


def _accumulate_meta(
    self: TensorMeta, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> TensorMeta:
    if any(n < 0 for n in size):
        raise ShapeError(f"strided_accumulate: size is {size}, expected no negative number")
    if len(stride) != len(self.shape):
        raise ShapeError(
            f"strided_accumulate: stride is {stride}, expected one for each size of {self.shape}"
        )
    if any(step < 0 for step in stride):
        raise ShapeError(f"strided_accumulate: stride is {stride}, expected no negative number")
    span, room = layout.span(self.shape, stride), sizes.numel(size)
    if span and (offset < 0 or offset + span > room):
        raise ShapeError(
            f"strided_accumulate: the window ends at {offset + span}, expected at most {room}"
        )
    return self.as_contiguous(size)


def _accumulate(
    xp: Namespace,
    meta: TensorMeta,
    grad: Array,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
) -> Array:
    """Adds each element of `grad` to its address in contiguous memory of this size."""
    total = xp.zeros((meta.numel,), dtype=meta.dtype.numpy)
    if 0 in grad.shape:
        return xp.reshape(total, size)
    for part in blocks(grad.shape):
        given = grad[part] if part else grad
        begin = [cut.start for cut in part] + [0] * len(stride)
        address = xp.full(given.shape, offset, dtype=xp.int64)
        for dim, (length, step) in enumerate(zip(given.shape, stride, strict=True)):
            index = xp.arange(begin[dim], begin[dim] + length, dtype=xp.int64) * step
            address = address + xp.reshape(
                index, tuple(length if i == dim else 1 for i in range(len(stride)))
            )
        xp.add.at(total, xp.reshape(address, (-1,)), xp.reshape(given, (-1,)))
    return xp.reshape(total, size)


def _accumulate_loops(
    k: Loops,
    meta: TensorMeta,
    grad: LoopTensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
) -> LoopTensor | None:
    """Zeros, then the elements added, in order where addresses repeat."""
    if accumulator(meta.dtype) is not meta.dtype or meta.dtype is bool_:
        return None  # sums are rounded one by one
    dims = sorted(range(grad.ndim), key=lambda dim: -stride[dim])
    apart = set()
    for place, dim in enumerate(dims):
        rest = sum((grad.shape[d] - 1) * stride[d] for d in dims[place + 1 :])
        if stride[dim] <= rest and grad.shape[dim] > 1:
            break
        apart.add(dim)
    meeting = [dim for dim in range(grad.ndim) if dim not in apart and grad.shape[dim] > 1]
    is_all = not meeting and grad.meta.numel == meta.numel
    out = k.new(meta) if is_all else k.map(meta, lambda *i: 0)
    flat = out.view((meta.numel,), (1,))

    def element(*i: Position) -> tuple[Sequence[Place], Element]:
        place = sum([x * step for x, step in zip(i, stride, strict=True)], offset)
        return (place,), grad[i]

    k.scatter(flat, grad.shape, element, ordered=meeting, combine="sum" if meeting else None)
    return out


STRIDED_ACCUMULATE = pure(
    "strided_accumulate(Tensor self, int[] size, int[] stride, int offset=0) -> Tensor",
    meta=_accumulate_meta,
    kernel=_accumulate,
    loops=_accumulate_loops,
    vjp={
        "self": lambda grad, self_meta, stride, offset: window_on_operand(
            grad.contiguous(), self_meta.shape, stride, offset
        )
    },
    cost=Cost.INDEXING,
)
"""The adjoint of `as_strided`: zeros of `size`, with `self` added at the view's addresses."""
