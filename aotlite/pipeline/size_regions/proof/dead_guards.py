"""Guards that change nothing: whichever way a branch goes, the program is the same.

    if x.shape[0] > 3:          # y is not read: both ways give the program of `x * 2`
        y = x.sum()
    return x * 2

The function is traced again twice, with each answer to the question, by a table that learns nothing
of it. If the trace with the other answer is the same program wherever the first one's guards and
that answer hold, then the first one is right for all sizes that its guards admit: each of them has
one of the answers. The region is then made of it. Used by `region`. Rule: DYN-24. Spec:
`specs/guards_proved.md`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import TypeVar

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph, symbolic_check
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.cases.parts import Fact, SizePart, moved_fact, no_matter
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.validation import solver, weakest
from aotlite.ir.symbols.validation.claims import Claim, Premises
from aotlite.ir.symbols.validation.outcomes import said
from aotlite.pipeline.observers import StageRecord
from aotlite.pipeline.request import Request
from aotlite.pipeline.size_regions.proof.python_effects import PythonEffects
from aotlite.pipeline.size_regions.proof.witnesses import Retrace
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts
from aotlite.stages.shared.size_values import AtSizes, Settled

T = TypeVar("T")

_SECONDS = 1.0
"""The time for a proof that the guards of one way follow."""
_MOST = 4
"""The most guards of a region that are dropped: so many questions have 16 ways to answer them."""


@attrs.frozen(eq=False, repr=False)
class TracedProgram:
    """What a trace has made."""

    records: StageRecords
    facts: GuardedFacts
    graphs: tuple[Graph | None, ...]

    @classmethod
    def of(cls, records: StageRecords, facts: GuardedFacts, *graphs: Graph) -> TracedProgram:
        """The program of these records, whose two graphs are compared, and of further graphs."""
        return cls(records, facts, (records.partition.forward, records.partition.backward, *graphs))

    def is_same(self, other: TracedProgram, part: SizePart) -> bool:
        """Whether both are one program for a part of the sizes; of those graphs that both have."""
        pairs = zip(self._graphs(part), other._graphs(part), strict=False)
        same = _alike(self._told(part), other._told(part))
        return same and all(itertools.starmap(_is_same, pairs))

    def _graphs(self, part: SizePart) -> list[Graph | None]:
        return list(map(_Within(part).put, self.graphs))

    def _told(self, part: SizePart) -> tuple[object, ...]:
        """All but the graphs."""
        within, facts, containers = _Within(part), self.facts, self.records.containers
        meta, calling = within.put(self.records.meta), within.put(self.records.convention)
        return (
            StageRecord("2 analyze", meta).text,
            StageRecord("3 convention", calling).text,
            *(containers.spec, containers.numpy_results, meta.grads, meta.hooks),
            *(facts.inputs, facts.guards, facts.hooks, facts.offset_read, facts.viewed),
            [(role, str(within.put(size))) for role, size in facts.sizes.items()],
        )


class _Within:
    """Puts the sizes of a record in the symbols of a part, as what is known there says."""

    def __init__(self, part: SizePart) -> None:
        self._at, self._settled = AtSizes(part.names), Settled(part.table)

    def put(self, value: T) -> T:
        made: T = self._settled.put(self._at.put(value))
        return made


def _alike(a: object, b: object) -> bool:
    """Whether two records are equal field by field; objects of other classes are so if they say
    it, or are one. No two tensors are."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_alike, a, b))
    fields = getattr(type(a), "__attrs_attrs__", None)
    if fields is not None:
        names = [each.name for each in fields]
        return all(_alike(getattr(a, name), getattr(b, name)) for name in names)
    return a is b or not isinstance(a, Tensor) and bool(a == b)


def _is_same(a: Graph | None, b: Graph | None) -> bool:
    return a is b if a is None or b is None else symbolic_check.same_program(a, b)


def dead_among(
    needs: Sequence[weakest.GuardNeed], retrace: Retrace, sizes: SymbolicSizes, kept: TracedProgram
) -> list[weakest.GuardNeed]:
    """The guards without a need that user code asks for, and that change nothing of the program
    that is kept, one by one or together."""
    found: list[weakest.GuardNeed] = []
    if sizes.may_have_floats:  # which are inputs in the region, and numbers when it is traced again
        return found
    for need in needs:
        asked = [each.guard.fact for each in (*retrace.dropped, *found, need)]
        facts = [fact for fact in asked if isinstance(fact, SymBool)]
        if need.is_open and len(facts) == len(asked) <= _MOST:
            if _changes_nothing(retrace, sizes, facts, kept):
                found.append(need)
    return found


