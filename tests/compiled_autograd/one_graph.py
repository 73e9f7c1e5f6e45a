"""How many random tapes with hooks are one graph, and whether they are as the engine's.

    python -m tests.compiled_autograd.one_graph --tapes 20000 --seed 0

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
    def run(program: Program, drawn: int) -> None:
        try:
            expected = world(program, drawn, None, MANY)
        except (al.AotliteError, TypeError, ValueError):
            tally["refused by the engine, too"] += 1
            return
        tapes = al.compiled_autograd.CompiledAutograd.of(backend, hooks="call")
        for _ in range(3):
            assert world(program, drawn, tapes, MANY) == expected, (str(program), drawn)
        tally["tapes"] += 1
        tally["backwards"] += tapes.counters.calls
        tally["one graph with calls"] += tapes.counters.whole
        tally.update({f"not one graph: {reason}": n for reason, n in tapes.fallbacks.items()})

    run()
    return tally


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="reference")
    given_args = parser.parse_args()
    tally = compared(given_args.tapes, given_args.seed, given_args.backend)
    for name, count in sorted(tally.items(), key=lambda pair: -pair[1]):
        print(f"{count:8d}  {name}")


if __name__ == "__main__":
    main()
