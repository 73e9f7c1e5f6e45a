"""`python -m tests.testing.planted`: how soon random programs find planted bugs, and how small.

Each bug of `tests.testing.helpers.planting` is planted in a process of its own, looked for as the
fuzzer looks, without a hint which cell matters, and shrunk. The table gives seconds of a core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

from aotlite.testing import Program, differences_of
from aotlite.testing.coverage.cells import POSSIBLE
from aotlite.testing.fuzzing.one_program import options_of
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.shrinking import lines, smallest
from tests.testing.helpers.planting import PLANTS, planted

SECONDS = 60.0
"""Of a core: so long may one search take, and so long the shrinking."""


@attrs.frozen
class Found:
    """What became of one plant."""

    name: str
    programs: int
    finding: float
    """Seconds, as is `shrinking`."""
    shrinking: float
    lines: int
    difference: str
    script: str

    def is_good(self) -> bool:
        """Whether it is small, and was found and shrunk in time."""
        return self.lines <= 4 and self.finding + self.shrinking < SECONDS


def find(name: str, seed: int) -> Found | None:
    """Plants a bug in this process, for a while, and looks for it."""
    with planted(PLANTS[name]):
        start = time.process_time()
        for count, (program, options) in enumerate(programs(seed), 1):
            if differences_of(program, **options):
                finding = time.process_time() - start
                small, options = _small(program, options)
                shrinking = time.process_time() - start - finding
                told = differences_of(small, **options)[0]
                text = small.to_script(**options)
                return Found(name, count, finding, shrinking, lines(small), told, text)
            if time.process_time() - start > SECONDS:
                break
    return None


def programs(seed: int) -> Iterator[tuple[Program, dict[str, Any]]]:
    """Random programs towards cells from all over the table, and options, without an end."""
    rng = Random(seed)
    for number in itertools.count(seed):
        yield draw(number, rng.choice(POSSIBLE)), options_of(number)


def _small(program: Program, options: dict[str, Any]) -> tuple[Program, dict[str, Any]]:
    """The smallest program, compiled without options where it fails without."""
    if options and differences_of(program):
        options = {}
    return smallest(program, seconds=SECONDS, **options), options


def in_child(name: str, seed: int) -> Found | None:
    """`find` in a process of its own."""
    command = [sys.executable, "-m", "tests.testing.planted", "--one", name, "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout.splitlines()[-1])
    return None if read is None else Found(**read)


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; 1 where a bug was not found, or is not small."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="plants; all where none is given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", choices=list(PLANTS), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        found = find(given.one, given.seed)
        print(json.dumps(None if found is None else attrs.asdict(found)))
        return 0
    results = {name: in_child(name, given.seed) for name in given.names or PLANTS}
    for name, result in results.items():
        print(row(name, result), flush=True)
    for name, result in results.items():
        if result is not None:
            print(f"\n# {name}: {PLANTS[name].what}\n# {result.difference}\n{result.script}")
    return int(not all(result is not None and result.is_good() for result in results.values()))


def row(name: str, result: Found | None) -> str:
    """A line of the table."""
    where = f"{PLANTS[name].place:14} {name:14}"
    if result is None:
        return f"{where} not found in {SECONDS:.0f} s"
    return (
        f"{where} {result.programs:5} programs {result.finding:6.1f} s, "
        f"shrunk in {result.shrinking:5.1f} s to {result.lines} lines"
    )


if __name__ == "__main__":
    sys.exit(main())
