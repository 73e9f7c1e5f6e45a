"""Functions of float64 that a target lacks, by those that it has.

Each is a formula of scalar expressions. They are good to a few units in the last place, apart from
arguments near the ends of a function's domain. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.scalar import (
    abs_,
    atan,
    cast,
    copysign,
    cos,
    eq,
    exp,
    expm1,
    floor,
    log,
    log1p,
    ne,
    sin,
    sqrt,
    where,
)
from aotlite.ir.scalar.expression import function


def _tan(x: Any) -> Any:
    return sin(x) / cos(x)


def _atan(x: Any) -> Any:
    """Two steps of Newton's method from the value of float32: of tan(y) = x."""
    y = cast(function("atan", dtypes.float32, cast(x, dtypes.float32)), x.dtype)
    for _ in range(2):
        s, c = sin(y), cos(y)
        y = y + (x * c - s) / (c + x * s)
    return where(abs_(x) <= 1e30, y, where(x > 0, math.pi / 2, where(x < 0, -math.pi / 2, x)))


def _asin(x: Any) -> Any:
    return atan(x / sqrt((1.0 - x) * (1.0 + x)))


def _acos(x: Any) -> Any:
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))


def _sinh(x: Any) -> Any:
    grown = expm1(abs_(x))
    return copysign(where(abs_(x) < 20.0, (grown + grown / (grown + 1.0)) * 0.5, _half(x)), x)


def _half(x: Any) -> Any:
    """Half of exp |x|, without an overflow before that of the result."""
    root = exp(abs_(x) * 0.5)
    return root * 0.5 * root


def _cosh(x: Any) -> Any:
    return where(abs_(x) < 20.0, (exp(x) + exp(-x)) * 0.5, _half(x))


def _asinh(x: Any) -> Any:
    size = abs_(x)
    near = log1p(size + size * size / (1.0 + sqrt(size * size + 1.0)))
    return copysign(where(size < 1e8, near, log(size) + math.log(2.0)), x)


def _acosh(x: Any) -> Any:
    above = x - 1.0
    near = log1p(above + sqrt(above * 2.0 + above * above))
    return where(x < 1e8, near, log(x) + math.log(2.0))


def _atanh(x: Any) -> Any:
    return 0.5 * log1p(2.0 * x / (1.0 - x))


def _atan2(y: Any, x: Any) -> Any:
    """By the angle of (|x|, |y|), which is turned by the signs."""
    a, b = abs_(x), abs_(y)
    steep = b > a
    large, small = where(steep, b, a), where(steep, a, b)
    share = where(large > 0.0, small / large, small)
    share = where(small >= math.inf, 1.0, share)
    angle = atan(share)
    angle = where(steep, math.pi / 2 - angle, angle)
    is_left = copysign(where(eq(x, x), 1.0, x), x) < 0.0
    turned = copysign(where(is_left, math.pi - angle, angle), y)
    return where(eq(x, x) & eq(y, y), turned, x + y)


def _hypot(x: Any, y: Any) -> Any:
    a, b = abs_(x), abs_(y)
    large, small = where(a > b, a, b), where(a > b, b, a)
    share = where(large > 0.0, small / large, small)
    found = large * sqrt(share * share + 1.0)
    return where(eq(a, math.inf) | eq(b, math.inf), math.inf, found)


def _remainder(a: Any, b: Any) -> Any:
    """Python's: it has the sign of the divisor."""
    rest = function("fmod", a.dtype, a, b)
    is_other = (rest < 0.0) ^ (b < 0.0)
    return where(ne(rest, 0.0), where(is_other, rest + b, rest), copysign(rest, b))


def _floor_divide(a: Any, b: Any) -> Any:
    """Python's quotient, as NumPy computes it."""
    rest = function("fmod", a.dtype, a, b)
    quotient = (a - rest) / b
    is_other = (ne(rest, 0.0)) & ((rest < 0.0) ^ (b < 0.0))
    quotient = where(is_other, quotient - 1.0, quotient)
    below = floor(quotient)
    below = where(quotient - below > 0.5, below + 1.0, below)
    found = where(ne(quotient, 0.0), below, copysign(quotient, a / b))
    return where(ne(b, 0.0), found, a / b)


FORMULAS: dict[str, Callable[..., Any]] = {
    "tan": _tan,
    "atan": _atan,
    "asin": _asin,
    "acos": _acos,
    "atan2": _atan2,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "hypot": _hypot,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
}
"""Name -> the formula."""
