"""`Assumption`: a comparison of symbolic sizes that the hints decided while a graph was traced.

Ground floor. The graph is valid for all sizes for which its assumptions hold, so they become
guards. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt

__all__ = ["Assumption", "concrete"]


@attrs.frozen(repr=False)
class Assumption:
    """A fact about symbols, with the op and the user's line that needed it."""

    fact: SymBool | Answer
    op: str | None
    location: Location | None

    @property
    def text(self) -> str:
        """`s0 >= 4`."""
        return str(self.fact)

    @property
    def specializes(self) -> bool:
        """Whether it fixes an expression to one value: `s0 == 4`."""
        fact = self.fact
        return isinstance(fact, SymBool) and fact.relation == "==" and isinstance(fact.right, int)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true where the symbols have these values, by name."""
        try:
            if isinstance(self.fact, Answer):
                return self.fact.holds(values)
            left, right = concrete((self.fact.left, self.fact.right), values)
            return RELATIONS[self.fact.relation](left, right)
        except ZeroDivisionError:  # an earlier assumption, that the divisor is not 0, fails then
            return False

    def __repr__(self) -> str:
        """`s0 >= 4 (slice, model.py:12 in loss: y = x[3:])`."""
        place = None if self.location is None else str(place_of(self.location))
        asked = ", ".join(word for word in (self.op, place) if word)
        return f"{self.text} ({asked})" if asked else self.text


@attrs.frozen(repr=False)
class Answer:
    """The fact that a function of plain ints returns `value` for these operands."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    value: Any

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the function returns it where the symbols have these values."""
        return bool(self.function(*concrete(self.operands, values)) == self.value)

    def __repr__(self) -> str:
        operands = ", ".join(map(str, self.operands))
        return f"{self.function.__name__}({operands}) is {self.value}"


def concrete(value: object, values: Mapping[str, int]) -> Any:
    """A size, a tuple or a meta, with its symbols replaced by these values.

    Anything else is returned itself.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> s0 = SymbolTable().size(6, "x.shape[0]")
    >>> concrete((s0 // 2, 3), {"s0": 9})
    (4, 3)
    """
    if isinstance(value, SymInt):
        return value.table.evaluate(value, values)
    if type(value) is tuple:
        return tuple([concrete(item, values) for item in value])
    put = getattr(value, "concrete", None)
    return value if put is None else put(values)
