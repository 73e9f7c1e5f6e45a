"""`functionalize` on random programs of views and writes, against eager.

    python -m tests.func.random_programs --programs 20000 --seed 0

A program runs eagerly, and functionalized with both `remove=`; each is observed as by the fuzzer of
`aotlite.testing`: values, strides, storages, bases, versions, identity, histories, gradients, a
write to a result. Refusals (UnsupportedError, AliasError, before any effect) are counted by reason.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterable

import attrs

from aotlite.func import functionalize
from aotlite.testing.compiled import REFUSED
from aotlite.testing.engines import engine
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program

BOTH = ("mutations", "mutations_and_views")


@attrs.define
class Tally:
    """What became of programs."""

    calls: int = 0
    raised: int = 0
    unseen: int = 0
    """Programs that write through a hidden alias what eager's tape has saved (FNT-14)."""
    refused: Counter[str] = attrs.field(factory=Counter)
    found: list[tuple[int, str, list[str]]] = attrs.field(factory=list)
    """(seed, remove, differences) of programs that differ."""


def compare(mine: Observation, its: Observation) -> list[str]:
    """The differences, less those that FNT-14 allows: values that eager's tape refuses, since they
    were written after they were saved, are never written here."""
    if its.backward is not None and mine.backward is None and its.error is None:
        mine.backward = its.backward
        mine.written, its.written = [], []
    return differences(mine, its)


def run(program: Program, remove: str, tally: Tally, seed: int = 0) -> list[str]:
    """Runs all calls of a program; the differences of the first that differs."""
    library = engine("aotlite")
    eager = program.function_of(library)
    pure = functionalize(eager, remove=remove)
    for number in range(len(program.calls)):
        its = observe_call(library, program, number, eager)
        mine = observe_call(library, program, number, pure)
        tally.calls += 1
        tally.raised += its.error is not None
        if isinstance(mine.error, REFUSED) and type(mine.error) is not type(its.error):
            if mine.untouched:
                tally.refused[re.sub(r"\\d+", "n", str(mine.error))[:90]] += 1
                continue
        found = compare(mine, its)
        if found and all("gradient of object" in line for line in found) and _is_unseen(program):
            tally.unseen += 1
        elif found:
            tally.found.append((seed, remove, found))
            return found
    return []


def _is_unseen(program: Program) -> bool:
    """Whether writes may go unnoticed: through an alias with a version counter of its own."""
    steps = [*program.body, *(step for call in program.calls for step in call.setup)]
    return any(step.op == "hidden_alias" for step in steps)


def survey(seeds: Iterable[int]) -> Tally:
    """Runs the programs of these seeds, each with both `remove=`."""
    tally = Tally()
    for seed in seeds:
        program = draw(seed)
        for remove in BOTH:
            run(program, remove, tally, seed)
    return tally


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.func.random_programs")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    given = parser.parse_args()
    start = time.perf_counter()
    tally = survey(range(given.seed, given.seed + given.programs))
    took = time.perf_counter() - start
    for seed, remove, found in tally.found[: given.show]:
        print(f"seed {seed}, remove={remove!r}")
        print("\n".join(f"    {line}" for line in found[:4]))
    kinds = Counter(re.sub(r"\d+|\[.*", "", found[0])[:60] for _, _, found in tally.found)
    for kind, count in kinds.most_common(12):
        print(f"{count:6} differ: {kind}")
    for reason, count in tally.refused.most_common():
        print(f"{count:6} refused: {reason}")
    print(
        f"{given.programs} programs, {tally.calls} calls with both remove=, {tally.raised} raise "
        f"in eager, {tally.unseen} write unseen, "
        f"{sum(tally.refused.values())} refused, {len(tally.found)} differ ({took:.0f} s)"
    )


if __name__ == "__main__":
    main()
