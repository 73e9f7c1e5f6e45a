"""Initial values, drawn from the default generator: the same after the same `manual_seed`.

The distributions are PyTorch's; the numbers differ, as the generator does (RNG-12).
"""

from __future__ import annotations

import math

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import rand
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.ops.precision import accumulator


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fills with uniform numbers in [a, b) in place; returns the tensor."""
    with no_grad():
        drawn = rand(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        return tensor.copy_(drawn * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fills with normally distributed numbers in place; returns the tensor.

    Source: Box and Muller, "A note on the generation of random normal deviates" (1958).
    """
    with no_grad():
        # 16-bit uniform numbers are too coarse for the tails.
        dtype = accumulator(tensor.dtype)
        first, second = rand((2, *tensor.shape), dtype=dtype, device=tensor.device).unbind(0)
        size = ((1 - first).log() * -2.0).sqrt()
        return tensor.copy_(size * (second * (2 * math.pi)).cos() * std + mean)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills with one value in place; returns the tensor."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills with zeros in place; returns the tensor."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fills with ones in place; returns the tensor."""
    return constant_(tensor, 1.0)


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (o, i, *window): inputs of an output, outputs of an input."""
    if tensor.ndim < 2:
        raise ShapeError(
            f"init: the weight has shape {tensor.shape}, expected 2 or more dimensions"
        )
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor for standard deviations that preserves the variance through a nonlinearity."""
    match nonlinearity:
        case "linear" | "conv2d" | "sigmoid":
            return 1.0
        case "tanh":
            return 5.0 / 3
        case "relu":
            return math.sqrt(2.0)
        case "leaky_relu":
            slope = 0.01 if param is None else param
            return math.sqrt(2.0 / (1 + slope**2))
    raise ArgumentError(
        f"init: nonlinearity is {nonlinearity!r}, expected one of linear, conv2d, sigmoid, tanh, "
        "relu, leaky_relu"
    )


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan), in place; `a` is leaky_relu's negative slope.

    Source: He et al., "Delving deep into rectifiers" (ICCV 2015).
    """
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"kaiming_uniform_: mode is {mode!r}, expected 'fan_in' or 'fan_out'")
    fan = calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]
    if fan == 0:
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / fan)
    return uniform_(tensor, -bound, bound)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)), in place.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks" (AISTATS 2010).
    """
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)), in place."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain))


def _xavier_std(tensor: Tensor, gain: float) -> float:
    fans = sum(calculate_fan_in_and_fan_out(tensor))
    return gain * math.sqrt(2.0 / fans) if fans else 0.0
