"""`PythonNumber`: what Python does with a number, by its value. Spec: `specs/symbols.md` (DYN-23).

Ground floor. A symbolic number has no expression for a hash, a text, `n & 6`, `int.bit_length` or
an element of an array. Each of these takes the value: the base class asks its subclass for it with
`plain`, which logs what the value is assumed to be. A result is that of the plain number, or
whatever that raises.

A captured function must find ints where it expects ints, while aotlite's own dicts and texts keep
symbols. The frame that asks decides (`user_code.py`).
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from datetime import timedelta
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

__all__ = [
    "ABOVE",
    "BELOW",
    "CALLED",
    "NEGATED",
    "NOT_COMPUTED",
    "RELATIONS",
    "SIGNS",
    "Binary",
    "PythonNumber",
    "operation_key",
    "plain",
    "shifted",
]

Binary: TypeAlias = "Callable[[Any, Any], object]"
Method: TypeAlias = "Callable[..., Any]"

RELATIONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ABOVE: Final = frozenset(("!=", ">", ">="))
"""The relations that a number has to those below it; `BELOW`: to those above it."""
BELOW: Final = frozenset(("!=", "<", "<="))

CALLED: Final[dict[str, Binary]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
SIGNS: Final[dict[object, str]] = {operator.add: "+", operator.sub: "-", operator.mul: "*"}
NEGATED: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

NOT_COMPUTED: Final = object()
"""What `SymbolTable.computes` returns for what it makes no expression of."""
_KINDS = (int, float, Number, timedelta)
"""Classes whose operators ask an operand whether it is an int, and do nothing with a symbol."""


def plain(value: object) -> Any:
    """The value with plain numbers for symbolic ones, in lists, tuples and dicts, too."""
    if isinstance(value, PythonNumber):
        return value.plain()
    if type(value) is list or type(value) is tuple:
        return type(value)([plain(item) for item in value])
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    return value


def _both(function: Binary, name: str = "") -> tuple[Method, Method]:
    """The methods of a binary operator, `self + other` and `other + self`; `name` is that of an
    operation which expressions may hold."""

    def left(self: PythonNumber, other: object) -> object:
        return self.computed(name, function, (self, other))

    def right(self: PythonNumber, other: object) -> object:
        return self.computed(name, function, (other, self))

    return left, right


def _one(function: Callable[[int], object], name: str = "") -> Method:
    def method(self: PythonNumber) -> object:
        return self.computed(name, function, (self,))

    return method


def _named(name: str) -> Method:
    """The method of this name of the plain number."""

    def method(self: PythonNumber, *args: object, **kwargs: object) -> object:
        return getattr(self.plain(), name)(*plain(args), **plain(kwargs))

    return method


def shifted(sign: str, left: Any, bits: Any) -> object:
    """`left << bits` or `left >> bits`, one of them symbolic."""
    if not bits >= 0:
        raise ValueError("negative shift count")
    table = (bits if type(left) is int else left).table
    power = 2**bits
    return table.derived(sign, left, bits, left * power if sign == "<<" else left // power)


def operation_key(operation: object, left: object, right: object) -> tuple[object, ...]:
    """The key of a comparison of a symbolic int, or of another operation on it, in dicts of its
    table, which keeps these numbers alive: their hashes would ask whose code it is for."""
    if type(right) is type(left):
        return operation, id(left), id(right), type
    return operation, id(left), right


class PythonNumber:
    """A number that computes by its value, but for what a subclass computes with symbols."""

    __slots__ = ()

    if TYPE_CHECKING:

        def plain(self) -> int:
            """The value; logs what is assumed about it."""

    def computed(
        self, name: str, function: Callable[..., object], operands: tuple[Any, ...]
    ) -> Any:
        """The result of an operation on this number, and perhaps another one: an expression, where
        the table makes some; else that of the values."""
        computes = getattr(getattr(self, "table", None), "computes", None)
        found = NOT_COMPUTED if computes is None else computes(name, operands)
        if found is not NOT_COMPUTED:
            return found
        if len(operands) == 1:
            return function(self.plain())
        left, right = operands
        if hasattr(type(left if right is self else right), "combined"):  # a float argument asks
            return NotImplemented
        if left is self:
            return self.with_value(function, right)
        return self.with_value(lambda value, other: function(other, value), left)

    def compared_with(self, relation: str, other: object) -> Any:
        """The comparison with a number that is no int."""
        computes = getattr(getattr(self, "table", None), "computes", None)
        found = NOT_COMPUTED if computes is None else computes.compared(relation, self, other)
        if found is NOT_COMPUTED and hasattr(type(other), "combined"):
            return NotImplemented
        return self.with_value(RELATIONS[relation], other) if found is NOT_COMPUTED else found

    def with_value(self, function: Binary, other: object) -> Any:
        """`function(value, other)` for another number; for anything else, such as a tensor or a
        user's class, NotImplemented: that is asked next, and takes the symbol."""
        if isinstance(other, PythonNumber) or isinstance(other, _KINDS):
            return function(self.plain(), plain(other))
        return NotImplemented

    # --- operators
    __add__, __radd__ = _both(operator.add, "+")
    __sub__, __rsub__ = _both(operator.sub, "-")
    __mul__, __rmul__ = _both(operator.mul, "*")
    __truediv__, __rtruediv__ = _both(operator.truediv, "/")
    __floordiv__, __rfloordiv__ = _both(operator.floordiv, "//")
    __mod__, __rmod__ = _both(operator.mod, "%")
    __divmod__, __rdivmod__ = _both(divmod)
    __lshift__, __rlshift__ = _both(operator.lshift)
    __rshift__, __rrshift__ = _both(operator.rshift)
    __and__, __rand__ = _both(operator.and_, "&")
    __or__, __ror__ = _both(operator.or_, "|")
    __xor__, __rxor__ = _both(operator.xor, "^")
    __rpow__ = _both(operator.pow, "**")[1]

    def __pow__(self, other: object, modulus: object = None) -> object:
        if modulus is None:
            return self.computed("**", operator.pow, (self, other))
        return self.with_value(lambda value, other: pow(value, other, plain(modulus)), other)

    __neg__ = _one(operator.neg)
    __pos__ = _one(operator.pos)
    __abs__ = _one(operator.abs)
    __invert__ = _one(operator.invert)
    __bool__ = _one(bool)
    __int__ = _one(int)
    __index__ = __int__
    __float__ = _one(float)
    __complex__ = _one(complex)
    __floor__ = _one(math.floor, "math.floor")
    __ceil__ = _one(math.ceil, "math.ceil")
    __trunc__ = _one(math.trunc, "math.trunc")

    def __round__(self, digits: object = None) -> object:
        return self.computed("round", round, (self,) if digits is None else (self, digits))

    # --- the methods and attributes of int
    bit_length = _one(int.bit_length, ".bit_length")
    bit_count = _one(int.bit_count, ".bit_count")
    to_bytes = _named("to_bytes")
    conjugate = _named("conjugate")
    as_integer_ratio = _named("as_integer_ratio")
    if sys.version_info >= (3, 12):
        is_integer = _named("is_integer")
    from_bytes = int.from_bytes
    real = property(_one(operator.attrgetter("real")))
    imag = property(_one(operator.attrgetter("imag")))
    numerator = property(_one(operator.attrgetter("numerator")))
    denominator = property(_one(operator.attrgetter("denominator")))

    # --- NumPy
    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.plain(), dtype=dtype)

    def __array_ufunc__(
        self, ufunc: object, method: str, *args: object, **kwargs: object
    ) -> object:
        return getattr(ufunc, method)(*plain(args), **plain(kwargs))

    def __array_function__(
        self, function: Callable[..., object], types: object, args: object, kwargs: object
    ) -> object:
        return function(*plain(args), **plain(kwargs))
