"""Translation validation: the guards of a trace imply every fact that the trace used (DYN-11).

Ground floor. A symbolic trace simplifies sizes and answers comparisons; `SymbolTable.events` has
each answer, unsimplified. Its guards are what a later call is asked. The trace is right for a call
exactly if the guards imply the answers:

    events      the facts that were used ── claims_of ──> claims
    guards      what a call is asked     ┐
    ranges      of the symbols           ┴─ premises: do they imply each claim?

claims      an event as a statement, and its truth in Python's integers
expansion   proofs by expanding polynomials, which decide most
solver      proofs and counter-models by z3, the extra `verify`
search      all small sizes, where there is no proof
rule_results  a few small sizes, for results of rules by cases
verdict     what was found, and the error about a counter-model
weakest     the converse: for each guard, sizes that only it excludes, and rightly (DYN-24)

Each claim speaks of its own operation only: that an operation on the values of its operands gives
the value of its result. So each can be decided alone. The first one that is false is the earliest
unsound simplification (DYN-12); nothing has to be replayed. Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation.claims import (
    BY_CASES,
    Claim,
    Evaluation,
    Premises,
    Values,
    claims_of,
)
from aotlite.ir.symbols.validation.expansion import Expansion
from aotlite.ir.symbols.validation.rule_results import wrong_result
from aotlite.ir.symbols.validation.search import Searched, search
from aotlite.ir.symbols.validation.solver import Solver, is_installed
from aotlite.ir.symbols.validation.verdict import CounterModel, Verdict

__all__ = ["judge", "validate"]

TIME_LIMIT = 5.0
"""Seconds."""
_EACH = 0.5
"""Seconds that z3 may take for one claim."""
_SHARE = 0.6
"""The part of the time left that z3 may take; the search gets the rest."""


def validate(
    table: SymbolTable,
    guards: Sequence[Assumption] | None = None,
    *,
    time_limit: float = TIME_LIMIT,
) -> Verdict:
    """How it was shown that the guards imply every fact of the trace. Default: those of its log.

    Raises GuardError if they do not: there are sizes that the guards admit and at which a fact is
    false. The error names the earliest one, its op and the user's line (DYN-11, DYN-12).
    """
    verdict = judge(table, guards, time_limit=time_limit)
    verdict.check()
    return verdict


def judge(
    table: SymbolTable,
    guards: Sequence[Assumption] | None = None,
    *,
    time_limit: float = TIME_LIMIT,
    solver: bool | None = None,
) -> Verdict:
    """As `validate`, but a counter-model is in the verdict. `solver`: whether to ask z3; default
    where it is installed."""
    deadline = time.thread_time() + time_limit
    premises = Premises(table, tuple(table.log if guards is None else guards))
    claims = claims_of(table)
    by_cases = [claim for claim in claims if claim.function == BY_CASES]
    excluded = _excluded(premises)
    if excluded is not None:
        return Verdict(0, 0, [], -1, 0, [], excluded)
    expansion = Expansion(premises)
    facts = [claim for claim in claims if claim.function != BY_CASES]
    hard = [claim for claim in facts if not expansion.proves(claim)]
    judging = _Judging(premises, hard, deadline)
    judging.try_points(quick=True)
    solved = judging.solve() if (is_installed() if solver is None else solver) else 0
    searched = judging.try_points(quick=False)
    judging.try_results(by_cases)
    rest, is_open = judging.open, searched is not None and not searched.is_complete
    return Verdict(
        expanded=len(facts) - len(hard),
        solved=solved,
        searched=[] if is_open else rest,
        reach=-1 if searched is None else searched.reach,
        points=0 if searched is None else searched.points,
        unknown=rest if is_open else [],
        counter=judging.counter(claims),
        by_cases=len(by_cases),
    )


class _Judging:
    """The claims that are not decided yet, and the earliest that is false somewhere."""

    def __init__(self, premises: Premises, claims: list[Claim], deadline: float) -> None:
        self.premises = premises
        self.open = claims
        self.deadline = deadline
        self.false: tuple[Claim, Values] | None = None

    def try_points(self, *, quick: bool) -> Searched | None:
        """Tries the open claims at small sizes; later ones than a false one are not of interest."""
        if not self.open:
            return None
        searched = search(self.premises, self.open, self.deadline, quick=quick)
        if searched.found is not None:
            self._is_false(searched.found.index, searched.found.values)
        return searched

    def _is_false(self, index: int, values: Values) -> None:
        self.false = self.open[index], values
        self.open = self.open[:index]

    def try_results(self, claims: list[Claim]) -> None:
        """Tries results of rules at a few small sizes; no solver knows the rules."""
        found = wrong_result(self.premises, claims, self.deadline)
        if found is not None:
            claim = claims[found.index]
            if self.false is None or claim.index < self.false[0].index:
                self.false = claim, found.values

    def solve(self) -> int:
        """Asks z3 of each open claim; returns the number of those that it proves."""
        if not self.open:
            return 0
        until = time.thread_time() + _SHARE * (self.deadline - time.thread_time())
        solver, left = Solver(self.premises), []
        asked = self.open
        for index, claim in enumerate(asked):
            found = solver.refutes(claim, min(time.thread_time() + _EACH, until))
            if found is None:
                left.append(claim)
            elif found is not False:
                self.false = claim, found
                asked = asked[:index]
                break
        self.open = left
        return len(asked) - len(left)

    def counter(self, claims: Sequence[Claim]) -> CounterModel | None:
        """The counter-model, if there is one."""
        if self.false is None:
            return None
        claim, values = self.false
        failed = [each for each in claims if _is_false(each, values)]
        return CounterModel(values, claim, failed, self.premises.guards)


def _excluded(premises: Premises) -> CounterModel | None:
    """The counter-model of guards that the traced call itself violates: nothing is right then."""
    hints = premises.table.hints
    if len(hints) < len(premises.symbols):
        return None
    failed = [Claim("assumed", guard, 0, True) for guard in premises.guards]
    failed = [claim for claim in failed if _is_false(claim, hints)]
    return CounterModel(hints, failed[0], failed, premises.guards) if failed else None


def _is_false(claim: Claim, values: Values) -> bool:
    try:
        return not claim.holds(Evaluation(values))
    except OverflowError:
        return False
