"""`python -m aotlite.testing.relations`: the applications and failures of each relation.

    --programs 200 --seed 0     random programs, from this seed on
    --on torch                  PyTorch's eager mode
    --compiled                  functions compiled by aotlite; `--partition min_cut`: the partition

The last line has the numbers of programs, compared calls and differences; the exit status is 1 if
there are differences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import attrs

from aotlite.testing.generate.random_programs import draw
from aotlite.testing.relations import RELATIONS, Examined, Subject, Traced, examined, subject


@attrs.define
class Row:
    """The sums of one relation over all programs."""

    applies: int = 0
    variants: int = 0
    compared: int = 0
    refused: int = 0
    found: list[str] = attrs.field(factory=list)

    def add(self, seed: int, result: Examined) -> None:
        """Counts one program."""
        self.applies += result.variants > 0
        self.variants += result.variants
        self.compared += result.compared
        self.refused += result.refused
        self.found += [f"seed {seed}: {line}" for line in result.found[:1]]


def rows(seeds: Sequence[int], whose: Subject) -> dict[str, Row]:
    """The rows of all relations, with two variants of each program."""
    found = {each.name: Row() for each in RELATIONS}
    for seed in seeds:
        traced = Traced.of(whose.library, draw(seed))
        for each in RELATIONS:
            found[each.name].add(seed, examined(each, traced, whose, limit=2, seed=seed))
    return found


def lines(found: dict[str, Row], programs: int) -> Iterator[str]:
    """Yields the table, then the differences, then the sum."""
    yield f"{'relation':42} {'applies':>8} {'variants':>9} {'compared':>9} {'refused':>8}"
    for name, row in found.items():
        share = f"{row.applies / max(programs, 1):.0%}"
        yield f"{name:42} {share:>8} {row.variants:9} {row.compared:9} {row.refused:8}"
    different = [line for row in found.values() for line in row.found]
    yield from different
    compared = sum(row.compared for row in found.values())
    yield f"{programs} programs, {compared} calls compared, {len(different)} differences"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if there is a difference."""
    parser = argparse.ArgumentParser(prog="python -m aotlite.testing.relations")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", default="aotlite")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--partition")
    given = parser.parse_args(argv)
    options = {"partition": given.partition} if given.partition else {}
    whose = subject(given.on, options if given.compiled or options else None)
    found = rows(range(given.seed, given.seed + given.programs), whose)
    print("\n".join(lines(found, given.programs)))
    return int(any(row.found for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
