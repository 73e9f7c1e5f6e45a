"""The entries of regions: of a capture with symbols, or of one that was kept.

    records with symbols, guards, facts ──> the region ──> its instance for the first call

Used by the pipeline, and by the artifact cache, which keeps these parts.
Rules: DYN-1, DYN-8. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.ir.graph.role import Primal
from aotlite.ir.logs import emit
from aotlite.ir.symbols.assumption import Assumption, at_places
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.pipeline.request import Compilation, CompiledEntry, Request
from aotlite.pipeline.size_regions.counts.calls import CountedSegments
from aotlite.pipeline.size_regions.proof.witnesses import Retrace, Retraced
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region import (
    SizeRegion,
    guards_of,
    prove,
    records_of_region,
    shown_partition,
)
from aotlite.pipeline.size_regions.size_check import check_marks
from aotlite.pipeline.size_regions.tensor_marks import ResultNote, notes_of
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.guards.float_guards import facts_of, numbers_of
from aotlite.stages.records.guards.guard_records import hidden_places, reached_arguments
from aotlite.stages.records.guards.size_conditions import SizeConditions
from aotlite.stages.records.symbolic_sizes import Source, SymbolicSizes
from aotlite.stages.s10_runtime.guards.failures import GuardCheck, GuardFailure, what_fails
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts, GuardedValues
from aotlite.stages.s10_runtime.guards.writer import write_guards
from aotlite.stages.s10_runtime.source import FunctionSource

EntryOf = Callable[[Compilation, str, str, StageRecords, GuardedValues], CompiledEntry]
"""Of the compilation, the function's name, and the number, records and guards of an entry."""


def said_in_numbers(error: BaseException, sizes: SymbolicSizes | None) -> None:
    """Puts the sizes of the call into the text of an error that is raised instead of recorded."""
    if sizes is not None:
        hints = sizes.table.hints
        error.args = tuple([at_places(x, hints) if type(x) is str else x for x in error.args])


@attrs.frozen(eq=False, repr=False)
class RegionParts:
    """What a region is made of: of a capture, or of a kept entry."""

    sizes: SymbolicSizes
    guards: tuple[Assumption, ...]
    records: StageRecords
    facts: GuardedFacts
    retrace: Retrace
    notes: tuple[ResultNote, ...]
    """The results that note which of their sizes are symbols (DYN-6)."""
    counted: CountedSegments | None = None
    whole: Partition | None = None
    """The partition with the nodes that compute sizes; that of the records where there are none."""


def region_entry(
    cut: StageRecords,
    captured: Captured,
    request: Request,
    compilation: Compilation,
    entry_of: EntryOf,
    again: Retraced,
) -> CompiledEntry:
    """The entry of a region, with its instance for the call that was captured."""
    sizes = captured.recorder.sizes
    assert sizes is not None
    facts = GuardedFacts.of(captured, cut.meta)
    members = {id(real) for real in _reals(captured, family=True).values()}
    retrace = Retrace.of(request, again, compilation, members)
    records, guards = records_of_region(cut, sizes), guards_of(sizes, compilation)
    counted = CountedSegments.of(records, sizes, guards) if sizes.counts else None
    if counted is not None:
        records = counted.records[-1]
    parts = RegionParts(sizes, guards, records, facts, retrace, tuple(notes_of(captured)))
    parts = attrs.evolve(parts, counted=counted, whole=cut.partition)
    region, first = _region(parts, _reals(captured), request, compilation, entry_of)
    prove(sizes, guards, request, compilation)
    check_marks(sizes, captured.inputs, retrace)
    request.keep(captured, cut, guards)
    return _entry(region, first, parts, request)


def restored_region(
    parts: RegionParts, request: Request, compilation: Compilation, entry_of: EntryOf
) -> CompiledEntry | None:
    """The entry of a region whose parts were kept, with its instance for this call; None where the
    call is not of the region."""
    reals = parts.facts.tensors(request.leaves)
    region, first = _region(parts, reals, request, compilation, entry_of)
    if region.outside(region.key(request.leaves), request.leaves) is not None:
        return None
    return _entry(region, first, parts, request)


