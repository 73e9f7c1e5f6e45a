"""Losses of each element and its target: a pointwise op, and a composite that reduces it.

Targets get gradients as well as inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pointwise, pointwise_rule
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.pointwise_rows import binary
from aotlite.ir.ops.precision import OperandT, widened


# ---------------------------------------------------------------------------------------- shared
def reduced(name: str, losses: OperandT, reduction: str) -> OperandT:
    """The losses, their sum or their mean. Raises ArgumentError for another word."""
    match reduction:
        case "none":
            return losses
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
    raise bad_reduction(name, reduction, "'mean', 'sum' or 'none'")


def bad_reduction(name: str, reduction: str, expected: str) -> ArgumentError:
    """The error for an unknown reduction."""
    return ArgumentError(f"{name}: reduction is {reduction!r}, expected {expected}")


def _weighted(name: str, losses: OperandT, weight: OperandT | None, reduction: str) -> OperandT:
    """As `reduced`, with a weight for each loss; the mean is by the sum of the weights."""
    if weight is None:
        return reduced(name, losses, reduction)
    _check_weight(name, weight, losses)
    if reduction != "mean":
        return reduced(name, losses * weight, reduction)
    return (losses * weight).sum() / weight.sum()


def _check_weight(name: str, weight: Operand, losses: Operand) -> None:
    if weight.shape != losses.shape:
        raise ShapeError(
            f"{name}: argument 'weight' has shape {weight.shape}, expected {losses.shape}"
        )


def _floating(name: str) -> Callable[[DType], DType]:
    """The dtype of a result that is the operands', which must be a floating one."""
    return partial(require_floating, name)


# ----------------------------------------------------------------------------- distances of reals
def _apart(a: Operand, b: Operand) -> Operand:
    """`a - b`, of which one may be bool, which `sub` refuses."""
    if a.dtype is dtypes.bool_:
        a = a * 1
    return a - (b * 1 if b.dtype is dtypes.bool_ else b)


MSE_LOSS = binary(
    "mse_loss",
    operands="Tensor self, Tensor target",
    element=lambda f, a, b: (a - b) * (a - b),
    vjp=(
        lambda grad, self, target: grad * (_apart(self, target) * 2),
        lambda grad, self, target: grad * (_apart(target, self) * 2),
    ),
    rule=pointwise_rule("mse_loss", _floating("mse_loss")),
    inplace=False,
)


@composite(is_method=False)
def mse_loss(
    input: OperandT, target: OperandT, *, reduction: str = "mean", weight: OperandT | None = None
) -> OperandT:
    """The squared difference; the operands broadcast."""
    if weight is None:
        return reduced("mse_loss", input._do("mse_loss", target), reduction)
    return _weighted("mse_loss", (input - target).pow(2), weight, reduction)


@composite(is_method=False)
def l1_loss(
    input: OperandT, target: OperandT, *, reduction: str = "mean", weight: OperandT | None = None
) -> OperandT:
    """The absolute difference; the operands broadcast."""
    return _weighted("l1_loss", (input - target).abs(), weight, reduction)


def _smooth(f: Any, a: Operand, b: Operand, beta: float) -> Operand:
    size = f.abs(a - b)
    return f.where(f.less(size, beta), size * size * 0.5 / beta, size - 0.5 * beta)


def _smooth_slope(self: Operand, target: Operand, beta: float) -> Operand:
    apart = _apart(self, target)
    return (apart.abs() >= beta).where(apart.sign(), apart / beta)


SMOOTH_L1_LOSS: PureOp = pointwise(
    "smooth_l1_loss(Tensor self, Tensor target, float beta=1.0) -> Tensor",
    element=_smooth,
    vjp={
        "self": lambda grad, self, target, beta: grad * _smooth_slope(self, target, beta),
        "target": lambda grad, self, target, beta: grad * _smooth_slope(target, self, beta),
    },
    rule=pointwise_rule("smooth_l1_loss", _floating("smooth_l1_loss")),
)


