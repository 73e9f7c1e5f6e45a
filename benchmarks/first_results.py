"""Measures the time to a first result with `compile(wait=False)`, and with waiting.

`python -m benchmarks.first_results` runs each program in fresh processes, by turns with and without
waiting, each with an empty disk cache in which only the compiler is known. Printed are medians of
milliseconds by the clock, their ratio, and the machine's load: beside other work the compiler has
no processor of its own, and a call without waiting may be slower.
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
from collections.abc import Callable
from typing import Any

import aotlite as al
from aotlite.cli import number
from benchmarks.common import machine_console, progress, table

Function = Callable[[Any], Any]


def _chain(ops: int) -> Function:
    def function(x: Any) -> Any:
        for k in range(ops):
            x = (x * 1.01 + 0.1).tanh() if k % 3 else x.sin() * x
        return x

    return function


def _products(x: Any) -> Any:
    for _ in range(20):
        x = (x @ x).tanh()
    return x


def _centered(x: Any) -> Any:
    for _ in range(20):
        x = (x - x.mean(1, keepdim=True)) * 1.5
    return x


def _convolved(x: Any) -> Any:
    return al.nn.functional.conv2d(x, x[:4, :, :3, :3]).relu()


def _written(x: Any) -> Any:
    for _ in range(10):
        x.mul_(1.01).add_(0.1).tanh_()
    return x


PROGRAMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "10 ops on 1e3": (_chain(10), (1000,)),
    "10 ops on 1e6": (_chain(10), (1_000_000,)),
    "60 ops on 1e6": (_chain(60), (1_000_000,)),
    "10 ops on 1e7": (_chain(10), (10_000_000,)),
    "30 ops in place, 1e6": (_written, (1_000_000,)),
    "20 products, 256^2": (_products, (256, 256)),
    "20 products, 1024^2": (_products, (1024, 1024)),
    "20 means, 2e6": (_centered, (2000, 1000)),
    "sum of 4e6": (lambda x: (x * x + 1).sum(), (4_000_000,)),
    "positions, 2e6": (lambda x: (x * 2).argmax(1), (2000, 1000)),
    "softmax of 2e6": (lambda x: x.softmax(0) * 2, (2_000_000,)),
    "sort of 1e6": (lambda x: x.sort().values * 2, (1_000_000,)),
    "convolution": (_convolved, (16, 8, 64, 64)),
}


def measure(name: str, wait: bool) -> float:
    """Milliseconds of a first call, in this process, after one of three ops."""
    al.compile(lambda x: x.sin() * 2 + x.sum(), backend="cpu")(al.ones(10))
    function, shape = PROGRAMS[name]
    x = al.linspace(-0.1, 0.1, al.ones(shape).numel()).reshape(shape)
    start = time.perf_counter()
    al.compile(function, backend="cpu", wait=wait)(x)
    return 1e3 * (time.perf_counter() - start)


def _in_a_process(name: str, wait: bool) -> float:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.first_results", "--one", name, str(int(wait))],
            env={**os.environ, "AOTLITE_CACHE": cache},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(json.loads(done.stdout))


def main(argv: list[str] | None = None) -> None:
    """Prints a row for each program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_results", description=__doc__)
    parser.add_argument("--rounds", type=number(1), default=7)
    parser.add_argument("--programs", action="append", choices=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(measure(args.one[0], args.one[1] == "1")))
        return
    console = machine_console()
    shown = table("first result, ms", "program", "waiting", "wait=False", "ratio")
    names = args.programs or list(PROGRAMS)
    with progress() as bar:
        task = bar.add_task("", total=len(names) * args.rounds)
        for name in names:
            bar.update(task, description=name)
            taken: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(args.rounds):
                for wait, times in taken.items():
                    times.append(_in_a_process(name, wait))
                bar.advance(task)
            waiting, mine = (statistics.median(taken[wait]) for wait in (True, False))
            shown.add_row(name, f"{waiting:.0f}", f"{mine:.0f}", f"{mine / waiting:.2f}")
    console.print(shown)
    console.print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
