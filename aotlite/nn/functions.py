"""What layers compute, as functions with PyTorch's names, arguments and defaults.

Shapes: images are (N, C, H, W). Ops come from the op table; `dropout` and the losses are composites
of them, so their gradients and their compiled form follow from the ops'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.eager.functions import call, rand
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

Ints = int | Sequence[int]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, i), (o, i), (o,) -> (*, o)."""
    if input.ndim <= 2:
        product = input.matmul(weight.t())
    else:
        # As one matrix, so that the weight's gradient is one product and no sum of many.
        rows = input.flatten(0, -2).matmul(weight.t())
        product = rows.view(*input.shape[:-1], weight.size(0))
    return product if bias is None else product + bias


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation: (n, i, h, w), (o, i / groups, kh, kw), (o,) -> (n, o, h', w').

    `padding="same"` keeps the size at stride 1; UnsupportedError where that needs unequal sides.
    """
    steps, gaps = pair(stride), pair(dilation)
    if isinstance(padding, str):
        padding = _named_padding(padding, weight.shape[2:], steps, gaps)
    return call("conv2d", input, weight, bias, steps, pair(padding), gaps, groups)


def pair(value: Ints) -> tuple[int, ...]:
    """(height, width) from one number or two."""
    return (value, value) if isinstance(value, int) else tuple(value)


def _named_padding(
    name: str, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    if name == "valid":
        return (0, 0)
    if name != "same":
        raise ArgumentError(f"conv2d: padding is {name!r}, expected 'same', 'valid' or numbers")
    if stride != (1, 1):
        raise ArgumentError(f"conv2d: stride is {stride}, expected 1 with padding='same'")
    totals = [gap * (size - 1) for gap, size in zip(dilation, kernel, strict=True)]
    if any(total % 2 for total in totals):
        raise UnsupportedError(
            f"conv2d: padding='same' with kernel {kernel} and dilation {dilation} pads {totals} in "
            "all, expected even numbers"
        )
    return tuple([total // 2 for total in totals])


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window: (n, c, h, w) -> (n, c, h', w'); with indices, a pair."""
    steps = pair(kernel_size if stride is None else stride)
    values, indices = call(
        "max_pool2d_with_indices",
        input,
        pair(kernel_size),
        steps,
        pair(padding),
        pair(dilation),
        ceil_mode,
    )
    return (values, indices) if return_indices else values


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0); `inplace` writes it into the input and returns that."""
    return input.relu_() if inplace else input.relu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function at it; "tanh" for an approximation of that."""
    return call("gelu", input, checked_approximation("gelu", approximate) == "tanh")


def checked_approximation(name: str, approximate: str) -> str:
    """The name of the form of gelu. Raises ArgumentError."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"{name}: approximate is {approximate!r}, expected 'none' or 'tanh'")
    return approximate


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeros with probability `p`, the rest times 1 / (1 - p), by the default generator.

    Returns the input itself if not training or p is 0 (FUN-13).
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p is {p}, expected 0 <= p <= 1")
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    kept = rand(input.shape, dtype=input.dtype, device=input.device) >= p
    scale = 1.0 / (1.0 - p)
    # Two products rather than one by a scaled mask: what is saved for backward is the bool mask.
    return input.mul_(kept).mul_(scale) if inplace else input * kept * scale


# -------------------------------------------------------------------------------------- losses
def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(input) divided by its sum over `dim`."""
    return input.softmax(dim)


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """The logarithm of `softmax`."""
    return input.log_softmax(dim)


def cross_entropy(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """-log_softmax of each target's class: (n, c), (n,) int64 -> (), or (n,) unreduced.

    Further dimensions follow the class: (n, c, *), (n, *). Without batch: (c,), ().
    Raises DTypeError for labels that are not int64, IndexOutOfRangeError for ones out of range.
    """
    if target.dtype.name != "int64":
        raise DTypeError(f"cross_entropy: labels have dtype {target.dtype}, expected int64")
    classes = 1 if input.ndim > 1 else 0
    expected = input.shape[:classes] + input.shape[classes + 1 :]
    if input.ndim == 0 or target.shape != expected:
        raise ShapeError(
            f"cross_entropy: labels have shape {target.shape}, expected {expected} for scores of "
            f"shape {input.shape}"
        )
    scores = input.log_softmax(classes).gather(classes, target.unsqueeze(classes))
    return _reduced("cross_entropy", -scores.squeeze(classes), reduction)


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared difference, reduced; the operands broadcast."""
    difference = input - target
    return _reduced("mse_loss", difference * difference, reduction)


def _reduced(name: str, losses: Tensor, reduction: str) -> Tensor:
    match reduction:
        case "none":
            return losses
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
    raise ArgumentError(f"{name}: reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
