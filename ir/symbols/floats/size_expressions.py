"""`Computing`: makes expressions of floats and of ints that no polynomial gives, for one table.

    n / 2               a `SizeFloat`
    math.ceil(n / 2)    -((-n)//2), as long as n / 2 is exact enough: n <= 2**52
    round(n * 0.3)      an atom of the table, `Computed`

What raises at some sizes, or gives a number of another type there, is excluded by a guard. So each
expression has a value wherever the guards hold. Rules: DYN-37 to DYN-40.
Spec: `specs/size_floats.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.floats.operations import OPERATIONS
from aotlite.ir.symbols.floats.python_functions import UserCode
from aotlite.ir.symbols.floats.size_float import COMPARED, SizeFloat, applied, depth_of, text_of
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.python_number import ABOVE, NOT_COMPUTED, RELATIONS
from aotlite.ir.symbols.symint import SymInt

if TYPE_CHECKING:
    from aotlite.ir.symbols.table import SymbolTable

__all__ = ["Computing", "rounded"]

_DEEPEST: Final = 100
"""The operations in an expression, as it is written: beyond it the value is taken."""
_EXACT: Final = 1 << 53
"""Ints up to 2**53 are floats, exactly, and so are they divided by a power of 2. Another quotient
a / b is rounded to no other integer where a + b is at most that: where a is at most a half of it.
"""
_SHORT: Final = 1 << 20
"""Fractions with a numerator below it are multiplied as integers."""
_SIZES: Final = 2.0**63
_LARGEST: Final = 1e300
"""Floats below it overflow in no conversion to an int, nor ints below it in one to a float."""
_ROUNDINGS: Final = ("math.floor", "math.ceil", "math.trunc", "int")


class Computing:
    """Makes expressions of floats for one table: `SymbolTable.computes`."""

    def __init__(self, table: SymbolTable) -> None:
        self.table = table
        self.user_code = UserCode()
        """What the function can run."""

    def __call__(self, name: str, operands: tuple[Any, ...]) -> Any:
        """The result of an operation, of which some operand is a symbolic number of the table;
        NOT_COMPUTED where the values are to be taken."""
        operation = OPERATIONS.get(name)
        if operation is None or not all(map(self._is_operand, operands)):
            return NOT_COMPUTED
        if sum(map(depth_of, operands)) >= _DEEPEST:
            return NOT_COMPUTED
        try:
            hint = operation.function(*map(_hint, operands))
        except (ArithmeticError, ValueError, TypeError):  # raised again with the values
            return NOT_COMPUTED
        if name in _ROUNDINGS and name != "int" and type(operands[0]) is SymInt:
            return operands[0]
        if name == "float" and type(operands[0]) is SizeFloat:
            return operands[0]
        if type(hint) is not float and type(hint) is not int:
            return NOT_COMPUTED
        whole = self._as_integers(name, operands)
        if whole is not None:
            return whole
        limit = _limit_of(name, operands)
        is_sure = _is_moderate(name, operands, limit) and self._has_value(name, operands)
        found = applied(self.table, operation, operands, limit)
        if not is_sure:
            self.table.ask(_HAS_TYPE[type(hint)], found)
        return found

    def compared(self, relation: str, left: Any, right: Any) -> Any:
        """The truth of a comparison, which is assumed; NOT_COMPUTED where the values are taken."""
        if not self._is_operand(left) or not self._is_operand(right):
            return NOT_COMPUTED
        if right == 0 and relation in ("==", "!=") and type(left) is SizeFloat:
            size = _zero_with(left)
            if size is not None:
                self.table.said("by cases", (_is_zero_alike, (left, size)), 0, True)
                return bool(RELATIONS[relation](size, 0))
        if type(right) is float and type(left) is SymInt:
            return bool(_with_fraction(relation, left, right))
        return self.table.ask(COMPARED[relation], left, right)

    def _is_operand(self, value: Any) -> bool:
        kind = type(value)
        if kind is SymInt or kind is SizeFloat:
            return value.table is self.table
        return kind is float or kind is bool or kind is int and abs(value) < 1 << 64

    # --- what is sure to have a value
    def _has_value(self, name: str, operands: tuple[Any, ...]) -> bool:
        """Whether an operation gives a number of the type that the hints give; perhaps after a
        guard that excludes where it raises."""
        first, last = operands[0], operands[-1]
        if name in ("/", "//", "%"):
            return bool(last != 0)
        if name == "**":
            return self._has_power(first, last)
        if name in ("math.sqrt", "math.isqrt"):
            return self._is_positive(first, 0)
        if name in ("math.log", "math.log2", "math.log10") and len(operands) == 1:
            return self._is_positive(first, 1) or bool(first > 0)
        return name in _SURE and len(operands) == 1 or name in _ALWAYS

    def _has_power(self, base: Any, exponent: Any) -> bool:
        if type(exponent) not in (float, int) or not self._is_positive(base, 0):
            return False
        return bool(exponent >= 0 or base != 0)

    def _is_positive(self, value: Any, least: int) -> bool:
        """Whether a number is known to be at least 0, or 1."""
        if type(value) is SymInt:
            return self.table.known_truth(value, ">=", least) is True
        if type(value) is not SizeFloat:
            return bool(value >= least)
        if least:
            return False
        name, operands = value.operation.name, value.operands
        if name in ("math.sqrt", "abs", "math.exp", "math.fabs"):
            return True
        if name == "**" and type(operands[1]) is float:
            return self._is_positive(operands[0], 0)
        is_kept = name in ("+", "*", "/", "float", "//")
        return is_kept and all(self._is_positive(each, 0) for each in operands)

    # --- floats that are exact
    def _as_integers(self, name: str, operands: tuple[Any, ...]) -> Any:
        """What rounds a quotient or a product that is exact enough, as an integer expression; None
        for anything else."""
        value = operands[0]
        if name not in _ROUNDINGS or len(operands) != 1 or type(value) is not SizeFloat:
            return None
        fraction = _fraction_of(value)
        if fraction is None:
            return None
        size, times, divisor = fraction
        above = size * times
        if name in ("int", "math.trunc"):
            if self._is_positive(above, 0):
                name = "math.floor"
            elif self.table.known_truth(above, "<=", 0) is True:
                name = "math.ceil"
            else:
                return None
        most = _EXACT if divisor & divisor - 1 == 0 else _EXACT // 2
        if not (above <= most and above >= -most):
            return None
        found = above // divisor if name == "math.floor" else -(-above // divisor)
        self.table.said("by cases", (rounded(name, value), (value,)), 0, found)
        return found


def rounded(name: str, value: SizeFloat) -> Callable[[float], int]:
    """The function of `math` that rounds so: what a claim about a float evaluates."""
    return OPERATIONS[name].function


def _fraction_of(value: SizeFloat) -> tuple[Any, int, int] | None:
    """(size, a, b) of a float that is size * a / b rounded once, or not at all, for sizes below
    2**53 - b: a quotient by an int, or a product with a short fraction."""
    name, operands = value.operation.name, value.operands
    if len(operands) != 2:
        return None
    left, right = operands
    if name == "*" and type(left) is not SymInt:
        left, right = right, left
    if type(left) is not SymInt:
        return None
    if name == "/" and type(right) is int and 0 < right < _SHORT:
        return left, 1, right
    if type(right) is not float or not math.isfinite(right) or not right:
        return None
    above, below = right.as_integer_ratio()
    if name == "/":
        above, below = (below, above) if above > 0 else (-below, -above)
        if above != 1 and below != 1:  # else it is no power of 2, and the quotient is rounded
            return None
    elif name != "*":
        return None
    return (left, above, below) if abs(above) < _SHORT and below < _SHORT else None


def _zero_with(value: SizeFloat) -> Any:
    """The size that is 0 exactly where a float is: of a root, of a float of it, and of a quotient
    or product that is no smaller than floats are; None for another float."""
    operands = value.operands
    size, name = operands[0], value.operation.name
    if type(size) is SizeFloat and (name == "math.sqrt" or len(operands) == 1 and name == "float"):
        return _zero_with(size)
    if type(size) is not SymInt:
        return None
    if name in ("math.sqrt", "float"):
        return size
    if name in ("*", "/") and type(operands[1]) in (int, float):
        return size if 1e-100 < abs(operands[1]) < 1e100 else None  # type: ignore[arg-type]
    return None


def _is_zero_alike(value: float, size: int) -> bool:
    return (value == 0) == (size == 0)


def _with_fraction(relation: str, size: SymInt, number: float) -> Any:
    """The comparison of a size with a float, as one with an int."""
    if math.isnan(number):
        return relation == "!="
    if math.isinf(number):
        return relation == "!=" or (relation in ABOVE) == (number < 0) and relation != "=="
    if number.is_integer():
        return RELATIONS[relation](size, int(number))  # type: ignore[arg-type]
    if relation in ("==", "!="):
        return relation == "!="
    below = math.floor(number)
    return size > below if relation in ABOVE else size <= below


class HasType:
    """Whether a number has this type, as a function that a table may ask: it has none where Python
    raises an error."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.__name__ = kind.__name__

    def __call__(self, value: object) -> bool:
        return type(value) is self.kind

    def said(self, operands: tuple[object, ...], value: object) -> str:
        """`1 / math.log(s0) is a float`."""
        article = "an" if self.kind is int else "a"
        return f"{text_of(operands[0])} is {'' if value else 'not '}{article} {self.__name__}"


