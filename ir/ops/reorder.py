"""Ops that put elements elsewhere by rule: flip, roll, tril, triu."""

from __future__ import annotations

from typing import Any

from aotlite.ir import layout, sizes
from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import pure


def _flip_rule(self: TensorMeta, dims: tuple[int, ...]) -> TensorMeta:
    sizes.wrap_dims(dims, len(self.shape), op="flip")
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


FLIP: PureOp = pure(
    "flip(Tensor self, int[] dims) -> Tensor",
    meta=_flip_rule,
    kernel=lambda xp, meta, a, dims: xp.flip(a, axis=dims) if a.shape else a,
    vjp={"self": lambda grad, dims: grad.flip(dims)},
    cost=Cost.INDEXING,
)


def _roll_rule(self: TensorMeta, shifts: tuple[int, ...], dims: tuple[int, ...]) -> TensorMeta:
    expected = len(dims) or 1
    if len(shifts) != expected:
        raise ShapeError(f"roll: shifts is {shifts}, expected {expected} for dims {dims}")
    for dim in dims:  # a dimension may be rolled twice
        sizes.wrap_dim(dim, len(self.shape), op="roll")
    if self.numel == 0 and (dims or len(self.shape) == 1):
        return self  # PyTorch clones an empty tensor, and flattens it first where no dim is given
    return tensor_meta(self.shape, None, self.dtype, self.device)


def _roll_kernel(xp: Any, meta: TensorMeta, a: Any, shifts: Any, dims: Any) -> Any:
    if not a.shape:
        return a
    return xp.roll(a, shifts, axis=dims) if dims else xp.roll(a, shifts[0])


ROLL: PureOp = pure(
    "roll(Tensor self, int[] shifts, int[] dims=[]) -> Tensor",
    meta=_roll_rule,
    kernel=_roll_kernel,
    vjp={"self": lambda grad, shifts, dims: grad.roll(tuple([-n for n in shifts]), dims)},
    cost=Cost.INDEXING,
)


def _triangle(name: str) -> PureOp:
    def rule(self: TensorMeta, diagonal: int) -> TensorMeta:
        if len(self.shape) < 2:
            raise ShapeError(
                f"{name}: the tensor has shape {self.shape}, expected at least 2 dimensions"
            )
        return tensor_meta(self.shape, None, self.dtype, self.device)

    return pure(
        f"{name}(Tensor self, int diagonal=0) -> Tensor",
        meta=rule,
        kernel=lambda xp, meta, a, diagonal: getattr(xp, name)(a, k=diagonal),
        vjp={"self": lambda grad, diagonal: getattr(grad, name)(diagonal)},
        cost=Cost.INDEXING,
        inplace=True,
    )


TRIL = _triangle("tril")
TRIU = _triangle("triu")
