"""Normalization by the statistics of the operand's last dimensions: layer_norm."""

from __future__ import annotations

from typing import Any

from aotlite.ir import sizes
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.precision import cast, wide, widened

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
    if not input.dtype.is_floating_point:
        raise DTypeError(f"layer_norm: dtype is {input.dtype}, expected a floating one")
    for name, meta in (("weight", weight), ("bias", bias)):
        if meta is not None:
            _check_affine(name, meta, normalized_shape, input)
    # As in PyTorch the result is contiguous, whatever the input's strides.
    return tensor_meta(input.shape, None, input.dtype, input.device)


def _check_affine(name: str, meta: TensorMeta, shape: Ints, input: TensorMeta) -> None:
    if meta.shape != shape:
        raise ShapeError(f"layer_norm: argument '{name}' has shape {meta.shape}, expected {shape}")
    if meta.dtype is not input.dtype:
        raise DTypeError(
            f"layer_norm: argument '{name}' has dtype {meta.dtype}, expected {input.dtype}"
        )
    common_device("layer_norm", [input, meta])


def _layer_norm_kernel(
    xp: Any, meta: TensorMeta, a: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float
) -> Any:
    a = wide(xp, a, meta.dtype)
    axes = tuple(range(-len(normalized_shape), 0))
    # An array, not the bare number: the mean of nothing is nan, and a Python 0 would raise.
    count = xp.full((), sizes.numel(normalized_shape), dtype=a.dtype)
    centered = a - xp.divide(xp.sum(a, axis=axes, keepdims=True), count)
    var = xp.divide(xp.sum(centered * centered, axis=axes, keepdims=True), count)
    result = centered * xp.reciprocal(xp.sqrt(var + eps))
    if weight is not None:
        result = result * wide(xp, weight, meta.dtype)
    if bias is not None:
        result = result + wide(xp, bias, meta.dtype)
    return cast(xp, result, meta.dtype)


def _normalized(input: Any, dims: Ints, eps: float) -> tuple[Any, Any]:
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
    grad: Any, input: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float
) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    unit, scale = _normalized(input, dims, eps)
    grad = widened(grad) if weight is None else widened(grad) * weight
    rest = grad - grad.mean(dims, True)
    return (rest - unit * (grad * unit).mean(dims, True)) * scale


def _to_weight(
    grad: Any, input: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float
) -> Any:
    unit, _ = _normalized(input, tuple(range(-len(normalized_shape), 0)), eps)
    return (widened(grad) * unit).sum_to(normalized_shape)


def _to_bias(grad: Any, input: Any, normalized_shape: Ints, weight: Any, bias: Any) -> Any:
    return grad.sum_to(normalized_shape)


LAYER_NORM: PureOp = pure(
    "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor",
    meta=_layer_norm_rule,
    kernel=_layer_norm_kernel,
    vjp={"input": _to_input, "weight": _to_weight, "bias": _to_bias},
    cost=Cost.REDUCTION,
)
"""(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
"""
