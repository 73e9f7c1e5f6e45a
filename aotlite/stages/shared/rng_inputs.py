"""The generator's state in a pure graph: seed and offset as inputs, the next offset as output.

    u = rand((2,)); v = rand((3,))      becomes      u = rand_pure(seed, offset, 0, (2,))
                                                     v = rand_pure(seed, offset, <used by u>, (3,))
                                                     next offset = advance(offset, <used by both>)

Used by stage 6. Draws that stage 1 recorded in their pure form, since the function sets the
generator, stay as they are. Rules: RNG-1 to RNG-4. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.ir.dtypes import uint64
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import FROM_BACKWARD, RNG_INPUTS, NextOffset, Offset, Role, Seed
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import RandomOp
from aotlite.ir.ops.random.state import ADVANCE_OFFSET

STATE_META = tensor_meta((), None, uint64)
"""The meta of a seed and of an offset."""


class GeneratorInputs:
    """The seed and offset inputs of a graph being built, and the offsets that its draws used."""

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

    def draw(self, node: Node, args: tuple[object, ...]) -> Node:
        """Emits the pure form of a random op, at the position after all earlier draws (RNG-4)."""
        op: RandomOp = node.target
        place = self._given[Seed], self._given[Offset], self.drawn
        made = self.build.emit(op.functional, (*place, *args))
        self.drawn += op.consumes(node.meta)  # type: ignore[arg-type]
        return made

    def closed(self, values: Sequence[object], roles: Sequence[Role]) -> Graph:
        """The finished graph; the next offset is the last output of the forward (RNG-3)."""
        values, roles = list(values), list(roles)
        if Offset in self._given and NextOffset() not in roles:
            later = [i for i, role in enumerate(roles) if type(role) in FROM_BACKWARD]
            place = later[0] if later else len(roles)
            args = (self._given[Offset], self.drawn)
            values.insert(place, self.build.emit(ADVANCE_OFFSET, args))
            roles.insert(place, NextOffset())
        return self.build.finish(values, roles)
