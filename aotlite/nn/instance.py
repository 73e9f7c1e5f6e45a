"""Normalization of each channel of each sample: `instance_norm` and its layers.

Source: Ulyanov, Vedaldi and Lempitsky, "Instance normalization" (2016).
"""

from __future__ import annotations

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.nn.normalization import NormBase, check_running, follow


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`batch_norm` of each sample on its own: (n, c, *) -> (n, c, *).

    Running statistics, if any, follow the samples' mean ones, in place and without history.
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError("instance_norm: running statistics are None, expected them in eval")
        return call("batch_norm_eval", input, running_mean, running_var, weight, bias, eps)
    if input.ndim < 3 or input.numel() == input.size(0) * input.size(1):
        raise ShapeError(
            f"instance_norm: the input has shape {input.shape}, expected more than 1 value in each "
            "channel of a sample"
        )
    batch, channels, *rest = input.shape
    check_running("instance_norm", input, running_mean, running_var)
    rows = input.reshape(1, batch * channels, *rest)
    repeated = [None if values is None else values.repeat(batch) for values in (weight, bias)]
    result, mean, var = call("batch_norm_train", rows, *repeated, eps)
    count = rows.numel() // max(rows.size(1), 1)
    with no_grad():
        follow(running_mean, mean.view(batch, channels).mean(0), momentum)
        unbiased = var * (count / (count - 1)) if count > 1 else var
        follow(running_var, unbiased.view(batch, channels).mean(0), momentum)
    normalized: Tensor = result.view(input.shape)
    return normalized


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