_HAS_TYPE: Final = {kind: HasType(kind) for kind in (int, float)}


def _is_moderate(name: str, operands: tuple[Any, ...], limit: float) -> bool:
    """Whether no number is too large for the operation, which raises an OverflowError then."""
    if name == "**":
        return limit < _LARGEST
    if name in _FLOATING:  # inf is no error there
        operands = tuple([each for each in operands if type(each) is not SizeFloat])
    return all(limit_of(each) < _LARGEST for each in operands)


_FLOATING: Final = "+ - * / // % neg abs float math.fabs math.sqrt".split()


def _hint(value: Any) -> Any:
    return value.hint if type(value) is SymInt or type(value) is SizeFloat else value


_ALWAYS: Final = ("+", "-", "*", "&", "|", "^", "round", "math.gcd", "math.lcm", "math.hypot")
_SURE: Final = """
    neg abs float int math.floor math.ceil math.trunc .bit_length .bit_count .is_integer
    math.sin math.cos math.atan math.tanh math.asinh math.erf math.erfc math.fabs math.cbrt
    math.degrees math.radians
""".split()
"""Functions that have a value for each finite number."""


# ------------------------------------------------------------------------------------------ limits
def limit_of(value: Any) -> float:
    """What no absolute value of a number is above, for sizes that fit in 63 bits."""
    kind = type(value)
    if kind is SizeFloat:
        return float(value.limit)
    if kind is not SymInt:
        return abs(float(value))
    total = 0.0
    for monomial, c in value.terms.items():
        product = abs(float(c)) if abs(c) < 1 << 512 else math.inf
        for atom in monomial:
            product *= _limit_of_atom(atom)
        total += product
    return total


