"""Normalization by statistics: layer_norm, group_norm and rms_norm of each row or group, batch_norm
of each channel, by the batch's statistics in training and by given ones in eval.

The ops are pure; `nn.functional.batch_norm` updates the running statistics.
Source of batch_norm: Ioffe and Szegedy, "Batch normalization" (ICML 2015).
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import spelled, trailing
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.composed import affine, as_channels, composed, over, standard
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_floating, require_inexact
from aotlite.ir.ops.precision import accumulator, cast, wide, widened
from aotlite.ir.ops.shape.memory_format import image_like
from aotlite.ir.ops.views.forms import in_shape

Ints = tuple[int, ...]


def _layer_norm_rule(
    input: TensorMeta,
    normalized_shape: Ints,
    weight: TensorMeta | None,
    bias: TensorMeta | None,
    eps: float,
) -> TensorMeta:
    if not normalized_shape or input.shape[-len(normalized_shape) :] != normalized_shape:
        raise ShapeError(
            f"layer_norm: normalized_shape is {normalized_shape}, expected one or more of the last "
            f"sizes of the input's shape {input.shape}"
        )
    require_floating("layer_norm", input.dtype)
    for argument, meta in (("weight", weight), ("bias", bias)):
        if meta is not None:
            check_affine("layer_norm", argument, meta, normalized_shape, input)
    # As in PyTorch the result is contiguous, whatever the input's strides.
    return tensor_meta(input.shape, None, input.dtype, input.device)


def check_affine(
    name: str, argument: str, meta: TensorMeta, shape: Ints, input: TensorMeta
) -> None:
    """Raises unless a weight, bias or statistic has this shape and fits the input's dtype.

    That of a 16-bit input may be float32.
    """
    if meta.shape != shape:
        raise ShapeError(f"{name}: argument '{argument}' has shape {meta.shape}, expected {shape}")
    if meta.dtype is not input.dtype and meta.dtype is not accumulator(input.dtype):
        raise DTypeError(
            f"{name}: argument '{argument}' has dtype {meta.dtype}, expected {input.dtype}"
        )
    common_device(name, [input, meta])


def _normalized(input: Operand, dims: Ints, eps: float) -> tuple[Operand, Operand]:
    """The input with mean 0 and variance 1, and what it was multiplied by.

    Both are computed again from the input, two sums: no results are saved.
    """
    input = widened(input)
    centered = input - input.mean(dims, True)
    scale = ((centered * centered).mean(dims, True) + eps).rsqrt()
    return centered * scale, scale


# Each formula reads all three operands, some for nothing: PyTorch saves them all whenever a
# gradient is needed at all, which later writes to them show.
def _to_input(
    grad: Operand,
    input: Operand,
    normalized_shape: Ints,
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
) -> Operand:
    dims = tuple(range(-len(normalized_shape), 0))
    unit, scale = _normalized(input, dims, eps)
    grad = widened(grad) if weight is None else widened(grad) * weight
    rest = grad - grad.mean(dims, True)
    return (rest - unit * (grad * unit).mean(dims, True)) * scale


def _to_weight(
    grad: Operand,
    input: Operand,
    normalized_shape: Ints,
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
) -> Operand:
    unit, _ = _normalized(input, tuple(range(-len(normalized_shape), 0)), eps)
    return (widened(grad) * unit).sum_to(normalized_shape)


def _to_bias(
    grad: Operand,
    input: Operand,
    normalized_shape: Ints,
    weight: Operand | None,
    bias: Operand | None,
) -> Operand:
    return grad.sum_to(normalized_shape)


def _layer_norm(
    input: Operand,
    normalized_shape: Ints,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-05,
) -> Operand:
    dims = tuple(range(-len(normalized_shape), 0))
    unit = standard(widened(input), dims, eps)[0]
    return affine(unit, weight, bias).to(input.dtype)


LAYER_NORM: PureOp = composed(
    "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor",
    meta=_layer_norm_rule,
    vjp={"input": _to_input, "weight": _to_weight, "bias": _to_bias},
    cost=Cost.REDUCTION,
    dims=trailing("normalized_shape", "weight", "bias"),
    as_=_layer_norm,
)
"""(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
"""


# -------------------------------------------------------------------------------------- group_norm
def _group_norm_rule(
    input: TensorMeta,
    num_groups: int,
    weight: TensorMeta | None,
    bias: TensorMeta | None,
    eps: float,
) -> TensorMeta:
    name = "group_norm"
    check_channels(name, input)
    if num_groups < 1 or input.shape[1] % num_groups != 0:
        raise ArgumentError(
            f"{name}: argument 'num_groups' is {num_groups}, expected a divisor of "
            f"{input.shape[1]}, the number of channels"
        )
    for argument, meta in (("weight", weight), ("bias", bias)):
        if meta is not None:
            check_affine(name, argument, meta, input.shape[1:2], input)
    return image_like(input, input.shape)


def check_channels(name: str, input: TensorMeta) -> None:
    """Raises unless it is a floating tensor (n, c, *)."""
    if len(input.shape) < 2:
        raise ShapeError(
            f"{name}: the input has shape {input.shape}, expected at least 2 dimensions"
        )
    require_floating(name, input.dtype)


def _in_groups(tensor: Operand, num_groups: int) -> Operand:
    batch, channels, *rest = tensor.shape
    return in_shape(tensor, (batch, num_groups, channels // num_groups * sizes.numel(rest)))


def by_channel(values: Operand, rank: int) -> Operand:
    """(c,) -> (1, c, 1, ...) of an operand."""
    return values.view(1, -1, *[1] * (rank - 2))


def _group_to_input(
    grad: Operand, input: Operand, num_groups: int, weight: Operand | None, eps: float
) -> Operand:
    unit, scale = _normalized(_in_groups(input, num_groups), (-1,), eps)
    grad = widened(grad) if weight is None else widened(grad) * by_channel(weight, input.ndim)
    rows = _in_groups(grad, num_groups)
    rest = rows - rows.mean((-1,), True)
    return ((rest - unit * (rows * unit).mean((-1,), True)) * scale).view(input.shape)


def _group_to_weight(grad: Operand, input: Operand, num_groups: int, eps: float) -> Operand:
    unit, _ = _normalized(_in_groups(input, num_groups), (-1,), eps)
    return channel_sum(widened(grad) * unit.view(input.shape))


def channel_sum(grad: Operand) -> Operand:
    """(n, c, *) -> (c,)."""
    return grad.sum((0, *range(2, grad.ndim)))


def _group_norm(
    input: Operand,
    num_groups: int,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-05,
) -> Operand:
    rows = _in_groups(widened(input), num_groups)
    unit = standard(rows, (2,), eps)[0].view(input.shape)
    weight, bias = as_channels(input, weight, bias)
    return affine(unit, weight, bias).to(input.dtype)


GROUP_NORM: PureOp = composed(
    "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor",
    meta=_group_norm_rule,
    vjp={
        "input": _group_to_input,
        "weight": _group_to_weight,
        "bias": lambda grad: channel_sum(grad),
    },
    cost=Cost.REDUCTION,
    dims=spelled("n,.,.->n", joins=None),
    as_=_group_norm,
)
"""layer_norm of the channels in groups: (n, c, *) with weight and bias (c,).

Source: Wu and He, "Group normalization" (2018).
"""


# ---------------------------------------------------------------------------------------- rms_norm
def _rms_norm_rule(
    input: TensorMeta, normalized_shape: Ints, weight: TensorMeta | None, eps: float | None
) -> TensorMeta:
    if not normalized_shape or input.shape[-len(normalized_shape) :] != normalized_shape:
        raise ShapeError(
            f"rms_norm: normalized_shape is {normalized_shape}, expected one or more of the last "
            f"sizes of the input's shape {input.shape}"
        )
    require_inexact("rms_norm", input.dtype)
    if weight is not None:
        check_affine("rms_norm", "weight", weight, normalized_shape, input)
    return image_like(input, input.shape)


def smallest(dtype: DType, eps: float | None) -> float:
    """What is added to the mean square: the distance of 1 to the next number unless given."""
    if eps is not None:
        return eps
    return 2.0**-52 if dtype in (dtypes.float64, dtypes.complex128) else 2.0**-23


def _rms_scale(
    input: Operand, normalized_shape: Ints, eps: float | None
) -> tuple[Operand, Operand, Ints]:
    dims = tuple(range(-len(normalized_shape), 0))
    small = smallest(input.dtype, eps)
    wider = conj(widened(input))
    return wider, ((wider * wider).mean(dims, True) + small).rsqrt(), dims


def _rms_to_input(
    grad: Operand, input: Operand, normalized_shape: Ints, weight: Operand | None, eps: float | None
) -> Operand:
    wider, scale, dims = _rms_scale(input, normalized_shape, eps)
    grad = widened(grad) if weight is None else widened(grad) * conj(weight)
    unit = wider * scale
    return (grad - unit * (grad * unit).mean(dims, True)) * scale


def _rms_to_weight(
    grad: Operand, input: Operand, normalized_shape: Ints, eps: float | None
) -> Operand:
    wider, scale, _ = _rms_scale(input, normalized_shape, eps)
    return (widened(grad) * (wider * scale)).sum_to(normalized_shape)


def _rms_norm(
    input: Operand, normalized_shape: Ints, weight: Operand | None = None, eps: float | None = None
) -> Operand:
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    value = widened(input)
    count = sizes.numel(normalized_shape)
    squares = over((value * value).sum(dims, True), count)
    scale = (squares + smallest(input.dtype, eps)).sqrt().reciprocal()
    return affine(value * scale, weight, None).to(input.dtype)


RMS_NORM: PureOp = composed(
    "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) "
    "-> Tensor",
    meta=_rms_norm_rule,
    vjp={"input": _rms_to_input, "weight": _rms_to_weight},
    cost=Cost.REDUCTION,
    dims=trailing("normalized_shape", "weight"),
    as_=_rms_norm,
)
"""input / sqrt(mean square + eps) * weight over the last dimensions.

Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).
"""


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


def _unit(input: Operand, mean: Operand, var: Operand, eps: float) -> tuple[Operand, Operand]:
    """The input with mean 0 and variance 1 a channel, and what it was multiplied by."""
    rank = input.ndim
    scale = by_channel((widened(var) + eps).rsqrt(), rank)
    return (widened(input) - by_channel(mean, rank)) * scale, scale


def _train_to_input(
    input: Operand,
    weight: Operand | None,
    eps: float,
    grad_output: Any = None,
    grad_mean: Any = None,
    grad_var: Any = None,
) -> Operand:
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


def _train_to_weight(
    grad_output: Any, input: Operand, mean: Operand, var: Operand, eps: float
) -> Operand:
    unit, _ = _unit(input, mean, var, eps)
    return channel_sum(widened(grad_output) * unit)


def _train(
    input: Operand, weight: Operand | None = None, bias: Operand | None = None, eps: float = 1e-05
) -> tuple[Operand, Operand, Operand]:
    dims = (0, *range(2, input.ndim))
    unit, mean, var = standard(widened(input), dims, eps)
    weight, bias = as_channels(input, weight, bias)
    result = affine(unit, weight, bias).to(input.dtype)
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
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    mean: Array,
    var: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> Array:
    """`_eval` on arrays: as a composition it takes half as long again for few numbers."""
    sizes = (1, -1, *[1] * (a.ndim - 2))
    mean, var = (xp.reshape(wide(xp, v, meta.dtype), sizes) for v in (mean, var))
    weight, bias = (
        None if v is None else xp.reshape(wide(xp, v, meta.dtype), sizes) for v in (weight, bias)
    )
    unit = (wide(xp, a, meta.dtype) - mean) * xp.reciprocal(xp.sqrt(var + eps))
    unit = unit if weight is None else unit * weight
    return cast(xp, unit if bias is None else unit + bias, meta.dtype)


def _eval_to_input(
    grad: Operand, running_var: Operand, weight: Operand | None, eps: float
) -> Operand:
    scale = (widened(running_var) + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    return widened(grad) * by_channel(scale, grad.ndim)


def _eval_to_weight(
    grad: Operand, input: Operand, running_mean: Operand, running_var: Operand, eps: float
) -> Operand:
    unit, _ = _unit(input, running_mean, running_var, eps)
    return channel_sum(widened(grad) * unit)


def _eval_to_mean(
    grad: Operand, running_var: Operand, weight: Operand | None, eps: float
) -> Operand:
    return -channel_sum(_eval_to_input(grad, running_var, weight, eps))


def _eval_to_var(
    grad: Operand,
    input: Operand,
    running_mean: Operand,
    running_var: Operand,
    weight: Operand | None,
    eps: float,
) -> Operand:
    unit, scale = _unit(input, running_mean, running_var, eps)
    moved = channel_sum(_eval_to_input(grad, running_var, weight, eps) * unit * scale)
    return moved * -0.5


def _eval(
    input: Operand,
    running_mean: Operand,
    running_var: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-05,
) -> Operand:
    inverse = (widened(running_var) + eps).sqrt().reciprocal()
    mean, scale, *rest = as_channels(input, widened(running_mean), inverse, weight, bias)
    return affine((widened(input) - mean) * scale, *rest).to(input.dtype)


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
