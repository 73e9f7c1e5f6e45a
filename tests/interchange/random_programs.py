"""Random programs with aliases and writes, compiled with onnxruntime and XLA as backends (ICH-8).

    python -m tests.interchange.random_programs onnx --count 1000

A program's numbers are exact, so that results, gradients, written arguments and the sharing of
memory are compared with eager bit for bit. Forwards and backwards are both run by the runtime.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

from aotlite.interchange import onnxruntime_backend, xla_backend
from aotlite.testing.fuzzing.one_program import outcome
from aotlite.testing.fuzzing.outcomes import Outcome
from aotlite.testing.generate.choices import ANYTHING, Limits
from aotlite.testing.generate.random_programs import draw

BACKENDS: dict[str, Callable[..., Any]] = {"onnx": onnxruntime_backend, "xla": xla_backend}
COMPLEX = {"view_as_real", "view_as_complex", "real", "imag"}
LIMITS = Limits(
    views=tuple(view for view in ANYTHING.views if view not in COMPLEX),
    dtypes=("float64", "int64", "float32"),
)
"""Programs without complex numbers, which neither runtime is given."""


def outcome_of(seed: int, runtime: str) -> Outcome:
    """Runs the program of a seed in eager and compiled for a runtime."""
    return outcome(draw(seed, None, LIMITS), {"backend": BACKENDS[runtime]})


def _kind(found: Outcome) -> str:
    if found.found:
        return "sign of zero" if all(map(is_of_zero, found.found)) else "differ"
    return "refused" if found.refused else "agree"


def is_of_zero(line: str) -> bool:
    """Whether a difference is one of -0.0 and 0.0 (ICH-10, ONX-5)."""
    values, _, eager = line.rpartition(": ")[2].partition(", eager ")
    return values.replace("-0.0", "0.0") == eager.replace("-0.0", "0.0")


def main() -> int:
    """Prints what differs, and the counts; the status is 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.interchange.random_programs")
    parser.add_argument("runtime", choices=[*BACKENDS])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for seed in range(given.start, given.start + given.count):
        found = outcome_of(seed, given.runtime)
        total[_kind(found)] += 1
        total["calls"] += found.calls
        reasons.update([each.split(", expected")[0] for each in set(found.refused)])
        for line in found.found[:3]:
            print(f"seed {seed}: {line[:200]}", flush=True)
    print(f"{given.runtime}: {dict(total)}")
    for reason, count in reasons.most_common():
        print(f"{count} programs refused a call: {reason}")
    return int(total["differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
