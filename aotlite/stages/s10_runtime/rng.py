"""How a call and its backward advance the random generator.

Used by stage 10 alone, whose generated functions call this. If a half consumes a known number of
offsets, the generator advances in one step before the half runs: threads that draw at the same time
get other numbers. The graph returns the same next offset, for other readers. Only if the function
sets the generator does the runtime set the state that the graph returns, after the run.
Rules: RNG-3, RNG-5, RNG-6. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.rng.generator import Generator, current
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import BackwardSeed
from aotlite.stages.records.rng_state import FinalRngState
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.shared.rng_inputs import STATE_META


def drawn(generator: Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Seed and offset as 0-d uint64 arrays; advances the generator by `count` offsets."""
    return _arrays(*generator.advance(count))


def standing(generator: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Seed and offset as 0-d uint64 arrays; the generator does not move."""
    return _arrays(*generator.get_state())


def _arrays(seed: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(seed, np.uint64), np.array(offset, np.uint64)


def stand(generator: Generator, seed: Any, offset: Any) -> None:
    """Sets the generator to the seed and offset in these windows."""
    place = [int(tensor_over(window[0], STATE_META, window[1]).item()) for window in (seed, offset)]
    generator.stand(*place)


@attrs.define(eq=False, repr=False)
class RngWriter:
    """Adds the lines of one half for the generator.

    `consumed` is None if the graph returns the generator's state.
    """

    source: FunctionSource
    reads: bool = attrs.field(kw_only=True)
    """Whether the graph takes a seed and an offset."""
    consumed: int | None = attrs.field(kw_only=True)

    @classmethod
    def of_backward(
        cls, source: FunctionSource, graph: Graph, after: FinalRngState | None, absent: Any
    ) -> RngWriter:
        """The writer for a backward without the gradients of these results."""
        reads = any(type(node.role) is BackwardSeed for node in graph.placeholders)
        return cls(source, reads=reads, consumed=0 if after is None else after.consumed(absent))

    def begin(self) -> None:
        """Adds the lines that set `seed` and `offset` and advance the generator."""
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
        """Lines that give the offsets back if the run fails."""
        if not self.reads or not self.consumed:
            return []
        place = f"int(seed), int(offset), {self.consumed}"
        return ["except BaseException:", f"    generator.give_back({place})", "    raise"]

    def inputs(self) -> list[str]:
        """Expressions for the graph's last inputs, seed and offset, if it takes them."""
        return ["seed", "offset"] if self.reads else []

    def end(self, seed: str | None, offset: str) -> None:
        """Adds the line that sets the generator, if the graph returns its state."""
        if self.consumed is None:
            self.source.use(stand)
            self.source.add(f"stand(generator, {seed}, {offset})")
