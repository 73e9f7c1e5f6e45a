"""`keep_history(past, value)`: the value with the history of another one.

    with no_grad(): x.mul_(2)       x has new elements, and the history that it had
    value = mul(x, 2)               has none; keep_history(x, value) has that of x

Rules: FNT-6. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.tensor import Tensor


class KeptHistory(Function):
    """The second operand's elements, and the first one's gradient."""

    @staticmethod
    def forward(ctx: Any, past: Tensor, value: Tensor) -> Tensor:
        copy: Tensor = value.clone()
        return copy

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class FlatHistory(Function):
    """The second operand's elements, on which the first one's gradient does not depend."""

    @staticmethod
    def forward(ctx: Any, past: Tensor, value: Tensor) -> Tensor:
        ctx.shape, ctx.dtype = past.shape, past.dtype
        copy: Tensor = value.clone()
        return copy

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_zeros(ctx.shape, dtype=ctx.dtype), None


def keep_history(past: Tensor, value: Tensor) -> Tensor:
    """A copy of `value` with the history of `past`: a write that autograd does not see."""
    kept: Tensor = KeptHistory.apply(past, value)
    return kept


def flat_history(past: Tensor, value: Tensor) -> Tensor:
    """A copy of `value` with zeros as the gradient of `past`: a write of what has no gradient."""
    flat: Tensor = FlatHistory.apply(past, value)
    return flat
