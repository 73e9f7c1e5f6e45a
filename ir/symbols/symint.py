"""`SymInt`: an integer that is unknown while a graph is traced. Spec: `specs/symbols.md`.

Ground floor. A symbolic int is a polynomial over symbols and calls (`ir/symbols/calls.py`). Its
`SymbolTable` interns it: equal polynomials are one object, which dicts find by identity. A
comparison that has one answer for all values returns a bool. Any other returns a `SymBool`; its
`bool()` is answered by the hints, and logged as an assumption (`ir/symbols/table.py`).

    s0 > 1     True            sizes are at least 2
    s0 > s1    SymBool         `if s0 > s1:` takes the branch of the hints and logs the assumption
    int(s0)    the hint        logs `s0 == 6`: the graph is specialized

To the code of a captured function a `SymInt` is an int, and a comparison a bool (DYN-23).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from sys import _getframe
from typing import Any, NoReturn, Protocol, TypeAlias, TypeGuard, TypeVar

from aotlite.ir.errors import ArgumentError
from aotlite.ir.symbols.polynomial import Range, Terms, add, multiply, subtract
from aotlite.ir.symbols.python_number import (
    ABOVE,
    BELOW,
    CALLED,
    NEGATED,
    RELATIONS,
    SIGNS,
    Binary,
    PythonNumber,
    operation_key,
    plain,
    shifted,
)
from aotlite.ir.symbols.user_code import OUTSIDE, CountSymbols, asked_outside

__all__ = ["ABOVE", "BELOW", "RELATIONS", "Combine", "SymBool", "SymInt", "Table", "hash_by_value"]

Combine: TypeAlias = Callable[[Terms, Terms], Terms]
Result = TypeVar("Result")


class Table(Protocol):
    """The interface of `SymbolTable` that a `SymInt` calls."""

    counts: CountSymbols | None
    """The symbols that depend on values; None where there are none."""

    @property
    def shown_as_ints(self) -> bool:
        """Whether code outside aotlite finds ints where these numbers are."""

    @property
    def interned(self) -> dict[int, SymInt]:
        """Each number by its key."""

    @property
    def truths(self) -> dict[tuple[object, ...], Any]:
        """Comparisons with the same answer for all values, and the answer: by `operation_key`."""

    @property
    def open(self) -> dict[tuple[object, ...], SymBool]:
        """Comparisons without one; emptied by each assumption, which may decide some."""

    # --- arithmetic
    def of(self, terms: Terms) -> Any:
        """The interned object of these terms; a plain int where they have no symbol."""

    def terms_of(self, value: int | SymInt) -> Terms:
        """The terms of an int or of a symbolic int of this table."""

    def add(self, key: int, a: SymInt, b: int | SymInt) -> Any:
        """a + b, where no interned number has its key."""

    def subtract(self, key: int, a: SymInt, b: int | SymInt) -> Any:
        """a - b, where no interned number has its key."""

    def multiply(self, key: int, a: SymInt, b: int | SymInt) -> Any:
        """a * b, where no interned number has its key."""

    def met(self, key: int, function: Combine, a: SymInt, b: int | SymInt) -> Any:
        """function(a, b), where an interned number has its key: nearly always the same number."""

    def call(self, function: str, left: int | SymInt, right: int | SymInt) -> Any:
        """`//`, `%`, `**`, `max` or `min` of two values, one of them symbolic."""

    def derived(
        self, function: str, left: int | SymInt, right: int | SymInt, result: Result
    ) -> Result:
        """The result itself, of an operator that is made of others; once it becomes an event."""

    def said(self, function: str, left: object, right: object, result: Result) -> Result:
        """The result itself, after the event that the function of these operands is this."""

    def atom(self, function: str, left: int | SymInt, right: int | SymInt, room: Range) -> Any:
        """The interned int of a `Call` with the range `room`."""

    def sympy_quotient(self, dividend: Terms, divisor: Terms) -> tuple[Terms, Terms] | None:
        """(q, 0) where dividend = q * divisor over the integers, else None."""

    # --- values and truths
    def evaluate(self, value: int | SymInt, values: Mapping[str, int] | None = None) -> int:
        """The value where symbols have these values by name; by default their hints."""

    def specialize(self, value: SymInt) -> int:
        """The hint; logs the assumption that the value equals it."""

    def range(self, value: int | SymInt) -> Range:
        """(lower, upper) bounds for all values of the symbols; None for no bound."""

    def compare(self, fact: SymBool) -> bool | SymBool:
        """The comparison itself, or its truth where that is the same for all values."""

    def shown(self, truth: bool | SymBool) -> bool | SymBool:
        """A comparison for the code of a function."""

    def decide(self, fact: SymBool) -> bool:
        """The truth of a comparison: for all values, or else for the hints, which is logged."""

    def known_truth(self, left: int | SymInt, relation: str, right: int | SymInt) -> bool | None:
        """The truth of a comparison for all values; None where it depends on them."""

    # --- text
    def text(self, value: SymInt) -> str:
        """The expression as Python writes it."""

    def refuse(self, value: SymInt) -> NoReturn:
        """Raises ArgumentError for a size of another trace."""


class SymInt(PythonNumber):
    """A symbolic integer. A `SymbolTable` and arithmetic make them.

    The arithmetic is Python's, for negative numbers too. `int()`, indexing and true division need
    the value: they use the hint and log the assumption that the value equals it.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> table = SymbolTable()
    >>> s0, s1 = table.size(6, "x.shape[0]"), table.size(5, "x.shape[1]")
    >>> (s0 + 1) * s1 - s1, s0 * 4 // 2, -s0 // 4, s0 > 1, s0 > s1
    (s0*s1, 2*s0, (-s0)//4, True, s0 > s1)
    >>> (s0 + 1) * s1 is s1 + s1 * s0
    True
    """

    __slots__ = (
        "__weakref__",
        "_hint",
        "_terms",
        "constant",
        "function",
        "key",
        "least",
        "left",
        "names",
        "right",
        "table",
    )

    def __init__(
        self,
        table: Table,
        key: int,
        constant: int,
        least: int | None,
        function: Combine | None,
        left: SymInt | None,
        right: Any,
    ) -> None:
        self.table = table
        self.key = key
        """The value of the polynomial where each atom equals its `point`; the table's hash key."""
        self.constant = constant
        """The term without symbols."""
        self.least = least
        """A lower bound; None where none has been found yet."""
        # The operation that made it. `terms` expands it on demand, which most numbers never need.
        self.function = function
        self.left = left
        self.right = right
        self._terms: Terms | None = None
        self._hint: int | None = None
        self.names: frozenset[str] | None = None  # of its symbols, once somebody has asked for them

    @property
    def terms(self) -> Terms:
        """The polynomial."""
        return self._terms or self._expand()

    def _expand(self) -> Terms:
        """Computes the terms; without recursion, as a sum of many sizes is deeply nested."""
        waiting, terms = [self], self._terms
        while waiting:
            last = waiting[-1]
            assert last.function is not None and last.left is not None
            unknown = [v for v in (last.left, last.right) if type(v) is SymInt and not v._terms]
            if unknown:
                waiting += unknown
            else:
                terms = last.function(last.left.terms, self.table.terms_of(last.right))
                waiting.pop()._terms = terms
        assert terms is not None
        return terms

    @property
    def hint(self) -> int:
        """The value in the call that is being traced. Raises UnsupportedError if there is none."""
        if self._hint is None:
            self._hint = self.table.evaluate(self)
        return self._hint

    def forget_hint(self) -> None:
        """Has it computed anew: the hints of symbols are others."""
        self._hint = None

    # ------------------------------------------------------------------------------- arithmetic
    def __add__(self, other: object) -> Any:
        if type(other) is SymInt:
            key = self.key + other.key
        elif type(other) is int:
            key = self.key + other
        else:
            return self._otherwise(operator.add, other)
        found = self.table.interned.get(key)
        if found is None:
            return self.table.add(key, self, other)
        same = found.right is other and found.left is self and found.function is add
        return found if same else self.table.met(key, add, self, other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        if type(other) is SymInt:
            key = self.key - other.key
        elif type(other) is int:
            key = self.key - other
        else:
            return self._otherwise(operator.sub, other)
        found = self.table.interned.get(key)
        if found is None:
            return self.table.subtract(key, self, other)
        same = found.right is other and found.left is self and found.function is subtract
        return found if same else self.table.met(key, subtract, self, other)

    def __rsub__(self, other: object) -> Any:
        if not isinstance(other, int):
            return super().__rsub__(other)
        return self.table.derived("-", other, self, -self + other)

    def __mul__(self, other: object) -> Any:
        if type(other) is SymInt:
            key = self.key * other.key
        elif type(other) is int:
            key = self.key * other
        else:
            return self._otherwise(operator.mul, other)
        found = self.table.interned.get(key)
        if found is None:
            return self.table.multiply(key, self, other)
        same = found.right is other and found.left is self and found.function is multiply
        return found if same else self.table.met(key, multiply, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.table.derived("-", 0, self, self * -1)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return self.table.derived("abs", self, 0, self.table.call("max", self, -self))

    def __floordiv__(self, other: object) -> Any:
        return self._called("//", self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._called("//", other, self)

    def __mod__(self, other: object) -> Any:
        return self._called("%", self, other)

    def __rmod__(self, other: object) -> Any:
        return self._called("%", other, self)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __pow__(self, other: object, modulus: object = None) -> Any:
        if modulus is not None:
            return super().__pow__(other, modulus)
        if type(other) is int and other >= 0:
            return self.table.derived("**", self, other, math.prod([self] * other))
        return self._called("**", self, other)

    def __rpow__(self, other: object) -> Any:
        return self._called("**", other, self)

    def __invert__(self) -> object:
        return self.table.derived("-", -1, self, -self - 1)

    def __lshift__(self, other: object) -> object:
        return shifted("<<", self, other) if _is_whole(other) else super().__lshift__(other)

    def __rlshift__(self, other: object) -> object:
        return shifted("<<", other, self) if _is_whole(other) else super().__rlshift__(other)

    def __rshift__(self, other: object) -> object:
        return shifted(">>", self, other) if _is_whole(other) else super().__rshift__(other)

    def __rrshift__(self, other: object) -> object:
        return shifted(">>", other, self) if _is_whole(other) else super().__rrshift__(other)

    def __and__(self, other: object) -> object:
        if type(other) is int and other >= 0 and other & (other + 1) == 0:  # the lowest bits
            return self.table.derived("&", self, other, self % (other + 1))
        return super().__and__(other)

    __rand__ = __and__

    def _called(self, function: str, left: Any, right: Any) -> Any:
        other = right if left is self else left
        if _is_whole(other) and (function != "**" or type(right) is not int or right >= 0):
            return self.table.call(function, left, right)
        if isinstance(other, bool):
            return self._called(function, *[int(v) if v is other else v for v in (left, right)])
        return self.computed(function, CALLED[function], (left, right))

    def _otherwise(self, function: Binary, other: object) -> Any:
        if isinstance(other, (bool, SymBool)):
            return function(self, int(other))
        return self.computed(SIGNS[function], function, (self, other))

    # ------------------------------------------------------------------------------- comparison
    # Equal polynomials are one object. A dict calls `__eq__` only for equal hashes: hardly ever.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return True if self is other else self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return False if self is other else self._compared("!=", other)

    def __lt__(self, other: object) -> Any:
        return self._compared("<", other)

    def __le__(self, other: object) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Any:
        return self._compared(">=", other)

    def _compared(self, relation: str, other: Any) -> object:
        kind = type(other)
        if kind is int or kind is SymInt:
            key, table = operation_key(relation, self, other), self.table
            found = table.truths.get(key)
            if found is None and kind is int and self.least is not None and self.least > other:
                found = table.truths[key] = table.said(relation, self, other, relation in ABOVE)
            found = table.open.get(key) if found is None else found
            if found is not None:
                return table.shown(found) if table.shown_as_ints and asked_outside(2) else found
        if isinstance(other, (bool, SymBool)):
            other = int(other)
        elif kind is not int and kind is not SymInt:
            return self.compared_with(relation, other)
        elif kind is SymInt and other.table is not self.table:
            return NotImplemented if relation in ("==", "!=") else self.table.refuse(other)
        truth = self.table.compare(SymBool(self, relation, other))
        return self.table.shown(truth) if self.table.shown_as_ints and asked_outside(2) else truth

    # ------------------------------------------------------------------- where a number is needed
    def __bool__(self) -> bool:
        return bool(self != 0)

    def plain(self) -> int:
        """The hint; logs the assumption that the value equals it."""
        return self.table.specialize(self)

    __int__ = __index__ = plain

    def __floor__(self) -> SymInt:
        return self

    __ceil__ = __trunc__ = conjugate = __floor__

    def __round__(self, digits: object = None) -> object:
        if digits is None or type(digits) is int and digits >= 0:
            return self
        return super().__round__(digits)

    # ------------------------------------------------------------------- to the code of a function
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int if self.table.shown_as_ints and asked_outside(1) else SymInt

    def value_hash(self) -> int:
        """The hash of the value for code outside aotlite; else that of the object."""
        if self.table.shown_as_ints:  # `asked_outside`, inline, as this is asked most
            known = OUTSIDE.get(_getframe(1).f_globals.get("__name__"))
            if asked_outside(1) if known is None else known:
                return hash(self.plain())
        return object.__hash__(self)

    def __repr__(self) -> str:
        if self.table.shown_as_ints and asked_outside(1):
            return repr(self.plain())
        return self.table.text(self)

    def __format__(self, spec: str) -> str:
        outside = self.table.shown_as_ints and asked_outside(1)
        return format(self.plain() if outside else repr(self), spec)

    def __reduce__(self) -> tuple[type, tuple[int]]:
        if self.table.shown_as_ints and asked_outside(1):
            return int, (self.plain(),)
        raise ArgumentError(f"symbols: a size to copy is {self}, expected an int")

    def __copy__(self) -> SymInt:
        return self

    def __deepcopy__(self, memo: object) -> SymInt:
        return self


class SymBool(PythonNumber):
    """A comparison that depends on the values of symbols.

    `bool()` returns its truth for the hints, and logs that as an assumption.
    """

    __slots__ = ("left", "relation", "right")

    def __init__(self, left: SymInt, relation: str, right: int | SymInt) -> None:
        self.left = left
        self.relation = relation
        self.right = right

    @property
    def hint(self) -> bool:
        """The truth in the call that is being traced."""
        right = self.right.hint if isinstance(self.right, SymInt) else self.right
        return RELATIONS[self.relation](self.left.hint, right)

    def negated(self) -> SymBool:
        """The negation."""
        return SymBool(self.left, NEGATED[self.relation], self.right)

    def plain(self) -> bool:
        """The truth for the hints; logs the assumption that it is the truth."""
        return self.left.table.decide(self)

    __bool__ = plain

    # ------------------------------------------------------------------- to the code of a function
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return bool if self.left.table.shown_as_ints and asked_outside(1) else SymBool

    def __eq__(self, other: object) -> bool:
        outside = self.left.table.shown_as_ints and asked_outside(1)
        return self.plain() == plain(other) if outside else NotImplemented

    def __hash__(self) -> int:
        outside = self.left.table.shown_as_ints and asked_outside(1)
        return hash(self.plain()) if outside else object.__hash__(self)

    def __repr__(self) -> str:
        outside = self.left.table.shown_as_ints and asked_outside(1)
        return repr(self.plain()) if outside else f"{self.left} {self.relation} {self.right}"

    def __format__(self, spec: str) -> str:
        outside = self.left.table.shown_as_ints and asked_outside(1)
        return format(self.plain() if outside else repr(self), spec)

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return bool, (self.plain(),)


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int or type(value) is SymInt


def hash_by_value() -> None:
    """Makes the hash of each `SymInt` ask whose code it is for, in this process from now on.

    Before that it is the object's, without a call: most processes show no symbol to a user.
    """
    SymInt.__hash__ = SymInt.value_hash  # type: ignore[method-assign, assignment]
