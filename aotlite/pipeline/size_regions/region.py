"""Regions: one capture serves all sizes that satisfy its guards.

    capture with symbols ── stages 2 to 8 ──> records with symbols, and a log of assumptions
                                                  │ sizes of a call
                                                  v
                              an instance: the records with numbers, stages 9 and 10

The assumptions are the guards of the region. For a call whose sizes satisfy them the records get
its numbers, and the rest is as for any entry; no code of the user's runs again. Instances are kept
by their sizes. Rules: DYN-1, DYN-8, DYN-10. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.backends.python_source import listed
from aotlite.eager.base.modes import outside_regions
from aotlite.ir.collector import collector_paused
from aotlite.ir.deferred import deferred
from aotlite.ir.forks import UNFORKED, lock
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.logs import timed
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.pipeline.lowering import forget_origins
from aotlite.pipeline.request import Compilation, CompiledEntry, Request
from aotlite.pipeline.size_regions.counts.calls import CountedCalls, CountedSegments
from aotlite.pipeline.size_regions.instances.cache import RecentSizes
from aotlite.pipeline.size_regions.instances.sized_entries import SizedEntries
from aotlite.pipeline.size_regions.kernels import SizedKernels
from aotlite.pipeline.size_regions.proof.warning import warn_of_open_facts
from aotlite.pipeline.size_regions.proof.witnesses import Retrace, Unrepeatable, needs_of
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.tensor_marks import ResultNote, note_results
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.guards.size_conditions import SizeConditions
from aotlite.stages.records.symbolic_sizes import SymbolicSizes, meta_at, place_of_role
from aotlite.stages.s10_runtime.guards.failures import (
    GUARD_ERRORS,
    GuardFailure,
)
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts, GuardedValues
from aotlite.stages.s10_runtime.guards.writer import MISS, in_few_words, words_unlike
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.shared.saved_sizes import with_saved_sizes

if TYPE_CHECKING:
    from aotlite.ir.symbols import validation
    from aotlite.ir.symbols.validation import weakest
    from aotlite.pipeline.size_regions.proof import dead_guards
else:  # for regions alone
    validation = deferred("aotlite.ir.symbols.validation")
    dead_guards = deferred("aotlite.pipeline.size_regions.proof.dead_guards")
    weakest = deferred("aotlite.ir.symbols.validation.weakest")

PROOF_SECONDS = 1.0
"""The time that a proof of a region's guards may take; what is open then is in its verdict."""


def records_of_region(cut: StageRecords, sizes: SymbolicSizes) -> StageRecords:
    """The records of a region, which instances are made of."""
    kernels = []
    for graph in (cut.partition.forward, cut.partition.backward):
        forget_origins(graph)
        kernels.append(None if graph is None else SizedKernels(graph, sizes))
    return attrs.evolve(cut, joint=_without_ops(cut.joint), kernels=tuple(kernels))


def shown_partition(partition: Partition) -> Partition:
    """The partition as users see it: programs that compute and return their sizes (PART-4)."""
    found = with_saved_sizes(partition)
    for graph in (found.forward, found.backward):
        forget_origins(graph)
    return found


def guards_of(sizes: SymbolicSizes, compilation: Compilation) -> tuple[Assumption, ...]:
    """The assumptions of a capture that no others imply."""
    proves = None if compilation.options.verify else False
    needless = weakest.implied(sizes.table, sizes.table.log, solver=proves)
    return tuple([each for each in sizes.table.log if each not in needless])


def prove(
    sizes: SymbolicSizes,
    guards: Sequence[Assumption],
    request: Request,
    compilation: Compilation,
) -> None:
    """Closes the table, after the proof that the guards imply what was used, if it is wanted. Shows
    the conditions to observers."""
    if compilation.options.verify:
        sizes.proof = validation.validate(sizes.table, guards, time_limit=PROOF_SECONDS)
        warn_of_open_facts(request.function, request.name, sizes.proof)
    sizes.table.closed = True
    compilation.observers.show("8 partition, conditions", SizeConditions.of(sizes, guards))


