"""Distributing, redistributing and gathering as functions with gradients.

A gradient goes back the other way: what was cut is gathered, what was gathered is cut. It is that
of the whole: no rank's part is counted twice. Rules: SHD-13. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.op import OPS
from aotlite.sharding.mesh import Mesh
from aotlite.sharding.placements import Placed, Placement, Replicate, Shard
from aotlite.sharding.redistribution import cut, owned, redistributed, share


def back(placement: Placement) -> Placed:
    """What a gradient of a tensor that is placed so is brought to."""
    return placement if isinstance(placement, Shard) else Replicate()


@attrs.frozen
class Form:
    """Brings a gradient to a mesh and a placement: a sharded one, a dense one, and one of a class
    that says what it is as a dense one. Any other is left."""

    cls: type[Any]
    mesh: Mesh
    placement: Placed

    def __call__(self, grad: object) -> Any:
        if isinstance(grad, self.cls):
            return grad.redistribute(self.placement) if grad.mesh == self.mesh else grad
        method = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
        dense = grad if method is None else method(None, Tensor)
        if not isinstance(dense, Tensor) or is_wrapper(dense):
            return grad
        return self.cls.from_dense(dense, self.mesh, self.placement)


def _brought(ctx: Any, grad: object) -> object:
    """A gradient, sharded or dense, in the placement of what it is of."""
    if isinstance(grad, ctx.cls):
        return grad.redistribute(ctx.back)
    return ctx.cls.from_dense(grad, ctx.mesh, ctx.back)


def _distributed(cls: type[Any], tensor: Tensor, mesh: Mesh, placement: Placed) -> object:
    """The parts are copies, also where a rank holds the whole."""

    def on(rank: int) -> Tensor:
        if isinstance(placement, Shard):
            part: Tensor = cut(tensor, placement.dim, rank, mesh.size)
            return part
        if isinstance(placement, Replicate):
            whole: Tensor = owned(tensor)
            return whole
        shared: Tensor = share(tensor, placement.reduce_op, rank)
        return shared

    return cls.of(mesh, placement, mesh.each(on, []), OPS["clone"].infer((tensor,)))


class FromDense(Function):
    """A dense tensor, distributed."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, cls: type[Tensor], tensor: Tensor, mesh: Mesh, placement: Placed) -> Any:
        return _distributed(cls, tensor, mesh, placement)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, grad.full_tensor() if hasattr(grad, "full_tensor") else grad, None, None


class Redistribute(Function):
    """A sharded tensor in another placement."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, x: Any, placement: Placed) -> Any:
        ctx.cls, ctx.mesh, ctx.back = type(x), x.mesh, back(x.placement)
        parts = redistributed(x.mesh, x.parts, x.placement, placement)
        return type(x).of(x.mesh, placement, parts, OPS["clone"].infer((x,)))

    @staticmethod
    def backward(ctx: Any, grad: object) -> Any:
        return _brought(ctx, grad), None


class Full(Function):
    """The whole of a sharded tensor."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.cls, ctx.mesh, ctx.back = type(x), x.mesh, back(x.placement)
        whole = redistributed(x.mesh, x.parts, x.placement, Replicate())[0]
        stride = OPS["clone"].infer((x,)).stride  # type: ignore[union-attr]
        if whole.meta.stride != stride:
            return whole._do("restride", stride)
        return owned(whole) if x.placement == Replicate() else whole

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _brought(ctx, grad)
