"""Normalization of each channel: by the batch's statistics in training, by given ones in eval.

The ops are pure; `nn.functional.batch_norm` updates the running statistics.
Source: Ioffe and Szegedy, "Batch normalization" (ICML 2015).
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops import expansions
from aotlite.ir.ops.composed import composed
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.nn.normalize import (
    by_channel,
    channel_sum,
    check_affine,
    check_channels,
)
from aotlite.ir.ops.precision import accumulator, cast, wide, widened
from aotlite.ir.ops.shape.memory_format import image_like


def _check(input: TensorMeta, **values: TensorMeta | None) -> None:
    check_channels("batch_norm", input)
    for argument, meta in values.items():
        if meta is not None:
            check_affine("batch_norm", argument, meta, input.shape[1:2], input)


# ---------------------------------------------------------------------------------- in training
def _train_rule(
    input: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, eps: float
) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    _check(input, weight=weight, bias=bias)
    value = tensor_meta(input.shape[1:2], None, accumulator(input.dtype), input.device)
    return image_like(input, input.shape), value, value


def _unit(input: Any, mean: Any, var: Any, eps: float) -> tuple[Any, Any]:
    """The input with mean 0 and variance 1 a channel, and what it was multiplied by."""
    rank = input.ndim
    scale = by_channel((widened(var) + eps).rsqrt(), rank)
    return (widened(input) - by_channel(mean, rank)) * scale, scale


def _train_to_input(
    input: Any,
    weight: Any,
    eps: float,
    grad_output: Any = None,
    grad_mean: Any = None,
    grad_var: Any = None,
) -> Any:
    rank, dims = input.ndim, (0, *range(2, input.ndim))
    wider = widened(input)
    centered = wider - wider.mean(dims, True)
    terms = []
    if grad_output is not None:
        scale = ((centered * centered).mean(dims, True) + eps).rsqrt()
        unit = centered * scale
        grad = widened(grad_output)
        if weight is not None:
            grad = grad * by_channel(weight, rank)
        rest = grad - grad.mean(dims, True) - unit * (grad * unit).mean(dims, True)
        terms.append(rest * scale)
    count = max(input.numel() // max(input.shape[1], 1), 1)
    statistics = []
    if grad_mean is not None:
        statistics.append(by_channel(grad_mean, rank))
    if grad_var is not None:
        statistics.append(by_channel(grad_var, rank) * centered * 2.0)
    if statistics:
        terms.append((reduce(add, statistics) / count).expand(input.shape))
    return reduce(add, terms)


def _train_to_weight(grad_output: Any, input: Any, mean: Any, var: Any, eps: float) -> Any:
    unit, _ = _unit(input, mean, var, eps)
    return channel_sum(widened(grad_output) * unit)


def _train(
    input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> tuple[Any, Any, Any]:
    dims = (0, *range(2, input.ndim))
    unit, mean, var = expansions.standard(widened(input), dims, eps)
    weight, bias = expansions.by_channel(input, weight, bias)
    result = expansions.affine(unit, weight, bias).to(input.dtype)
    return result, mean.view(input.shape[1:2]), var.view(input.shape[1:2])


BATCH_NORM_TRAIN: PureOp = composed(
    "batch_norm_train(Tensor input, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) "
    "-> (Tensor output, Tensor mean, Tensor var)",
    meta=_train_rule,
    vjp={
        "input": _train_to_input,
        "weight": _train_to_weight,
        "bias": lambda grad_output: channel_sum(grad_output),
    },
    cost=Cost.REDUCTION,
    as_=_train,
)
"""(n, c, *) normalized by the batch, and the mean and biased variance of each channel, (c,)."""


# -------------------------------------------------------------------------------------- in eval
def _eval_rule(
    input: TensorMeta,
    running_mean: TensorMeta,
    running_var: TensorMeta,
    weight: TensorMeta | None,
    bias: TensorMeta | None,
    eps: float,
) -> TensorMeta:
    _check(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    return image_like(input, input.shape)


def _eval_kernel(
    xp: Any, meta: TensorMeta, a: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    """`_eval` on arrays: as a composition it takes half as long again for few numbers."""
    sizes = (1, -1, *[1] * (a.ndim - 2))
    mean, var, weight, bias = (
        None if v is None else xp.reshape(wide(xp, v, meta.dtype), sizes)
        for v in (mean, var, weight, bias)
    )
    unit = (wide(xp, a, meta.dtype) - mean) * xp.reciprocal(xp.sqrt(var + eps))
    unit = unit if weight is None else unit * weight
    return cast(xp, unit if bias is None else unit + bias, meta.dtype)


def _eval_to_input(grad: Any, running_var: Any, weight: Any, eps: float) -> Any:
    scale = (widened(running_var) + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    return widened(grad) * by_channel(scale, grad.ndim)


def _eval_to_weight(grad: Any, input: Any, running_mean: Any, running_var: Any, eps: float) -> Any:
    unit, _ = _unit(input, running_mean, running_var, eps)
    return channel_sum(widened(grad) * unit)


def _eval_to_mean(grad: Any, running_var: Any, weight: Any, eps: float) -> Any:
    return -channel_sum(_eval_to_input(grad, running_var, weight, eps))


def _eval_to_var(
    grad: Any, input: Any, running_mean: Any, running_var: Any, weight: Any, eps: float
) -> Any:
    unit, scale = _unit(input, running_mean, running_var, eps)
    moved = channel_sum(_eval_to_input(grad, running_var, weight, eps) * unit * scale)
    return moved * -0.5


def _eval(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
) -> Any:
    scale = (widened(running_var) + eps).sqrt().reciprocal()
    values = (widened(running_mean), scale, weight, bias)
    mean, scale, weight, bias = expansions.by_channel(input, *values)
    return expansions.affine((widened(input) - mean) * scale, weight, bias).to(input.dtype)


BATCH_NORM_EVAL: PureOp = pure(
    "batch_norm_eval(Tensor input, Tensor running_mean, Tensor running_var, "
    "Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    meta=_eval_rule,
    vjp={
        "input": _eval_to_input,
        "running_mean": _eval_to_mean,
        "running_var": _eval_to_var,
        "weight": _eval_to_weight,
        "bias": lambda grad: channel_sum(grad),
    },
    cost=Cost.REDUCTION,
    kernel=_eval_kernel,
    expands=_eval,
)
"""(n, c, *) normalized by given statistics."""
