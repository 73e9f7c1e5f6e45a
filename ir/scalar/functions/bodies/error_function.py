"""erf of float32: the larger of x + x P(x^2) and 1 - Q(x)^4, at |x|.

Up to 0.98 the first one is accurate and the second is smaller; from 0.97 on it is the other way
round. So a maximum chooses, and x is compared with no limit.
"""

from __future__ import annotations

from aotlite.ir.scalar.expression import Scalar, where
from aotlite.ir.scalar.functions.coefficients import ERF_FAR, ERF_NEAR
from aotlite.ir.scalar.functions.function_registry import declare, is_f32
from aotlite.ir.scalar.functions.scalar_terms import at_most, horner, size, with_sign

NEAR_MIDDLE, FAR_MIDDLE = 0.375, 1.125
"""The points around which the polynomials are fitted: arguments, and rounding errors, are small."""
_ONE = 3.9375
"""From here on erf rounds to 1. At this number 1 - Q(x)^4 does, too."""


@declare("erf", is_f32, ulp=1.5)
def _erf32(x: Scalar) -> Scalar:
    """erf of float32. For NaN `near` is NaN, which comes second in the comparison, and stays."""
    positive = at_most(size(x), _ONE)
    near = positive * horner(x * x - NEAR_MIDDLE, ERF_NEAR) + positive
    root = horner(positive - FAR_MIDDLE, ERF_FAR)
    square = root * root
    far = 1.0 - square * square
    return with_sign(where(near < far, far, near), x)
