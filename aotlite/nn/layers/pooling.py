"""Pooling layers: the maximum or the mean of windows, 1-d and 2-d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.geometry.sizes import as_tuple
from aotlite.ir.ops.pooling.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
)
from aotlite.ir.ops.pooling.max_pooling import max_pool1d, max_pool2d
from aotlite.ir.ops.pooling.mean_pooling import avg_pool1d, avg_pool2d
from aotlite.nn.functional.products import Ints
from aotlite.nn.module import Module


class _MaxPool(Module):
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

    def _window(self) -> tuple[Any, ...]:
        window = (self.kernel_size, self.stride, self.padding, self.dilation)
        return (*window, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest value of each window of lines; the stride is the window's size unless given."""

    def forward(self, input: Tensor) -> Any:
        return max_pool1d(input, *self._window())


class MaxPool2d(_MaxPool):
    """The largest value of each window; the stride is the window's size unless given."""

    def forward(self, input: Tensor) -> Any:
        return max_pool2d(input, *self._window())


class AvgPool1d(Module):
    """The mean of each window of lines; the stride is the window's size unless given."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size = as_tuple(kernel_size)
        self.stride = self.kernel_size if stride is None else as_tuple(stride)
        self.padding = as_tuple(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        window = (self.kernel_size, self.stride, self.padding)
        result: Tensor = avg_pool1d(input, *window, self.ceil_mode, self.count_include_pad)
        return result

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window; the stride is the window's size unless given."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        window = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        rest = (self.count_include_pad, self.divisor_override)
        result: Tensor = avg_pool2d(input, *window, *rest)
        return result

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Adaptive(Module):
    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """The means of stretches that cover lines evenly, `output_size` of them."""

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = adaptive_avg_pool1d(input, self.output_size)
        return result


class AdaptiveAvgPool2d(_Adaptive):
    """The means of windows that cover images evenly; None keeps a size."""

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = adaptive_avg_pool2d(input, self.output_size)
        return result


class AdaptiveMaxPool2d(_Adaptive):
    """The maxima of windows that cover images evenly; None keeps a size."""

    def __init__(
        self, output_size: int | Sequence[int | None], return_indices: bool = False
    ) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return adaptive_max_pool2d(input, self.output_size, self.return_indices)
