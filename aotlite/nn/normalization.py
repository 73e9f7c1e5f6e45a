"""Normalization: `batch_norm` and `layer_norm`, and their layers.

`batch_norm` is an op, and writes to the running statistics in place.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call, ones, tensor, zeros
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, int64
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.nn import init
from aotlite.nn.functions import Ints
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias for each channel: (n, c, *) -> (n, c, *).

    In training, mean and (biased) variance are the batch's, and the running ones move to its mean
    and unbiased variance by the fraction `momentum`, in place and without history.
    Raises ArgumentError in training with one value a channel, or otherwise without running ones.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: running statistics are None, expected them in eval")
        return call("batch_norm_eval", input, running_mean, running_var, weight, bias, eps)
    count = input.numel() // max(input.size(1), 1) if input.ndim > 1 else 2
    if count == 1:
        raise ArgumentError(
            f"batch_norm: the input has shape {input.shape}, expected more than 1 value a channel "
            "in training"
        )
    check_running("batch_norm", input, running_mean, running_var)
    result: Tensor
    result, mean, var = call("batch_norm_train", input, weight, bias, eps)
    with no_grad():
        follow(running_mean, mean, momentum)
        follow(running_var, var * (count / (count - 1)) if count > 1 else var, momentum)
    return result


def check_running(
    name: str, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None
) -> None:
    """Raises ShapeError unless running statistics that there are have one value a channel."""
    for argument, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.shape != input.shape[1:2]:
            raise ShapeError(
                f"{name}: argument '{argument}' has shape {running.shape}, expected "
                f"{input.shape[1:2]}"
            )


def follow(running: Tensor | None, batch: Tensor, momentum: float | Tensor) -> None:
    """Moves running statistics to the batch's by a fraction, in place."""
    if running is not None:
        running.mul_(1 - momentum).add_(batch * momentum)


def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dimensions, of these sizes."""
    return call("layer_norm", input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """layer_norm of the channels in groups: (n, c, *) with weight and bias (c,)."""
    if input.ndim > 1 and num_groups > 0 and input.numel() == input.size(0) * num_groups != 0:
        raise ArgumentError(
            f"group_norm: the input has shape {input.shape}, expected more than 1 value in each of "
            f"{num_groups} groups"
        )
    return call("group_norm", input, num_groups, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean square + eps) * weight over the last dimensions, of these sizes.

    `eps` is the distance of 1 to the next number unless given.
    """
    return call("rms_norm", input, normalized_shape, weight, eps)


class NormBase(Module):
    """What layers that keep running statistics share: parameters, buffers, what is printed."""

    ranks: tuple[int, ...] = (4,)
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.weight = Parameter(ones(num_features, **options)) if affine else None
        self.bias = Parameter(zeros(num_features, **options)) if affine and bias else None
        mean = zeros(num_features, **options) if track_running_stats else None
        var = ones(num_features, **options) if track_running_stats else None
        count = tensor(0, dtype=int64, device=device) if track_running_stats else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(NormBase):
    """Normalizes each channel, in training by the batch's statistics, in eval by running ones."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {input.shape}, expected {ranks} "
                "dimensions"
            )
        mean, var, training = self.running_mean, self.running_var, self.training
        momentum = self._count_batch() if training else 0.0
        batch = training or mean is None
        return batch_norm(input, mean, var, self.weight, self.bias, batch, momentum, self.eps)

    def _count_batch(self) -> float | Tensor:
        """Counts a batch in training; returns by what fraction the running statistics move."""
        count, momentum = self.num_batches_tracked, self.momentum
        if count is not None:
            count.add_(1)
        if momentum is not None:
            return momentum
        return 0.0 if count is None else count.double().reciprocal()


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel: (n, c) or (n, c, l).

    In training by the batch's statistics, which the running ones follow (in place, by `momentum`;
    None: their plain average); in eval by the running ones.
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of images: (n, c, h, w) -> (n, c, h, w).

    In training by the batch's statistics, which the running ones follow (in place, by `momentum`;
    None: their plain average); in eval by the running ones.
    """


class LayerNorm(Module):
    """Normalizes over the last dimensions, of sizes `normalized_shape`; starts with no change."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: Ints,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.weight = Parameter(ones(shape, **options)) if elementwise_affine else None
        self.bias = Parameter(zeros(shape, **options)) if elementwise_affine and bias else None

    def reset_parameters(self) -> None:
        """Writes the initial values: ones and zeros."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalizes the channels in groups: (n, c, *); starts with no change."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(
                f"GroupNorm: num_groups is {num_groups}, expected a divisor of {num_channels} "
                "channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.weight = Parameter(ones(num_channels, **options)) if affine else None
        self.bias = Parameter(zeros(num_channels, **options)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Writes the initial values: ones and zeros."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root mean square of the last dimensions; starts with weight 1."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: Ints,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = ones(shape, dtype=dtype, device=device) if elementwise_affine else None
        self.weight = None if weight is None else Parameter(weight)

    def reset_parameters(self) -> None:
        """Writes the initial values: ones."""
        _reset(self.weight, None)

    def forward(self, input: Tensor) -> Tensor:
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


def _reset(weight: Parameter | None, bias: Parameter | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
