"""Inline forms: the primitives that kernels have in place of calls of functions.

Each is a function of the operands, which have one dtype. It returns None where a kernel calls the
function, or, of a primitive, has that one.
"""

from __future__ import annotations

import math

from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Scalar, const, make, truth, where
from aotlite.ir.scalar.functions.bodies.number_bases import power_of_number
from aotlite.ir.scalar.functions.bodies.powers import power_of_constant


def _is_float(x: Scalar) -> bool:
    return x.dtype.is_floating_point


def of_exact(x: Scalar) -> Scalar | None:
    """Integers and bools are themselves."""
    return x if x.dtype.kind <= dtypes.INTEGER else None


def of_real(x: Scalar) -> Scalar | None:
    """All but complex numbers are themselves."""
    return None if x.dtype.is_complex else x


def absolute(x: Scalar) -> Scalar | None:
    """What has no sign is itself."""
    return None if x.dtype.is_signed else x


def rounded(x: Scalar) -> Scalar | None:
    """The nearest integer, halves to even."""
    return make("rint", x) if _is_float(x) else of_exact(x)


def is_nan(x: Scalar) -> Scalar | None:
    """A NaN differs from itself."""
    if _is_float(x):
        return make("ne", x, x)
    return None if x.dtype.is_complex else const(False, dtypes.bool_)


def is_inf(x: Scalar) -> Scalar | None:
    """The size of an infinity is infinity."""
    if _is_float(x):
        return make("eq", make("abs", x), math.inf)
    return None if x.dtype.is_complex else const(False, dtypes.bool_)


def sign_bit(x: Scalar) -> Scalar | None:
    """Of integers, whether they are less than 0."""
    if x.dtype is dtypes.bool_:
        return const(False, dtypes.bool_)
    return x < 0 if x.dtype.kind == dtypes.INTEGER else None


def inverted(x: Scalar) -> Scalar:
    """The other truth of a bool, all other bits of an integer."""
    return ~x


def bit_and(a: Scalar, b: Scalar) -> Scalar:
    """`and` of bools."""
    return a & b


def bit_or(a: Scalar, b: Scalar) -> Scalar:
    """`or` of bools."""
    return a | b


def bit_xor(a: Scalar, b: Scalar) -> Scalar:
    """`xor` of bools."""
    return a ^ b


def logical_not(x: Scalar) -> Scalar:
    """Whether a value is 0."""
    return make("not", truth(x))


def logical_and(a: Scalar, b: Scalar) -> Scalar:
    """Whether neither is 0."""
    return make("and", truth(a), truth(b))


def logical_or(a: Scalar, b: Scalar) -> Scalar:
    """Whether one is not 0."""
    return make("or", truth(a), truth(b))


def logical_xor(a: Scalar, b: Scalar) -> Scalar:
    """Whether just one is not 0."""
    return make("xor", truth(a), truth(b))


def maximum(a: Scalar, b: Scalar) -> Scalar | None:
    """One comparison with a number, `or` of bools."""
    return make("or", a, b) if a.dtype is dtypes.bool_ else _bounded("l", a, b)


def minimum(a: Scalar, b: Scalar) -> Scalar | None:
    """One comparison with a number, `and` of bools."""
    return make("and", a, b) if a.dtype is dtypes.bool_ else _bounded("g", a, b)


def _bounded(beyond: str, a: Scalar, b: Scalar) -> Scalar | None:
    """Returns the maximum or minimum of a value and a number, as NumPy: NaN stays, of equals the
    second. `beyond` begins the comparison under which a value is replaced by a number."""
    if not _is_float(a):
        return None
    if _is_number(b):
        return where(make(beyond + "e", a, b), b, a)
    return where(make(beyond + "t", b, a), a, b) if _is_number(a) else None


def _is_number(value: Scalar) -> bool:
    return value.op == "const" and value.args[0] == value.args[0]


def power(base: Scalar, exponent: Scalar) -> Scalar | None:
    """Products and roots for constant exponents, and 2^(y log b) for a constant base b."""
    if exponent.op == "const":
        number = exponent.args[0]
        if base.dtype.kind == dtypes.INTEGER and number < 0:
            raise ArithmeticError(f"an integer to the power {number}, expected at least 0")
        return power_of_constant(base, number)
    known = base.op == "const" and base.dtype is dtypes.float64
    return power_of_number(base.args[0], exponent) if known else None


def quotient(a: Scalar, b: Scalar) -> Scalar:
    """The quotient rounded towards 0. Of integers division by -1 is a negation, which wraps: the
    hardware's division of the least integer by -1 traps."""
    if _is_float(a):
        return make("trunc", make("div", a, b))
    if not b.dtype.is_signed:
        return make("idiv", a, b)
    negated = make("eq", b, -1)
    return where(negated, -a, make("idiv", a, where(negated, 1, b)))
