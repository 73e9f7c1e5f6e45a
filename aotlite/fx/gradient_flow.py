"""`GradientFlow`: whether the value of a proxy would require a gradient, as eager's does.

A tensor and its views share it, as they share a history: a write with a gradient to one of them
changes all. Rule: FXG-29. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, Op, PureOp, ViewOp


@attrs.define(eq=False)
class GradientFlow:
    """Whether gradients flow to a tensor and its views."""

    requires: bool = False


def flow_behind(
    op: Op, flows: Iterable[GradientFlow], meta: object, grad_mode: bool | None
) -> GradientFlow:
    """The flow of the result of an op; `flows` are those of its operands, in order.

    The flow of the first operand itself, for a view, and for an op that writes it.
    """
    operands = list(flows)
    asks = bool(grad_mode) and any(each.requires for each in operands)
    if isinstance(op, (ViewOp, MultiViewOp)):
        if isinstance(op, ViewOp) and op.cuts_history:
            return GradientFlow()
        return operands[0] if operands else GradientFlow()
    if isinstance(op, GeometryOp):
        return operands[0]
    fits = type(meta) is TensorMeta and meta.dtype.is_differentiable
    if isinstance(op, InplaceOp):
        can = fits and op.functional.vjp is not None
        operands[0].requires = operands[0].requires or (asks and can)
        return operands[0]
    can = fits and isinstance(op, PureOp) and op.vjp is not None
    return GradientFlow(asks and can)
