"""Pointwise ops of the gamma function: lgamma, and its derivatives digamma and polygamma.

Array libraries have none of them. Kernels compute in float64, also for narrower dtypes.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.errors import ArgumentError
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.kinds import COMPLEX, FLOAT8
from aotlite.ir.ops.pointwise_rows import elementary
from aotlite.ir.ops.precision import cast, horner

_DOUBLE = dtypes.float64


def _in_double(function: Any) -> Any:
    """The kernel that computes in float64 and rounds to the operand's dtype."""

    def kernel(xp: Any, *args: Any) -> Any:
        a = args[-1]
        dtype = dtypes.from_numpy(a.dtype)
        return cast(xp, function(xp, *args[:-1], cast(xp, a, _DOUBLE)), dtype)

    return kernel


_BERNOULLI = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)

# ----------------------------------------------------------------------------------------- lgamma
# log gamma(2 + t) = t B(t) / C(t) for t in [0, 1], and Stirling's series A(1/x^2) / x from 13 on.
# Source: Cephes (Moshier 1984-2000), gamma.c.
_A = (
    8.11614167470508450300e-4,
    -5.95061904284301438324e-4,
    7.93650340457716943945e-4,
    -2.77777777730099687205e-3,
    8.33333333333331927722e-2,
)
_B = (
    -1.37825152569120859100e3,
    -3.88016315134637840924e4,
    -3.31612992738871184744e5,
    -1.16237097492762307383e6,
    -1.72173700820839662146e6,
    -8.53555664245765465627e5,
)
_C = (
    1.0,
    -3.51815701436523470549e2,
    -1.70642106651881159223e4,
    -2.20528590553854454839e5,
    -1.13933444367982507207e6,
    -2.53252307177582951285e6,
    -2.01889141433532773231e6,
)
_LARGE = 13.0
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _lgamma_values(xp: Any, x: Any) -> Any:
    below = xp.abs(xp.where(x < 0.5, x, 1.0))
    # Reflection: gamma(x) gamma(1 - x) = pi / sin(pi x).
    turned = xp.where(x < 0.5, 1.0 - x, x)
    found = xp.where(turned < _LARGE, _small(xp, turned), _large(xp, turned))
    whole = xp.round(below)
    sine = xp.abs(xp.sin((below - whole) * math.pi))
    reflected = math.log(math.pi) - xp.log(sine) - found
    # Near 0 the reflection cancels: there gamma(x) = gamma(1 + x) / x.
    safe = xp.where(below < 0.5, below, 0.25)
    upper = xp.where((x < 0.5) & (x > -0.5), 1.0 + x, 1.5)
    near = _small(xp, upper, x) - xp.log(safe)
    result = xp.where(x < 0.5, xp.where(below < 0.5, near, reflected), found)
    return xp.where(xp.isinf(x) | ((x <= 0) & (x == xp.floor(x))), float("inf"), result)


def _zeta_less_one(k: int) -> float:
    """The sum of n^-k over n >= 2: terms, then Euler and Maclaurin's formula."""
    last = 40
    terms = [n**-k for n in range(2, last)]
    rest = [last ** (1 - k) / (k - 1), last**-k / 2]
    for j, bernoulli in enumerate(_BERNOULLI[:5], 1):
        rising = math.prod(range(k, k + 2 * j - 1))
        rest.append(bernoulli * rising / math.factorial(2 * j) * last ** (1 - k - 2 * j))
    return math.fsum(terms + rest)


_EULER = 0.577215664901532860606512090082
_AROUND_TWO = (
    *[(-1) ** k * _zeta_less_one(k) / k for k in range(27, 1, -1)],
    1 - _EULER,
)
"""log gamma(2 + t) / t in powers of t, highest first: to 1e-16 for |t| up to 1/2."""


def _small(xp: Any, x: Any, above_one: Any = None) -> Any:
    """Of 0.5 <= x < 13. `above_one` is x - 1 where it is known more exactly."""
    above = x - 1.0 if above_one is None else above_one
    steps = xp.clip(xp.floor(x) - 2.0, 0.0, 10.0)
    product = xp.ones_like(x)
    for k in range(1, 11):
        product = product * xp.where(k <= steps, x - k, 1.0)
    low = x < 1.5
    t = xp.where(low, above, x - steps - 2.0)
    under = xp.where(low, above < 0.0, x < 2.0)
    off = xp.where(under, xp.where(low, t, x - 2.0), 0.0)
    t = xp.where(under, 0.0, t)
    inner = xp.where(under, off * horner(off, _AROUND_TWO), t * (horner(t, _B) / horner(t, _C)))
    return inner - xp.where(low, xp.log1p(xp.where(low, above, 0.0)), -xp.log(product))


