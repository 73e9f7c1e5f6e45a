"""erf.

float32: of |x|, the larger of x + x P(x^2) and 1 - Q(x)^4. Up to 0.98 the former is exact and the
latter less than it; from 0.97 on it is the other way round, so that nothing needs to be compared.
"""

from __future__ import annotations

from aotlite.backends.loops.expr import Scalar, where
from aotlite.backends.loops.functions.coefficients import ERF_FAR, ERF_NEAR
from aotlite.backends.loops.functions.function_registry import declare, is_f32
from aotlite.backends.loops.functions.scalar_terms import at_most, horner, size, with_sign

NEAR_MIDDLE, FAR_MIDDLE = 0.375, 1.125
"""What polynomials are fitted around: parts of their sums are small, and so are their errors."""
_ONE = 3.9375
"""From here on erf rounds to 1, and so does 1 - Q(x)^4 at this number."""


@declare("erf", is_f32, ulp=1.5)
def _erf32(x: Scalar) -> Scalar:
    """Of nan, what is near is nan, and no choice: that is what comes second."""
    positive = at_most(size(x), _ONE)
    near = positive * horner(x * x - NEAR_MIDDLE, ERF_NEAR) + positive
    root = horner(positive - FAR_MIDDLE, ERF_FAR)
    square = root * root
    far = 1.0 - square * square
    return with_sign(where(near < far, far, near), x)
