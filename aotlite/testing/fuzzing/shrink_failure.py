"""Shrinks a failure in a worker, so that programs that hang or crash can be shrunk, too."""

from __future__ import annotations

import attrs

from aotlite.testing.fuzzing.outcomes import Failure, kind_of_failure
from aotlite.testing.fuzzing.processes.child import JudgeOrder
from aotlite.testing.fuzzing.processes.workers import Worker
from aotlite.testing.programs.program import Program
from aotlite.testing.shrinking import shrunk

SECONDS = 60.0
"""The limit for shrinking a failure, in seconds."""
SHORT = 2.0
"""The limit for a program while a failure that hangs or crashes is shrunk."""
ROUNDS = 10
"""The number of repeated runs that show whether the smallest program is deterministic."""


def made_small(worker: Worker, failure: Failure) -> Failure:
    """Returns the failure with a smaller program that fails in the same way, and its drawing."""
    assert failure.program is not None
    ends = failure.kind.startswith(("hang", "crash"))
    limit = min(SHORT, worker.plan.seconds) if ends else worker.plan.seconds
    rounds = ROUNDS if failure.kind.startswith("nondeterministic") else None

    def fails(smaller: Program) -> bool:
        if worker.is_closed:
            return False
        order = JudgeOrder(smaller, failure.seed, rounds, limit if ends else None)
        found = worker.judged(order, limit).found
        return kind_of_failure(found) == failure.kind

    worker.start()
    small = shrunk(failure.program, fails, seconds=SECONDS)
    if small != failure.program:
        failure = _confirmed(worker, failure, small)
    assert failure.program is not None
    return attrs.evolve(failure, is_small=True, picture=worker.drawing(failure.program))


def _confirmed(worker: Worker, failure: Failure, small: Program) -> Failure:
    """The failure with the small program, if that fails once more."""
    found = worker.judged(JudgeOrder(small, failure.seed, ROUNDS), worker.plan.seconds).found
    return attrs.evolve(failure, found=found[:4], program=small) if found else failure
