"""The table of functions. To add one: a row, and its bodies in `bodies/`.

A function of an op's expression or of a kernel is called by name: `exp(x)` is an expression. Rows
of primitives (`sqrt`, `lt`) say what else is known of these. Spec: `specs/functions.md`.
"""

from __future__ import annotations

import math

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.functions import exact, inline
from aotlite.ir.scalar.functions.bodies import (
    choices,
    division,
    error_function,
    exponentials,
    gamma,
    hyperbolic,
    integers,
    logarithms,
    number_bases,
    powers,
    trigonometry,
)
from aotlite.ir.scalar.functions.exact import by_element
from aotlite.ir.scalar.functions.function_registry import function


def _bool(dtype: DType) -> DType:
    return dtypes.bool_


def _real(dtype: DType) -> DType:
    return dtype.to_real()


# ------------------------------------------------------------------------------ arithmetic, parts
neg = function("neg", at_zero=0, linear=True)
abs_ = function("abs", at_zero=0, result=_real, inline=inline.absolute)
sign = function(
    "sign",
    np.sign,
    at_zero=0,
    bodies=(choices.sign, choices.sign_of_signed, choices.sign_of_unsigned, choices.sign_of_bool),
)
signbit = function(
    "signbit",
    exact.signbit,
    result=_bool,
    inline=inline.sign_bit,
    bodies=(choices.signbit, choices.signbit_of_integer, choices.signbit_of_bool),
)
copysign = function("copysign", np.copysign, 2, bodies=(choices.copysign,))
nextafter = function("nextafter", np.nextafter, 2, bodies=(choices.nextafter,))
conj = function(
    "conj", np.conj, at_zero=0, linear=True, inline=inline.of_real, bodies=(choices.itself_ordered,)
)
real = function(
    "real",
    np.real,
    at_zero=0,
    linear=True,
    result=_real,
    inline=inline.of_real,
    bodies=(choices.itself_ordered,),
)
imag = function("imag", np.imag, at_zero=0, linear=True, result=_real)
complex_ = function("complex", exact.complex_of, 2, result=DType.to_complex)

# -------------------------------------------------------------------------------------- divisions
fmod = function(
    "fmod", np.fmod, 2, divides=True, bodies=(division.fmod32, division.fmod_of_integers)
)
remainder = function("remainder", np.remainder, 2, divides=True, bodies=(division.remainder,))
floor_divide = function(
    "floor_divide",
    np.floor_divide,
    2,
    divides=True,
    bodies=(division.floor_divide32, division.floor_divide_of_integers),
)
trunc_divide = function("trunc_divide", exact.trunc_divide, 2, divides=True, inline=inline.quotient)
gcd = function("gcd", np.gcd, 2)
lcm = function("lcm", np.lcm, 2)

# --------------------------------------------------------------------------------------- rounding
floor = function("floor", at_zero=0, inline=inline.of_exact, bodies=(choices.itself,))
ceil = function("ceil", at_zero=0, inline=inline.of_exact, bodies=(choices.itself,))
trunc = function("trunc", at_zero=0, inline=inline.of_exact, bodies=(choices.itself,))
round_ = function(
    "round", np.round, at_zero=0, inline=inline.rounded, bodies=(choices.round_, choices.itself)
)

# ---------------------------------------------------------------------- exponentials and logarithms
exp = function("exp", np.exp, at_zero=1, floating=True, bodies=(exponentials.exp,))
exp2 = function(
    "exp2", np.exp2, at_zero=1, floating=True, bodies=(exponentials.exp2_32, exponentials.exp2_64)
)
expm1 = function(
    "expm1",
    np.expm1,
    at_zero=0,
    floating=True,
    bodies=(exponentials.expm1_32, exponentials.expm1_64),
)
exp_nonpositive = function(
    "exp_nonpositive", np.exp, at_zero=1, floating=True, bodies=(exponentials.exp_nonpositive,)
)
exp2_times = function(
    "exp2_times",
    lambda y, high, low: np.exp2(y * (high + low)),
    3,
    bodies=(number_bases.exp2_times,),
)
log = function("log", np.log, floating=True, bodies=(logarithms.log32, logarithms.log64))
log1p = function(
    "log1p", np.log1p, at_zero=0, floating=True, bodies=(logarithms.log1p_32, logarithms.log1p_64)
)
log2 = function("log2", np.log2, floating=True, bodies=(logarithms.log2_32, logarithms.log2_64))
log10 = function(
    "log10", np.log10, floating=True, bodies=(logarithms.log10_32, logarithms.log10_64)
)
sqrt = function("sqrt", at_zero=0, floating=True)
pow_ = function(
    "pow",
    exact.power,
    2,
    inline=inline.power,
    bodies=(powers.pow32, powers.pow_unsigned, powers.pow_signed),
)
hypot = function("hypot", np.hypot, 2, floating=True, bodies=(hyperbolic.hypot32,))