@composite(is_method=False)
def smooth_l1_loss(
    input: OperandT, target: OperandT, *, reduction: str = "mean", beta: float = 1.0
) -> OperandT:
    """The absolute difference, squared below `beta`; the operands broadcast.

    Source: Girshick, "Fast R-CNN" (ICCV 2015).
    """
    name = "smooth_l1_loss"
    if not beta >= 0:
        raise ArgumentError(f"{name}: argument 'beta' is {beta}, expected at least 0")
    if beta == 0:
        return reduced(name, (input - target).abs(), reduction)
    return reduced(name, input._do(name, target, beta), reduction)


def _huber(f: Any, a: Operand, b: Operand, delta: float) -> Operand:
    size = f.abs(a - b)
    return f.where(f.less_equal(size, delta), size * size * 0.5, (size - 0.5 * delta) * delta)


def _huber_slope(self: Operand, target: Operand, delta: float) -> Operand:
    apart = _apart(self, target)
    return (apart.abs() > delta).where(apart.sign() * delta, apart)


HUBER_LOSS: PureOp = pointwise(
    "huber_loss(Tensor self, Tensor target, float delta=1.0) -> Tensor",
    element=_huber,
    vjp={
        "self": lambda grad, self, target, delta: grad * _huber_slope(self, target, delta),
        "target": lambda grad, self, target, delta: grad * _huber_slope(target, self, delta),
    },
    rule=pointwise_rule("huber_loss", _floating("huber_loss")),
)


@composite(is_method=False)
def huber_loss(
    input: OperandT,
    target: OperandT,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: OperandT | None = None,
) -> OperandT:
    """Half the squared difference, straight beyond `delta`; the operands broadcast.

    Source: Huber, "Robust estimation of a location parameter" (1964).
    """
    name = "huber_loss"
    if not delta > 0:
        raise ArgumentError(f"{name}: argument 'delta' is {delta}, expected above 0")
    losses = input._do(name, target, delta)
    if weight is not None:
        _check_weight(name, weight, losses)
        losses = losses * weight
    return reduced(name, losses, reduction)


# --------------------------------------------------------------------------------- probabilities
# PyTorch's limits; the second is 1e-12 rounded to float32.
_LEAST_LOG, _LEAST_SPREAD = -100.0, 9.999999960041972e-13


def _check_unit(xp: Namespace, argument: str, a: Array) -> None:
    outside = xp.logical_not(xp.logical_and(a >= 0, a <= 1))
    if bool(xp.any(outside)):
        found = xp.reshape(a, (-1,))[xp.argmax(xp.reshape(outside, (-1,)))].tolist()
        raise ArgumentError(
            f"binary_cross_entropy: an element of '{argument}' is {found}, expected 0 to 1"
        )


def _bce_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    _check_unit(xp, "input", a)
    _check_unit(xp, "target", b)
    return _bce(xp, a, b)


def _bce(f: Any, a: Any, b: Any) -> Any:
    yes, no = f.maximum(f.log(a), _LEAST_LOG), f.maximum(f.log1p(-a), _LEAST_LOG)
    return (b - 1.0) * no - b * yes


def _bce_to_self(grad: Operand, self: Operand, target: Operand) -> Operand:
    return grad * (self - target) / ((1 - self) * self).clamp(_LEAST_SPREAD, None)


def _bce_to_target(grad: Operand, self: Operand) -> Operand:
    yes, no = self.log(), (-self).log1p()
    return grad * (no.clamp(_LEAST_LOG, None) - yes.clamp(_LEAST_LOG, None))


def _bce_rule(self: TensorMeta, target: TensorMeta) -> TensorMeta:
    name = "binary_cross_entropy"
    _same_form(name, self, target)
    if target.dtype is not self.dtype:
        raise DTypeError(
            f"{name}: argument 'target' has dtype {target.dtype}, expected {self.dtype}"
        )
    return _BCE_RULE(self, target)


def _same_form(name: str, input: TensorMeta, target: TensorMeta) -> None:
    if target.shape != input.shape:
        raise ShapeError(
            f"{name}: argument 'target' has shape {target.shape}, expected {input.shape}"
        )


_BCE_RULE = pointwise_rule("binary_cross_entropy", _floating("binary_cross_entropy"))
BINARY_CROSS_ENTROPY = binary(
    "binary_cross_entropy",
    operands="Tensor self, Tensor target",
    kernel=_bce_kernel,
    element=_bce,
    vjp=(_bce_to_self, _bce_to_target),
    rule=_bce_rule,
    inplace=False,
)


