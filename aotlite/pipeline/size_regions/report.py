"""Regions and recompilations in words: `CompiledFunction.regions()`, `.explain_recompiles()`.

Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

import attrs

from aotlite.ir.deferred import deferred
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph
from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.floats.symfloat import FloatFact
from aotlite.pipeline.logs import call_events
from aotlite.pipeline.logs.stage_events import emit_recompile
from aotlite.pipeline.options import Options
from aotlite.pipeline.recompile_limit import Miss
from aotlite.pipeline.request import CompiledEntry
from aotlite.pipeline.size_regions.proof.witnesses import Unrepeatable
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region import SizeRegion
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_meta import FunctionMeta

if TYPE_CHECKING:
    from rich import console as consoles
    from rich import table as tables

    from aotlite.ir.symbols.validation.weakest import GuardNeed
else:  # for who prints a table
    consoles, tables = deferred("rich.console"), deferred("rich.table")

_WIDTH = 110
_MOST_PLAIN = 4
"""Of more arguments without symbols than these a table has the number alone."""
_SYMBOL = re.compile(r"\b[su]\d+\b")


@attrs.frozen
class RegionRow:
    """One entry: its number, the arguments with their symbols, its guards on sizes, its calls."""

    number: int
    arguments: tuple[str, ...]
    guards: tuple[Assumption, ...]
    sizes: tuple[tuple[int, ...], ...]
    """The sizes for which there are instances, in the order of the symbols."""
    calls: int | None
    """The number of calls; None for an entry without symbols: to count them would make each call
    slower."""
    counts: tuple[str, ...] = ()
    """The symbols that depend on values, with what they count (DYN-30)."""
    needs: tuple[GuardNeed, ...] = ()
    """Why each guard is needed, in their order, and then why others were dropped; if it was asked
    for."""
    unknown: str = ""
    """Why that cannot be said."""
    names: tuple[str, ...] = ()
    """The symbols that are named dimensions, with their names."""
    floats: tuple[FloatFact, ...] = ()
    """The conditions on float arguments (DYN-27)."""
    bounds: tuple[str, ...] = ()
    """The bounds that marks and named dimensions give."""
    proof: str = ""
    """How it was shown that the guards imply what the trace used; empty if it was not (DYN-11)."""

    @classmethod
    def of(cls, entry: CompiledEntry, *, witnesses: bool = False) -> RegionRow:
        """The row of an entry."""
        region = entry.guarded
        needs: tuple[GuardNeed, ...] = ()
        unknown = ""
        if witnesses and isinstance(region, SizeRegion):
            try:
                needs = tuple(region.needs())  # which may drop guards
            except Unrepeatable as error:
                unknown = str(error)
            entry.meta, entry.partition = region.records.meta, region.shown
        arguments = tuple([f"{each.place}: {each.meta}" for each in entry.meta.inputs])
        if not isinstance(region, SizeRegion):
            return cls(entry.number, arguments, (), (), None, floats=entry.floats)
        numbers = [f"argument {i}: int {each}" for i, each in region.sizes.numbers.items()]
        arguments = (*arguments, *numbers)
        counts = tuple([f"{name}: {each}" for name, each in region.sizes.counts.items()])
        facts = region.guards, tuple(region.instances), region.calls
        asked = region.sizes.asked.items()
        names = tuple([f"{name}: {each.name}" for name, each in asked if each.name is not None])
        bounds = tuple([f"{name} is {each.bounds}" for name, each in asked if each.bounds])
        proof = "" if region.sizes.proof is None else str(region.sizes.proof)
        made = cls(entry.number, arguments, *facts, counts, needs, unknown, names)
        return attrs.evolve(made, floats=entry.floats, bounds=bounds, proof=proof)

    def cells(self, index: int) -> tuple[str, ...]:
        """The texts of a table: entry, arguments, conditions with their lines, calls, why."""
        conditions = [f"{each} (mark or Dim)" for each in self.bounds]
        conditions += [f"{each.text}{_line(each.location, each.op)}" for each in self.guards]
        conditions += [f"{each.text}{_line(each.location)}" for each in self.floats]
        proof = f"\n{self.proof}" if self.proof else ""
        calls = "not counted" if self.calls is None else str(self.calls)
        known = "\n".join((*_in_short(self.arguments), *self.names, *self.counts))
        number = f"{index}\n(compilation {self.number})"
        whys = self.unknown or "\n".join(map(str, self.needs))
        return number, known, ("\n".join(conditions) or "none on symbols") + proof, calls, whys


Row = TypeVar("Row")


@attrs.frozen(repr=False)
class _Rows(Sequence[Row], Generic[Row]):
    """A sequence of rows."""

    rows: tuple[Row, ...]

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


@attrs.frozen(repr=False)
class RegionTable(_Rows[RegionRow]):
    """The entries of a compiled function: a sequence that prints as a table."""

    @classmethod
    def of(cls, entries: Iterable[CompiledEntry], *, witnesses: bool = False) -> RegionTable:
        """The table of these entries."""
        return cls(tuple([RegionRow.of(each, witnesses=witnesses) for each in entries]))

    def __repr__(self) -> str:
        lines = [row.cells(index) for index, row in enumerate(self.rows)]
        names = "entry", "arguments", "conditions, with the lines that ask", "calls", "why"
        if any(line[-1] for line in lines):
            return _table(names, lines)
        return _table(names[:-1], [line[:-1] for line in lines])


@attrs.frozen
class Recompile:
    """Why an entry was made: for each earlier entry the guard that failed."""

    number: int
    reasons: tuple[Miss, ...]


@attrs.frozen(repr=False)
class RecompileTable(_Rows[Recompile]):
    """The compilations of a function: a sequence that prints as a table."""

    name: str

    def __repr__(self) -> str:
        lines = [
            (f"compilation {row.number}", "\n".join(map(str, row.reasons)) or "the first call")
            for row in self.rows
        ]
        return _table((f"compilation of {self.name}", "because"), lines)


class EntryReports:
    """What users ask a compiled function about its entries."""

    entries: list[CompiledEntry]
    recompiles: list[Recompile]
    options: Options
    _name: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        call_events.starts(cls, "__call__", "call")

    def note_compilation(self, number: int, reasons: Sequence[Miss]) -> None:
        """Keeps why an entry was made: for each earlier entry the guard that failed."""
        self.recompiles.append(Recompile(number, tuple(reasons)))
        if reasons and self.options.enable_log:
            emit_recompile(self._name, number, reasons)

    def regions(self, *, witnesses: bool = False) -> RegionTable:
        """The entries as regions of sizes: conditions, the user's lines that caused them, calls.

        With `witnesses`, also why each condition is needed: sizes that violate it alone, and at
        which the function, traced again, is another program. A condition that excludes sizes for
        nothing is shown with some of them; one of the function's own is dropped where the program
        is the same whichever way the branch goes, and calls at these sizes are of the entry then
        (DYN-24). A function that may print, or write to what others see, does not run again:
        `unknown` names the line.

        >>> import aotlite as al
        >>> double = al.compile(lambda x: x * 2 if x.shape[0] > 3 else x, dynamic=True)
        >>> _ = double(al.ones(5)), double(al.ones(9)), double(al.ones(2))
        >>> for region in double.regions():
        ...     print([guard.text for guard in region.guards], region.calls)
        ['s0 > 3'] 2
        ['s0 <= 3'] 1
        """
        return RegionTable.of(self.entries, witnesses=witnesses)

    def explain_recompiles(self) -> RecompileTable:
        """For each entry, the guard of each earlier entry that failed for the call it was made for.
        Entries that are no longer kept are named, too."""
        return RecompileTable(tuple(self.recompiles), self._name)

    @property
    def forward_graph(self) -> Graph:
        """The forward graph of the newest entry. Raises ArgumentError before the first call."""
        return self._shown().partition.forward

    @property
    def backward_graph(self) -> Graph | None:
        """The backward graph of the newest entry; None if nothing is differentiable."""
        return self._shown().partition.backward

    @property
    def partition(self) -> Partition:
        """Both graphs of the newest entry, and the values saved between them."""
        return self._shown().partition

    @property
    def source(self) -> str:
        """The generated Python source of the newest entry.

        >>> import aotlite as al
        >>> double = al.compile(lambda x: x * 2)
        >>> _ = double(al.ones(3))
        >>> print(double.source)  # doctest: +ELLIPSIS
        # F0: f32[3]
        ...
        """
        return self._newest().guarded.source

    @property
    def meta(self) -> FunctionMeta:
        """The metadata of the newest entry."""
        return self._shown().meta

    def _shown(self) -> CompiledEntry | StageRecords:
        """The newest entry, or its records in the file that the function was loaded from."""
        bundle = getattr(self, "bundle", None)
        loaded: StageRecords | None = None if bundle is None or self.entries else bundle.newest()
        return self._newest() if loaded is None else loaded

    def _newest(self) -> CompiledEntry:
        if not self.entries:
            raise ArgumentError(f"compile: {self._name} has no entry yet, expected a call first")
        return self.entries[-1]


def _line(location: Location | None, op: str | None = None) -> str:
    """The user's line that asked, and the op, on a line of its own; empty without both."""
    place = "" if location is None else str(place_of(location))
    text = f"{place} ({op})".strip() if op else place
    return f"\n    {text}" if text else ""


def _in_short(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments; of many without symbols only the number."""
    plain = [each for each in arguments if not _SYMBOL.search(each)]
    hidden = set(plain) if len(plain) > _MOST_PLAIN else set()
    yield from [each for each in arguments if each not in hidden]
    if hidden:
        others = "" if len(plain) == len(arguments) else " others"
        yield f"{len(plain)}{others} without symbols"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = tables.Table(*columns, show_lines=True)
    for row in rows:
        table.add_row(*map(_escaped, row))
    file = io.StringIO()
    consoles.Console(file=file, width=_WIDTH).print(table)
    return "\n".join([line.rstrip() for line in file.getvalue().splitlines()])


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