def _region(
    parts: RegionParts,
    reals: dict[InputRole, Any],
    request: Request,
    compilation: Compilation,
    entry_of: EntryOf,
) -> tuple[SizeRegion, GuardedValues]:
    """The region, and what the guards of its first call are made of."""
    sizes, cut = parts.sizes, parts.records
    bases, partition = cut.convention.bases, parts.whole or cut.partition
    first = parts.facts.values(request.leaves, reals, cut.meta, bases, partition)
    source = FunctionSource()
    sized = [*sizes.metas, *map(Primal, sizes.numbers)]
    checks = write_guards(source, first, marks=False, sized=sized)
    region = SizeRegion(
        name=request.name,
        number=compilation.number,
        sizes=sizes,
        guards=parts.guards,
        retrace=parts.retrace,
        records=cut,
        counted=parts.counted,
        facts=parts.facts,
        shown=shown_partition(partition),
        make_entry=partial(entry_of, compilation, request.name),
        why_not_unsized=_unsized(source, checks, compilation.number),
    )
    emit("guards", lambda: {"guards": checks})
    return region, first


def _entry(
    region: SizeRegion, first: GuardedValues, parts: RegionParts, request: Request
) -> CompiledEntry:
    sizes, cut = parts.sizes, region.records
    region.begin(request.leaves, parts.notes)
    plain = numbers_of(first.leaves, first.guards) | dict.fromkeys(sizes.numbers)
    made = region.number, region, cut.meta, region.shown, cut.containers
    known = plain, facts_of(first.guards), _free_symbols(sizes, parts.guards)
    places = hidden_places(first.guards), reached_arguments(first.guards)
    return CompiledEntry(*made, *known, cut.convention, *places)


def checked_symbols(
    partition: Partition,
    captured: Captured,
    request: Request,
    compilation: Compilation,
    again: Retraced,
) -> Partition:
    """The partition with symbols, as users see it. Raises GuardError if the function fixes a size
    that was marked or named, after the proof that the guards imply what was used."""
    sizes = captured.recorder.sizes
    assert sizes is not None
    prove(sizes, guards_of(sizes, compilation), request, compilation)
    members = {id(r) for r in _reals(captured, family=True).values()}
    check_marks(sizes, captured.inputs, Retrace.of(request, again, compilation, members))
    return shown_partition(partition)


def _reals(captured: Captured, *, family: bool = False) -> dict[InputRole, Any]:
    """The caller's tensors by role; with `family` those that share a base alone."""
    of = captured.recorder.real_of
    return {i.role: of(i.fake) for i in captured.inputs if not family or i.family is not None}


def show_numbers(captured: Captured, request: Request, compilation: Compilation) -> None:
    """Shows observers the conditions on floats of an entry without symbols, and why it has none
    where sizes were to be symbols."""
    if (sizes := captured.recorder.sizes) is not None and sizes.floats or request.refused:
        none = SymbolicSizes({}) if sizes is None else sizes
        made = SizeConditions.of(none, (), request.refused)
        compilation.observers.show("8 partition, conditions", made)


def _free_symbols(sizes: SymbolicSizes, guards: Sequence[Assumption]) -> dict[Source, bool]:
    """Each symbol's source, and whether it was marked, or no guard fixes it."""
    fixed = [names_in(each.fact) for each in guards if each.specializes]
    names = {source: name for name, source in sizes.sources.items()}
    return {
        source: asked.is_marked or {names.get(source)} not in fixed
        for source, asked in sizes.requests.items()
    }


def _unsized(
    source: FunctionSource, checks: Sequence[GuardCheck], number: int
) -> Callable[[Sequence[object]], GuardFailure | None]:
    """The guards on something else than sizes, as one function; they are asked one by one where
    some fail."""
    source.add("return None")
    holds, _ = source.function("guards", f"{number} but sizes")
    scope = source.scope

    def why_not(leaves: Sequence[object]) -> GuardFailure | None:
        return None if holds(leaves) is None else what_fails(checks, scope, leaves)

    return why_not
