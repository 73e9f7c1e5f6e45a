"""Pointwise ops of the error function: erf, gelu."""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError
from aotlite.ir.ops.declare import COMPLEX, pointwise, pointwise_rule, to_float
from aotlite.ir.ops.precision import cast, wide, widened

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


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


def erf_values(xp: Any, x: Any) -> Any:
    """erf of each element of a float32 or float64 array."""
    return _erf32(xp, x) if x.dtype == dtypes.float32.numpy else _erf64(xp, x)


def _erf32(xp: Any, x: Any) -> Any:
    x = xp.clip(x, -_ONE_FROM_32, _ONE_FROM_32)
    squares = x * x
    return xp.clip(x * (_polynomial(squares, _A) / _polynomial(squares, _B)), -1.0, 1.0)


def _erf64(xp: Any, x: Any) -> Any:
    squares = xp.minimum(x * x, 1.0)  # no overflow where the other quotient is taken
    inner = x * (_polynomial(squares, _T) / _polynomial(squares, _U))
    size = xp.minimum(xp.abs(x), _ONE_FROM)
    rest = xp.exp(-size * size) * (_polynomial(size, _P) / _polynomial(size, _Q))
    outer = xp.where(x < 0, rest - 1, 1 - rest)
    return xp.where(size < 1, inner, outer)


def _erf_kernel(xp: Any, a: Any) -> Any:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, erf_values(xp, wide(xp, a, dtype)), dtype)


ERF = pointwise(
    "erf(Tensor self) -> Tensor",
    kernel=_erf_kernel,
    scalar=lambda a: s.erf(a),
    vjp={"self": lambda grad, self: grad * ((-self * self).exp() * (2 / math.sqrt(math.pi)))},
    result=to_float,
    refuses=COMPLEX,
    inplace=True,
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


def _floating(dtype: DType) -> DType:
    if not dtype.is_floating_point:
        raise DTypeError(f"gelu: dtype is {dtype}, expected a floating one")
    return dtype


GELU = pointwise(
    "gelu(Tensor self, bool tanh=False) -> Tensor",
    kernel=_gelu_kernel,
    scalar=_gelu_scalar,
    vjp={"self": _gelu_vjp},
    rule=pointwise_rule("gelu", _floating),
)
"""self times the normal distribution function at self; `tanh` for its approximation by a tanh.

Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016).
"""
