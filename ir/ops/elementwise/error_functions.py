"""Pointwise ops of the error function: erf, erfc, erfinv, gelu."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.ops.declare import pointwise_rule
from aotlite.ir.ops.kinds import COMPLEX, FLOAT8, require_floating
from aotlite.ir.ops.pointwise_rows import elementary, unary
from aotlite.ir.ops.precision import cast, horner, wide, widened

# erf(x) is x T(x^2) / U(x^2) up to 1, and 1 - exp(-x^2) P(x) / Q(x) from there on; highest power
# first. Source: Cephes (Moshier 1984-2000), ndtr.c, good to 4e-16.
_T = (
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_U = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)
_ONE_FROM = 6.0  # erf rounds to 1 in float64

# In float32 one quotient serves all: x A(x^2) / B(x^2), good to 5e-7 and four times as fast.
# Source: Eigen, generic_fast_erf_float.
_A = (
    -2.72614225801306e-10,
    2.77068142495902e-8,
    -2.10102402082508e-6,
    -5.69250639462346e-5,
    -7.34990630326855e-4,
    -2.95459980854025e-3,
    -1.60960333262415e-2,
)
_B = (
    -1.45660718464996e-5,
    -2.13374055278905e-4,
    -1.68282697438203e-3,
    -7.37332916720468e-3,
    -1.42647390514189e-2,
)
_ONE_FROM_32 = 4.0


def erf_values(xp: Any, x: Any) -> Any:
    """erf of each element of a float32 or float64 array."""
    return _erf32(xp, x) if x.dtype == dtypes.float32.numpy else _erf64(xp, x)


def _erf32(xp: Any, x: Any) -> Any:
    x = xp.clip(x, -_ONE_FROM_32, _ONE_FROM_32)
    squares = x * x
    return xp.clip(x * (horner(squares, _A) / horner(squares, _B)), -1.0, 1.0)


def _erf64(xp: Any, x: Any) -> Any:
    squares = xp.minimum(x * x, 1.0)  # no overflow where the other quotient is taken
    inner = x * (horner(squares, _T) / horner(squares, _U))
    size = xp.minimum(xp.abs(x), _ONE_FROM)
    rest = xp.exp(-size * size) * (horner(size, _P) / horner(size, _Q))
    outer = xp.where(x < 0, rest - 1, 1 - rest)
    return xp.where(size < 1, inner, outer)


def _erf_kernel(xp: Any, a: Any) -> Any:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, erf_values(xp, wide(xp, a, dtype)), dtype)


ERF = elementary(
    "erf",
    kernel=_erf_kernel,
    vjp=lambda grad, self: grad * ((-self * self).exp() * (2 / math.sqrt(math.pi))),
    refuses=COMPLEX | FLOAT8,
)


# ------------------------------------------------------------------------------------ erfc, erfinv
# From 8 on erfc(x) = exp(-x^2) R(x) / S(x). Source: Cephes, ndtr.c.
_R = (
    5.64189583547755073984e-1,
    1.27536670759978104416e0,
    5.01905042251180477414e0,
    6.16021097993053585195e0,
    7.40974269950948939160e0,
    2.97886665372100240670e0,
)
_S = (
    1.0,
    2.26052863220117276590e0,
    9.39603524938001434673e0,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198e0,
    3.36907645100081516050e0,
)
_ZERO_FROM = 27.5  # erfc rounds to 0 in float64


def _erfc64(xp: Any, x: Any) -> Any:
    size = xp.minimum(xp.abs(x), _ZERO_FROM)
    # exp(-x^2) from the square of a part of x that float32 holds: large squares round coarsely.
    head = xp.astype(xp.astype(size, dtypes.float32.numpy), dtypes.float64.numpy)
    bell = xp.exp(-head * head) * xp.exp((head - size) * (head + size))
    quotient = xp.where(
        size < 8.0, horner(size, _P) / horner(size, _Q), horner(size, _R) / horner(size, _S)
    )
    outer = bell * quotient
    return xp.where(size < 1.0, 1.0 - _erf64(xp, x), xp.where(x < 0, 2.0 - outer, outer))


def _erfc_kernel(xp: Any, a: Any) -> Any:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, _erfc64(xp, cast(xp, a, dtypes.float64)), dtype)


ERFC = elementary(
    "erfc",
    kernel=_erfc_kernel,
    vjp=lambda grad, self: grad * ((-self * self).exp() * (-2 / math.sqrt(math.pi))),
    refuses=COMPLEX | FLOAT8,
)

# First approximations, for |x| up to 0.7 and beyond; two of Newton's steps make them exact.
# Source: PyTorch, Math.h, calc_erfinv.
_CENTER = (-0.140543331, 0.914624893, -1.645349621, 0.886226899)
_CENTER_BELOW = (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0)
_TAIL = (1.641345311, 3.429567803, -1.624906493, -1.970840454)
_TAIL_BELOW = (1.637067800, 3.543889200, 1.0)


def _erfinv64(xp: Any, y: Any) -> Any:
    size = xp.abs(y)
    inner = size <= 0.7
    center = xp.where(inner, size, 0.0)
    squares = center * center
    first = center * horner(squares, _CENTER) / horner(squares, _CENTER_BELOW)
    rest = 1.0 - size
    t = xp.sqrt(-xp.log(xp.where((size < 1.0) & ~inner, rest * 0.5, 0.25)))
    x = xp.where(inner, first, horner(t, _TAIL) / horner(t, _TAIL_BELOW))
    for _ in range(3):
        # In the tail by erfc, whose small values are exact where erf is near 1.
        error = xp.where(inner, _erf64(xp, x) - size, rest - _erfc64(xp, x))
        x = x - error / (xp.exp(-x * x) * (2 / math.sqrt(math.pi)))
    x = xp.where(size < 1.0, x, xp.where(size == 1.0, float("inf"), float("nan")))
    return xp.copysign(x, y)


def _erfinv_kernel(xp: Any, a: Any) -> Any:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, _erfinv64(xp, cast(xp, a, dtypes.float64)), dtype)


ERFINV = elementary(
    "erfinv",
    kernel=_erfinv_kernel,
    vjp=lambda grad, self: (
        grad * ((self.erfinv() * self.erfinv()).exp() * (math.sqrt(math.pi) / 2))
    ),
    refuses=COMPLEX | FLOAT8,
)


# ------------------------------------------------------------------------------------------ logit
def _logit(f: Any, a: Any, eps: float | None) -> Any:
    x = a if eps is None else f.minimum(f.maximum(a, eps), 1 - eps)
    return f.log(x / (1.0 - x))


def _logit_vjp(grad: Any, self: Any, eps: float | None) -> Any:
    """Outside of the domain nan, or 0 where eps holds what comes near its ends."""
    low = 0.0 if eps is None else eps
    inside = (self >= low).logical_and(self <= 1 - low)
    # The size, for at -0.0 the slope is infinite upwards, as at 0.
    size = (self * (1 - self)).abs()
    if eps is None:  # a multiple of grad: where there is none, there is none of the operand
        return grad / inside.where(size, math.nan)
    return inside.where(grad / size, 0.0)


LOGIT = elementary(
    "logit",
    parameters="float? eps=None",
    element=_logit,
    vjp=_logit_vjp,
    refuses=COMPLEX | FLOAT8,
)


# ------------------------------------------------------------------------------------------ gelu
_INNER, _CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_kernel(xp: Any, a: Any, tanh: bool) -> Any:
    dtype = dtypes.from_numpy(a.dtype)
    x = wide(xp, a, dtype)
    bent = xp.tanh((x + x * x * x * _CUBE) * _INNER) if tanh else erf_values(xp, x * math.sqrt(0.5))
    return cast(xp, x * 0.5 * (bent + 1), dtype)


def _gelu_scalar(a: Any, tanh: bool) -> Any:
    bent = s.tanh((a + a * a * a * _CUBE) * _INNER) if tanh else s.erf(a * math.sqrt(0.5))
    return a * 0.5 * (bent + 1.0)


def _gelu_vjp(grad: Any, self: Any, tanh: bool) -> Any:
    self = widened(self)
    squares = self * self
    if tanh:
        bent = ((self + squares * self * _CUBE) * _INNER).tanh()
        slope = (squares * (3 * _CUBE) + 1) * (1 - bent * bent) * _INNER
    else:
        bent = (self * math.sqrt(0.5)).erf()
        slope = (squares * -0.5).exp() * math.sqrt(2 / math.pi)
    return grad * ((bent + 1 + self * slope) * 0.5)


def _gelu_expanded(self: Any, tanh: bool = False) -> Any:
    value = widened(self)
    if tanh:
        inner = math.sqrt(2 / math.pi) * (value + _CUBE * value * value * value)
        return (0.5 * value * (inner.tanh() + 1)).to(self.dtype)
    return (0.5 * value * ((value * math.sqrt(0.5)).erf() + 1)).to(self.dtype)


GELU = unary(
    "gelu",
    parameters="bool tanh=False",
    kernel=_gelu_kernel,
    scalar=_gelu_scalar,
    vjp=_gelu_vjp,
    rule=pointwise_rule("gelu", partial(require_floating, "gelu")),
    expands=_gelu_expanded,
    inplace=False,
)
"""self times the normal distribution function at self; `tanh` for its approximation by a tanh.

Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016).
"""
