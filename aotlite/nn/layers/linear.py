"""`Linear`, `Flatten` and `Identity`, with PyTorch's arguments and defaults."""

from __future__ import annotations

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import empty
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.nn import functional as F
from aotlite.nn.layers.convolutions import draw
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


class Linear(Module):
    """x @ weight.T + bias: (*, in_features) -> (*, out_features).

    Both start uniform in +-1 / sqrt(in_features).
    """

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype, device=device))
        self.bias = Parameter(empty(out_features, dtype=dtype, device=device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws initial values."""
        draw(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` merged: (n, c, h, w) -> (n, c * h * w)."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """The input itself, whatever the arguments."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        return input