@composite(is_method=False)
def binary_cross_entropy(
    input: OperandT, target: OperandT, weight: OperandT | None = None, *, reduction: str = "mean"
) -> OperandT:
    """-(target log(input) + (1 - target) log(1 - input)), of logarithms of at least -100."""
    losses = input._do("binary_cross_entropy", target)
    losses = losses if weight is None else losses * weight
    return reduced("binary_cross_entropy", losses, reduction)


def _logits(f: Any, a: Operand, b: Operand, pos_weight: Operand | None) -> Operand:
    loss = f.log1p(f.exp(-f.abs(a))) + f.maximum(-a, 0)
    return (1.0 - b) * a + (loss if pos_weight is None else ((pos_weight - 1.0) * b + 1.0) * loss)


def _softplus(value: Operand) -> Operand:
    """log(1 + exp(value)) without overflow."""
    return (-value.abs()).exp().log1p() + value.relu()


def _logits_to_self(
    grad: Operand, self: Operand, target: Operand, pos_weight: Operand | None
) -> Operand:
    likely = widened(self).sigmoid()
    if pos_weight is None:
        return grad * (likely - target)
    hits = target * pos_weight
    return grad * ((hits + 1 - target) * likely - hits)


def _logits_to_target(grad: Operand, self: Operand, pos_weight: Operand | None) -> Operand:
    if pos_weight is None:
        return -self * grad
    return grad * (pos_weight * _softplus(-self) - _softplus(self))


def _logits_rule(self: TensorMeta, target: TensorMeta, pos_weight: TensorMeta | None) -> TensorMeta:
    name = "binary_cross_entropy_with_logits"
    _same_form(name, self, target)
    # As in PyTorch, which begins with a product by the target, its layout goes first.
    meta = _LOGITS_RULE(target, self, pos_weight)
    if meta.shape != self.shape:
        shape = pos_weight.shape if pos_weight is not None else ()
        raise ShapeError(
            f"{name}: argument 'pos_weight' has shape {shape}, expected one that broadcasts to "
            f"{self.shape}"
        )
    return meta


_LOGITS_RULE = pointwise_rule(
    "binary_cross_entropy_with_logits", _floating("binary_cross_entropy_with_logits")
)
BINARY_CROSS_ENTROPY_WITH_LOGITS: PureOp = pointwise(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? pos_weight=None) "
    "-> Tensor",
    element=_logits,
    vjp={
        "self": _logits_to_self,
        "target": _logits_to_target,
        "pos_weight": lambda grad, self, target: grad * target * _softplus(-self),
    },
    rule=_logits_rule,
)


@composite(is_method=False)
def binary_cross_entropy_with_logits(
    input: OperandT,
    target: OperandT,
    weight: OperandT | None = None,
    *,
    reduction: str = "mean",
    pos_weight: object = None,
) -> OperandT:
    """binary_cross_entropy of the sigmoid of `input`; `pos_weight` is for the targets' share."""
    name = "binary_cross_entropy_with_logits"
    losses = input._do(name, target, pos_weight)
    return reduced(name, losses if weight is None else losses * weight, reduction)


@composite(is_method=False)
def kl_div(
    input: OperandT, target: OperandT, *, reduction: str = "mean", log_target: bool = False
) -> OperandT:
    """target (log(target) - input), for logarithms of probabilities; `log_target`: of both.

    "batchmean" is the sum by the first size, which is the divergence itself.
    Source: Kullback and Leibler, "On information and sufficiency" (1951).
    """
    for operand in (input, target):
        require_floating("kl_div", operand.dtype)
    if log_target:
        losses = target.exp() * (target - input)
    else:
        empty = target.eq(0)
        logs = empty.where(1, target).log()
        losses = target * logs - target * input
    if reduction != "batchmean":
        if reduction not in ("mean", "sum", "none"):
            raise bad_reduction("kl_div", reduction, "'mean', 'batchmean', 'sum' or 'none'")
        return reduced("kl_div", losses, reduction)
    total = losses.sum()
    return total / input.size(0) if input.ndim else total