def _large(xp: Any, x: Any) -> Any:
    x = xp.where(x < _LARGE, _LARGE, x)
    log = xp.log(x)
    series = horner(1.0 / x / x, _A) / x
    # In two parts, for the product of large numbers may overflow only if the result does.
    return (x - 0.5) * (log - 1.0) + (_HALF_LOG_2PI - 0.5 + series)


LGAMMA = elementary(
    "lgamma",
    kernel=_in_double(_lgamma_values),
    vjp=lambda grad, self: grad * self.digamma(),
    refuses=COMPLEX | FLOAT8,
)
"""The logarithm of the absolute value of the gamma function."""

# ---------------------------------------------------------------------------------------- digamma
# log x - 1/2x - Z(1/x^2) / x^2 from 10 on. Source: Cephes, psi.c: the series of Bernoulli numbers.
_Z = (
    8.33333333333333333333e-2,
    -2.10927960927960927961e-2,
    7.57575757575757575758e-3,
    -4.16666666666666666667e-3,
    3.96825396825396825397e-3,
    -8.33333333333333333333e-3,
    8.33333333333333333333e-2,
)
_ASYMPTOTIC = 10


def _digamma_values(xp: Any, x: Any) -> Any:
    negative = x <= 0
    pole = negative & (x == xp.floor(x))
    turned = xp.where(negative, 1.0 - x, x)
    total = xp.zeros_like(x)
    for _ in range(_ASYMPTOTIC):
        low = turned < _ASYMPTOTIC
        total = total - xp.where(low, 1.0 / xp.where(low, turned, 1.0), 0.0)
        turned = xp.where(low, turned + 1.0, turned)
    inverse = 1.0 / (turned * turned)
    found = total + xp.log(turned) - 0.5 / turned - inverse * horner(inverse, _Z)
    rest = xp.where(negative & ~pole, x - xp.round(x), 0.25)
    found = xp.where(negative, found - math.pi / xp.tan(rest * math.pi), found)
    at_zero = xp.copysign(float("inf"), -x)
    found = xp.where(x == float("inf"), x, found)
    return xp.where(x == 0, at_zero, xp.where(pole, float("nan"), found))


DIGAMMA = elementary(
    "digamma",
    kernel=_in_double(_digamma_values),
    vjp=lambda grad, self: grad * self._do("polygamma_of", 1),
    refuses=COMPLEX | FLOAT8,
)

# -------------------------------------------------------------------------------------- polygamma
_TERMS = 12


def _zeta(xp: Any, power: int, x: Any) -> Any:
    """The sum of (x + k)^-power over k >= 0, x > 0: terms, then Euler and Maclaurin's formula."""
    total = xp.zeros_like(x)
    for k in range(_TERMS):
        total = total + (x + k) ** -power
    far = x + float(_TERMS)
    total = total + far ** (1 - power) / (power - 1) + 0.5 * far**-power
    factor, decay = float(power), far ** (-power - 1)
    for j, bernoulli in enumerate(_BERNOULLI, 1):
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
    if type(n) is not int or not 0 <= n <= _MOST_ORDER:
        raise ArgumentError(
            f"{name}: n is {reprlib.repr(n)}, expected an int from 0 to {_MOST_ORDER}"
        )
    return n


def _polygamma_values(xp: Any, n: int, x: Any) -> Any:
    _order("polygamma_of", n)
    negative = x <= 0
    turned = xp.where(negative, 1.0 - x, x)
    sign, scale = (-1.0) ** (n + 1), float(math.factorial(n))
    found = sign * scale * _zeta(xp, n + 1, xp.where(xp.isinf(turned), 1.0, turned))
    found = xp.where(xp.isinf(turned), 0.0, found)
    rest = x - xp.round(x)
    pole = negative & (rest == 0)
    cotangent = 1.0 / xp.tan(xp.where(negative & ~pole & ~xp.isinf(x), rest, 0.25) * math.pi)
    reflected = (-1.0) ** n * found - horner(cotangent, _cotangent_derivative(n))
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
def polygamma(first: Any, second: Any) -> Any:
    """The n-th derivative of digamma: `x.polygamma(n)`, or `polygamma(n, x)`."""
    self, n = (first, second) if hasattr(first, "meta") else (second, first)
    return self._do("polygamma_of", n) if _order("polygamma", n) else self.digamma()


@composite("polygamma_(Tensor(a!) self, int n) -> Tensor(a!)")
def polygamma_(self: Any, n: int) -> Any:
    """`polygamma` in place."""
    return self._do("polygamma_of_", n) if _order("polygamma_", n) else self._do("digamma_")
