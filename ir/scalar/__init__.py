"""Scalar expressions: one element that a pointwise op, or a kernel, computes.

An op's `scalar` is a Python function. Called on the scalars of its operands, it returns a `Scalar`,
the expression from which backends print C and CUDA code; the interpreter and the laws evaluate it
by NumPy. Functions are rows of one table (`functions/table.py`): `scalar.exp(x)` is a call of one,
and `scalar.function` enters another. Spec: `specs/op_declaration.md`, `specs/functions.md`.

    lambda x: exp(x * 2.0) + 1.0        add
                                       /   \
                                     exp   1.0
                                      |
                                     mul
                                    /   \
                                   x    2.0

    >>> x = parameter(0, dtypes.float32)
    >>> exp(x * 2.0) + 1.0
    (exp((x0 * 2.0)) + 1.0)
"""

from __future__ import annotations

from collections.abc import Container

from aotlite.ir import dtypes as dtypes
from aotlite.ir.scalar.expression import Operand, const, rebuilt
from aotlite.ir.scalar.expression import Scalar as Scalar
from aotlite.ir.scalar.expression import cast as cast
from aotlite.ir.scalar.expression import parameter as parameter
from aotlite.ir.scalar.expression import where as where
from aotlite.ir.scalar.functions.function_registry import FUNCTIONS
from aotlite.ir.scalar.functions.function_registry import FunctionRow as FunctionRow
from aotlite.ir.scalar.functions.function_registry import body as body
from aotlite.ir.scalar.functions.function_registry import function as function
from aotlite.ir.scalar.functions.table import abs_ as abs_
from aotlite.ir.scalar.functions.table import acos as acos
from aotlite.ir.scalar.functions.table import acosh as acosh
from aotlite.ir.scalar.functions.table import asin as asin
from aotlite.ir.scalar.functions.table import asinh as asinh
from aotlite.ir.scalar.functions.table import atan as atan
from aotlite.ir.scalar.functions.table import atan2 as atan2
from aotlite.ir.scalar.functions.table import atanh as atanh
from aotlite.ir.scalar.functions.table import bit_and as bit_and
from aotlite.ir.scalar.functions.table import bit_or as bit_or
from aotlite.ir.scalar.functions.table import bit_xor as bit_xor
from aotlite.ir.scalar.functions.table import ceil as ceil
from aotlite.ir.scalar.functions.table import complex_ as complex_
from aotlite.ir.scalar.functions.table import conj as conj
from aotlite.ir.scalar.functions.table import copysign as copysign
from aotlite.ir.scalar.functions.table import cos as cos
from aotlite.ir.scalar.functions.table import cosh as cosh
from aotlite.ir.scalar.functions.table import digamma as digamma
from aotlite.ir.scalar.functions.table import eq as eq
from aotlite.ir.scalar.functions.table import erf as erf
from aotlite.ir.scalar.functions.table import erfc as erfc
from aotlite.ir.scalar.functions.table import erfinv as erfinv
from aotlite.ir.scalar.functions.table import exp as exp
from aotlite.ir.scalar.functions.table import exp2 as exp2
from aotlite.ir.scalar.functions.table import expm1 as expm1
from aotlite.ir.scalar.functions.table import floor as floor
from aotlite.ir.scalar.functions.table import floor_divide as floor_divide
from aotlite.ir.scalar.functions.table import fmod as fmod
from aotlite.ir.scalar.functions.table import gcd as gcd
from aotlite.ir.scalar.functions.table import ge as ge
from aotlite.ir.scalar.functions.table import gt as gt
from aotlite.ir.scalar.functions.table import hypot as hypot
from aotlite.ir.scalar.functions.table import imag as imag
from aotlite.ir.scalar.functions.table import invert as invert
from aotlite.ir.scalar.functions.table import isinf as isinf
from aotlite.ir.scalar.functions.table import isnan as isnan
from aotlite.ir.scalar.functions.table import lcm as lcm
from aotlite.ir.scalar.functions.table import le as le
from aotlite.ir.scalar.functions.table import left_shift as left_shift
from aotlite.ir.scalar.functions.table import lgamma as lgamma
from aotlite.ir.scalar.functions.table import log as log
from aotlite.ir.scalar.functions.table import log1p as log1p
from aotlite.ir.scalar.functions.table import log2 as log2
from aotlite.ir.scalar.functions.table import log10 as log10
from aotlite.ir.scalar.functions.table import logical_and as logical_and
from aotlite.ir.scalar.functions.table import logical_not as logical_not
from aotlite.ir.scalar.functions.table import logical_or as logical_or
from aotlite.ir.scalar.functions.table import logical_xor as logical_xor
from aotlite.ir.scalar.functions.table import lt as lt
from aotlite.ir.scalar.functions.table import maximum as maximum
from aotlite.ir.scalar.functions.table import minimum as minimum
from aotlite.ir.scalar.functions.table import ne as ne
from aotlite.ir.scalar.functions.table import neg as neg
from aotlite.ir.scalar.functions.table import nextafter as nextafter
from aotlite.ir.scalar.functions.table import polygamma as polygamma
from aotlite.ir.scalar.functions.table import pow_ as pow_
from aotlite.ir.scalar.functions.table import real as real
from aotlite.ir.scalar.functions.table import remainder as remainder
from aotlite.ir.scalar.functions.table import right_shift as right_shift
from aotlite.ir.scalar.functions.table import round_ as round_
from aotlite.ir.scalar.functions.table import sign as sign
from aotlite.ir.scalar.functions.table import signbit as signbit
from aotlite.ir.scalar.functions.table import sin as sin
from aotlite.ir.scalar.functions.table import sinh as sinh
from aotlite.ir.scalar.functions.table import sqrt as sqrt
from aotlite.ir.scalar.functions.table import tan as tan
from aotlite.ir.scalar.functions.table import tanh as tanh
from aotlite.ir.scalar.functions.table import trunc as trunc
from aotlite.ir.scalar.functions.table import trunc_divide as trunc_divide

