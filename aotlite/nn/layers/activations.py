"""Activations as layers. Each computes the function of `nn.functional` with its name."""

from __future__ import annotations

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import full
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.nn.functional import activations as A
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


class _InPlace(Module):
    """An activation that may write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""

    def _with_place(self, *parts: str) -> str:
        return ", ".join([*parts, *(["inplace=True"] if self.inplace else [])])


class ReLU(_InPlace):
    """max(x, 0); `inplace` writes it into the input."""

    def forward(self, input: Tensor) -> Tensor:
        return A.relu(input, self.inplace)


class ReLU6(_InPlace):
    """min(max(x, 0), 6)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.relu6(input, self.inplace)


class SiLU(_InPlace):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.silu(input, self.inplace)


class Mish(_InPlace):
    """x * tanh(softplus(x))."""

    def forward(self, input: Tensor) -> Tensor:
        return A.mish(input, self.inplace)


class SELU(_InPlace):
    """`ELU` with an alpha and a factor that keep mean 0 and variance 1."""

    def forward(self, input: Tensor) -> Tensor:
        return A.selu(input, self.inplace)


class Hardsigmoid(_InPlace):
    """min(max(x / 6 + 1 / 2, 0), 1)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.hardsigmoid(input, self.inplace)


class Hardswish(_InPlace):
    """x * hardsigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.hardswish(input, self.inplace)


class ELU(_InPlace):
    """x where it is positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return A.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return self._with_place(f"alpha={self.alpha}")


class CELU(_InPlace):
    """x where it is positive, else alpha * (exp(x / alpha) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return A.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return self._with_place(f"alpha={self.alpha}")


class LeakyReLU(_InPlace):
    """x where it is positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return A.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return self._with_place(f"negative_slope={self.negative_slope}")


class Hardtanh(_InPlace):
    """x, but at least `min_val` and at most `max_val`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if not min_val < max_val:
            raise ArgumentError(
                f"Hardtanh: min_val is {min_val}, expected less than {max_val}, the max_val"
            )
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        return A.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return self._with_place(f"min_val={self.min_val}", f"max_val={self.max_val}")


class Threshold(_InPlace):
    """x where it is above `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return A.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return self._with_place(f"threshold={self.threshold}", f"value={self.value}")


class GELU(Module):
    """x times the normal distribution function at x; `approximate="tanh"` for a fast formula."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = A.checked_approximation("GELU", approximate)

    def forward(self, input: Tensor) -> Tensor:
        return A.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x where beta * x is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return A.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """x where it is positive, else weight * x, with a learned weight, one or one a channel."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        return A.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softshrink(Module):
    """x moved towards 0 by `lambd`, no further than 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return A.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Module):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return A.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        return A.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return A.tanh(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: Tensor) -> Tensor:
        return A.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return A.tanhshrink(input)


class GLU(Module):
    """The first half of a dimension times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return A.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _OverDim(Module):
    """A function over one dimension, which must be given. (PyTorch guesses it, with a warning.)"""

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def _given(self) -> int:
        if self.dim is None:
            raise ArgumentError(f"{type(self).__name__}: dim is None, expected a dimension")
        return self.dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_OverDim):
    """exp(x) divided by its sum over `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return A.softmax(input, self._given())


class Softmin(_OverDim):
    """`Softmax` of -x."""

    def forward(self, input: Tensor) -> Tensor:
        return A.softmin(input, self._given())


class LogSoftmax(_OverDim):
    """The logarithm of `Softmax`."""

    def forward(self, input: Tensor) -> Tensor:
        return A.log_softmax(input, self._given())
