"""Measures stage 1 on blocks that are marked as a region, against the same without the mark.

`python -m benchmarks.equal_regions` captures transformers of equal blocks, by turns with
`al.nested_compile_region` around the block and without it, and prints the medians of stage 1 in
milliseconds of the processor, and of the quotient of two turns that follow each other. The
specification is `specs/equal_regions.md`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import aotlite as al
from aotlite.cli import number
from aotlite.pipeline.journey import STAGES
from benchmarks.common import machine_console, progress, table
from benchmarks.dynamic_compiles import _draw
from benchmarks.sizes import Transformer, _normed

BLOCKS = (1, 8, 24, 96)
ROUNDS = 15
Block = Callable[..., Any]


def _parted(x: Any) -> Any:
    batch, length, width = x.shape
    return x.view(batch, length, 4, width // 4).transpose(1, 2)


def block(x: Any, query: Any, key: Any, value: Any, out: Any, first: Any, second: Any) -> Any:
    """A block of `sizes.Transformer`, as a function."""
    normed = _normed(x)
    q, k, v = [_parted(normed @ each) for each in (query, key, value)]
    scores = (q @ k.transpose(2, 3) * 0.125).softmax(-1)
    x = x + (scores @ v).transpose(1, 2).reshape(x.shape) @ out
    return x + (_normed(x) @ first).gelu() @ second


def milliseconds(of: Block, x: al.Tensor, parameters: Sequence[al.Tensor]) -> float:
    """Stage 1 of a model of these blocks."""
    found = 0.0

    def model(x: Any, parameters: Any) -> Any:
        for at in range(0, len(parameters), 6):
            x = of(x, *parameters[at : at + 6])
        return (x * x).mean()

    def capture(*args: Any, **options: Any) -> Any:
        nonlocal found
        gc.collect()
        gc.disable()
        begin = time.process_time()
        captured = STAGES["capture"](*args, **options)
        found = 1e3 * (time.process_time() - begin)
        gc.enable()
        return captured

    compiled = al.compile(model, backend="reference", stages={"capture": capture})
    compiled.prepare(x, list(parameters))
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=number(least=1), default=ROUNDS)
    rounds = parser.parse_args().rounds
    marked, console = al.nested_compile_region(block), machine_console()
    made = table("stage 1, milliseconds", "blocks", "without marks", "with marks", "quotient")
    with progress() as bar:
        for blocks in bar.track(BLOCKS, description="blocks"):
            x, parameters = _draw(4, 16, 64), Transformer(blocks, 64, heads=4).parameters
            turns = []
            for _ in range(-1, rounds):
                turns.append([milliseconds(each, x, parameters) for each in (block, marked)])
            plain, found = [statistics.median(each) for each in zip(*turns[1:], strict=True)]
            quotient = statistics.median([b / a for a, b in turns[1:]])
            made.add_row(str(blocks), f"{plain:.1f}", f"{found:.1f}", f"{quotient:.2f}")
    console.print(made)


if __name__ == "__main__":
    main()
