"""How many random tapes with hooks are one graph, and whether they are as the engine's.

    python -m tests.compiled_autograd.one_graph --tapes 20000 --seed 0
    python -m tests.compiled_autograd.one_graph --tapes 3000 --python

Each tape is that of a random program with hooks of 12 kinds (`helpers.worlds`). It runs by the
engine, and three times by `hooks="call"`. Prints how many backwards were one graph, and why the
others were not; the pictures of both worlds must be equal.
"""

from __future__ import annotations

import argparse
from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

import aotlite as al
from tests.compiled_autograd.helpers.tapes import run
from tests.compiled_autograd.helpers.worlds import MANY, world
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Program


def compared(count: int, seed: int, backend: str = "reference") -> Counter[str]:
    """Compares this many tapes; the counts of backwards, and of reasons of those that were not one
    graph. Raises AssertionError at the first difference."""
    tally: Counter[str] = Counter()

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), st.integers(0, 1 << 20))
    def compare(program: Program, drawn: int) -> None:
        try:
            expected = world(program, drawn, None, MANY)
        except (al.AotliteError, TypeError, ValueError):
            tally["refused by the engine, too"] += 1
            return
        tapes = al.compiled_autograd.CompiledAutograd.of(backend, hooks="call")
        for _ in range(3):
            assert world(program, drawn, tapes, MANY) == expected, (str(program), drawn)
        _count(tally, tapes)

    compare()
    return tally


def compared_with_python(count: int, seed: int, backend: str = "reference") -> Counter[str]:
    """The same for tapes with custom functions, packed values and regions, and hooks that keep
    gradients, write them later, and write saved values (`helpers.tapes`)."""
    tally: Counter[str] = Counter()
    for drawn in range(seed * count, (seed + 1) * count):
        expected = repr(run(drawn, None))
        tapes = al.compiled_autograd.CompiledAutograd.of(backend, hooks="call")
        for _ in range(3):
            assert repr(run(drawn, tapes)) == expected, drawn
        _count(tally, tapes)
    return tally


def _count(tally: Counter[str], tapes: al.compiled_autograd.CompiledAutograd) -> None:
    tally["tapes"] += 1
    tally["backwards"] += tapes.counters.calls
    tally["one graph with calls"] += tapes.counters.whole
    tally.update({f"not one graph: {reason}": n for reason, n in tapes.fallbacks.items()})


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--python", action="store_true", help="custom functions, regions, ...")
    asked = parser.parse_args()
    compares = compared_with_python if asked.python else compared
    tally = compares(asked.tapes, asked.seed, asked.backend)
    for name, count in sorted(tally.items(), key=lambda pair: -pair[1]):
        print(f"{count:8d}  {name}")


if __name__ == "__main__":
    main()
