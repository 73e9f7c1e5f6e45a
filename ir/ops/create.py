"""Copies and new values: clone, restride, copy_, fill_, full, arange."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes, layout, sizes
from aotlite.ir.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import inplace_of, pure


def _clone_rule(self: TensorMeta) -> TensorMeta:
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


CLONE = pure(
    "clone(Tensor self) -> Tensor",
    meta=_clone_rule,
    kernel=lambda xp, meta, a: a,
    vjp={"self": lambda grad: grad},
    cost=Cost.POINTWISE,
)
"""A copy with the same strides if they are dense, else those PyTorch's preserve_format gives."""

def _restride_rule(self: TensorMeta, stride: tuple[int, ...]) -> TensorMeta:
    if len(stride) != len(self.shape) or any(step < 0 for step in stride):
        raise ShapeError(
            f"restride: argument 'stride' is {stride}, expected {len(self.shape)} strides, none "
            "negative"
        )
    return self.with_stride(stride)


RESTRIDE = pure(
    "restride(Tensor self, int[] stride) -> Tensor",
    meta=_restride_rule,
    kernel=lambda xp, meta, a, stride: a,
    vjp={"self": lambda grad: grad},
    cost=Cost.POINTWISE,
)
"""A copy with exactly these strides (FUN-12)."""


# ------------------------------------------------------------------------------ overwriting
def _copy_rule(self: TensorMeta, src: TensorMeta) -> TensorMeta:
    if sizes.broadcast_shapes(self.shape, src.shape, op="copy_") != self.shape:
        raise ShapeError(
            f"copy_: the source has shape {src.shape}, expected one that broadcasts to {self.shape}"
        )
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


COPY: PureOp = pure(
    "copy(Tensor self, Tensor src) -> Tensor",
    meta=_copy_rule,
    kernel=lambda xp, meta, a, src: xp.astype(xp.broadcast_to(src, meta.shape), meta.dtype.numpy),
    vjp={
        "self": lambda grad: grad.new_zeros(grad.shape),
        "src": lambda grad: grad,
    },
    cost=Cost.POINTWISE,
)
"""`src` broadcast and cast to self's geometry; self's values do not matter (FUN-5)."""
COPY_ = inplace_of(COPY, overwrites=True)

FILL: PureOp = pure(
    "fill(Tensor self, Scalar value) -> Tensor",
    meta=lambda self, value: self.with_stride(layout.clone_strides(self.shape, self.stride)),
    kernel=lambda xp, meta, a, value: xp.full(meta.shape, value, dtype=meta.dtype.numpy),
    vjp={"self": lambda grad: grad.new_zeros(grad.shape)},
    cost=Cost.FACTORY,
)
FILL_ = inplace_of(FILL, overwrites=True)


# ------------------------------------------------------------------------------- from nothing
def _full_rule(
    size: tuple[int, ...], fill_value: type, dtype: DType | None, device: Any
) -> TensorMeta:
    if any(n < 0 for n in size):
        raise ShapeError(f"full: size is {size}, expected no negative number")
    if dtype is None:
        dtype = dtypes.dtype_of_scalar(fill_value())
    return tensor_meta(size, None, dtype, device or CPU)


FULL: PureOp = pure(
    "full(int[] size, Scalar fill_value, *, dtype? dtype=None, device? device=None) -> Tensor",
    meta=_full_rule,
    kernel=lambda xp, meta, size, value, dtype, device: xp.full(
        size, value, dtype=meta.dtype.numpy
    ),
    vjp=None,
    cost=Cost.FACTORY,
)


def _arange_rule(
    count: int, start: type, step: type, dtype: DType | None, device: Any
) -> TensorMeta:
    if count < 0:
        raise ShapeError(f"arange_of: argument 'count' is {count}, expected at least 0")
    if dtype is None:
        dtype = dtypes.dtype_of_scalar(start() + step())
    return tensor_meta((count,), None, dtype, device or CPU)


def _arange_kernel(
    xp: Any, meta: TensorMeta, count: int, start: Any, step: Any, dtype: Any, device: Any
) -> Any:
    whole = meta.dtype.kind < dtypes.float32.kind
    index = xp.arange(count, dtype=xp.int64 if whole else xp.float64)
    return xp.astype(index * step + start, meta.dtype.numpy)


ARANGE: PureOp = pure(
    "arange_of(int count, Scalar start, Scalar step, *, dtype? dtype=None, device? device=None)"
    " -> Tensor",
    meta=_arange_rule,
    kernel=_arange_kernel,
    vjp=None,
    cost=Cost.FACTORY,
)
"""`count` numbers from `start` on; the public `arange` computes the count."""
