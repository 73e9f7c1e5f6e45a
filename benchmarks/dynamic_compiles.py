"""Measures what symbols for sizes cost a compilation: first calls, with symbols and with numbers.

`python -m benchmarks.dynamic_compiles` compiles each program with sizes of its batch as symbols,
and without, by turns, for a backend without kernels, and prints the medians of the first call and
its backward in milliseconds of the processor, and of the ratio of two turns that follow each other:
with the proof of the guards, and with `verify=0`. "All" has all sizes of all arguments as symbols.
`--instructions` counts Python's instructions instead, which a busy machine does not change.
`--kernels` prints what the C compiler takes for the kernels of both, in seconds of the processor,
each text once and with an empty cache: of these programs and of chains of sines.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.cli import number
from benchmarks.common import machine_console, progress, table
from benchmarks.first_call import no_kernels
from benchmarks.instructions import count
from benchmarks.sizes import Transformer

COLUMNS = ("numbers", "symbols", "ratio", "most", "numbers, no proof", "symbols", "ratio")
MOST = 1.5
"""The most that a compilation with symbols may take of one with numbers."""


@attrs.frozen
class Case:
    """A function with its arguments, and which of their sizes are symbols."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def first_call(self, options: Mapping[str, Any], backend: Any = no_kernels) -> None:
        """Compiles the function, and its backward."""
        compiled = al.compile(self.function, backend=backend, **options)
        compiled(*self.arguments).backward()


def _draw(*shape: int) -> al.Tensor:
    return al.tensor(np.random.default_rng(0).uniform(0.1, 0.2, shape).astype(np.float32))


def _weight(*shape: int) -> al.Tensor:
    return _draw(*shape).requires_grad_()


def _five_ops() -> Case:
    def function(x: Any, w: Any) -> Any:
        return ((x * w).sin() + x).exp().sum()

    return Case(function, (_draw(6, 4), _weight(4)), {"dynamic_shapes": {"x": {0: True}}})


def _mlp() -> Case:
    def function(x: Any, weights: Any) -> Any:
        for w, b in weights:
            x = (x @ w + b).relu()
        return x.mean()

    weights = [(_weight(16, 16), _weight(16)) for _ in range(4)]
    return Case(function, (_draw(6, 16), weights), {"dynamic_shapes": {"x": {0: True}}})


def _convnet() -> Case:
    functional = al.nn.functional

    def function(x: Any, kernels: Any, last: Any) -> Any:
        for kernel in kernels:
            x = functional.max_pool2d(functional.conv2d(x, kernel, padding=1).relu(), 2)
        return (x.flatten(1) @ last).log_softmax(-1).mean()

    kernels = [_weight(4, 3, 3, 3), _weight(8, 4, 3, 3)]
    arguments = _draw(6, 3, 16, 16), kernels, _weight(8 * 4 * 4, 10)
    return Case(function, arguments, {"dynamic_shapes": {"x": {0: True}}})


def _transformer(blocks: int, *, options: Mapping[str, Any]) -> Case:
    model = Transformer(blocks, 64, heads=4)
    return Case(model.loss, (_draw(4, 16, 64), model.parameters), options)


def _sines(count: int) -> Case:
    def function(x: Any) -> Any:
        for _ in range(count):
            x = (x * 1.01).sin()
        return x.sum()

    return Case(function, (_weight(100, 100),), {"dynamic": True})


_BATCH = {"dynamic_shapes": {"x": {0: True, 1: True}}}
CASES: Mapping[str, Callable[[], Case]] = {
    "5 ops": _five_ops,
    "MLP of 4 layers": _mlp,
    "convnet": _convnet,
    "transformer of 4 blocks": lambda: _transformer(4, options=_BATCH),
    "transformer of 24 blocks": lambda: _transformer(24, options=_BATCH),
    "transformer of 4 blocks, all": lambda: _transformer(4, options={"dynamic": True}),
}

WITH_KERNELS: Mapping[str, Callable[[], Case]] = {
    **{f"{count} sines": partial(_sines, count) for count in (12, 50, 100, 200)},
    **{name: CASES[name] for name in ("MLP of 4 layers", "convnet", "transformer of 4 blocks")},
}
"""The same for `--kernels`: no two of them have a text in common."""


# ---------------------------------------------------------------------------------------- measuring
def seconds(action: Callable[[], None]) -> float:
    """Of the processor, without the collector's."""
    gc.collect()
    gc.disable()
    begin = time.process_time()
    action()
    taken = time.process_time() - begin
    gc.enable()
    return taken


def measured(case: Case, rounds: int, clock: Callable[[Callable[[], None]], float]) -> list[float]:
    """For the proof and without it: medians of numbers, of symbols, and of their ratio."""
    found: list[float] = []
    for options in ({}, {"verify": 0}):
        turns = []
        for turn in range(-1, rounds):
            both = [options, {**options, **case.options}]
            order = (0, 1) if turn % 2 else (1, 0)
            taken = {at: clock(partial(case.first_call, both[at])) for at in order}
            turns += [(taken[0], taken[1], taken[1] / taken[0])] if turn >= 0 else []
        found += [statistics.median(column) for column in zip(*turns, strict=True)]
    return found


def _compiler_seconds(action: Callable[[], None]) -> float:
    """Of the processor, for the processes that an action starts and waits for."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime - begin.ru_utime + end.ru_stime - begin.ru_stime


def _print_kernels(names: Sequence[str]) -> None:
    """Prints what the C compiler takes for kernels of numbers, and of symbols."""
    made = table("\nseconds of the C compiler", "", "numbers", "symbols", "ratio")
    with tempfile.TemporaryDirectory() as folder, progress() as bar:
        os.environ["AOTLITE_CACHE"] = folder
        _five_ops().first_call({}, "cpu")  # the compiler is found, the runtime compiled
        for name in bar.track(names):
            case = WITH_KERNELS[name]()
            found = [
                _compiler_seconds(partial(case.first_call, options, "cpu"))
                for options in ({"dynamic": False}, case.options)
            ]
            made.add_row(name, *[f"{each:.2f}" for each in found], f"{found[1] / found[0]:.2f}")
    machine_console().print(made)


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    rows = {**CASES, **WITH_KERNELS}
    parser = argparse.ArgumentParser(prog="benchmarks.dynamic_compiles", description=__doc__)
    parser.add_argument("--rows", action="append", choices=rows, help="only these (repeatable)")
    parser.add_argument("--rounds", type=number(1), default=7, help="turns of each")
    parser.add_argument("--instructions", action="store_true", help="count, in thousands")
    parser.add_argument("--kernels", action="store_true", help="what the C compiler takes")
    args = parser.parse_args(argv)
    if args.kernels:
        _print_kernels([each for each in WITH_KERNELS if each in (args.rows or WITH_KERNELS)])
        return
    clock = (lambda action: count(action) / 1e6) if args.instructions else seconds
    made = table("\nthousands of instructions" if args.instructions else "\nms", "", *COLUMNS)
    with progress() as bar:
        for name in bar.track(args.rows or list(CASES)):
            found = measured(rows[name](), args.rounds, clock)
            shown = [f"{x:.2f}" if at % 3 == 2 else f"{1e3 * x:.1f}" for at, x in enumerate(found)]
            made.add_row(name, *shown[:3], f"{MOST}", *shown[3:])
    console = machine_console()
    console.print(made)


if __name__ == "__main__":
    main()
