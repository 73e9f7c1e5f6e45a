"""Runs random programs about aliasing and mutation compiled and eagerly, and compares.

    python -m tests.end_to_end.alias_programs --count 150000 --ledger FILE --jobs 2 --seed 0
    python -m tests.end_to_end.alias_programs --ledger FILE --summary --cells

Programs are drawn towards the rarest cells of the table of `aotlite.testing.cells`. The ledger has
a line for each finished chunk; chunks that it has are not run again. Exit status 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from aotlite.testing.cells import CELLS, POSSIBLE, impossible
from aotlite.testing.fuzzing.running import Chunk, guard_memory, report, run_chunk

SIZE = 250
"""Programs in a chunk."""
ENOUGH = 20
"""Programs that each cell is to be hit by."""


@attrs.define
class Tally:
    """The sums over the chunks of a ledger."""

    counts: Counter[str] = attrs.field(factory=Counter)
    refused: Counter[str] = attrs.field(factory=Counter)
    cells: Counter[int] = attrs.field(factory=Counter)
    different: list[dict[str, Any]] = attrs.field(factory=list)
    chunks: set[int] = attrs.field(factory=set)

    def add(self, line: dict[str, Any]) -> None:
        """Counts a chunk, which is counted once."""
        if line["chunk"] in self.chunks:
            return
        self.chunks.add(line["chunk"])
        for name in ("programs", "calls", "raised", "steps"):
            self.counts[name] += line[name]
        self.refused.update(line["refused"])
        self.different += line["different"]
        for cell, hits in line["cells"]:
            self.cells[cell] += hits

    def full(self) -> int:
        """How many possible cells were hit often enough."""
        return sum(self.cells[cell] >= ENOUGH for cell in POSSIBLE)


def read_ledger(path: Path | None) -> Tally:
    """The sums of a ledger; a last line that was cut off is left out."""
    tally = Tally()
    if path is not None and path.exists():
        for line in filter(None, path.read_text().splitlines()):
            try:
                tally.add(json.loads(line))
            except json.JSONDecodeError:
                continue
    return tally


def targets(tally: Tally, chunk: int, seed: int) -> tuple[int, ...]:
    """Cells for a chunk to be drawn towards: of the rarest ones, any."""
    rng = Random(f"{seed}:{chunk}")
    shuffled = rng.sample(POSSIBLE, len(POSSIBLE))
    rarest = sorted(shuffled, key=tally.cells.__getitem__)[: 4 * SIZE]
    return tuple(rng.sample(rarest, SIZE))


def run(tally: Tally, *, count: int, seed: int, jobs: int) -> Iterator[dict[str, Any]]:
    """Runs the chunks that a tally lacks; gives the line of each."""
    missing = iter([n for n in range(-(-count // SIZE)) if n not in tally.chunks])
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), guard_memory, max_tasks_per_child=40
    ) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while True:
            # Late: so that the targets are what is rare by now.
            for number in missing:
                chunk = Chunk(number, seed + number * SIZE, targets(tally, number, seed))
                running.add(pool.submit(run_chunk, chunk))
                if len(running) > jobs:
                    break
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()


# --------------------------------------------------------------------------------- the command
def summary(tally: Tally) -> Table:
    """The figures."""
    table = Table("programs about aliasing", "", title=None)
    low = min((tally.cells[cell] for cell in POSSIBLE), default=0)
    for name in ("programs", "calls", "steps", "raised"):
        table.add_row(f"{name} eagerly" if name == "raised" else name, f"{tally.counts[name]:,}")
    table.add_row("refused", f"{tally.refused.total():,}")
    table.add_row("differences", f"{len(tally.different):,}")
    table.add_row("cells, possible", f"{len(POSSIBLE):,}")
    table.add_row(f"cells hit by {ENOUGH} programs or more", f"{tally.full():,}")
    table.add_row("programs at the rarest cell", f"{low:,}")
    table.add_row("hits", f"{tally.cells.total():,}")
    return table


def impossible_cells() -> Counter[str]:
    """The reasons for which cells are impossible, and how many each rules out."""
    return Counter(reason for cell in CELLS if (reason := impossible(cell)) is not None)


def margins(tally: Tally) -> Table:
    """For each view op, kind of write, kind of output and relation: cells, full ones, the least."""
    table = Table("of the table", "cells", f"{ENOUGH} or more", "least", "hits")
    for dim in range(4):
        for name in dict.fromkeys(cell[dim] for cell in CELLS):
            hits = [tally.cells[n] for n in POSSIBLE if CELLS[n][dim] == name]
            full = sum(each >= ENOUGH for each in hits)
            table.add_row(name, *map(str, (len(hits), full, min(hits, default=0), sum(hits))))
    return table


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description="Random programs about aliasing, compared.")
    parser.add_argument("--count", type=int, default=SIZE)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--summary", action="store_true", help="only what the ledger has")
    parser.add_argument("--cells", action="store_true", help="the table by its margins")
    parser.add_argument("--show", type=int, default=5, help="differences to print, shrunk")
    given = parser.parse_args(arguments)
    tally = read_ledger(given.ledger)
    if not given.summary:
        _run_all(tally, given)
    _print(tally, given)
    return 1 if tally.different else 0


def _run_all(tally: Tally, given: argparse.Namespace) -> None:
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("programs", total=given.count, completed=tally.counts["programs"])
        for line in run(tally, count=given.count, seed=given.seed, jobs=given.jobs):
            if given.ledger is not None:
                with given.ledger.open("a") as file:
                    # First the end of a line that was cut off, if there is one.
                    file.write("\n" + json.dumps(line) + "\n")
            tally.add(line)
            text = f"{len(tally.different)} differ, {tally.full():,} cells full"
            progress.update(bar, completed=tally.counts["programs"], description=text)


def _print(tally: Tally, given: argparse.Namespace) -> None:
    console = Console(soft_wrap=True)
    console.print(summary(tally))
    for reason, count in impossible_cells().items():
        console.print(f"{count:,} cells impossible: {reason}", markup=False)
    if given.cells:
        console.print(margins(tally))
        for number in sorted(POSSIBLE, key=tally.cells.__getitem__)[:20]:
            console.print(f"{tally.cells[number]} x {' | '.join(CELLS[number])}", markup=False)
    for text, count in tally.refused.most_common():
        console.print(f"{count} refused: {text}", markup=False)
    for each in tally.different[given.show :]:
        text = f"seed {each['seed']}, target {each['target']}: {each['found'][0]}"
        console.print(text, markup=False)
    for each in tally.different[: given.show]:
        console.print("\n" + report(each["seed"], each["target"]), markup=False)


if __name__ == "__main__":
    sys.exit(main())