def _limit_of_atom(atom: Atom) -> float:
    if isinstance(atom, Computed):
        return atom.limit
    if not isinstance(atom, Call):
        known = atom.lower is not None and atom.upper is not None
        return float(max(abs(atom.lower or 0), abs(atom.upper or 0))) if known else _SIZES
    left, right = limit_of(atom.left), limit_of(atom.right)
    if atom.function == "//":
        return left + 1
    if atom.function == "%":
        return right
    return max(left, right) if atom.function in ("max", "min") else math.inf


def _limit_of(name: str, operands: tuple[Any, ...]) -> float:
    """What no absolute value of a result is above, where there is one."""
    limits = list(map(limit_of, operands))
    first, last, exponent = limits[0], limits[-1], operands[-1]
    if name in ("+", "-", "math.hypot", "math.gcd"):
        return 1.01 * sum(limits)
    if name in ("*", "math.lcm") and len(limits) == 2:
        return 1.01 * first * last if first and last else 0.0
    if name in ("/", "//"):
        if type(exponent) is not SizeFloat:
            least = 1.0 if type(exponent) is SymInt else abs(exponent)
            return 1.01 * first / least + 1 if least else math.inf
        return math.inf
    if name == "%":
        return last
    if name == "**" and type(exponent) in (int, float):
        if 0 <= exponent <= 1:
            return max(first, 1.0)
        if 1 < exponent <= 8 and first < 1e36:
            return 1.01 * max(first, 1.0) ** float(exponent)
        return 1.0 if exponent < 0 and type(operands[0]) is SymInt else math.inf
    if name in ("&", "|", "^"):
        return 2 * (first + last) + 2
    if name == "round":
        return 2 * first + 1
    return _LIMITS[name](first) if name in _LIMITS and len(operands) == 1 else math.inf


def _same(limit: float) -> float:
    return limit + 1


def _at_most_one(limit: float) -> float:
    return 2.0 if limit < math.inf else math.inf


_LIMITS: Final[dict[str, Callable[[float], float]]] = {
    **dict.fromkeys((*"neg abs".split(), *"float int".split()), _same),
    **dict.fromkeys("math.floor math.ceil math.trunc math.fabs math.isqrt".split(), _same),
    **dict.fromkeys(".bit_length .bit_count math.asinh math.sqrt math.cbrt".split(), _same),
    **dict.fromkeys("math.degrees math.radians".split(), lambda limit: 60 * limit),
    **dict.fromkeys("math.sin math.cos math.tanh math.erf math.erfc".split(), _at_most_one),
    **dict.fromkeys("math.atan .is_integer".split(), _at_most_one),
    **dict.fromkeys("math.log math.log2 math.log10".split(), lambda limit: max(limit, 2000.0)),
}
"""By the operation: the limit of the result, of that of the operand."""
