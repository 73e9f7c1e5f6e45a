"""Pointwise ops of the gamma function: lgamma, and its derivatives digamma and polygamma.

Array libraries have none of them. Kernels compute in float64, also for narrower dtypes.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.kinds import COMPLEX, FLOAT8
from aotlite.ir.ops.pointwise_rows import elementary
from aotlite.ir.ops.precision import cast
from aotlite.ir.scalar.functions.bodies.gamma import BERNOULLI, digamma, lgamma
from aotlite.ir.scalar.functions.scalar_terms import polynomial
from aotlite.ir.symbols.python_number import plain

_DOUBLE = dtypes.float64


def _in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    """The kernel that computes in float64 and rounds to the operand's dtype."""

    def kernel(xp: Namespace, *args: Any) -> Array:
        a = args[-1]
        dtype = dtypes.from_numpy(a.dtype)
        return cast(xp, function(xp, *args[:-1], cast(xp, a, _DOUBLE)), dtype)

    return kernel


LGAMMA = elementary(
    "lgamma",
    kernel=_in_double(lgamma),
    vjp=lambda grad, self: grad * self.digamma(),
    refuses=COMPLEX | FLOAT8,
)
"""The logarithm of the absolute value of the gamma function."""

DIGAMMA = elementary(
    "digamma",
    kernel=_in_double(digamma),
    vjp=lambda grad, self: grad * self._do("polygamma_of", 1),
    refuses=COMPLEX | FLOAT8,
)

# -------------------------------------------------------------------------------------- polygamma
_TERMS = 12


def _zeta(xp: Namespace, power: int, x: Array) -> Array:
    """The sum of (x + k)^-power over k >= 0, x > 0: terms, then Euler and Maclaurin's formula."""
    total = xp.zeros_like(x)
    for k in range(_TERMS):
        total = total + (x + k) ** -power
    far = x + float(_TERMS)
    total = total + far ** (1 - power) / (power - 1) + 0.5 * far**-power
    factor, decay = float(power), far ** (-power - 1)
    for j, bernoulli in enumerate(BERNOULLI, 1):
        total = total + (bernoulli * factor / math.factorial(2 * j)) * decay
        factor *= (power + 2 * j - 1) * (power + 2 * j)
        decay = decay / (far * far)
    return total


def _cotangent_derivative(n: int) -> tuple[float, ...]:
    """The coefficients, highest first, of the n-th derivative of pi cot(pi x) as a polynomial in
    the cotangent.
    """
    powers = [0.0, math.pi]  # lowest first
    for _ in range(n):
        slopes = [k * c for k, c in enumerate(powers)][1:]
        grown = [*slopes, 0.0, 0.0]
        shifted = [0.0, 0.0, *slopes]
        powers = [-math.pi * (a + b) for a, b in zip(grown, shifted, strict=True)]
    return tuple(reversed(powers))


_MOST_ORDER = 170
"""The largest number whose factorial is a float."""


def _order(name: str, n: object) -> int:
    """The order of a derivative. Raises ArgumentError for what is none."""
    n = plain(n)
    if type(n) is not int or not 0 <= n <= _MOST_ORDER:
        raise ArgumentError(
            f"{name}: n is {reprlib.repr(n)}, expected an int from 0 to {_MOST_ORDER}"
        )
    return n


def _polygamma_values(xp: Namespace, n: int, x: Array) -> Array:
    _order("polygamma_of", n)
    negative = x <= 0
    turned = xp.where(negative, 1.0 - x, x)
    sign, scale = (-1.0) ** (n + 1), float(math.factorial(n))
    found = sign * scale * _zeta(xp, n + 1, xp.where(xp.isinf(turned), 1.0, turned))
    found = xp.where(xp.isinf(turned), 0.0, found)
    rest = x - xp.round(x)
    pole = negative & (rest == 0)
    cotangent = 1.0 / xp.tan(xp.where(negative & ~pole & ~xp.isinf(x), rest, 0.25) * math.pi)
    reflected = (-1.0) ** n * found - polynomial(cotangent, _cotangent_derivative(n))
    found = xp.where(pole, sign * float("inf"), xp.where(negative, reflected, found))
    return xp.where(x == -float("inf"), float("nan"), found)


POLYGAMMA = elementary(
    "polygamma_of",
    parameters="int n",
    kernel=lambda xp, a, n: _in_double(_polygamma_values)(xp, n, a),
    scalar=lambda a, n: s.polygamma(n, a),
    vjp=lambda grad, self, n: grad * self._do("polygamma_of", n + 1),
    refuses=COMPLEX | FLOAT8,
)
"""The n-th derivative of digamma, n at least 1."""


@composite(name="polygamma")
def polygamma(first: Operand, second: Operand) -> Operand:
    """The n-th derivative of digamma: `x.polygamma(n)`, or `polygamma(n, x)`."""
    self, n = (first, second) if hasattr(first, "meta") else (second, first)
    order = _order("polygamma", n)
    return self._do("polygamma_of", order) if order else self.digamma()


@composite("polygamma_(Tensor(a!) self, int n) -> Tensor(a!)")
def polygamma_(self: Operand, n: int) -> Operand:
    """`polygamma` in place."""
    order = _order("polygamma_", n)
    return self._do("polygamma_of_", order) if order else self._do("digamma_")
