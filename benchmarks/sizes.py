"""Trains a transformer on batches of many lengths: compiled once, and compiled for each length.

`python -m benchmarks.sizes` prints, for the same train step with symbols for sizes and without:
compilations, libraries that the C compiler made, seconds of the first call of a length, and of
calls of lengths that were met. Both functions are called in turn; times are medians. Lengths are
multiples of the vector width and not.

`python -m benchmarks.sizes further` prints what an instance costs that a further size makes, for
models of 1, 4 and 12 blocks: processor time of the first call of a size, forward and backward,
beyond that of a later one, and the memory that stays.

`python -m benchmarks.sizes autograd` prints the same of backwards of eager tapes, by compiled
autograd (CAG-5): with kernels for all sizes, and by a backend that takes numbers only.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.backends.cpu import compiled_program, sized_program
from aotlite.backends.lookup import backend_from
from aotlite.backends.threads import set_num_threads
from aotlite.compiled_autograd import CompiledAutograd
from aotlite.ir.graph import Graph
from benchmarks.common import machine_console, table

LENGTHS = (
    *(16, 17, 24, 31, 32),
    *(33, 40, 47, 48, 56),
    *(63, 64, 65, 72, 80),
    *(96, 97, 112, 127, 128),
)
FURTHER = (1, 4, 12)
"""Blocks of the models of `further`."""
COLUMNS = ("", "symbols", "numbers", "ratio")


class Transformer:
    """Pre-norm blocks of attention and an MLP, which read sizes of their input."""

    def __init__(self, blocks: int, width: int, heads: int) -> None:
        draws = np.random.default_rng(0)
        self.heads = heads

        def weight(*shape: int) -> al.Tensor:
            numbers = draws.standard_normal(shape).astype(np.float32) * 0.05
            return al.tensor(numbers).requires_grad_()

        self.blocks = [
            {
                "query": weight(width, width),
                "key": weight(width, width),
                "value": weight(width, width),
                "out": weight(width, width),
                "first": weight(width, 4 * width),
                "second": weight(4 * width, width),
            }
            for _ in range(blocks)
        ]

    @property
    def parameters(self) -> list[al.Tensor]:
        """All weights."""
        return [each for block in self.blocks for each in block.values()]

    def loss(self, x: al.Tensor, parameters: list[al.Tensor]) -> al.Tensor:
        """The mean square of the last block's output; `x` is of (batch, length, width)."""
        for at in range(0, len(parameters), 6):
            query, key, value, out, first, second = parameters[at : at + 6]
            normed = _normed(x)
            q, k, v = [self._parted(normed @ each) for each in (query, key, value)]
            scores = (q @ k.transpose(2, 3) * 0.125).softmax(-1)
            x = x + (scores @ v).transpose(1, 2).reshape(x.shape) @ out
            x = x + (_normed(x) @ first).gelu() @ second
        return (x * x).mean()

    def _parted(self, x: al.Tensor) -> al.Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)


def _normed(x: al.Tensor) -> al.Tensor:
    centered = x - x.mean(-1, True)
    return centered / ((centered * centered).mean(-1, True) + 1e-5).sqrt()


@attrs.define
class Trained:
    """A compiled train step, with what it cost."""

    step: Any
    libraries: int = 0
    tapes: CompiledAutograd | None = None
    """Who runs the backward; None for that of a compiled function."""
    first: list[float] = attrs.field(factory=list)
    again: list[float] = attrs.field(factory=list)

    def run(self, x: al.Tensor, parameters: list[al.Tensor], times: list[float]) -> float:
        """One forward and backward; the loss."""
        loss: Any = None if self.tapes is None else self.step(x, parameters)
        before = _LOADED[0]
        begin = time.perf_counter()
        if self.tapes is None:
            loss = self.step(x, parameters)
            al.autograd.grad(loss, parameters)
        else:
            with al.compiled_autograd.enable(self.tapes):
                al.autograd.grad(loss, parameters)
        times.append(time.perf_counter() - begin)
        self.libraries += _LOADED[0] - before
        return float(loss.item())


_LOADED = [0]
"""How many libraries were loaded."""
_MODULES: tuple[Any, ...] = (compiled_program, sized_program)


@contextmanager
def counted_libraries() -> Iterator[list[int]]:
    """A block in which libraries that are loaded are counted, in the list's only element."""
    loads: list[Any] = [module.load_c for module in _MODULES]

    def counting(load: Any) -> Any:
        def counted(text: str, *rest: Any, **how: Any) -> Any:
            _LOADED[0] += 1
            return load(text, *rest, **how)

        return counted

    for module, load in zip(_MODULES, loads, strict=True):
        module.load_c = counting(load)
    try:
        yield _LOADED
    finally:
        for module, load in zip(_MODULES, loads, strict=True):
            module.load_c = load


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = "compile", "further", "autograd"
    parser.add_argument("what", nargs="?", choices=kinds, default=kinds[0])
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, default=len(LENGTHS), help="the first so many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", default="cpu", help="that of `further`")
    given = parser.parse_args(arguments)
    set_num_threads(given.threads)
    if given.what == "further":
        further(given.backend)
        return
    with counted_libraries():
        compared(given)


