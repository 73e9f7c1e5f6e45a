"""Normalization layers: batch, instance, layer, group and RMS norm."""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import ones, tensor, zeros
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, int64
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry.sizes import as_tuple
from aotlite.nn import init
from aotlite.nn.functional.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from aotlite.nn.functional.products import Ints
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


class NormBase(Module):
    """Base of layers with running statistics: parameters, buffers, `repr`."""

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
        """Counts a batch in training; returns the momentum for the running statistics."""
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


class _InstanceNorm(NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device = CPU,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        full = self.ranks[-1]
        if input.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {input.shape}, expected "
                f"{full - 1} or {full} dimensions"
            )
        samples = input if input.ndim == full else input.unsqueeze(0)
        own = self.training or self.running_mean is None
        result = instance_norm(
            samples,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            own,
            self.momentum or 0.0,
            self.eps,
        )
        return result if input.ndim == full else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each line: (n, c, l) or (c, l)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each image: (n, c, h, w) or (c, h, w)."""

    ranks = (3, 4)


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
        self.normalized_shape = shape = as_tuple(normalized_shape)
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
        self.normalized_shape = shape = as_tuple(normalized_shape)
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
