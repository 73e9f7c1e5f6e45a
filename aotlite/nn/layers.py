"""Layers with PyTorch's constructor arguments, defaults and initial distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aotlite.eager.functions import empty
from aotlite.eager.tensor import Tensor
from aotlite.ir.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, UnsupportedError
from aotlite.nn import functional as F
from aotlite.nn import init
from aotlite.nn.functions import Ints, checked_approximation, pair
from aotlite.nn.module import Module, members
from aotlite.nn.parameter import Parameter


class Sequential(Module):
    """Modules one after the other, as attributes "0", "1", ... or with the names of a mapping.

    >>> Sequential(Flatten(), ReLU())
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): ReLU()
    )
    """

    def __init__(self, *args: Any) -> None:
        named = args[0] if len(args) == 1 and isinstance(args[0], Mapping) else None
        pairs = named.items() if named is not None else ((str(i), m) for i, m in enumerate(args))
        for name, module in pairs:
            self._append(name, module)

    def _append(self, name: str, module: Any) -> None:
        if not isinstance(module, Module):
            raise ArgumentError(f"Sequential: {name!r} is {module!r}, expected a Module")
        self.add_module(name, module)

    def append(self, module: Module) -> Sequential:
        """Adds a module at the end; returns this one."""
        self._append(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(list(members(self, Module)))

    def __iter__(self) -> Iterator[Module]:
        return (module for _, module in members(self, Module))

    def __getitem__(self, index: int | slice) -> Module:
        modules = dict(members(self, Module))
        if isinstance(index, slice):
            return type(self)(dict(list(modules.items())[index]))
        if not -len(modules) <= index < len(modules):
            raise IndexOutOfRangeError(
                f"Sequential: the index is {index}, expected one of {len(modules)} modules"
            )
        return list(modules.values())[index]

    def forward(self, input: Any) -> Any:
        """The input through every module in order."""
        for module in self:
            input = module(input)
        return input


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
        _draw(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


def _draw(weight: Parameter, bias: Parameter | None) -> None:
    """PyTorch's start of linear and convolutional layers: uniform in +-1 / sqrt(fan_in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    fan_in, _ = init.calculate_fan_in_and_fan_out(weight)
    if bias is not None and fan_in > 0:
        init.uniform_(bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


class Conv2d(Module):
    """A convolution over images: (n, in_channels, h, w) -> (n, out_channels, h', w').

    Weight and bias start uniform in +-1 / sqrt(in_channels / groups * kernel area).
    """

    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        _check_channels(in_channels, out_channels, groups)
        if padding_mode != "zeros":
            raise UnsupportedError(f"Conv2d: padding_mode is {padding_mode!r}, expected 'zeros'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair(kernel_size)
        self.stride = pair(stride)
        self.padding = padding if isinstance(padding, str) else pair(padding)
        self.dilation = pair(dilation)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.bias = Parameter(empty(out_channels, dtype=dtype, device=device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws initial values."""
        _draw(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        defaults = {"padding": (0, 0), "dilation": (1, 1), "groups": 1}
        parts += [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return ", ".join(parts + ["bias=False"] * (self.bias is None))


def _check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ArgumentError(
            f"Conv2d: groups is {groups}, expected a divisor of {in_channels} input and "
            f"{out_channels} output channels"
        )


class ReLU(Module):
    """max(x, 0); `inplace` writes it into the input."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """x times the normal distribution function at x; `approximate="tanh"` takes a tanh for it."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = checked_approximation("GELU", approximate)

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class MaxPool2d(Module):
    """The largest value of each window; the stride is the window's size unless given."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
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


class Dropout(Module):
    """In training zeros with probability `p`, the rest times 1 / (1 - p); else the input itself."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: p is {p}, expected 0 <= p <= 1")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
