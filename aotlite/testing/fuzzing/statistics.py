"""The statistics of a campaign: sums over all programs of a ledger, and of this run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from aotlite.testing.coverage.counts import Coverage
from aotlite.testing.fuzzing.outcomes import Failure, Played

COUNTS = ("programs", "calls", "steps", "raised")


@attrs.define
class Tally:
    """The sums of programs' outcomes."""

    targets: tuple[int, ...] = ()
    """The cells that programs aim at."""
    counts: Counter[str] = attrs.field(factory=Counter)
    reasons: Counter[str] = attrs.field(factory=Counter)
    """The reasons of calls that were refused, allowed to differ, or left out."""
    coverage: Coverage = attrs.field(factory=Coverage)
    failed: dict[int, Failure] = attrs.field(factory=dict)
    """Seed -> failure."""
    seconds: float = 0.0
    """The seconds of processor time of all processes."""
    end: int = 0
    """The seed after the last one whose program was counted."""
    notes: list[str] = attrs.field(factory=list)
    """Remarks for a reader on how the run went."""
    is_interrupted: bool = False

    @property
    def programs(self) -> int:
        """The number of programs that ran."""
        return self.counts["programs"]

    @property
    def failures(self) -> list[Failure]:
        """The programs that failed, by seed."""
        return [self.failed[seed] for seed in sorted(self.failed)]

    def add(self, line: dict[str, Any]) -> None:
        """Counts a line of a ledger: a chunk of programs, or shrunk failures."""
        for each in line.get("failures", []):
            failure = Failure(**each)
            self.failed[failure.seed] = failure
        if "first" in line:
            self.counts.update({name: line[name] for name in COUNTS})
            self.reasons.update(line["reasons"])
            self.coverage.add_hits(line["cells"], line["programs"])
            self.seconds += line["seconds"]
            self.end = max(self.end, line["first"] + line["programs"])

    def hit(self, enough: int = 1) -> int:
        """Returns the number of targeted cells that at least `enough` programs hit."""
        return sum(self.coverage.hits[cell] >= enough for cell in self.targets)

    def rate(self) -> float:
        """Programs per minute of processor time."""
        return 60 * self.programs / self.seconds if self.seconds else 0.0

    def last_line(self) -> str:
        """The run in one line.

        >>> Tally(targets=(1, 2)).last_line()
        '0 programs, 0 of 2 cells, 0 failures (0 programs a minute a core)'
        """
        count = len(self.failed)
        return (
            f"{self.programs:,} {_plural('program', self.programs)}, "
            f"{self.hit():,} of {len(self.targets):,} cells, "
            f"{count:,} {_plural('failure', count)} ({self.rate():,.0f} programs a minute a core)"
        )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


@attrs.define
class Chunk:
    """The sums of consecutive programs, for a line of a ledger."""

    first: int
    programs: tuple[tuple[int, int], ...]
    """The seeds and targets of the programs."""
    counts: Counter[str] = attrs.field(factory=Counter)
    reasons: Counter[str] = attrs.field(factory=Counter)
    cells: Counter[int] = attrs.field(factory=Counter)
    failures: list[Failure] = attrs.field(factory=list)
    seconds: float = 0.0

    def add(self, played: Played) -> Failure | None:
        """Counts the next program; returns its failure, or None."""
        outcome = played.outcome
        self.counts.update(programs=1, calls=outcome.calls, raised=outcome.raised)
        self.counts.update(steps=outcome.steps)
        self.reasons.update(outcome.refused)
        self.seconds += played.seconds
        if not outcome.found:
            # A program counts once for a cell, whichever of its calls hit it.
            self.cells.update(set(outcome.cells))
            return None
        failure = Failure(played.seed, played.target, outcome.found[:4], played.text)
        self.failures.append(failure)
        return failure

    def line(self) -> dict[str, Any]:
        """Returns the line of the chunk."""
        return {
            "first": self.first,
            **{name: self.counts[name] for name in COUNTS},
            "seconds": round(self.seconds, 3),
            "reasons": dict(self.reasons),
            "failures": [each.to_dict() for each in self.failures],
            "cells": sorted(self.cells.items()),
        }
