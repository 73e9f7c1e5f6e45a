"""Type inference of scalar expressions: an `Expr` of `ir/scalar.py` becomes a typed `Scalar`.

Casts stand where NumPy's promotion puts them. A number stays Python's until it meets a scalar, and
takes that one's dtype. Raises NoLoops for what the loop IR cannot express, and for what always
raises, such as an integer divided by the number 0. A divisor that may be 0 is collected in
`refused`. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aotlite.backends.loops.lowering.builder import NoLoops
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.ops.precision import number_in
from aotlite.ir.scalar import Expr
from aotlite.ir.scalar.expression import COMPARISONS, Scalar, cast, const, function, make, where
from aotlite.ir.scalar.functions import has, power_of_constant, power_of_number

Value = Any
"""A Scalar, or a Python number."""

_FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": operator.abs,
    **{name: getattr(operator, name) for name in COMPARISONS},
    "isnan": lambda a: a != a,
}
"""Operations on numbers alone, which are folded."""
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint"}
_WHOLE = {*_ROUND, "real", "conj"}
"""Operations that leave integers as they are."""
_BOOLS = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and"}
_BITS = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_DIVIDES = {"floor_divide", "fmod", "remainder"}
_BEYOND = {"maximum": "l", "minimum": "g"}
"""The comparison, but for its last letter, under which a value is replaced by a number."""
_TESTS = {"isnan", "isinf", "signbit"}


def truth(value: Scalar) -> Scalar:
    """Whether the value is not 0."""
    return value if value.dtype is dtypes.bool_ else make("ne", value, 0)


def scalar_of(value: Value, dtype: DType) -> Scalar:
    """Returns a number as a scalar of a dtype; a scalar as it is. Raises NoLoops for a number that
    the dtype does not hold."""
    if type(value) is Scalar:
        return value
    if type(value) is complex or (type(value) is float and not dtype.is_floating_point):
        raise NoLoops
    if dtype.kind == dtypes.INTEGER and number_in(dtype, int(value)) != value:
        raise NoLoops
    return const(value, dtype)


class Typing:
    """One walk over an expression. Numbers that meet no scalar take `dtype`."""

    def __init__(self, operands: Mapping[str, Value], dtype: DType) -> None:
        self.operands = operands
        self.dtype = dtype
        self.known: dict[int, Value] = {}
        self.refused: Scalar | None = None
        """The condition under which the op refuses the operands' values; None if never."""

    def value(self, expr: Any) -> Value:
        """Returns the value of a subtree; shared ones are computed once."""
        if type(expr) is not Expr:
            return expr
        if expr.op == "symbol":
            return self.operands[expr.args[0]]
        found = self.known.get(id(expr))
        if found is None:
            found = self.known[id(expr)] = self._own(expr)
        return found

    def _own(self, expr: Expr) -> Value:
        if expr.op == "trunc" and type(expr.args[0]) is Expr and expr.args[0].op == "div":
            a, b = map(self.value, expr.args[0].args)
            if not _is_float(a) and not _is_float(b):
                return self._quotient(a, b)
        args = [self.value(a) for a in expr.args]
        if expr.op in _DIVIDES and not any(map(_is_float, args)):
            args[1] = self._divisor(args[1])
        if expr.op == "cast":
            return cast(scalar_of(args[0], self.dtype), args[1])
        if expr.op == "where":
            return self._where(*args)
        if not any(type(a) is Scalar for a in args):
            return self._of_numbers(expr.op, args)
        if expr.op == "pow":
            return self._power(*args)
        return self._of_alike(expr.op, self.alike(*args))

    def _of_numbers(self, op: str, args: list[Any]) -> Value:
        if op in _FOLDS:
            return _FOLDS[op](*args)
        return self._of_alike(op, [scalar_of(a, self.dtype) for a in args])

    def _where(self, condition: Value, then: Value, other: Value) -> Value:
        if type(condition) is not Scalar:
            return then if condition else other
        if type(then) is not Scalar and type(other) is not Scalar:
            floats = float in (type(then), type(other))
            fits = self.dtype.is_floating_point or not floats
            both = [scalar_of(v, self.dtype if fits else dtypes.float64) for v in (then, other)]
            return where(truth(condition), *both)
        return where(truth(condition), *self.alike(then, other))

    def alike(self, *args: Value) -> list[Scalar]:
        """Returns the values cast to the dtype to which NumPy promotes them."""
        wanted: DType | None = None
        for a in args:
            if type(a) is Scalar:
                wanted = a.dtype if wanted in (None, a.dtype) else _promoted(wanted, a.dtype)
        assert wanted is not None
        kinds = {type(a) for a in args}
        if complex in kinds:
            raise NoLoops
        if float in kinds and not wanted.is_floating_point:
            wanted = dtypes.float64
        if int in kinds and wanted is dtypes.bool_:
            wanted = dtypes.int64
        return [cast(a, wanted) if type(a) is Scalar else scalar_of(a, wanted) for a in args]

    # --- operations
    def _of_alike(self, op: str, args: list[Scalar]) -> Scalar:
        dtype = args[0].dtype
        if op in _LOGIC or op == "logical_not":
            return make(_LOGIC.get(op, "not"), *map(truth, args))
        if op in COMPARISONS:
            return make(op, *args)
        if dtype is dtypes.bool_:
            return _of_bools(op, args)
        if dtype.is_floating_point:
            return _of_floats(op, args)
        return _of_integers(op, args)

    def _divisor(self, value: Value) -> Value:
        """Returns the divisor with 1 in the place of 0, and adds "it is 0" to `refused`."""
        if type(value) is not Scalar:
            if value == 0:
                raise NoLoops
            return value
        zero = make("eq", value, 0)
        self.refused = zero if self.refused is None else self.refused | zero
        return where(zero, 1, value)

    def _quotient(self, a: Value, b: Value) -> Scalar:
        """Returns the quotient of integers, rounded towards 0. Division by -1 is a negation, which
        wraps: the hardware's division of the least integer by -1 traps."""
        x, y = self.alike(a, self._divisor(b))
        if not y.dtype.is_signed:
            return make("idiv", x, y)
        negated = make("eq", y, -1)
        return where(negated, -x, make("idiv", x, where(negated, 1, y)))

    def _power(self, base: Value, exponent: Value) -> Scalar:
        a, b = self.alike(base, exponent)
        if type(exponent) is Scalar:
            known = a.op == "const" and a.dtype is dtypes.float64
            short = power_of_number(a.args[0], b) if known else None
            return called("pow", a, b) if short is None else short
        if not a.dtype.is_floating_point and exponent < 0:
            raise NoLoops  # raises when it is run
        short = power_of_constant(a, exponent)
        return called("pow", a, b) if short is None else short


