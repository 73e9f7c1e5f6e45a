"""Functions that NumPy lacks, of arrays: by the standard library, or by mpmath, and rounded once.

They are independent of the ops' kernels, which laws compare with them. mpmath comes with SymPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aotlite.ir.arrays import Array


def by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Returns the function of arrays that has the same values; NaN stays."""

    def values(x: Array) -> Array:
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        found = [v if math.isnan(v) else function(v) for v in x.astype(np.float64).ravel().tolist()]
        return np.array(found, dtype).reshape(x.shape)

    return values


def lgamma(x: float) -> float:
    """log |gamma(x)|."""
    import mpmath

    if math.isinf(x) or (x <= 0 and x == int(x)):
        return math.inf
    return float(mpmath.re(mpmath.loggamma(x)))


def digamma(x: float) -> float:
    """The derivative of lgamma."""
    import mpmath

    if x == 0:
        return -math.copysign(math.inf, x)
    if x == -math.inf or (x < 0 and x == int(x)):
        return math.nan
    return x if math.isinf(x) else float(mpmath.digamma(x))


def polygamma(n: Array, x: Array) -> Array:
    """The n-th derivative of digamma; n is one number."""
    order = int(np.ravel(n)[0])
    return by_element(lambda v: _polygamma(order, v))(np.asarray(x))


def _polygamma(n: int, x: float) -> float:
    import mpmath

    if n == 0:
        return digamma(x)
    if math.isinf(x):
        return 0.0 if x > 0 else math.nan
    if x <= 0 and x == int(x):
        return math.inf if n % 2 else math.nan
    return float(mpmath.polygamma(n, x))


def erfinv(x: float) -> float:
    """The inverse of erf."""
    import mpmath

    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    return float(mpmath.erfinv(x)) if x else x


def power(a: Array, b: Array) -> Array:
    """NumPy's power; for integers with a negative exponent, the truncated reciprocal.

    Of arrays: NumPy takes a root for a single exponent of 0.5, which differs at -0.0 and -inf.
    """
    a, b = np.broadcast_arrays(a, b)
    if np.result_type(a, b).kind not in "iu":
        return np.power(a, b)
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    found = np.power(a, np.where(b < 0, 0, b))
    return np.where(b < 0, reciprocal, found).astype(found.dtype)


def trunc_divide(a: Array, b: Array) -> Array:
    """The quotient rounded towards 0."""
    return np.trunc(np.true_divide(a, b)).astype(np.result_type(a, b))


def signbit(a: Array) -> Array:
    """Whether the sign bit is set; also of integers and bools."""
    return a < 0 if a.dtype.kind in "biu" else np.signbit(a)


def complex_of(real: Array, imag: Array) -> Array:
    """Complex numbers of their parts, with signed zeros."""
    made = np.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real, np.complex64))
    made.real, made.imag = real, imag
    return made
