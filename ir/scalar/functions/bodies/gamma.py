"""lgamma and digamma: one formula for the ops' kernels, on arrays, and for the bodies, on scalars.

A formula is given the functions `f` that it calls: an array library's, or those of expressions
(`formula.py`). It computes in float64; a result of float32 is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir.scalar.functions.formula import formula_body
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_f64
from aotlite.ir.scalar.functions.scalar_terms import polynomial

BERNOULLI = (
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
"""Bernoulli's numbers of even index, from the second on."""

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


def lgamma(f: Any, x: Any) -> Any:
    below = f.abs(f.where(x < 0.5, x, 1.0))
    # Reflection: gamma(x) gamma(1 - x) = pi / sin(pi x).
    turned = f.where(x < 0.5, 1.0 - x, x)
    found = f.where(turned < _LARGE, _small(f, turned), _large(f, turned))
    whole = f.round(below)
    sine = f.abs(f.sin((below - whole) * math.pi))
    reflected = math.log(math.pi) - f.log(sine) - found
    # Near 0 the reflection cancels: there gamma(x) = gamma(1 + x) / x.
    safe = f.where(below < 0.5, below, 0.25)
    upper = f.where((x < 0.5) & (x > -0.5), 1.0 + x, 1.5)
    near = _small(f, upper, x) - f.log(safe)
    result = f.where(x < 0.5, f.where(below < 0.5, near, reflected), found)
    return f.where(f.isinf(x) | ((x <= 0) & f.equal(x, f.floor(x))), float("inf"), result)


def _zeta_less_one(k: int) -> float:
    """The sum of n^-k over n >= 2: terms, then Euler and Maclaurin's formula."""
    last = 40
    terms = [n**-k for n in range(2, last)]
    rest = [last ** (1 - k) / (k - 1), last**-k / 2]
    for j, bernoulli in enumerate(BERNOULLI[:5], 1):
        rising = math.prod(range(k, k + 2 * j - 1))
        rest.append(bernoulli * rising / math.factorial(2 * j) * last ** (1 - k - 2 * j))
    return math.fsum(terms + rest)


_EULER = 0.577215664901532860606512090082
_AROUND_TWO = (
    *[(-1) ** k * _zeta_less_one(k) / k for k in range(27, 1, -1)],
    1 - _EULER,
)
"""log gamma(2 + t) / t in powers of t, highest first: to 1e-16 for |t| up to 1/2."""


def _small(f: Any, x: Any, above_one: Any = None) -> object:
    """Of 0.5 <= x < 13. `above_one` is x - 1 where it is known more exactly."""
    above = x - 1.0 if above_one is None else above_one
    steps = f.clip(f.floor(x) - 2.0, 0.0, 10.0)
    product = f.ones_like(x)
    for k in range(1, 11):
        product = product * f.where(k <= steps, x - k, 1.0)
    low = x < 1.5
    t = f.where(low, above, x - steps - 2.0)
    under = f.where(low, above < 0.0, x < 2.0)
    off = f.where(under, f.where(low, t, x - 2.0), 0.0)
    t = f.where(under, 0.0, t)
    inner = f.where(
        under, off * polynomial(off, _AROUND_TWO), t * (polynomial(t, _B) / polynomial(t, _C))
    )
    return inner - f.where(low, f.log1p(f.where(low, above, 0.0)), -f.log(product))


def _large(f: Any, x: Any) -> object:
    x = f.where(x < _LARGE, _LARGE, x)
    log = f.log(x)
    series = polynomial(1.0 / x / x, _A) / x
    # In two parts, for the product of large numbers may overflow only if the result does.
    return (x - 0.5) * (log - 1.0) + (_HALF_LOG_2PI - 0.5 + series)


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


def digamma(f: Any, x: Any) -> Any:
    negative = x <= 0
    pole = negative & f.equal(x, f.floor(x))
    turned = f.where(negative, 1.0 - x, x)
    total = f.zeros_like(x)
    for _ in range(_ASYMPTOTIC):
        low = turned < _ASYMPTOTIC
        total = total - f.where(low, 1.0 / f.where(low, turned, 1.0), 0.0)
        turned = f.where(low, turned + 1.0, turned)
    inverse = 1.0 / (turned * turned)
    found = total + f.log(turned) - 0.5 / turned - inverse * polynomial(inverse, _Z)
    rest = f.where(negative & ~pole, x - f.round(x), 0.25)
    found = f.where(negative, found - math.pi / f.tan(rest * math.pi), found)
    at_zero = f.copysign(float("inf"), -x)
    found = f.where(f.equal(x, float("inf")), x, found)
    return f.where(f.equal(x, 0), at_zero, f.where(pole, float("nan"), found))


_AWAY = "all; near its zeros to 1e-15"
lgamma32 = body(is_f32, ulp=1.5)(formula_body(lgamma))
lgamma64 = body(is_f64, ulp=8.0, domain=_AWAY)(formula_body(lgamma))
digamma32 = body(is_f32, ulp=1.5)(formula_body(digamma))
digamma64 = body(is_f64, ulp=8.0, domain=_AWAY)(formula_body(digamma))
