"""How a call and its backward take their places in the generator's stream, and leave it.

Used by stage 10 alone, whose functions call this. Where a half uses up a known number of offsets,
the generator moves on before the half runs, in one step: threads that draw at the same time get
other numbers. What the graph returns as the next offset is the same number, for other readers. Only
a function that puts the generator elsewhere has it put where the graph says, when it has run.
Rules: RNG-3, RNG-5, RNG-6. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.rng.generator import Generator, current
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import BackwardSeed
from aotlite.stages.records.rng_state import FinalRngState
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.shared.rng_inputs import STATE_META


def drawn(generator: Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The generator's seed and offset, as 0-d uint64 arrays, for what uses up `count`."""
    return _arrays(*generator.advance(count))


def standing(generator: Generator) -> tuple[np.ndarray, np.ndarray]:
    """The generator's seed and offset, which stay."""
    return _arrays(*generator.get_state())


def _arrays(seed: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(seed, np.uint64), np.array(offset, np.uint64)


def stand(generator: Generator, seed: Any, offset: Any) -> None:
    """Puts the generator where a graph says, by windows."""
    place = [int(tensor_over(window[0], STATE_META, window[1]).item()) for window in (seed, offset)]
    generator.stand(*place)


class RngWriter:
    """Writes the lines of one half around its run. `consumed` is None if the graph says where."""

    def __init__(self, source: FunctionSource, *, reads: bool, consumed: int | None) -> None:
        self.source = source
        self.reads = reads
        """The graph takes a seed and an offset."""
        self.consumed = consumed

    @classmethod
    def of_backward(
        cls, source: FunctionSource, graph: Graph, after: FinalRngState | None, absent: Any
    ) -> Any:
        """The writer for a backward without the gradients of these results."""
        reads = any(type(node.role) is BackwardSeed for node in graph.placeholders)
        return cls(source, reads=reads, consumed=0 if after is None else after.consumed(absent))

    def call(self, line: str) -> None:
        """The run, on a backend without a compact face."""
        undo = self.on_error()
        self.source.add(*(["try:", f"    {line}", *undo] if undo else [line]))

    def begin(self) -> None:
        """The variables `seed` and `offset`, and the generator moved on."""
        if not self.reads and self.consumed is not None:
            return
        source = self.source
        source.use(current)
        source.add("generator = current()")
        if self.consumed is not None:
            source.use(drawn)
            source.add(f"seed, offset = drawn(generator, {self.consumed})")
        elif self.reads:
            source.use(standing)
            source.add("seed, offset = standing(generator)")

    def on_error(self) -> list[str]:
        """Lines that undo it where the run fails."""
        if not self.reads or not self.consumed:
            return []
        place = f"int(seed), int(offset), {self.consumed}"
        return ["except BaseException:", f"    generator.give_back({place})", "    raise"]

    def inputs(self, *, is_compact: bool) -> list[str]:
        """The last inputs of the graph."""
        if not self.reads:
            return []
        return ["seed", "offset"] if is_compact else ["(seed, 0)", "(offset, 0)"]

    def end(self, seed: str | None, offset: str) -> None:
        """Puts the generator where the variables say, if the graph does."""
        if self.consumed is None:
            self.source.use(stand)
            self.source.add(f"stand(generator, {seed}, {offset})")
