"""What layers compute, as functions with PyTorch's names, arguments and defaults.

Shapes: images are (N, C, H, W). Ops come from the op table; `dropout` and the losses are composites
of them, so their gradients and their compiled form follow from the ops'.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.functions import call, rand
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError

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


def pair(value: Ints) -> tuple[int, ...]:
    """(height, width) from one number or two."""
    return (value, value) if isinstance(value, int) else tuple(value)


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
