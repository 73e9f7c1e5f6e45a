"""`Verdict`: whether the guards of a trace imply every fact that the trace used.

Ground floor. There are four: sound, sound up to a size, a counter-model, unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.ir.errors import GuardError, noted
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.validation.claims import Claim, Evaluation, Values

__all__ = ["CounterModel", "Verdict"]

_MOST_SHOWN = 8


@attrs.frozen(eq=False)
class CounterModel:
    """Sizes for which all guards hold and a fact is false."""

    values: Values
    claim: Claim
    """The earliest false fact (DYN-12)."""
    failed: Sequence[Claim]
    """All facts that are false at these sizes, in order."""
    guards: Sequence[Assumption]

    def error(self) -> GuardError:
        """The error: the earliest false fact, its op and line; the model, sources and targets."""
        asked = f", asked by {self.claim.asked}" if self.claim.asked else ""
        at = ", ".join(f"{name}={value}" for name, value in self.values.items())
        message = (
            f"symbols: {self.claim.text} is false at {at}, expected a fact that the guards "
            f"imply{asked}"
        )
        return noted(
            GuardError(message),
            f"There, {self.claim.found(Evaluation(self.values))}.",
            f"Facts that are false there: {_listed([claim.text for claim in self.failed])}.",
            f"Guards, which all hold there: {_listed([guard.text for guard in self.guards])}.",
            "This is an unsound simplification in aotlite, a bug (DYN-11).",
        )


@attrs.frozen(eq=False)
class Verdict:
    """How each fact of a trace was decided."""

    expanded: int
    """Facts that were proved by expansion."""
    solved: int
    """Facts that z3 proved."""
    searched: Sequence[Claim]
    """Facts that no proof was found for, and that hold wherever they were tried."""
    reach: int
    """`searched` hold for all sizes up to this that the guards admit; -1 if there was no search."""
    points: int
    """The number of sizes at which they were tried."""
    unknown: Sequence[Claim]
    """Facts of which the time limit, or a number that is too large, leaves it open."""
    counter: CounterModel | None
    by_cases: int = 0
    """Results that a search by cases found, each tried at a few small sizes."""

    @property
    def is_proved(self) -> bool:
        """Whether the guards imply every fact, for all sizes."""
        return self.counter is None and not self.searched and not self.unknown

    def check(self) -> None:
        """Raises GuardError if there is a counter-model."""
        if self.counter is not None:
            raise self.counter.error()

    def __str__(self) -> str:
        if self.counter is not None:
            at = ", ".join(f"{name}={value}" for name, value in self.counter.values.items())
            return f"unsound: {self.counter.claim.text} is false at {at}"
        proofs = f"{self.expanded} facts by expansion, {self.solved} by z3"
        if self.by_cases:
            proofs += f", {self.by_cases} results by cases tried"
        if self.is_proved:
            return f"sound: {proofs}"
        tried = f"{len(self.searched)} tried at {self.points} sizes"
        if self.unknown:
            return f"unknown: {proofs}, {tried}, {len(self.unknown)} open"
        return f"sound up to size {self.reach}: {proofs}, {tried}"


def _listed(texts: Sequence[str]) -> str:
    shown = list(dict.fromkeys(texts))
    more = f", and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return (", ".join(shown[:_MOST_SHOWN]) or "none") + more
