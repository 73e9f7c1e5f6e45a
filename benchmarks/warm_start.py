"""Measures the artifact cache: a first call with its backward, cold and restored.

`python -m benchmarks.warm_start` compiles the training loss of a transformer of 24 blocks in new
processes: with an empty cache, with its kernels alone, so that its entry is kept, and restored. It
prints the seconds from the call to the end of the first backward, medians over `--runs`, and their
ratios to the cold ones. Starting Python and importing aotlite are not counted.
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
from pathlib import Path

import numpy as np

import aotlite as al
from benchmarks.common import machine_console, table
from benchmarks.sizes import Transformer

ASKED = 0.1
"""The most that a restored start may take of a cold one."""
LABELS = {"cold": False, "kernels alone": False, "kept": True, "restored": True}
"""The starts in order, which share a cache, and whether each looks for entries and keeps them."""
PARTS = ("call", "backward")


def child(blocks: int, *, keeps: bool) -> None:
    """One first call with its backward; prints its seconds as JSON."""
    model = Transformer(blocks, 64, 4)
    numbers = np.random.default_rng(1).standard_normal((4, 16, 64)).astype(np.float32)
    x, parameters = al.tensor(numbers), model.parameters
    compiled = al.compile(model.loss, artifact_cache=keeps)
    begun = time.perf_counter()
    loss = compiled(x, parameters)
    called = time.perf_counter()
    loss.backward()
    ended = time.perf_counter()
    said = {"call": called - begun, "backward": ended - called, "loss": loss.item()}
    print(json.dumps(said))


def measured(folder: Path, blocks: int, *, keeps: bool) -> dict[str, float]:
    """The figures of a new process with this cache."""
    command = [sys.executable, "-m", "benchmarks.warm_start", "--child", "--blocks", str(blocks)]
    environment = {**os.environ, "AOTLITE_CACHE": str(folder)}
    asked = [*command, *(["--keeps"] if keeps else [])]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(blocks: int, runs: int) -> dict[str, list[dict[str, float]]]:
    """The figures of all runs by label, each run with a cache of its own."""
    found: dict[str, list[dict[str, float]]] = {label: [] for label in LABELS}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for label, keeps in LABELS.items():
                found[label].append(measured(folder, blocks, keeps=keeps))
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keeps", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.blocks, keeps=args.keeps)
        return
    found = run(args.blocks, args.runs)
    assert 1 == len({each["loss"] for runs in found.values() for each in runs})
    seconds = {label: _median(runs, *PARTS) for label, runs in found.items()}
    title = f"seconds of a first call and backward, {args.blocks} blocks, {args.runs} runs"
    made = table(title, "", *PARTS, "both", "of cold")
    for label, runs in found.items():
        parts = [f"{_median(runs, part):.3f}" for part in PARTS]
        ratio = seconds[label] / seconds["cold"]
        made.add_row(label, *parts, f"{seconds[label]:.3f}", f"{ratio:.3f}")
    machine_console().print(made)
    raise SystemExit(seconds["restored"] > ASKED * seconds["cold"])


def _median(runs: list[dict[str, float]], *parts: str) -> float:
    return statistics.median([sum(each[part] for part in parts) for each in runs])


if __name__ == "__main__":
    main()
