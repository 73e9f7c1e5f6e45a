"""Measures time and memory of a first call by stage of the pipeline, on each program.

`python -m benchmarks.stages` prints microseconds a joint node for each stage, the best of several
compilations in this process, by CPU time; "rest" is what the pipeline does between stages (guards,
assembling), "verify" what checking every stage's graph takes if it is on. A second table has the
bytes a joint node that are allocated when a stage has ended, and the most that ever were.
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.ir.graph import Graph
from benchmarks.common import machine_console, table
from benchmarks.programs import Program, TorchLike, program

ROWS = ("chain:1000", "chain:10000", "chain:100000", "mlp:64", "transformer:2", "transformer:24")
STAGES = (
    *("capture", "analyze", "joint", "functionalize", "simplify", "partition", "lower", "runtime"),
)


@attrs.define
class Profile:
    """The seconds of the stages of one compilation, or the bytes allocated after them."""

    nodes: int = 0
    """The number of nodes of the joint graph."""
    stages: dict[str, float] = attrs.field(factory=dict)

    @property
    def total(self) -> float:
        return sum(self.stages.values())


def compiled(of: Program, **options: Any) -> tuple[Any, list[Any]]:
    """The program compiled for the reference backend, and arguments for it."""
    lib = TorchLike(al.nn.functional)
    draw = np.random.default_rng(0)
    args = [al.tensor(draw.uniform(0.1, 0.2, shape), dtype=al.float32) for shape in of.shapes]
    for arg, wanted in zip(args, of.with_grad, strict=True):
        arg.requires_grad_(wanted)
    return al.compile(lambda *xs: of.body(lib, *xs), **options), args


def seconds(of: Program, *, verify: int = 0) -> Profile:
    """CPU seconds of each stage of one compilation."""
    found = Profile()

    def timed(name: str, stage: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stage)
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = stage(*args, **kwargs)
            took = time.process_time() - start
            found.stages[name] = found.stages.get(name, 0.0) + took
            if name == "joint":
                found.nodes = len(result.graph)
            return result

        return run

    function, args = compiled(of, verify=verify, stages=_wrapped(timed))
    gc.collect()
    start = time.process_time()
    function.prepare(*args)
    _lower_backward(function, timed)
    rest = time.process_time() - start - found.total
    found.stages["rest"] = rest
    start = time.process_time()
    del function
    found.stages["freeing"] = time.process_time() - start
    return found


def _lower_backward(function: Any, timed: Callable[..., Any]) -> None:
    """The backward is lowered when first needed: here, without running it."""
    from aotlite.backends.reference import REFERENCE
    from aotlite.stages.s9_lower import lower

    graph: Graph | None = function.backward_graph
    if graph is not None:
        timed("lower", lower)(graph, REFERENCE)


def memory(of: Program) -> Profile:
    """Bytes allocated when each stage has ended, counted from the start, and the most of all."""
    found = Profile()

    def traced(name: str, stage: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stage)
        def run(*args: Any, **kwargs: Any) -> Any:
            result = stage(*args, **kwargs)
            if name == "joint":
                found.nodes = len(result.graph)
            found.stages[name] = tracemalloc.get_traced_memory()[0]
            return result

        return run

    function, args = compiled(of, verify=0, stages=_wrapped(traced))
    gc.collect()
    tracemalloc.start()
    try:
        function.prepare(*args)
        found.stages["kept"], found.stages["peak"] = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return found


def _wrapped(wrap: Callable[[str, Callable[..., Any]], Any]) -> dict[str, Any]:
    from aotlite import pipeline

    return {name: wrap(name, stage) for name, stage in pipeline.STAGES.items() if name in STAGES}


def best(runs: Sequence[Profile]) -> Profile:
    """The least of each stage."""
    names = runs[0].stages
    return Profile(runs[0].nodes, {n: min(run.stages[n] for run in runs) for n in names})


# ------------------------------------------------------------------------------------ the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    args = _parser().parse_args(argv)
    console = machine_console()
    columns = (*STAGES, "rest", "total", "a user's op", "verify", "freeing")
    made = table("microseconds a joint node", "row", "nodes", *columns)
    for row in args.rows:
        made.add_row(row, *_timings(program(row), args.rounds))
    console.print(made)
    if args.memory:
        made = table("bytes a joint node", "row", "nodes", *STAGES, "kept", "peak")
        for row in args.rows:
            found = memory(program(row))
            parts = [found.stages.get(n, math.nan) for n in (*STAGES, "kept", "peak")]
            made.add_row(row, f"{found.nodes:,}", *[f"{p / found.nodes:.0f}" for p in parts])
        console.print(made)


def _timings(of: Program, rounds: int) -> list[str]:
    seconds(program("chain:8"))
    found = best([seconds(of) for _ in range(rounds)])
    checked = best([seconds(of, verify=1) for _ in range(rounds)])
    freeing = found.stages.pop("freeing")
    verify = checked.stages["rest"] - found.stages["rest"]
    parts = [found.stages.get(name, math.nan) for name in (*STAGES, "rest")]
    scale = 1e6 / found.nodes
    return [
        f"{found.nodes:,}",
        *[f"{part * scale:.2f}" for part in parts],
        f"{found.total * scale:.2f}",
        f"{found.total / of.ops * 1e6:.1f}",
        f"{verify * scale:.2f}",
        f"{freeing * scale:.2f}",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.stages", description=__doc__)
    parser.add_argument("--rows", type=lambda t: tuple(t.split(",")), default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="also trace allocations (slow)")
    return parser


if __name__ == "__main__":
    main()
