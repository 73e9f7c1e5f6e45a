"""Random programs about aliasing, eager here and in PyTorch; and PyTorch's compiled ones.

    python -m tests.end_to_end.alias_programs_torch --count 20000 --ledger FILE --jobs 2
    python -m tests.end_to_end.alias_programs_torch --count 2000 --aot

The first compares aotlite's eager with PyTorch's; differences that a rule demands are counted under
their name, any other is printed. The second counts the programs that PyTorch's own `aot_function`
runs otherwise than its eager mode without saying so. Finished chunks in the ledger, a file of JSON
lines, are not run again. Each chunk is a process of its own: one that dies is counted and goes on
behind the program that it died of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.progress import Progress

from aotlite.testing.draws.whole import draw
from aotlite.testing.programs import Program
from aotlite.testing.pytorch.comparing import aot_difference, compared, worlds
from aotlite.testing.pytorch.excuses import excuse

CHUNK = 500
Told = dict[str, Any]


# ------------------------------------------------------------------------------------ the worker
def look(torch: Any, program: Program) -> Told:
    """How a program differs here and in PyTorch, by the first call in which it does."""
    told: Told = {"calls": 0, "raised": 0, "found": [], "name": "same"}
    for number in range(len(program.calls)):
        mine, its = worlds(torch, program, number)
        told["calls"] += 1
        told["raised"] += mine.error is not None
        found = compared(mine, its)
        if found:
            why = excuse(torch, program, number)
            told["name"] = why or "different"
            told["found"] = [] if why else [f"call {number}", *found]
            break
    return told


def look_at_aot(torch: Any, program: Program) -> Told:
    """How PyTorch's compiled function differs from its eager mode."""
    if any(step.op == "resize_" for step in program.body):
        return {"name": "left out: new memory is undefined"}
    return {"name": aot_difference(torch, program)}


def work(first: int, last: int, *, aot: bool) -> None:
    """Prints one JSON line a program."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for seed in range(first, last):
        told = (look_at_aot if aot else look)(torch, draw(seed))
        print(json.dumps({"seed": seed, **told}), flush=True)


# ------------------------------------------------------------------------------------ the parent
def run_chunk(first: int, last: int, *, aot: bool) -> Told:
    """The counts of programs `first` to `last`."""
    counts: Counter[str] = Counter()
    found: list[Any] = []
    while first < last:
        for told in _worker(first, last, aot=aot):
            first = told["seed"] + 1
            counts += Counter({"programs": 1, told["name"]: 1})
            counts += Counter(calls=told.get("calls", 0), raised=told.get("raised", 0))
            if told.get("found"):
                found.append([told["seed"], told["found"]])
        if first < last:
            counts += Counter(["programs", "crashed"])
            found += [[first, ["the process died"]]]
            first += 1
    return {"counts": dict(counts), "found": found}


def _worker(first: int, last: int, *, aot: bool) -> Iterator[Told]:
    """What a process tells of its programs, as far as it comes."""
    command = [sys.executable, "-m", __spec__.name, "--work", str(first), str(last)]
    command += ["--aot"] * aot
    # PyTorch logs what its own compiler fails on.
    errors = subprocess.DEVNULL if aot else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)


def main() -> int:
    options = _arguments()
    if options.work:
        work(*options.work, aot=options.aot)
        return 0
    chunks = [
        (first, min(first + CHUNK, options.seed + options.count))
        for first in range(options.seed, options.seed + options.count, CHUNK)
    ]
    done = _ledger(options.ledger)
    todo = [chunk for chunk in chunks if _name(chunk, options) not in done]
    with Progress() as bar, ThreadPoolExecutor(options.jobs) as pool:
        task = bar.add_task("programs", total=len(chunks), completed=len(chunks) - len(todo))
        for chunk, told in zip(
            todo, pool.map(lambda c: run_chunk(*c, aot=options.aot), todo), strict=True
        ):
            done[_name(chunk, options)] = told
            _append(options.ledger, _name(chunk, options), told)
            bar.advance(task)
    return summary([done[_name(chunk, options)] for chunk in chunks], aot=options.aot)


def _name(chunk: tuple[int, int], options: argparse.Namespace) -> str:
    return f"{'aot' if options.aot else 'eager'} {chunk[0]} {chunk[1]}"


def summary(told: list[Told], *, aot: bool) -> int:
    """Prints counts and differences; how many programs differ without excuse."""
    counts: Counter[str] = Counter()
    for chunk in told:
        counts += Counter(chunk["counts"])
    for name, count in counts.most_common():
        print(f"{count:8} {name}")
    for chunk in told:
        for seed, lines in chunk["found"] if not aot else ():
            print(f"program {seed}:", *lines, sep="\n    ")
    return 0 if aot else int(any(chunk["found"] for chunk in told))


def _ledger(path: Path | None) -> dict[str, Told]:
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {line.pop("chunk"): line for line in lines}


def _append(path: Path | None, name: str, told: Told) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"chunk": name, **told}) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--aot", action="store_true", help="PyTorch's compiled against its eager")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