# ------------------------------------------------------------------------------------ trigonometry
sin = function("sin", np.sin, at_zero=0, floating=True, bodies=(trigonometry.sin32,))
cos = function("cos", np.cos, at_zero=1, floating=True, bodies=(trigonometry.cos32,))
tan = function("tan", np.tan, at_zero=0, floating=True, bodies=(trigonometry.tan32,))
asin = function("asin", np.asin, at_zero=0, floating=True, bodies=(trigonometry.asin32,))
acos = function("acos", np.acos, floating=True, bodies=(trigonometry.acos32,))
atan = function("atan", np.atan, at_zero=0, floating=True, bodies=(trigonometry.atan32,))
atan2 = function("atan2", np.atan2, 2, floating=True, bodies=(trigonometry.atan2_32,))
sinh = function("sinh", np.sinh, at_zero=0, floating=True, bodies=(hyperbolic.sinh32,))
cosh = function("cosh", np.cosh, at_zero=1, floating=True, bodies=(hyperbolic.cosh32,))
tanh = function(
    "tanh", np.tanh, at_zero=0, floating=True, bodies=(hyperbolic.tanh32, hyperbolic.tanh64)
)
asinh = function("asinh", np.asinh, at_zero=0, floating=True, bodies=(hyperbolic.asinh32,))
acosh = function("acosh", np.acosh, floating=True, bodies=(hyperbolic.acosh32,))
atanh = function("atanh", np.atanh, at_zero=0, floating=True, bodies=(hyperbolic.atanh32,))

# ------------------------------------------------------------------------------ special functions
erf = function(
    "erf",
    by_element(math.erf),
    at_zero=0,
    floating=True,
    bodies=(error_function.erf64, error_function.erf32),
)
erfc = function(
    "erfc",
    by_element(math.erfc),
    at_zero=1,
    floating=True,
    bodies=(error_function.erfc32, error_function.erfc64),
)
erfinv = function(
    "erfinv",
    by_element(exact.erfinv),
    at_zero=0,
    floating=True,
    units=8,
    bodies=(error_function.erfinv32, error_function.erfinv64),
)
lgamma = function(
    "lgamma",
    by_element(exact.lgamma),
    floating=True,
    units=8,
    bodies=(gamma.lgamma32, gamma.lgamma64),
)
digamma = function(
    "digamma",
    by_element(exact.digamma),
    floating=True,
    units=32,
    bodies=(gamma.digamma32, gamma.digamma64),
)
polygamma = function("polygamma", exact.polygamma, 2, floating=True, units=32)

# -------------------------------------------------------------------------- comparisons, questions
lt = function("lt", operands=2, result=_bool)
le = function("le", operands=2, result=_bool)
gt = function("gt", operands=2, result=_bool)
ge = function("ge", operands=2, result=_bool)
eq = function("eq", operands=2, result=_bool)
ne = function("ne", operands=2, result=_bool)
maximum = function(
    "maximum",
    np.maximum,
    2,
    inline=inline.maximum,
    bodies=(choices.maximum, choices.maximum_of_bools, choices.maximum_of_integers),
)
minimum = function(
    "minimum",
    np.minimum,
    2,
    inline=inline.minimum,
    bodies=(choices.minimum, choices.minimum_of_bools, choices.minimum_of_integers),
)
isnan = function(
    "isnan", np.isnan, result=_bool, inline=inline.is_nan, bodies=(choices.isnan, choices.never)
)
isinf = function(
    "isinf", np.isinf, result=_bool, inline=inline.is_inf, bodies=(choices.isinf, choices.never)
)
logical_not = function(
    "logical_not",
    np.logical_not,
    result=_bool,
    inline=inline.logical_not,
    bodies=(choices.logical_not,),
)
logical_and = function(
    "logical_and",
    np.logical_and,
    2,
    result=_bool,
    inline=inline.logical_and,
    bodies=(choices.logical_and,),
)
logical_or = function(
    "logical_or",
    np.logical_or,
    2,
    result=_bool,
    inline=inline.logical_or,
    bodies=(choices.logical_or,),
)
logical_xor = function(
    "logical_xor",
    np.logical_xor,
    2,
    result=_bool,
    inline=inline.logical_xor,
    bodies=(choices.logical_xor,),
)

# -------------------------------------------------------------------------------------------- bits
invert = function(
    "invert", np.invert, inline=inline.inverted, bodies=(integers.invert, integers.invert_bool)
)
bit_and = function("bit_and", operands=2, inline=inline.bit_and, bodies=(integers.and_of_bools,))
bit_or = function("bit_or", operands=2, inline=inline.bit_or, bodies=(integers.or_of_bools,))
bit_xor = function("bit_xor", operands=2, inline=inline.bit_xor, bodies=(integers.xor_of_bools,))
left_shift = function("left_shift", np.left_shift, 2, bodies=(integers.left_shift,))
right_shift = function("right_shift", np.right_shift, 2, bodies=(integers.right_shift,))
