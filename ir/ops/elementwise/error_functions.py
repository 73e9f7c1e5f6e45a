"""Pointwise ops of the error function: erf, erfc, erfinv, gelu."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import by_element, pointwise_rule
from aotlite.ir.ops.kinds import COMPLEX, FLOAT8, require_floating
from aotlite.ir.ops.pointwise_rows import elementary, unary
from aotlite.ir.ops.precision import cast, wide, widened
from aotlite.ir.scalar.functions.bodies.error_function import erf, erfc, erfinv
from aotlite.ir.scalar.functions.scalar_terms import polynomial

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


def erf_values(xp: Namespace, x: Array) -> Array:
    """erf of each element of a float32 or float64 array."""
    return _erf32(xp, x) if x.dtype == dtypes.float32.numpy else erf(xp, x)


def _erf32(xp: Namespace, x: Array) -> Array:
    x = xp.clip(x, -_ONE_FROM_32, _ONE_FROM_32)
    squares = x * x
    return xp.clip(x * (polynomial(squares, _A) / polynomial(squares, _B)), -1.0, 1.0)


def _erf_kernel(xp: Namespace, a: Array) -> Array:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, erf_values(xp, wide(xp, a, dtype)), dtype)


ERF = elementary(
    "erf",
    kernel=_erf_kernel,
    vjp=lambda grad, self: grad * ((-self * self).exp() * (2 / math.sqrt(math.pi))),
    refuses=COMPLEX | FLOAT8,
)


# ------------------------------------------------------------------------------------ erfc, erfinv
def _erfc_kernel(xp: Namespace, a: Array) -> Array:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, erfc(xp, cast(xp, a, dtypes.float64)), dtype)


ERFC = elementary(
    "erfc",
    kernel=_erfc_kernel,
    vjp=lambda grad, self: grad * ((-self * self).exp() * (-2 / math.sqrt(math.pi))),
    refuses=COMPLEX | FLOAT8,
)


def _erfinv_kernel(xp: Namespace, a: Array) -> Array:
    dtype = dtypes.from_numpy(a.dtype)
    return cast(xp, erfinv(xp, cast(xp, a, dtypes.float64)), dtype)


ERFINV = elementary(
    "erfinv",
    kernel=_erfinv_kernel,
    vjp=lambda grad, self: (
        grad * ((self.erfinv() * self.erfinv()).exp() * (math.sqrt(math.pi) / 2))
    ),
    refuses=COMPLEX | FLOAT8,
)


# ------------------------------------------------------------------------------------------ logit
def _logit(f: Any, a: Any, eps: float | None) -> object:
    x = a if eps is None else f.minimum(f.maximum(a, eps), 1 - eps)
    return f.log(x / (1.0 - x))


def _logit_vjp(grad: Operand, self: Operand, eps: float | None) -> Operand:
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


def _gelu(f: Any, a: Any, tanh: bool) -> object:
    if tanh:
        bent = f.tanh((a + a * a * a * _CUBE) * _INNER)
    else:
        x = a * math.sqrt(0.5)
        bent = f.erf(x) if hasattr(f, "erf") else erf_values(f, x)
    return a * 0.5 * (bent + 1.0)


def _gelu_vjp(grad: Operand, self: Operand, tanh: bool) -> Operand:
    self = widened(self)
    squares = self * self
    if tanh:
        bent = ((self + squares * self * _CUBE) * _INNER).tanh()
        slope = (squares * (3 * _CUBE) + 1) * (1 - bent * bent) * _INNER
    else:
        bent = (self * math.sqrt(0.5)).erf()
        slope = (squares * -0.5).exp() * math.sqrt(2 / math.pi)
    return grad * ((bent + 1 + self * slope) * 0.5)


GELU = unary(
    "gelu",
    parameters="bool tanh=False",
    element=_gelu,
    vjp=_gelu_vjp,
    rule=pointwise_rule("gelu", partial(require_floating, "gelu")),
    expands=by_element(_gelu),
    inplace=False,
)
"""self times the normal distribution function at self; `tanh` for its approximation by a tanh.

Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016).
"""
