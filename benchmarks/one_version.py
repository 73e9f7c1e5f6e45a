"""Microseconds of one version's calls, for `benchmarks.against`.

`python -m benchmarks.one_version overhead` (or `eager`) prints one JSON object: for each row the
microseconds of the fastest loop. The version is the aotlite that is imported; it is driven through
its public API alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping

from benchmarks import calls, eager, effects
from benchmarks.loops import Action, calls_a_loop, fastest


def overhead() -> Iterator[tuple[str, Mapping[str, Action]]]:
    """Each call and each side effect, with its actions."""
    for case in calls.CASES:
        yield case.name, calls.actions(case, ())
    for effect in effects.EFFECTS:
        yield effect.name, effects.actions(effect, ())


def eager_ops() -> Iterator[tuple[str, Mapping[str, Action]]]:
    """Each eager op, with its actions."""
    for case in eager.CASES:
        yield case.name, eager.actions(case, ())


BENCHMARKS = {"overhead": overhead, "eager": eager_ops}
NUMPY = ("NumPy", "bare NumPy")


def actions(benchmark: str) -> Iterator[tuple[str, str, Action]]:
    """(row, column, action) of each action of a benchmark that runs aotlite."""
    for name, columns in BENCHMARKS[benchmark]():
        for column, action in columns.items():
            if column not in NUMPY:
                yield name, column, action


def main() -> None:
    """Prints what the benchmark in the first argument measured."""
    found = {}
    for name, column, action in actions(sys.argv[1]):
        found[f"{name}: {column}"] = fastest(action, calls_a_loop(action))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