def _promoted(a: DType, b: DType) -> DType:
    return dtypes.from_numpy(np.promote_types(a.numpy, b.numpy))


def _is_float(value: Value) -> bool:
    return value.dtype.is_floating_point if type(value) is Scalar else type(value) is float


def _of_bools(op: str, args: list[Scalar]) -> Scalar:
    known = _BOOLS.get(op) or _BITS.get(op) or ("not" if op == "invert" else None)
    if known is not None:
        return make(known, *args)
    if op in _WHOLE or op == "abs":
        return args[0]
    if op in _TESTS:
        return const(False, dtypes.bool_)
    raise NoLoops


def _of_integers(op: str, args: list[Scalar]) -> Scalar:
    if op in ("add", "sub", "mul", "neg", *_BITS):
        return make(op, *args)
    if op in _WHOLE or (op == "abs" and not args[0].dtype.is_signed):
        return args[0]
    if op in ("isnan", "isinf"):
        return const(False, dtypes.bool_)
    if op in ("abs", "invert"):
        return make("abs" if op == "abs" else "bit_not", *args)
    if op == "signbit":
        return args[0] < 0
    if op == "div":
        return make("div", *[cast(a, dtypes.float64) for a in args])
    return called(op, *args)


def _of_floats(op: str, args: list[Scalar]) -> Scalar:
    if op in ("add", "sub", "mul", "div", "neg", "abs", "sqrt"):
        return make(op, *args)
    if op in _ROUND:
        return make(_ROUND[op], *args)
    if op in ("real", "conj"):
        return args[0]
    if op == "isnan":
        return make("ne", args[0], args[0])
    if op == "isinf":
        return make("eq", make("abs", args[0]), np.inf)
    if op in _BEYOND and any(_is_number(a) for a in args):
        return _bounded(op, *args)
    return called(op, *args)


def _is_number(value: Scalar) -> bool:
    return value.op == "const" and value.args[0] == value.args[0]


def _bounded(op: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns the maximum or minimum of a value and a number, as NumPy: NaN stays, of equals the
    second."""
    if _is_number(b):
        return where(make(_BEYOND[op] + "e", a, b), b, a)
    return where(make(_BEYOND[op] + "t", b, a), a, b)


def called(op: str, *args: Scalar, dtype: DType | None = None) -> Scalar:
    """Returns the call of a library function. Raises NoLoops if there is none for these dtypes."""
    if not has(op, [a.dtype for a in args]):
        raise NoLoops
    return function(op, dtype or (dtypes.bool_ if op in _TESTS else args[0].dtype), *args)
