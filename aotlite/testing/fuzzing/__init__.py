"""Runs of many random programs: on all cores, contained, resumable. `aotlite fuzz` is `fuzz`.

    plan       what is run, and how long
    outcomes   what became of a program; a failure
    judges     compiled against eager; `across`: one library against another
    running    one program, compiled and eager
    child      the process that programs run in; `workers`: what starts, asks and replaces it
    ledger     the file that a run goes on from
    tally      the sums of a run
    campaign   the run
    reports    what is printed of it

Spec: specs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlite.testing.fuzzing.tally import Tally


def fuzz(**plan: Any) -> Tally:
    """Runs random programs and compares; what came of it. Arguments are those of `Plan`.

    Programs run in processes of their own: one that hangs or dies is a failure, with its program.
    *Err* `ArgumentError`, `MissingExtraError`; `FormatError` for a ledger of other settings.

    >>> tally = fuzz(count=5, jobs=1)
    >>> tally.programs, tally.failures
    (5, [])
    """
    from aotlite.testing.fuzzing.campaign import run
    from aotlite.testing.fuzzing.plan import Plan

    return run(Plan(**plan))
