"""The convolutions that users call, of lines and images, turned around too: composites of one op.

An image is (N, C, H, W), a line (N, C, L), either also without N.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry.sizes import as_tuple
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.nn.window import Given, Ints, along_a_line, pair
from aotlite.ir.ops.precision import OperandT
from aotlite.ir.ops.shape.memory_format import image_strides, suggests_channels_last


@composite(is_method=False)
def conv2d(
    input: OperandT,
    weight: OperandT,
    bias: OperandT | None = None,
    stride: Given = 1,
    padding: Given | str = 0,
    dilation: Given = 1,
    groups: int = 1,
) -> OperandT:
    """Cross-correlation: (n, i, h, w), (o, i / groups, kh, kw), (o,) -> (n, o, h', w').

    `padding="same"` keeps the size at stride 1, `"valid"` pads nothing.
    """
    _check_rank("conv2d", input, weight, 4)
    if input.ndim == 3:
        return conv2d(input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(
            0
        )
    if isinstance(padding, str):
        before, more = named_padding("conv2d", padding, weight.shape[2:], stride, dilation)
        input, padding = _enlarged(input, more), before
    return input._do("conv2d", weight, bias, stride, padding, dilation, groups)


@composite(is_method=False)
def conv1d(
    input: OperandT,
    weight: OperandT,
    bias: OperandT | None = None,
    stride: Given = 1,
    padding: Given | str = 0,
    dilation: Given = 1,
    groups: int = 1,
) -> OperandT:
    """Cross-correlation of lines: (n, i, l), (o, i / groups, k), (o,) -> (n, o, l')."""
    name = "conv1d"
    _check_rank(name, input, weight, 3)
    steps, gaps = _on_a_line(name, stride, dilation)
    if isinstance(padding, str):
        kernel = (1, weight.shape[2])
        before, more = named_padding(name, padding, kernel, steps, gaps)
        rows = _enlarged(input.unsqueeze(-2), more)
    else:
        before, rows = (0, *along_a_line(name, "padding", padding)), input.unsqueeze(-2)
    return conv2d(rows, weight.unsqueeze(-2), bias, steps, before, gaps, groups).squeeze(-2)


def _check_rank(name: str, input: Operand, weight: Operand, rank: int) -> None:
    if input.ndim not in (rank - 1, rank):
        raise ShapeError(
            f"{name}: argument 'input' has shape {input.shape}, expected {rank - 1} or {rank} "
            "dimensions"
        )
    if weight.ndim != rank:
        raise ShapeError(
            f"{name}: argument 'weight' has shape {weight.shape}, expected {rank} dimensions"
        )


def _on_a_line(name: str, stride: Given, dilation: Given) -> tuple[Ints, Ints]:
    """Stride and dilation on an image of one row."""
    steps = along_a_line(name, "stride", stride)
    return (1, *steps), (1, *along_a_line(name, "dilation", dilation))


def _both(value: Given) -> Ints:
    return as_tuple(value)


def named_padding(
    name: str, padding: str, kernel: Ints, stride: Given, dilation: Given
) -> tuple[Ints, Ints]:
    """(padding of both ends, how much more at the far end) for each dimension."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding != "same":
        raise ArgumentError(f"{name}: padding is {padding!r}, expected 'same', 'valid' or numbers")
    if any(step != 1 for step in _both(stride)):
        raise ArgumentError(f"{name}: stride is {stride}, expected 1 with padding='same'")
    gaps = _both(dilation) * len(kernel) if len(_both(dilation)) == 1 else _both(dilation)
    totals = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
    return tuple([total // 2 for total in totals]), tuple([total % 2 for total in totals])


def _enlarged(image: Any, more: Ints) -> Any:
    """The image with so many rows and columns of zeros at its far ends."""
    return image._do("constant_pad_nd", (0, more[1], 0, more[0])) if any(more) else image


# -------------------------------------------------------------------------------- turned around
@composite(is_method=False)
def conv_transpose2d(
    input: OperandT,
    weight: OperandT,
    bias: OperandT | None = None,
    stride: Given = 1,
    padding: Given = 0,
    output_padding: Given = 0,
    groups: int = 1,
    dilation: Given = 1,
) -> OperandT:
    """What conv2d's gradient does: (n, i, h, w), (i, o / groups, kh, kw), (o,) -> (n, o, h', w').

    h' = (h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1. Source: Dumoulin and
    Visin, "A guide to convolution arithmetic for deep learning" (2016).
    """
    name = "conv_transpose2d"
    _check_rank(name, input, weight, 4)
    if input.ndim == 3:
        rest = (bias, stride, padding, output_padding, groups, dilation)
        return conv_transpose2d(input.unsqueeze(0), weight, *rest).squeeze(0)
    steps = pair(name, "stride", _both(stride), 1)
    pads = pair(name, "padding", _both(padding), 0)
    gaps = pair(name, "dilation", _both(dilation), 1)
    extra = _extra(name, output_padding, steps, gaps)
    _check_channels(name, input, weight, bias, groups)
    size = [
        (n - 1) * step - 2 * pad + gap * (k - 1) + more + 1
        for n, step, pad, gap, k, more in zip(
            input.shape[2:], steps, pads, gaps, weight.shape[2:], extra, strict=True
        )
    ]
    if any(n < 1 for n in size):
        raise ShapeError(f"{name}: the result's size is {tuple(size)}, expected at least 1")
    shape = (input.shape[0], weight.shape[1] * groups, *size)
    if all(more < step for more, step in zip(extra, steps, strict=True)):
        result = input.conv2d_input(weight, shape, steps, pads, gaps, groups)
    else:
        result = _beyond_the_stride(input, weight, shape, (steps, pads, gaps), groups)
    return result if bias is None else result + bias.view(-1, 1, 1)


def _beyond_the_stride(
    input: OperandT, weight: OperandT, shape: Ints, window: tuple[Ints, Ints, Ints], groups: int
) -> OperandT:
    """The result where more is added at the far ends than a stride, which no convolution leaves.

    All of what the windows reach, with the zeros behind it, cut to the shape.
    """
    steps, pads, gaps = window
    full = [
        (n - 1) * step + gap * (k - 1) + 1
        for n, step, gap, k in zip(input.shape[2:], steps, gaps, weight.shape[2:], strict=True)
    ]
    result = input.conv2d_input(weight, (*shape[:2], *full), steps, (0, 0), gaps, groups)
    more = [max(pad + n - m, 0) for pad, n, m in zip(pads, shape[2:], full, strict=True)]
    last = suggests_channels_last(result.meta)
    result = _enlarged(result, tuple(more))
    for dim, pad in zip((2, 3), pads, strict=True):
        result = result.narrow(dim, pad, shape[dim])
    return result._do("restride", image_strides(shape, channels_last=last))


def _extra(name: str, output_padding: Given, steps: Ints, gaps: Ints) -> Ints:
    extra = pair(name, "output_padding", _both(output_padding), 0)
    if any(more >= max(step, gap) for more, step, gap in zip(extra, steps, gaps, strict=True)):
        raise ArgumentError(
            f"{name}: argument 'output_padding' is {extra}, expected less than the stride {steps} "
            f"or the dilation {gaps}"
        )
    return extra


def _check_channels(
    name: str, input: Operand, weight: Operand, bias: Operand | None, groups: int
) -> None:
    if groups < 1 or weight.shape[0] % groups:
        raise ArgumentError(
            f"{name}: argument 'groups' is {groups}, expected a divisor of {weight.shape[0]}, the "
            "number of input channels"
        )
    if input.shape[1] != weight.shape[0]:
        raise ShapeError(
            f"{name}: the input has {input.shape[1]} channels, expected {weight.shape[0]}, the "
            "weight's"
        )
    if bias is not None and bias.shape != (weight.shape[1] * groups,):
        raise ShapeError(
            f"{name}: argument 'bias' has shape {bias.shape}, expected "
            f"({weight.shape[1] * groups},)"
        )


@composite(is_method=False)
def conv_transpose1d(
    input: OperandT,
    weight: OperandT,
    bias: OperandT | None = None,
    stride: Given = 1,
    padding: Given = 0,
    output_padding: Given = 0,
    groups: int = 1,
    dilation: Given = 1,
) -> OperandT:
    """What conv1d's gradient does: (n, i, l), (i, o / groups, k), (o,) -> (n, o, l')."""
    name = "conv_transpose1d"
    _check_rank(name, input, weight, 3)
    steps, gaps = _on_a_line(name, stride, dilation)
    pads = (0, *along_a_line(name, "padding", padding))
    extra = (0, *along_a_line(name, "output_padding", output_padding))
    operands = (input.unsqueeze(-2), weight.unsqueeze(-2), bias)
    return conv_transpose2d(*operands, steps, pads, extra, groups, gaps).squeeze(-2)
