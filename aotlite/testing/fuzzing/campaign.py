"""The campaign: gives chunks of programs to workers, shrinks failures, and writes a ledger."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from aotlite.testing.fuzzing.outcomes import Failure
from aotlite.testing.fuzzing.plan import Plan
from aotlite.testing.fuzzing.processes.workers import Worker
from aotlite.testing.fuzzing.run_file import Ledger
from aotlite.testing.fuzzing.shrink_failure import made_small
from aotlite.testing.fuzzing.statistics import Chunk, Tally

SIZE = 50
"""The number of programs in a chunk."""
REFRESH = 500
"""The number of programs with a target before the rarest cells are looked up again."""
ALIKE = 2
"""The most failures of one kind that are shrunk."""
PROGRAMS = 10_000
"""The number of programs that a process runs before a fresh one replaces it."""

Listener = Callable[["Campaign"], None]


def fuzz(**settings: Any) -> Tally:
    """Runs random programs and compares. Returns the tally. `settings` are those of `Plan`.

    Programs run in child processes: a hang or a crash is a failure of its program.
    *Err* `ArgumentError`, `MissingExtraError`; `FormatError` for a ledger of other settings.

    >>> tally = fuzz(count=5, jobs=1)
    >>> tally.programs, tally.failures
    (5, [])
    """
    return run(Plan(**settings))


def run(plan: Plan, listener: Listener = lambda _: None) -> Tally:
    """Runs a plan; calls `listener` with the campaign a few times a second. Ctrl-C ends it early,
    which the tally notes."""
    tally = Tally(targets=plan.targets())
    ledger = Ledger(plan, tally)
    try:
        return Campaign(plan, tally, ledger).run(listener)
    finally:
        ledger.close()


class Campaign:
    """A running campaign. Each of its threads has a worker, and runs one task after another."""

    def __init__(self, plan: Plan, tally: Tally, ledger: Ledger) -> None:
        self.plan = plan
        self.tally = tally
        self.ledger = ledger
        self.begun = time.monotonic()
        self.before = tally.programs
        self.handed_out = tally.programs
        self.next_seed = plan.seed + tally.end
        self.aims: deque[int] = deque()
        self.to_shrink: deque[Failure] = deque()
        self.shrunk: Counter[str] = Counter()
        self.shrinking = 0
        """The failures that are shrunk at present."""
        self.lock = threading.RLock()
        self.is_stopped = False
        self.error: BaseException | None = None
        self.workers = [Worker(plan) for _ in range(plan.jobs)]
        for failure in tally.failures:
            self._queue(failure)

    def run(self, listener: Listener) -> Tally:
        """Runs all threads to their end."""
        threads = [threading.Thread(target=self._work, args=(each,)) for each in self.workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
                    listener(self)
        except KeyboardInterrupt:
            self.tally.is_interrupted = True
        finally:
            self._stop()
            for thread in threads:
                thread.join()
        if self.error is not None:
            raise self.error
        if not self.tally.is_interrupted:
            listener(self)
        return self.tally

    def _stop(self) -> None:
        self.is_stopped = True
        for worker in self.workers:
            worker.close()

    # --- the tasks
    def _work(self, worker: Worker) -> None:
        """Runs chunks of programs on one worker, until none is left."""
        done = 0
        try:
            while (task := self._next()) is not None:
                if isinstance(task, Failure):
                    self._shrink(worker, task)
                    continue
                self._play(worker, task)
                done += len(task.programs)
                if done >= PROGRAMS:
                    worker.stop()
                    done = 0
        except BaseException as error:
            self.error = self.error or error
            self._stop()
        finally:
            worker.stop()

    def _next(self) -> Chunk | Failure | None:
        with self.lock:
            if self.is_stopped:
                return None
            if self.to_shrink:
                return self.to_shrink.popleft()
            size = min(SIZE, self._left())
            if size <= 0:
                return None
            seeds = range(self.next_seed, self.next_seed + size)
            self.next_seed += size
            self.handed_out += size
            programs = tuple((seed, self._aim()) for seed in seeds)
            return Chunk(seeds[0] - self.plan.seed, programs)

    def _left(self) -> int:
        """Returns the number of programs that have not begun."""
        if self.seconds_left() <= 0:
            return 0
        return SIZE if self.plan.count is None else self.plan.count - self.handed_out

    def seconds_left(self) -> float:
        """The seconds in which further programs may begin."""
        minutes = 1.0 if self.plan.is_endless else self.plan.minutes
        if minutes is None:
            return float("inf")
        return self.begun + 60 * minutes - time.monotonic()

    def share_done(self) -> float:
        """Returns the share of the run that is done, 0 to 1."""
        minutes = 1.0 if self.plan.is_endless else self.plan.minutes
        shares = [0.0]
        if minutes is not None:
            shares.append(1 - self.seconds_left() / (60 * minutes))
        if self.plan.count is not None:
            begun = self.plan.count - self.before
            shares.append((self.tally.programs - self.before) / begun if begun > 0 else 1.0)
        return min(max(shares), 1.0)

    def _aim(self) -> int:
        """Returns the next target, one of the rarest cells."""
        if not self.aims:
            rng = Random(f"{self.plan.seed}:{self.next_seed}")
            self.aims.extend(aims(self.tally, rng))
        return self.aims.popleft()

    def _play(self, worker: Worker, chunk: Chunk) -> None:
        for played in worker.play(chunk.programs):
            failure = chunk.add(played)
            if failure is None:
                continue
            with self.lock:
                self._queue(failure)
            if self.seconds_left() <= 0:
                worker.stop()  # the rest of the chunk may hang, too
                break
        if chunk.counts["programs"]:
            self._keep(chunk.line())

    def _keep(self, line: dict[str, object]) -> None:
        with self.lock:
            self.ledger.write(line)
            self.tally.add(line)

    # --- the failures
    def _queue(self, failure: Failure) -> None:
        """Queues a failure for shrinking, unless enough of its kind are queued."""
        has_program = failure.program is not None and not failure.is_small
        enough = self.shrunk[failure.kind] >= ALIKE or self.shrunk.total() >= self.plan.shrink
        if failure.is_small or (has_program and not enough):
            self.shrunk[failure.kind] += 1
        if has_program and not enough:
            self.to_shrink.append(failure)

    def _shrink(self, worker: Worker, failure: Failure) -> None:
        self.shrinking += 1
        small = made_small(worker, failure)
        self.shrinking -= 1
        if not self.is_stopped:
            self._keep({"failures": [small.to_dict()]})


def aims(tally: Tally, rng: Random) -> list[int]:
    """Cells for the next programs, any of the rarest ones."""
    hits = tally.coverage.hits
    mixed = rng.sample(tally.targets, len(tally.targets))
    rarest = sorted(mixed, key=hits.__getitem__)[: 2 * REFRESH]
    if len(rarest) <= REFRESH:
        return rarest
    return rng.sample(rarest, REFRESH)
