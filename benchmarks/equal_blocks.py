"""Measures the compilation of 24 equal blocks against that of one.

`python -m benchmarks.equal_blocks` compiles a transformer of 24 blocks and one of a single block
for the backend cpu: the first call and the first backward, each in a fresh process with an empty
cache, by turns. It prints the medians in milliseconds by the clock, of the whole and of its parts,
and the ratio of the wholes of two turns that follow each other. The specification is
`specs/equal_regions.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import aotlite as al
from aotlite.cli import number
from aotlite.pipeline.journey import STAGES
from benchmarks.common import machine_console, progress, table
from benchmarks.dynamic_compiles import _five_ops, _transformer

BLOCKS = 24
KERNELS = ("lowering", "fusing", "printing", "C compiler")
PARTS = ("all", "stages 1 to 8", *KERNELS, "rest")
ROUNDS = 7

Figures = dict[str, float]
"""Milliseconds of each of `PARTS`."""


def measured(blocks: int) -> Figures:
    """Times a first call and a first backward in this process."""
    warm, case = _five_ops(), _transformer(blocks, options={})
    found = dict.fromkeys(PARTS, 0.0)

    def hear(stage: str, made: Any) -> None:
        for name in KERNELS if stage.endswith("_kernels") else ():
            found[name] += 1e3 * made.seconds.get(name, 0.0)

    def lowered(*args: Any, **options: Any) -> Any:
        if not found["stages 1 to 8"]:
            found["stages 1 to 8"] = 1e3 * (time.perf_counter() - begin)
        return STAGES["lower"](*args, **options)

    al.compile(warm.function, backend="cpu")(*warm.arguments).backward()
    compiled = al.compile(case.function, backend="cpu", stages={"lower": lowered}, observer=hear)
    begin = time.perf_counter()
    compiled(*case.arguments).backward()
    found["all"] = 1e3 * (time.perf_counter() - begin)
    found["rest"] = found["all"] - sum([found[name] for name in PARTS[1:-1]])
    return found


def in_fresh_process(blocks: int) -> Figures:
    """Returns the figures of a new process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.equal_blocks", "--child", str(blocks)]
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "AOTLITE_CACHE": folder},
        )
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=number(least=1), default=ROUNDS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measured(given.child)))
        return
    turns: list[tuple[Figures, Figures]] = []
    with progress() as bar:
        for _ in bar.track(range(given.rounds), description="blocks"):
            turns.append((in_fresh_process(1), in_fresh_process(BLOCKS)))
    console = machine_console()
    columns = "one block", f"{BLOCKS} blocks", "ratio"
    made = table("a first call and a first backward, milliseconds", "part", *columns)
    for name in PARTS:
        one, many = [statistics.median([turn[k][name] for turn in turns]) for k in (0, 1)]
        ratio = statistics.median([b[name] / max(a[name], 1e-3) for a, b in turns])
        made.add_row(name, f"{one:.0f}", f"{many:.0f}", f"{ratio:.2f}")
    console.print(made)


if __name__ == "__main__":
    main()
