"""What layers compute, as functions with PyTorch's names, arguments and defaults.

Ops come from the op table; `dropout` is a composite of them, so its gradient and its compiled form
follow from the ops'.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.functions import call, rand
from aotlite.eager.tensor import Tensor
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError

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


# ------------------------------------------------------------------------------------ softmaxes
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """exp(input) divided by its sum over `dim`."""
    return input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """`softmax` of the negated input."""
    return (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return input.log_softmax(dim, dtype=dtype)
