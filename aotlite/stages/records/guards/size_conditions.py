"""`SizeConditions`: what one capture with symbols takes for granted about sizes, in sentences.

Shown to observers behind stage 8, when the guards are complete. Rules: DYN-8, DYN-11.
Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.floats.symfloat import FloatFact
from aotlite.ir.symbols.polynomial import Range
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.symbolic_sizes import SymbolicSizes

if TYPE_CHECKING:
    from aotlite.ir.symbols.validation.verdict import Verdict


@attrs.frozen
class SymbolFacts:
    """One symbol: where a call finds its value, what it is in the call that was captured, and the
    range that it was given."""

    name: str
    source: str
    """`size 0 of argument 1`; several are joined by `and`, of a named dimension."""
    hint: int | None
    room: Range
    """The least and the most; None where there is no bound. Conditions may narrow it."""
    dimension: str | None = None
    """The name of the dimension; None without one."""

    def __str__(self) -> str:
        """`s0 is 4 in this call, 0 or more in others: size 0 of argument 1`."""
        hint = "unknown" if self.hint is None else self.hint
        named = "" if self.dimension is None else f", dimension {self.dimension!r}"
        return f"{self.name} is {hint} in this call, {self._others} in others: {self.source}{named}"

    @property
    def _others(self) -> str:
        match self.room:
            case (None, None):
                return "any number"
            case (least, None):
                return f"{least} or more"
            case (None, most):
                return f"{most} or less"
            case (least, most):
                return f"{least} to {most}"


@attrs.frozen(eq=False, repr=False)
class SizeConditions:
    """The symbols of a capture, the conditions under which its graphs are right, and the proof."""

    symbols: tuple[SymbolFacts, ...]
    guards: tuple[Assumption, ...]
    """The conditions on sizes, each with the op and the user's line that asked."""
    floats: tuple[FloatFact, ...]
    """The conditions on float arguments (DYN-27)."""
    proof: Verdict | None
    """Whether the conditions imply all that was used about sizes; None with `verify=0`."""
    table: SymbolTable
    refused: tuple[str, ...] = ()
    """Why sizes that were to be symbols are numbers."""

    @classmethod
    def of(
        cls, sizes: SymbolicSizes, guards: Sequence[Assumption], refused: Sequence[str] = ()
    ) -> SizeConditions:
        """The conditions of a capture whose guards these are."""
        table = sizes.table
        symbols = [
            SymbolFacts(
                name,
                " and ".join(table.symbols[name].sources),
                table.hints.get(name),
                room,
                sizes.asked[name].name if name in sizes.asked else None,
            )
            for name, room in sizes.rooms.items()
        ]
        facts = tuple(symbols), tuple(guards), tuple(sizes.floats.facts)
        return cls(*facts, sizes.proof, table, tuple(refused))

    def __str__(self) -> str:
        """The symbols, the conditions with the lines that ask, and the proof, a line each."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.symbols:
            yield f"No size is a symbol: {'; '.join(self.refused) or 'no argument has one'}."
        yield from map(str, self.symbols)
        if self.guards or self.floats:
            yield "Conditions, with the lines that ask:"
        else:
            yield "Conditions: none."
        for guard in self.guards:
            yield f"  {guard.text}{_asked(guard.location, guard.op)}"
        for fact in self.floats:
            yield f"  {fact.text}{_asked(fact.location, None)}"
        if not self.symbols:  # of floats nothing is proved
            return
        proof = "none was asked for (verify=0)" if self.proof is None else self.proof
        yield f"Proof that they suffice: {proof}"


def _asked(location: Location | None, op: str | None) -> str:
    """The op, and the user's line, on a line of its own; empty without both."""
    place = None if location is None else str(place_of(location))
    words = ", ".join([word for word in (op, place) if word])
    return f"\n    {words}" if words else ""
