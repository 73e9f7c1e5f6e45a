"""`python -m tests.ir.symbols.planted`: unsound simplifications, planted and refuted.

Each plant is one change of the code that simplifies sizes. Whether it is unsound is said by an
oracle that knows nothing of validation: a program on sizes gives, at sizes that its log admits,
other results on ints than on symbols. Then validation must refute the trace, with a witness.

Changes of what an operator records of itself, such as the `"//"` in `SymInt.__floordiv__`, are
counted apart: their events are consistent, and wrong. Python's ints find them, in `test_symbols`.
"""

from __future__ import annotations

import argparse
import functools
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation import judge
from tests.ir.symbols.helpers.plants import MODULES, Plant, plants
from tests.ir.symbols.helpers.size_programs import SizeProgram, difference, drawn

PROGRAMS = 160
"""Random programs that are tried on each plant."""
SECONDS = 1.0
"""A refutation takes less."""


class _Endless(BaseException):
    """A plant made a loop without end; no error that the library would catch."""


@attrs.frozen
class Refuted:
    """What became of an unsound plant."""

    plant: Plant
    program: SizeProgram
    seconds: float
    witness: Any
    """Sizes; None where validation found the trace sound."""
    said: str

    @property
    def is_good(self) -> bool:
        """Whether it was refuted in time."""
        return self.witness is not None and self.seconds < SECONDS


@functools.cache
def _sound(program: SizeProgram) -> str:
    """What the program gives without a plant."""
    try:
        return _shown(*program.trace())
    except ZeroDivisionError:
        return "divides by 0"


def _shown(table: SymbolTable, results: Sequence[object]) -> str:
    return f"{results} {[assumption.text for assumption in table.log]}"


def refute(plant: Plant, programs: Sequence[SizeProgram], **options: Any) -> Refuted | None:
    """Validates the first program that the plant makes wrong; None where there is none."""
    expected = [_sound(program) for program in programs]
    with plant.planted():
        for program, sound in zip(programs, expected, strict=True):
            try:
                with _within(2.0):
                    table, results = program.trace()
                    same = _shown(table, results) == sound
                    if same or difference(program, table, results) is None:
                        continue
            except (_Endless, Exception):  # of any kind: a plant may raise what it likes
                continue
            start = time.thread_time()
            try:
                verdict = judge(table, **options)
            except Exception as error:  # what a plant made is no number
                return Refuted(plant, program, 0.0, None, repr(error))
            seconds = time.thread_time() - start
            counter = verdict.counter
            witness = None if counter is None else dict(counter.values)
            return Refuted(plant, program, seconds, witness, str(verdict))
    return None


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """A block that is interrupted after so many seconds."""

    def stop(*_: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Plants, validates and prints; see `--help`."""
    parser = argparse.ArgumentParser(prog="tests.ir.symbols.planted", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="try every n-th plant")
    parser.add_argument("--programs", type=int, default=PROGRAMS, help="programs for each plant")
    parser.add_argument("--module", action="append", help="only plants in this module (repeatable)")
    parser.add_argument("--verbose", action="store_true", help="print each unsound plant")
    args = parser.parse_args(argv)
    programs = [drawn(seed) for seed in range(args.programs)]
    every = [plant for plant in plants() if plant.module in (args.module or MODULES)]
    chosen = every[:: args.every]
    start = time.thread_time()
    found = []
    for plant in chosen:
        each = refute(plant, programs)
        if each is not None:
            found.append(each)
            if args.verbose or not each.is_good:
                print(f"{each.seconds:6.3f} s  {plant.name}\n    {each.said}")
    print(f"{len(chosen)} plants in {time.thread_time() - start:.0f} s")
    of_record = [each for each in found if each.plant.is_of_record]
    refuted = [each for each in found if not each.plant.is_of_record]
    for what, group in (("unsound simplifications", refuted), ("of what is recorded", of_record)):
        good = sum(one.is_good for one in group)
        slowest = max((one.seconds for one in group), default=0.0)
        print(
            f"{len(group)} {what}: {good} refuted with a witness in under {SECONDS:g} s, "
            f"the slowest in {slowest:.3f} s"
        )
    return 0 if all(each.is_good for each in refuted) else 1


if __name__ == "__main__":
    raise SystemExit(main())
