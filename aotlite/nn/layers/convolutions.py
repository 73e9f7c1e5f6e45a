"""Convolution layers, 1-d and 2-d, and their transposed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import empty
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.ops.nn.convolution.forms import (
    conv1d,
    conv2d,
    conv_transpose1d,
    conv_transpose2d,
    named_padding,
)
from aotlite.ir.ops.shape.pad import pad
from aotlite.ir.symbols.symint import SymInt
from aotlite.nn import init
from aotlite.nn.functional.products import Ints
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


def draw(weight: Parameter, bias: Parameter | None) -> None:
    """Draws PyTorch's initial values of linear and convolution layers: +-1 / sqrt(fan_in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    fan_in, _ = init.calculate_fan_in_and_fan_out(weight)
    if bias is not None and fan_in > 0:
        init.uniform_(bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


class _Convolution(Module):
    """Base of convolution layers: parameters, initial values, `repr`.

    Weight and bias start uniform in +-1 / sqrt(fan_in).
    """

    rank = 2
    transposed = False
    bias: Parameter | None
    output_padding: tuple[int, ...] = ()

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
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups is {groups}, expected a divisor of {in_channels} input and "
                f"{out_channels} output channels"
            )
        modes = ("zeros",) if self.transposed else ("zeros", *_MODES)
        if padding_mode not in modes:
            expected = " or ".join(map(repr, modes))
            raise ArgumentError(f"{name}: padding_mode is {padding_mode!r}, expected {expected}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._each(kernel_size)
        self.stride = self._each(stride)
        self.padding = padding if isinstance(padding, str) else self._each(padding)
        self.dilation = self._each(dilation)
        self.groups = groups
        self.padding_mode = padding_mode
        ends = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (ends[0], ends[1] // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.bias = Parameter(empty(out_channels, dtype=dtype, device=device)) if bias else None
        self.reset_parameters()

    def _each(self, value: Ints) -> tuple[int, ...]:
        return (value,) * self.rank if isinstance(value, (int, SymInt)) else tuple(value)

    def reset_parameters(self) -> None:
        """Draws initial values."""
        draw(self.weight, self.bias)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        defaults = {
            "padding": (0,) * self.rank,
            "dilation": (1,) * self.rank,
            "output_padding": (0,) * len(self.output_padding),
            "groups": 1,
        }
        parts += [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        parts += ["bias=False"] * (self.bias is None)
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def _convolved(self, function: Callable[..., Tensor], input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        rest = (self.bias, self.stride, padding, self.dilation, self.groups)
        return function(input, self.weight, *rest)

    def _padded(self, input: Tensor) -> tuple[Tensor, tuple[int, ...] | str]:
        """(the input, padded if the padding mode is not zeros; the zero padding left to do)."""
        if self.padding_mode == "zeros":
            return input, self.padding
        sides: list[int] = []
        for before, more in zip(*self._ends(), strict=True):
            sides = [before, before + more, *sides]  # from the last dimension on
        return pad(input, sides, mode=self.padding_mode), (0,) * self.rank

    def _ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(padding of both ends, how much more at the far end) of each dimension."""
        if not isinstance(self.padding, str):
            return self.padding, (0,) * self.rank
        window = (self.kernel_size, self.stride, self.dilation)
        return named_padding(type(self).__name__, self.padding, *window)


_MODES = ("reflect", "replicate", "circular")


class Conv1d(_Convolution):
    """A convolution over lines: (n, in_channels, l) -> (n, out_channels, l')."""

    rank = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._convolved(conv1d, input)


class Conv2d(_Convolution):
    """A convolution over images: (n, in_channels, h, w) -> (n, out_channels, h', w')."""

    def forward(self, input: Tensor) -> Tensor:
        return self._convolved(conv2d, input)


class _Transposed(_Convolution):
    """Base of transposed convolutions; `output_padding` extends the far ends of the result."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        self.output_padding = self._each(output_padding)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _turned(
        self, function: Callable[..., Tensor], input: Tensor, output_size: Ints | None
    ) -> Tensor:
        extra = self._extra(input, output_size)
        rest = (self.bias, self.stride, self.padding, extra, self.groups, self.dilation)
        return function(input, self.weight, *rest)

    def _extra(self, input: Tensor, output_size: Ints | None) -> tuple[int, ...]:
        """The output padding that gives this size. Raises ArgumentError if none does."""
        if output_size is None:
            return self.output_padding
        wanted = self._each(output_size)[-self.rank :]
        assert not isinstance(self.padding, str)
        least = [
            (n - 1) * step - 2 * pad + gap * (k - 1) + 1
            for n, step, pad, gap, k in zip(
                input.shape[-self.rank :],
                self.stride,
                self.padding,
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        ]
        extra = tuple([n - low for n, low in zip(wanted, least, strict=True)])
        if any(more < 0 or more >= step for more, step in zip(extra, self.stride, strict=True)):
            most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
            raise ArgumentError(
                f"{type(self).__name__}: output_size is {wanted}, expected {tuple(least)} to "
                f"{tuple(most)}"
            )
        return extra


class ConvTranspose1d(_Transposed):
    """The transpose of Conv1d: (n, in_channels, l) -> (n, out_channels, l')."""

    rank = 1

    def forward(self, input: Tensor, output_size: Ints | None = None) -> Tensor:
        return self._turned(conv_transpose1d, input, output_size)


class ConvTranspose2d(_Transposed):
    """The transpose of Conv2d: (n, in_channels, h, w) -> (n, out_channels, h', w')."""

    def forward(self, input: Tensor, output_size: Ints | None = None) -> Tensor:
        return self._turned(conv_transpose2d, input, output_size)
