"""Finds out whether a tape is of a known structure, and runs it if so.

What `look` asks of a tape, by tables that were made of the structure: in a few short loops
(`way`, `kept`). A tape that is one stretch is run from there, without looking at a node twice
(`whole`). Whatever is not as expected gives MISS before anything has changed: then the general way
is taken, which knows other structures, and raises what eager raises. Rules: CAG-6, CAG-7.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.compiled_autograd.execution import Program, Tape
from aotlite.compiled_autograd.fast_path.execution import WholeRun, is_whole, saved_places
from aotlite.compiled_autograd.fast_path.saved import kept_of
from aotlite.compiled_autograd.fast_path.topology import way_of
from aotlite.compiled_autograd.structure import TapeStructure
from aotlite.eager.base.modes import STATE

MISS = object()
"""What a matcher gives for another tape."""
_ERRORS = (TypeError, ValueError, AttributeError, IndexError, KeyError)
"""What taking apart a node of another form raises."""


class Matcher:
    """The tables of one program."""

    def __init__(self, tape: Tape, program: Program) -> None:
        look, self.accumulate = tape.look, tape.accumulate
        self.program = program
        self.look = attrs.evolve(look, nodes=[], number={}, forms=list(look.forms))
        """Without the nodes that were looked at, whose forms change when hooks come meanwhile."""
        self.is_typed = STATE.wrappers
        """Whether it looks at classes of tensors: it need not where there are no wrappers."""
        self.way = way_of(look, tape.roots, tape.sinks, program.order, is_typed=self.is_typed)
        stretch = program.first.stretch if is_whole(tape, program) else None
        places = None if stretch is None else saved_places(stretch)
        self.kept = kept_of(look, self.way.numbers, places)
        self.whole = None
        """What runs the tape, where it is one stretch."""
        if stretch is not None:
            self.whole = WholeRun(tape, stretch, self.way, self.kept)

    def match(self, roots: Any, sinks: Any, accumulate: bool, retain: bool) -> Any:
        """What the backward gives; the nodes, where more than one stretch is run; or MISS."""
        if accumulate is not self.accumulate or (STATE.wrappers and not self.is_typed):
            return MISS
        try:
            reached = self.way.reached(roots, sinks)
            if reached is None:
                return MISS
            values = self.kept.values(reached.nodes, typed=self.is_typed)
            if values is None:
                return MISS
        except _ERRORS:
            return MISS
        if self.whole is None:
            return [reached.edges[place][0] for place in self.way.places]
        return self.whole.run(roots, reached, values, retain=retain)


def look_again(nodes: Sequence[Any], look: TapeStructure) -> TapeStructure:
    """A look at other nodes of the same structure."""
    number = {node: k for k, node in enumerate(nodes)}
    return TapeStructure(list(nodes), number, list(look.forms), look.key)
