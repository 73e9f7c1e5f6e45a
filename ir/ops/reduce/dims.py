"""Helpers of reductions: the reduced dimensions, the result's shape, gradients expanded back.

`dim=None` means all dimensions; so does an empty list where it does in PyTorch. Results are
contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import IndexOutOfRangeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.loops import Loops, LoopTensor, Place, Position

Dims = tuple[int, ...] | int | None


# --------------------------------------------------------------------------------- dimensions
def reduced_dims(name: str, dim: Dims, ndim: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """The dimensions that are reduced, ascending. A 0-d tensor takes dim 0 and -1 and has none."""
    if dim is None or (dim == () and empty_is_all):
        return tuple(range(ndim))
    wrapped = sizes.wrap_dims(sizes.as_tuple(dim), ndim, op=name)
    return tuple(sorted(wrapped)) if ndim else ()


def reduced(self: TensorMeta, dims: tuple[int, ...], keepdim: bool, dtype: DType) -> TensorMeta:
    """The meta of a reduction's result."""
    shape = with_ones(self.shape, dims) if keepdim else without(self.shape, dims)
    return tensor_meta(shape, None, dtype, self.device)


def with_ones(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with these dimensions of size 1."""
    return tuple([1 if i in dims else n for i, n in enumerate(shape)])


def without(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without these dimensions."""
    return tuple([n for i, n in enumerate(shape) if i not in dims])


def kept(value: Operand, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Operand:
    """A reduction's result, or its gradient, with the reduced dimensions kept as size 1."""
    dims = reduced_dims("reduction", dim, len(self_meta.shape))
    return value if keepdim or not dims else value.view(with_ones(self_meta.shape, dims))


def spread(grad: Operand, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Operand:
    """A reduction's gradient expanded to the operand's shape."""
    return kept(grad, self_meta, dim, keepdim).expand(self_meta.shape)


def count(self_meta: TensorMeta, dim: Dims) -> int:
    """The number of elements that each result reduces."""
    dims = reduced_dims("reduction", dim, len(self_meta.shape))
    return sizes.numel([self_meta.shape[i] for i in dims])


def refuse_empty(name: str, self: TensorMeta, dims: tuple[int, ...]) -> None:
    """Raises IndexOutOfRangeError for an empty reduction, which has no neutral element."""
    for i in dims:
        if self.shape[i] == 0:
            raise IndexOutOfRangeError(
                f"{name}: dimension {i} of shape {self.shape} has size 0, expected at least 1"
            )


# --------------------------------------------------------------------------------- dtypes
def summed(name: str, own: DType, dtype: DType | None) -> DType:
    """The dtype of a sum or product: the argument; else int64 of bool and integers."""
    return dtype or (own if own.is_differentiable else dtypes.int64)


# --------------------------------------------------------------------------------- loops
def reduction_loops(
    k: Loops,
    metas: Any,
    a: LoopTensor,
    reduction: tuple[tuple[int, ...], str, Callable[..., object]],
    finish: Callable[..., object] | None = None,
) -> Any:
    """The loops of a reduction of `a`: (dims, combiner, `value(element, positions)`).

    `value` returns a scalar, or a tuple for a combiner of several parts; `finish` maps these to the
    stored values. `metas` may keep the reduced dimensions or not. Axes are in the order of the
    operand's memory.
    """
    dims, kind, value = reduction
    first = metas[0] if type(metas) is tuple else metas
    left = [i for i in range(a.ndim) if i not in dims]
    places = left if len(first.shape) == len(left) else range(a.ndim)

    def values(row: Sequence[Position], inner: Sequence[Position]) -> object:
        at: list[Place] = [0] * a.ndim
        for dim, position in [*zip(places, row, strict=True), *zip(dims, inner, strict=True)]:
            at[dim] = position
        return value(a[tuple(at)], at)

    stride = [a.stride[i] for i in (*places, *dims)]
    over = [a.shape[i] for i in dims]
    return k.reduce(kind, metas, over, values, finish=finish, stride=stride)