def _changes_nothing(
    retrace: Retrace, sizes: SymbolicSizes, asked: Sequence[SymBool], kept: TracedProgram
) -> bool:
    """Whether the function is one program, whichever way these questions are answered.

    It is so for sizes that the guards of the call's own way admit: the answers that they give must
    imply the guards of their way.
    """
    try:
        first = _Trace(retrace, retrace.symbols(sizes, dict.fromkeys(map(said, asked), True)))
        if not first.program.is_same(kept, first.part(first, asked)):
            return False  # something else has changed since
        if {said(each) for each in asked} & {*map(said, first.guards)}:
            return False
        ways = _Ways(retrace, sizes, first)
        return all(
            all(answers) or ways.lead_there(list(zip(asked, answers, strict=True)))
            for answers in itertools.product((True, False), repeat=len(asked))
        )
    except Exception:  # the function may raise anything there
        return False


@attrs.frozen(eq=False, repr=False)
class _Ways:
    """The ways to answer questions, and the program that all of them should give."""

    retrace: Retrace
    sizes: SymbolicSizes
    first: _Trace

    def lead_there(self, pairs: Sequence[tuple[SymBool, bool]]) -> bool:
        """Whether the function is the first program, with these answers. If user code asks another
        question there, it is so with either answer to it."""
        held = [fact if answer else fact.negated() for fact, answer in pairs]
        if not self.first.part(self.first, held).possible:
            return True  # there are no such sizes
        given = {said(fact): answer for fact, answer in pairs}
        trace = _Trace(self.retrace, self.retrace.symbols(self.sizes, given))
        if trace.is_within(self.first, held):
            return True
        known = {*given, *map(said, self.first.guards)}
        more = [each for each in trace.asked_by_user if said(each) not in known]
        if not more or len(pairs) >= _MOST:
            return False
        return all(self.lead_there([*pairs, (more[0], answer)]) for answer in (True, False))


class _Trace:
    """A trace with some questions answered."""

    program: TracedProgram

    def __init__(self, retrace: Retrace, symbols: SymbolicSizes) -> None:
        with PythonEffects() as effects:
            retrace.traced(symbols, self._keep)
        self.effects = effects.seen
        self.premises = Premises(symbols.table, ())
        log = symbols.table.log
        self.guards = [each.fact for each in log]
        self.asked_by_user = [
            each.fact for each in log if each.op is None and isinstance(each.fact, SymBool)
        ]

    def _keep(self, _: Request, captured: Captured, cut: StageRecords) -> None:
        facts = GuardedFacts.of(captured, cut.meta)
        self.program = TracedProgram.of(cut, facts, captured.graph, cut.joint.graph)

    def part(self, other: _Trace, held: Sequence[Fact]) -> SizePart:
        """The sizes that the guards of another trace admit, and for which these facts hold, in this
        trace's symbols."""
        rooms = {name: symbol.room for name, symbol in self.premises.symbols.items()}
        return SizePart(self.premises, [*other.guards, *held], rooms, asked=no_matter)

    def is_within(self, other: _Trace, held: Sequence[Fact]) -> bool:
        """Whether another trace is this program, with the same effects on Python's objects, for all
        sizes that its guards admit and for which these answers are true; and is guarded by it."""
        if self.effects != other.effects:
            return False
        part, texts = self.part(other, held), set(map(said, other.guards))
        more = [each for each in self.guards if said(each) not in texts]
        return _imply(part, [*other.guards, *held], more) and self.program.is_same(
            other.program, part
        )


def _imply(part: SizePart, facts: Sequence[Fact], more: Sequence[Fact]) -> bool:
    """Whether facts imply more; `part` is that in which they hold."""
    rest = [each for each in more if not part.knows(each)]
    claims = [_claim(moved_fact(each, part.names)) for each in rest]
    if not claims:
        return True
    known = [moved_fact(each, part.names) for each in facts]
    guards = [Assumption(each, None, None) for each in known if not isinstance(each, bool)]
    premises = Premises(part.table, guards)
    if not solver.is_installed() or None in claims:
        return False
    asked, until = solver.Solver(premises), time.thread_time() + _SECONDS
    return all(each is not None and asked.refutes(each, until) is False for each in claims)


def _claim(fact: Fact | bool) -> Claim | None:
    """The fact as a claim; None of one that z3 does not know, or that is false."""
    if not isinstance(fact, SymBool):
        return None
    return Claim(fact.relation, fact.left, fact.right, True)
