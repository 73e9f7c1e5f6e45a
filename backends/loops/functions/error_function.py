"""erf and erfc.

float32: x + x P(x^2) up to 0.925; from there on 1 - exp(x Q(x)), which is 1 from 4 on.
"""

from __future__ import annotations

from aotlite.backends.loops.expr import Scalar, where
from aotlite.backends.loops.functions.coefficients import ERF_FAR, ERF_NEAR
from aotlite.backends.loops.functions.exponentials import bounded_exp
from aotlite.backends.loops.functions.registry import declare, is_f32
from aotlite.backends.loops.functions.terms import below, horner, size, with_sign

_SEAM = 0.925


@declare("erf", is_f32, ulp=1.5)
def _erf32(x: Scalar) -> Scalar:
    squares = x * x
    near = x * horner(squares, ERF_NEAR) + x
    positive = below(size(x), 4.0)
    far = 1.0 - bounded_exp(positive * horner(positive, ERF_FAR))
    return where(size(x) < _SEAM, near, with_sign(far, x))
