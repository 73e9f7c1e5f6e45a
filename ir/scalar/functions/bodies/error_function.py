"""erf, erfc and erfinv.

erf of float32 is the larger of x + x P(x^2) and 1 - Q(x)^4, at |x|. Up to 0.98 the first one is
accurate and the second is smaller; from 0.97 on it is the other way round. So a maximum chooses,
and x is compared with no limit. The others are formulas (`formula.py`), which the ops' kernels
compute on arrays. They compute in float64; a result of float32 is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Scalar, where
from aotlite.ir.scalar.functions.coefficients import ERF_FAR, ERF_NEAR
from aotlite.ir.scalar.functions.formula import formula_body
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_f64
from aotlite.ir.scalar.functions.scalar_terms import at_most, horner, polynomial, size, with_sign

NEAR_MIDDLE, FAR_MIDDLE = 0.375, 1.125
"""The points around which the polynomials are fitted: arguments, and rounding errors, are small."""
_ONE = 3.9375
"""From here on erf rounds to 1. At this number 1 - Q(x)^4 does, too."""


@body(is_f32, ulp=1.5)
def erf32(x: Scalar) -> Scalar:
    """erf of float32. For NaN `near` is NaN, which comes second in the comparison, and stays."""
    positive = at_most(size(x), _ONE)
    near = positive * horner(x * x - NEAR_MIDDLE, ERF_NEAR) + positive
    root = horner(positive - FAR_MIDDLE, ERF_FAR)
    square = root * root
    far = 1.0 - square * square
    return with_sign(where(near < far, far, near), x)


# --------------------------------------------------------------------------------------- formulas
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


def erf(f: Any, x: Any) -> Any:
    squares = f.minimum(x * x, 1.0)  # no overflow where the other quotient is taken
    inner = x * (polynomial(squares, _T) / polynomial(squares, _U))
    size = f.minimum(f.abs(x), _ONE_FROM)
    rest = f.exp(-size * size) * (polynomial(size, _P) / polynomial(size, _Q))
    outer = f.where(x < 0, rest - 1, 1 - rest)
    return f.where(size < 1, inner, outer)


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


def erfc(f: Any, x: Any) -> Any:
    size = f.minimum(f.abs(x), _ZERO_FROM)
    # exp(-x^2) from the square of a part of x that float32 holds: large squares round coarsely.
    head = f.astype(f.astype(size, dtypes.float32.numpy), dtypes.float64.numpy)
    bell = f.exp(-head * head) * f.exp((head - size) * (head + size))
    quotient = f.where(
        size < 8.0,
        polynomial(size, _P) / polynomial(size, _Q),
        polynomial(size, _R) / polynomial(size, _S),
    )
    outer = bell * quotient
    return f.where(size < 1.0, 1.0 - erf(f, x), f.where(x < 0, 2.0 - outer, outer))


# First approximations, for |x| up to 0.7 and beyond; two of Newton's steps make them exact.
# Source: PyTorch, Math.h, calc_erfinv.
_CENTER = (-0.140543331, 0.914624893, -1.645349621, 0.886226899)
_CENTER_BELOW = (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0)
_TAIL = (1.641345311, 3.429567803, -1.624906493, -1.970840454)
_TAIL_BELOW = (1.637067800, 3.543889200, 1.0)


def erfinv(f: Any, y: object) -> Any:
    size = f.abs(y)
    inner = size <= 0.7
    center = f.where(inner, size, 0.0)
    squares = center * center
    first = center * polynomial(squares, _CENTER) / polynomial(squares, _CENTER_BELOW)
    rest = 1.0 - size
    t = f.sqrt(-f.log(f.where((size < 1.0) & ~inner, rest * 0.5, 0.25)))
    x = f.where(inner, first, polynomial(t, _TAIL) / polynomial(t, _TAIL_BELOW))
    for _ in range(3):
        # In the tail by erfc, whose small values are exact where erf is near 1.
        error = f.where(inner, erf(f, x) - size, rest - erfc(f, x))
        x = x - error / (f.exp(-x * x) * (2 / math.sqrt(math.pi)))
    x = f.where(size < 1.0, x, f.where(f.equal(size, 1.0), float("inf"), float("nan")))
    return f.copysign(x, y)


erf64 = body(is_f64, ulp=3.0)(formula_body(erf))
erfc32 = body(is_f32, ulp=0.6)(formula_body(erfc))
erfc64 = body(is_f64, ulp=16.0)(formula_body(erfc))
erfinv32 = body(is_f32, ulp=0.6)(formula_body(erfinv))
erfinv64 = body(is_f64, ulp=8.0)(formula_body(erfinv))
