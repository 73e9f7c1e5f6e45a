"""The generator's state in a pure graph: its last inputs, and where it stands at the end.

Used by stage 6. A random op of an imperative graph becomes its pure form, which draws behind what
the random ops before it have used up; the graph's inputs get a seed and an offset, its outputs the
offset behind all of them. What was recorded as pure draws stays as it is: code that sets the
generator is recorded so (`streams`). Rules: RNG-1 to RNG-4. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir.dtypes import uint64
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import FROM_BACKWARD, RNG_INPUTS, NextOffset, Offset, Role, Seed
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import RandomOp
from aotlite.ir.ops.random.state import ADVANCE_OFFSET

STATE_META = tensor_meta((), None, uint64)
"""Of a seed and of an offset."""


class GeneratorInputs:
    """The seed and the offset of a graph that is being built, and what its draws have used up."""

    def __init__(self, graph: Graph, build: Builder, *, draws: bool) -> None:
        self.build = build
        self.drawn = 0
        inputs = graph.placeholders
        self._given = {type(n.role): n for n in inputs if type(n.role) in RNG_INPUTS}
        build.nodes.extend([n for n in inputs if type(n.role) not in RNG_INPUTS])
        for kind in RNG_INPUTS:  # the last ones (RNG-2)
            if kind in self._given:
                build.add(self._given[kind])
            elif draws and kind in (Seed, Offset):
                self._given[kind] = build.placeholder(STATE_META, kind()).node

    def draw(self, node: Node, args: tuple[Any, ...]) -> Node:
        """The pure form of a random op, behind the random ops before it (RNG-4)."""
        op: RandomOp = node.target
        place = self._given[Seed], self._given[Offset], self.drawn
        made = self.build.emit(op.functional, (*place, *args))
        self.drawn += op.consumes(node.meta)  # type: ignore[arg-type]
        return made

    def closed(self, values: Sequence[Any], roles: Sequence[Role]) -> Graph:
        """The graph with these outputs, and the advanced offset behind those of the forward
        (RNG-3).
        """
        values, roles = list(values), list(roles)
        if Offset in self._given and NextOffset() not in roles:
            later = [i for i, role in enumerate(roles) if type(role) in FROM_BACKWARD]
            place = later[0] if later else len(roles)
            args = (self._given[Offset], self.drawn)
            values.insert(place, self.build.emit(ADVANCE_OFFSET, args))
            roles.insert(place, NextOffset())
        return self.build.finish(values, roles)