def _without_ops(both: Joint) -> Joint:
    """The joint graph's inputs alone, of which the runtime reads the metas."""
    closing = output_node([], [])
    return attrs.evolve(both, graph=Graph((*both.graph.placeholders, closing), both.graph.name))


def _failed(guard: Assumption, values: dict[str, int], sizes: SymbolicSizes) -> GuardFailure:
    """A guard that fails, with the sizes that it speaks of."""
    names = [name for name in sizes.sources if name in names_in(guard.fact)]
    subject = " and ".join([str(sizes.sources[name]) for name in names])
    found = " and ".join([f"{values[name]} ({name})" for name in names])
    return GuardFailure(subject, found, repr(guard))


@attrs.define(eq=False, repr=False)
class SizeRegion:
    """All calls of one capture whose sizes satisfy its guards: a `GuardedFunction` of them."""

    name: str
    number: int
    """The compilation's (GEN-9)."""
    sizes: SymbolicSizes
    guards: tuple[Assumption, ...]
    """The conditions on sizes: the assumptions of the capture that no others imply, each with the
    line that made it."""
    retrace: Retrace
    records: StageRecords
    shown: Partition
    facts: GuardedFacts
    make_entry: Callable[[str, StageRecords, GuardedValues], CompiledEntry]
    """Stages 9 and 10, of an instance's number, records and guards."""
    counted: CountedSegments | None
    """The segments, if there are sizes that depend on values."""
    why_not_unsized: Callable[[Sequence[object]], GuardFailure | None]
    """The guard on something else than sizes that fails for a call; None if all hold."""
    instances: dict[tuple[int, ...], CompiledEntry] = attrs.field(factory=dict)
    """The instances by their sizes, in the order of the symbols."""
    call: Callable[[Any], object] = attrs.field(init=False)
    _lock: Any = attrs.field(factory=lock)
    _counts: list[int] = attrs.field(factory=lambda: [0, 0])
    """How many calls were of this region, and how many instances were made."""
    _runs: RecentSizes[Callable[[Any], object]] = attrs.field(init=False)
    """The functions of instances, or of calls with these sizes of arguments."""
    _entries: SizedEntries | None = None

    @_runs.default
    def _recent(self) -> RecentSizes[Callable[[Any], object]]:
        return RecentSizes(self.retrace.compilation.options.instance_limit, self._counts)

    def begin(self, leaves: Sequence[object], notes: Sequence[ResultNote]) -> None:
        """Makes the function of calls, and the instance for these arguments."""
        self.call = self._written(len(leaves), notes)
        key = self.key(leaves)
        if self.counted is not None:
            calls = self._counted_calls(key, leaves)
            if calls is not None:
                calls.why_not(leaves)
        else:
            self._instance_of(key, leaves)  # not asking its guards, which a pass may have changed

    @property
    def source(self) -> str:
        """The source of the newest instance."""
        return list(self.instances.values())[-1].guarded.source

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self.sizes.sources)

    def key(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """The values of the symbols in a call."""
        return tuple([each.value(leaves) for each in self.sizes.sources.values()])

    def _written(self, count: int, notes: Sequence[ResultNote]) -> Callable[[Any], object]:
        """The function of calls with so many arguments: it finds the instance for the sizes, and
        calls it."""
        source = FunctionSource()
        source.scope.update(
            MISS=MISS, GUARD_ERRORS=GUARD_ERRORS, RUNS=self._runs.slots, other=self._other
        )
        found = self.sizes.sources.values()
        tests = [f"len(leaves) == {count}"]
        tests += [each.test for each in found if each.test is not None]
        source.add("try:", f"    if not ({' and '.join(tests)}):", "        return MISS")
        key = listed([each.text for each in found])
        source.add(f"    key = {key}", "except GUARD_ERRORS:", "    return MISS")
        source.add("slot = RUNS.get(key)")
        source.add("if slot is None:", "    found = other(key, leaves)")
        source.add("else:", "    run, used, _ = slot", "    used[0] = counts[0]")
        source.add("    found = run(leaves)")
        source.add("if found is not MISS:", "    counts[0] += 1")
        note_results(source, "found", notes)
        source.add("return found")
        source.scope["counts"] = self._counts
        call, _ = source.function(self.name, f"{self.number} sizes")
        return call

    def _other(self, key: tuple[int, ...], leaves: Sequence[object]) -> object:
        if self.counted is not None:
            calls = self._counted_calls(key, leaves)
            return MISS if calls is None else calls.call(leaves)
        made = self._instance(key, leaves)
        return MISS if made is None else made.guarded.call(leaves)

    @property
    def calls(self) -> int:
        """The number of calls whose sizes were of this region."""
        return self._counts[0]

    def needs(self) -> list[weakest.GuardNeed]:
        """Why each guard is one, in their order; then why other assumptions of the capture are none
        (DYN-24): one that changes nothing is dropped, and one that others imply."""
        if self.counted is not None:
            raise Unrepeatable("what its sizes are depends on values, which are not kept")
        with self._lock:
            while True:
                with self.sizes.lock:
                    found = needs_of(self.retrace, self.sizes, self.sizes.table.log)
                    kept = dead_guards.TracedProgram.of(self.records, self.facts)
                    dead = dead_guards.dead_among(found, self.retrace, self.sizes, kept)
                if not dead:
                    kept_needs = [each for each in found if not each.is_needless]
                    self.guards = tuple([each.guard for each in kept_needs])
                    needless = [each for each in found if each.is_needless]
                    return [*kept_needs, *self.retrace.dropped, *needless]
                self._drop(dead)

    def _drop(self, dead: Sequence[weakest.GuardNeed]) -> None:
        """Makes the region that of a trace that learns nothing of these guards. What instances
        there are stay: each is right for its sizes."""
        retrace = attrs.evolve(self.retrace, dropped=(*self.retrace.dropped, *dead))

        def remake(request: Request, captured: Captured, cut: StageRecords) -> None:
            sizes, facts = captured.recorder.sizes, GuardedFacts.of(captured, cut.meta)
            assert sizes is not None
            records, guards = records_of_region(cut, sizes), guards_of(sizes, retrace.compilation)
            prove(sizes, guards, request, retrace.compilation)
            shown = shown_partition(cut.partition)
            with UNFORKED:
                self.records, self.facts, self.sizes, self.retrace = records, facts, sizes, retrace
                self.shown = shown
                self.guards = guards  # at last: other threads compare with them

        retrace.traced(retrace.symbols(self.sizes), remake)
        for need in dead:
            need.is_dead = True

    # --- instances
    def _instance(self, key: tuple[int, ...], leaves: Sequence[object]) -> CompiledEntry | None:
        """The instance for the sizes of a call; None where the call is not of this region."""
        return None if self.outside(key, leaves) is not None else self._instance_of(key, leaves)

    def _instance_of(self, key: tuple[int, ...], leaves: Sequence[object]) -> CompiledEntry:
        with self._lock, collector_paused(), outside_regions():
            found = self.instances.get(key)
            if found is not None:
                return found
            made = self._made(self.records, dict(zip(self.symbols, key, strict=True)), leaves)
            with UNFORKED:
                gone = self._runs.add(key, made.guarded.call)
                self.instances[key] = made
                if gone is not None:
                    self.instances.pop(gone, None)
            return made

    def _made(
        self, records: StageRecords, values: dict[str, int], leaves: Sequence[object]
    ) -> CompiledEntry:
        reals = self.facts.tensors(leaves)
        with self.retrace.compilation.observers.within(), timed("instance", sizes=values):
            run = None
            if records is self.records:
                shared, run = self._shared().at(values, leaves, reals)
                if shared is not None:
                    return shared
            cut = attrs.evolve(records.at(values), run=run)
            bases, partition = cut.convention.bases, cut.partition
            facts = self.facts if records is self.records else self.facts.of_prefix()
            guarded = facts.at(values).values(leaves, reals, cut.meta, bases, partition)
            self._counts[1] += 1
            return self.make_entry(f"{self.number}.{self._counts[1]}", cut, guarded)

    def _shared(self) -> SizedEntries:
        """What makes instances of the records as they are."""
        if self._entries is None or self._entries.records is not self.records:
            compilation = self.retrace.compilation
            of = compilation, self.name, self.records, self.facts, self.sizes, f"{self.number}"
            self._entries = SizedEntries(*of)
        return self._entries

    def _counted_calls(self, key: tuple[int, ...], leaves: Sequence[object]) -> CountedCalls | None:
        """The calls with these sizes of arguments; None where they are not of this region."""
        if self.outside(key, leaves) is not None:
            return None
        assert self.counted is not None
        values = dict(zip(self.symbols, key, strict=True))
        most = self._runs.most
        with self._lock:
            known: CountedCalls | None = self._runs.owner(key)
            if known is None:
                recent: RecentSizes[CompiledEntry] = RecentSizes(most, self._counts)
                known = CountedCalls(
                    self.counted, key, values, self._segment, recent, partial(self.outside, key)
                )
                self._runs.add(key, known.call, known)
            return known

    def _segment(
        self,
        records: StageRecords,
        values: dict[str, int],
        key: tuple[int, ...],
        leaves: Sequence[object],
    ) -> CompiledEntry:
        with self._lock, collector_paused(), outside_regions():
            made = self._made(records, values, leaves)
            if records is self.records:
                with UNFORKED:
                    if len(self.instances) >= self._runs.most:
                        del self.instances[next(iter(self.instances))]
                    self.instances[key] = made
            return made

    def why_not(self, leaves: Sequence[object]) -> GuardFailure | None:
        """The reason why the region is not valid for these flat arguments; None if it is valid."""
        try:
            key = self.key(leaves)
        except GUARD_ERRORS:
            return self.why_not_unsized(leaves)
        failure = self.outside(key, leaves)
        if failure is None and self.counted is not None:
            calls = self._counted_calls(key, leaves)
            return None if calls is None else calls.why_not(leaves)
        made = None if failure is not None else self._instance(key, leaves)
        return failure if made is None else made.guarded.why_not(leaves)

    def outside(self, key: tuple[int, ...], leaves: Sequence[Any]) -> GuardFailure | None:
        """Why a call with these values of the symbols is not of the region; None where it is."""
        failure = self.why_not_unsized(leaves)
        if failure is not None:
            return failure
        values = dict(zip(self.symbols, key, strict=True))
        for name, value in values.items():
            least, most = self.sizes.rooms[name]
            if (least is not None and value < least) or (most is not None and value > most):
                room = f"{least} or more" if most is None else f"{least} to {most}"
                return GuardFailure(str(self.sizes.sources[name]), in_few_words(value), room)
        for role, meta in self.sizes.metas.items():
            wanted, (index, path) = meta.concrete(values), place_of_role(role)
            found = meta_at(leaves[index], path)
            if found is not wanted:
                what = ".".join((f"argument {index}", *path))
                told = words_unlike(found, wanted)
                with self.sizes.lock:  # who holds it may print sizes as names
                    return GuardFailure(what, told, f"{wanted}: {meta} at {values}")
        for index, number in self.sizes.numbers.items():
            found, wanted = leaves[index], concrete(number, values)
            if found != wanted:
                with self.sizes.lock:
                    return GuardFailure(f"argument {index}", f"{found}", f"{wanted}: {number}")
        for guard in self.guards if self.counted is None else self.counted.guards[0]:
            if not guard.holds(values):
                with self.sizes.lock:
                    return _failed(guard, values, self.sizes)
        return None
