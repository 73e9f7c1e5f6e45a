"""Calls of a region with sizes that depend on values: they are computed, one after the other.

    sizes of the arguments ─> segment 0 gives u0 ─> segment 1 gives u1 ─> the instance, for all

Before each step the guards on what is known by then must hold; where one does not, the call is of
another region, and has written nothing. Rule: DYN-31. Spec: `specs/data_sizes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Window
from aotlite.ir.errors import in_words
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.assumption import NO_VALUE, Assumption, concrete
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.user_code import symbols_in
from aotlite.pipeline.request import CompiledEntry
from aotlite.pipeline.size_regions.counts.segments import segments
from aotlite.pipeline.size_regions.instances.cache import RecentSizes
from aotlite.pipeline.size_regions.kernels import SizedKernels, given
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s10_runtime.guards.failures import GuardFailure
from aotlite.stages.s10_runtime.guards.writer import MISS

Make = Callable[[StageRecords, dict[str, int], tuple[int, ...], Sequence[object]], CompiledEntry]
"""Makes the instance of records for these values of symbols, under a key, for a call."""


@attrs.frozen(eq=False, repr=False)
class CountedSegments:
    """The segments of a region, and the guards that have to hold before each."""

    sizes: SymbolicSizes
    records: tuple[StageRecords, ...]
    guards: tuple[tuple[Assumption, ...], ...]
    """For each segment: the guards on sizes of arguments and on the counts before it, as far as
    they were not checked before an earlier one."""

    @classmethod
    def of(
        cls, records: StageRecords, sizes: SymbolicSizes, guards: Sequence[Assumption]
    ) -> CountedSegments:
        """Those of a region with these records and guards."""
        levels: list[list[Assumption]] = [[] for _ in range(len(sizes.counts) + 1)]
        places = {name: place for place, name in enumerate(sizes.counts)}
        ties = Ties()
        loose = _holding_at_least(sizes, guards)
        for guard in guards:
            used = symbols_in(guard.fact)
            level = max([places.get(name, -1) + 1 for name in used], default=0)
            levels[level].append(guard)
            if guard not in loose:
                ties.add(used, level)
        own = len(records.meta.outputs) - len(records.meta.parts)
        made = segments(records, range(own - len(sizes.counts), own))
        for number, each in enumerate(made[:-1]):
            assert each.handed is not None
            # Sizes that a guard ties to a later count are not yet known to be as it says.
            if ties.latest(_symbols_of(each.handed)) <= number:
                made[number] = attrs.evolve(each, kernels=(SizedKernels(each.handed, sizes), None))
        whole = made[-1]
        assert whole.handed is not None
        kernels = SizedKernels(whole.handed, sizes), records.kernels[1]
        made[-1] = attrs.evolve(whole, kernels=kernels)
        return cls(sizes, tuple(made), tuple(map(tuple, levels)))


class Ties:
    """Which symbols guards tie to each other, and when the last of these guards is checked."""

    def __init__(self) -> None:
        self._groups: list[tuple[set[str], int]] = []

    def add(self, names: set[str], level: int) -> None:
        """Adds a guard on these symbols, which is checked before the segment `level`."""
        tied = [each for each in self._groups if each[0] & names]
        self._groups = [each for each in self._groups if not each[0] & names]
        names = names.union(*[found for found, _ in tied])
        self._groups.append((names, max([level, *[last for _, last in tied]])))

    def latest(self, names: set[str]) -> int:
        """The last level of the guards that say something of these symbols."""
        return max([last for found, last in self._groups if found & names], default=0)


# Note [guards that tie nothing]
#     x[x > 0]: f32[s0] with u0 elements, under the guard s0 >= min(1, u0)
# The guard holds for every s0 where u0 is 0. So whatever it lets be concluded of s0 alone is true
# of every s0, and the graph that counts is right before the guard is checked. That is so for all
# such guards together, each at the least of its last count, unless another guard keeps that count
# from it.
def _holding_at_least(sizes: SymbolicSizes, guards: Sequence[Assumption]) -> list[Assumption]:
    """The guards that hold for all other sizes where their last count is least. Note [guards that
    tie nothing]."""
    last: dict[int, str] = {}
    loose, names = [], list(sizes.counts)
    for guard in guards:
        used = symbols_in(guard.fact)
        counts = [name for name in names if name in used]
        if counts and _holds_where_least(sizes, guard, counts[-1]):
            last[id(guard)] = counts[-1]
            loose.append(guard)
    while True:
        others = [symbols_in(each.fact) for each in guards if each not in loose]
        kept = [each for each in loose if not any(last[id(each)] in used for used in others)]
        if len(kept) == len(loose):
            return kept
        loose = kept


def _holds_where_least(sizes: SymbolicSizes, guard: Assumption, count: str) -> bool:
    """Whether a guard holds for all sizes where a count is least; decided by ranges alone."""
    least, _ = sizes.rooms[count]
    if least is None or not isinstance(guard.fact, SymBool):
        return False
    table = SymbolTable()
    values: dict[str, Any] = {
        name: table.named_symbol(name, sizes.table.hints[name], room)
        for name, room in sizes.rooms.items()
    }
    try:
        left, right = concrete((guard.fact.left, guard.fact.right), values | {count: least})
    except NO_VALUE:  # it divides by the count
        return False
    holds = table.known_truth(left, guard.fact.relation, right)
    return holds is True and not table.log


def _symbols_of(graph: Graph) -> set[str]:
    """The symbols of what a graph reads and computes."""
    read = {node for each in graph.nodes for node in each.inputs()}
    used = [node for node in graph.nodes if node.op == "call" or node in read]
    metas: list[Any] = [node.meta for node in used]
    flat = [one for meta in metas for one in (meta if type(meta) is tuple else (meta,))]
    sizes = [(one.shape, one.stride) for one in flat if isinstance(one, TensorMeta)]
    return set().union(*map(symbols_in, sizes), *[symbols_in(node.args) for node in used])


@attrs.define(eq=False, repr=False)
class CountedCalls:
    """The calls of a region with these sizes of arguments."""

    segments: CountedSegments
    key: tuple[int, ...]
    values: dict[str, int]
    """The sizes of the arguments by the name of their symbol."""
    make: Make
    entries: RecentSizes[CompiledEntry]
    """By the counts that are known: the entry of the next segment."""
    outside: Callable[[Sequence[object]], GuardFailure | None]
    """Why a call is of another region, by what is known before any count."""

    def call(self, leaves: Sequence[object]) -> object:
        """The results of a call; MISS where it is of another region."""
        return self._run(leaves, [])

    def why_not(self, leaves: Sequence[object]) -> GuardFailure | None:
        """Why a call is of another region; None if it is of this one."""
        failures: list[GuardFailure] = []
        entry = self._last(leaves, failures)
        if entry is None:
            return failures[0]
        return entry[0].guarded.why_not(leaves)

    def _run(self, leaves: Sequence[object], failures: list[GuardFailure]) -> object:
        found = self._last(leaves, failures)
        return MISS if found is None else given(found[0].guarded.call, leaves, found[1])

    def _last(
        self, leaves: Sequence[Any], failures: list[GuardFailure]
    ) -> tuple[CompiledEntry, tuple[Window, ...]] | None:
        """The entry of the last segment, and the values handed on; None for another region."""
        counts: tuple[int, ...] = ()
        windows: tuple[Window, ...] = ()
        for place in self.segments.sizes.counts.values():
            entry = self._entry(counts, leaves, failures)
            if entry is None:
                return None
            try:
                found: Any = given(entry.guarded.call, leaves, windows)
            except Exception as error:
                # Of a call of another region: a new capture raises what eager raises.
                told = in_words(place.text, (), error)
                failures.append(GuardFailure(place.text, f"an error ({told})", "a number"))
                return None
            if found is MISS:
                failure = entry.guarded.why_not(leaves)
                failures.append(failure or GuardFailure(place.text, "not found", "a number"))
                return None
            number, *handed = found
            counts += (int(number.item()),)
            windows += tuple([(each.storage.buffer, each.offset) for each in handed])
        last = self._entry(counts, leaves, failures)
        return None if last is None else (last, windows)

    def _entry(
        self, counts: tuple[int, ...], leaves: Sequence[object], failures: list[GuardFailure]
    ) -> CompiledEntry | None:
        """The entry of the segment behind these counts; None where a guard does not hold."""
        found = self.entries.get(counts)
        if found is not None:
            return found
        # An entry guards what it was made for: the first one that was dropped is made anew.
        failure = None if counts else self.outside(leaves)
        if failure is not None:
            failures.append(failure)
            return None
        of, values = self.segments, dict(self.values)
        values.update(zip(of.sizes.counts, counts))  # noqa: B905 (those that are known)
        for guards in of.guards[: len(counts) + 1]:
            for guard in guards:
                if not guard.holds(values):
                    failures.append(GuardFailure("the vector of sizes", str(values), repr(guard)))
                    return None
        try:
            made = self.make(of.records[len(counts)], values, (*self.key, *counts), leaves)
        except ZeroDivisionError as error:  # a guard on a later count divides by the same
            failures.append(GuardFailure("the vector of sizes", str(values), str(error)))
            return None
        self.entries.add(counts, made)
        return made
