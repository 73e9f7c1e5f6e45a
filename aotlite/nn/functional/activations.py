"""Activations as functions, with PyTorch's names, arguments and defaults: forms of pointwise ops.

`inplace` writes the result into the input and returns that.
"""

from __future__ import annotations

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError


def _called(name: str, inplace: bool, input: Tensor, *args: object) -> Tensor:
    result: Tensor = call(name + "_" if inplace else name, input, *args)
    return result


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return input.relu_() if inplace else input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6)."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """The input, but at least `min_val` and at most `max_val`."""
    if min_val > max_val:
        raise ArgumentError(
            f"hardtanh: min_val is {min_val}, expected at most {max_val}, the max_val"
        )
    return _called("hardtanh", inplace, input, min_val, max_val)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function at it; "tanh" for an approximation of that."""
    return _called("gelu", False, input, checked_approximation("gelu", approximate) == "tanh")


def checked_approximation(name: str, approximate: str) -> str:
    """The name of the form of gelu. Raises ArgumentError."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"{name}: approximate is {approximate!r}, expected 'none' or 'tanh'")
    return approximate


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _called("silu", inplace, input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return _called("mish", inplace, input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where it is positive, else alpha * (exp(input) - 1)."""
    return _called("elu", inplace, input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with an alpha and a factor that keep mean 0 and variance 1."""
    return input.selu_() if inplace else input.selu()


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where it is positive, else alpha * (exp(input / alpha) - 1)."""
    return input.celu_(alpha) if inplace else input.celu(alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input where it is positive, else negative_slope * input."""
    return _called("leaky_relu", inplace, input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """The input where it is positive, else weight * input; one weight, or one a channel (dim 1)."""
    result: Tensor = input.prelu(weight)
    return result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input / 6 + 1 / 2, 0), 1)."""
    return _called("hardsigmoid", inplace, input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    return _called("hardswish", inplace, input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where it is above `threshold`, else `value`."""
    return _called("threshold", inplace, input, threshold, value)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; the input where beta * input is above `threshold`."""
    return _called("softplus", False, input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input))."""
    return _called("log_sigmoid", False, input)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input moved towards 0 by `lambd`, no further than 0."""
    return _called("softshrink", False, input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input where |input| > lambd, else 0."""
    return _called("hardshrink", False, input, lambd)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    result: Tensor = input.sigmoid()
    return result


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    result: Tensor = input.tanh()
    return result


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second.

    Source: Dauphin et al., "Language modeling with gated convolutional networks" (ICML 2017).
    """
    if not input.is_floating_point():
        raise DTypeError(f"glu: dtype is {input.dtype}, expected a floating one")
    if input.ndim == 0 or input.size(dim) % 2:
        raise ShapeError(
            f"glu: the input has shape {input.shape}, expected an even size of dimension {dim}"
        )
    half = input.size(dim) // 2
    result: Tensor = input.narrow(dim, 0, half) * input.narrow(dim, half, half).sigmoid()
    return result


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """exp(input) divided by its sum over `dim`."""
    return input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """`softmax` of the negated input."""
    return (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return input.log_softmax(dim, dtype=dtype)