Element = Operand
"""What an op's `scalar` is called with, and what it returns: a Scalar, or a Python number."""


def __getattr__(name: str) -> FunctionRow:
    """The function of this name that has been entered since."""
    found = FUNCTIONS.get(name)
    if found is None:
        raise AttributeError(f"scalar: there is no function {name!r}; `scalar.function` enters one")
    return found


def is_zero(value: Scalar) -> bool:
    """Whether an expression is the number 0."""
    return value.op == "const" and bool(value.args[0] == 0)


def with_zeros(root: Scalar, zeros: Container[Scalar]) -> Scalar:
    """Returns the expression simplified for parameters in `zeros`, which are zero everywhere.

    A zero factor makes a product zero, even where the other factor is inf or nan: these zeros stand
    for gradients that do not exist, not for numbers (TAN-8).

    >>> x, y = parameter(0, dtypes.float32), parameter(1, dtypes.float32)
    >>> with_zeros(x * y, {x}), with_zeros(x + y, {x})
    (0.0, x1)
    """

    def change(value: Scalar) -> Scalar | None:
        if value in zeros:
            return const(0, value.dtype)
        at_zero = [is_zero(each) for each in value.operands]
        return _beside_zeros(value, at_zero) if any(at_zero) else None

    return rebuilt(root, change)


def _beside_zeros(value: Scalar, zero: list[bool]) -> Scalar | None:
    """Returns an operation some of whose operands are 0 as something simpler, if it is."""
    nothing = const(0, value.dtype)
    match value.op:
        case "add":
            return value.args[1] if zero[0] else value.args[0]
        case "sub" if zero[1]:
            return value.args[0]
        case "mul" | "cast":
            return nothing
        case "div" | "trunc_divide" if zero[0]:
            return nothing
    row = FUNCTIONS.get(value.op)
    return nothing if row is not None and row.operands == 1 and row.at_zero == 0 else None