def compared(given: argparse.Namespace) -> None:
    """Trains in both ways by turns, and prints what it took."""
    model = Transformer(given.blocks, given.width, heads=4)
    parameters = model.parameters
    both = _tapes(model) if given.what == "autograd" else _functions(model)
    draws = np.random.default_rng(1)
    lengths = LENGTHS[: given.lengths]
    batches = {
        n: al.tensor(draws.standard_normal((4, n, given.width)).astype(np.float32)) for n in lengths
    }
    for x in batches.values():
        losses = [each.run(x, parameters, each.first) for each in both]
        assert math.isclose(losses[0], losses[1], rel_tol=1e-4), losses
    ratios = []
    for _ in range(given.rounds):
        for k, x in enumerate(batches.values()):
            for each in both[:: 1 if k % 2 else -1]:
                each.run(x, parameters, each.again)
            ratios.append(both[0].again[-1] / both[1].again[-1])
    made = table(f"{given.blocks} blocks, {len(lengths)} lengths of batches of 4", *COLUMNS)
    for name, counts in _counts(both):
        made.add_row(name, *map(str, counts), "")
    made.add_row("libraries", *[str(each.libraries) for each in both], "")
    if given.what == "compile":  # of a tape both are compiled for the first length's numbers
        made.add_row("first call of the first length, s", *_row([each.first[0] for each in both]))
    rest = [statistics.median(each.first[1:]) for each in both]
    made.add_row("first call of another length, s", *_row(rest))
    again = [statistics.median(each.again) for each in both]
    made.add_row("a later call, s", *_row(again)[:2], f"{statistics.median(ratios):.2f}")
    console = machine_console()
    console.print(made)


def further(backend: str) -> None:
    """Prints what a further size costs, for models of several numbers of blocks."""
    made = table(f"a further size, backend {backend}", "blocks", "first call", "later", "ms", "kB")
    for blocks in FURTHER:
        model = Transformer(blocks, 32, heads=4)
        step = al.compile(model.loss, dynamic_shapes={"x": {0: True, 1: True}}, backend=backend)

        def spent(length: int, step: Any = step, model: Transformer = model) -> float:
            x = al.ones(2, length, 32)
            begin = time.process_time()
            al.autograd.grad(step(x, model.parameters), model.parameters)
            return 1e3 * (time.process_time() - begin)

        for length in (7, 9, 11):  # captures, compiles, and writes what sizes share
            spent(length)
        pairs = [(spent(length), spent(length)) for length in range(12, 42)]
        first, later = [statistics.median(each) for each in zip(*pairs, strict=True)]
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for length in range(42, 62):
            spent(length)
        gc.collect()
        bytes_each = (tracemalloc.get_traced_memory()[0] - before) / 20
        tracemalloc.stop()
        numbers = first, later, first - later, bytes_each / 1e3
        made.add_row(str(blocks), *[f"{each:.2f}" for each in numbers])
    machine_console().print(made)


def _functions(model: Transformer) -> tuple[Trained, Trained]:
    """The compiled function with symbols, and the one with numbers."""
    symbols = al.compile(model.loss, dynamic_shapes={"x": {0: True, 1: True}}, backend="cpu")
    numbers = al.compile(model.loss, dynamic=False, recompile_limit=64, backend="cpu")
    return Trained(symbols), Trained(numbers)


class NumbersOnly:
    """The backend `cpu`, without kernels for all sizes."""

    name = "numbers"
    trusted = True

    def compile(self, graph: Graph) -> Any:
        """What `cpu` makes of the graph."""
        return backend_from("cpu").compile(graph)


def _tapes(model: Transformer) -> tuple[Trained, Trained]:
    """Backwards of the eager function, with kernels for all sizes and for each."""
    of = CompiledAutograd.of
    return Trained(model.loss, tapes=of("cpu")), Trained(model.loss, tapes=of(NumbersOnly()))


def _counts(both: Sequence[Trained]) -> Iterator[tuple[str, list[int]]]:
    if both[0].tapes is None:
        yield "compilations", [len(each.step.entries) for each in both]
        return
    counters = [each.tapes.counters for each in both if each.tapes is not None]
    yield "captures", [each.captures for each in counters]
    yield "compiled graphs", [each.compiles for each in counters]


def _row(pair: list[float]) -> list[str]:
    one, other = pair
    return [f"{one:.4f}", f"{other:.4f}", f"{one / other:.2f}"]


if __name__ == "__main__":
    main()
