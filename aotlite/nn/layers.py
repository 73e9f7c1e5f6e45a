"""Layers with PyTorch's constructor arguments, defaults and initial distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aotlite.eager.functions import empty, ones, tensor, zeros
from aotlite.eager.tensor import Tensor
from aotlite.ir.device import CPU, Device
from aotlite.ir.dtypes import DType, int64
from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError, UnsupportedError
from aotlite.nn import functional as F
from aotlite.nn import init
from aotlite.nn.functional import Ints, pair
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


class BatchNorm2d(Module):
    """Normalizes each channel of images: (n, c, h, w) -> (n, c, h, w).

    In training by the batch's statistics, which the running ones follow (in place, by `momentum`;
    None: their plain average); in eval by the running ones.
    """

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

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            shape = input.shape
            raise ShapeError(f"BatchNorm2d: the input has shape {shape}, expected 4 dimensions")
        mean, var, training = self.running_mean, self.running_var, self.training
        momentum = self._count_batch() if training else 0.0
        batch = training or mean is None
        return F.batch_norm(input, mean, var, self.weight, self.bias, batch, momentum, self.eps)

    def _count_batch(self) -> float | Tensor:
        """Counts a batch in training; returns by what fraction the running statistics move."""
        count, momentum = self.num_batches_tracked, self.momentum
        if count is not None:
            count.add_(1)
        if momentum is not None:
            return momentum
        return 0.0 if count is None else count.double().reciprocal()

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class ReLU(Module):
    """max(x, 0); `inplace` writes it into the input."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


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
