"""`Events`: every fact about sizes that a trace used, in order, as it was asked for.

Ground floor. A fact is kept unsimplified: a function, its operands, and the claimed result.

    s0*4 // 2 gave 2*s0         ("//", 4*s0, 2, 2*s0)
    s0 > 1 was proved           (">", s0, 1, True)
    a branch took s0 >= 4       (">=", s0, 4, True)
    from then on                (">=", s0, 4, True), of the bounds that it narrowed

A sum, a difference or a product is its number alone, which has the operands. `validation` reads
the events, and shows that the guards imply them (DYN-11). Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from aotlite.ir.provenance.library_files import is_library_file
from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.symint import SymInt

__all__ = ["Claimed", "Event", "Events", "RuleRun", "Span"]

Claimed: TypeAlias = "tuple[str, Any, Any, Any]"
Event: TypeAlias = "SymInt | Claimed"
"""A number with its operation, or (function, left, right, claimed result). An operand is a number
or the terms of a polynomial; where the function is "assumed", the left one is an assumption; where
it is "by cases", a function of sizes with its operands, whose result was found so (`cases`)."""


Span: TypeAlias = tuple[int, int, str, Location | None]
"""(first, last + 1, op, line): events that the rule of this op made, for this line of the user."""


class Events(list[Event]):
    """The events of one trace."""

    __slots__ = ("lines", "rules")

    def __init__(self) -> None:
        self.rules: list[Span] = []
        """Of nested rules the inner one stands first."""
        self.lines: dict[int, Location | None] = {}
        """Of an event outside of rules: the user's line, or that of the library which computed."""

    def drop_from(self, start: int) -> None:
        """Drops the events from number `start` on."""
        del self[start:]
        self.rules = [span for span in self.rules if span[1] <= start]
        self.lines = {index: line for index, line in self.lines.items() if index < start}

    def asker(self, index: int) -> tuple[str | None, Location | None]:
        """The op and the line that asked for this event.

        Arithmetic within an answer is asked for by whoever asked the answer, a later event.
        """
        spans = ((op, line) for first, end, op, line in self.rules if first <= index < end)
        found = next(spans, None)
        return found or (None, self._line(index))

    def _line(self, index: int) -> Location | None:
        for later in range(index, len(self)):
            line = self.lines.get(later)
            if line is not None and not is_library_file(place_of(line).file):
                return line
        return self.lines.get(index)


class RuleTable(Protocol):
    """What a `SymbolTable` has for `RuleRun`."""

    op: str | None
    locate: Callable[[], Location | None]
    events: Events


class RuleRun:
    """A block in which a meta rule runs; it may be within another one."""

    __slots__ = ("first", "op", "outer", "table")

    def __init__(self, table: RuleTable, op: str) -> None:
        self.table = table
        self.op = op

    def __enter__(self) -> None:
        self.outer, self.table.op = self.table.op, self.op
        self.first = len(self.table.events)

    def __exit__(self, *_: object) -> None:
        self.table.op = self.outer
        events = self.table.events
        if len(events) > self.first:
            events.rules.append((self.first, len(events), self.op, self.table.locate()))
