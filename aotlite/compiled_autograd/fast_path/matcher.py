"""Checks by tables whether a tape has a known structure, and runs it if it has.

The tables make the same comparisons as the key of `structure`, in a few short loops: edges and
forms (`topology`), saved values (`saved`). A tape of one segment runs at once (`execution`). Any
mismatch, an exception too, is a MISS before anything has changed: then the general path looks the
key up, and raises what eager raises. Rules: CAG-6, CAG-7. Spec: `specs/compiled_autograd.md`.
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
from aotlite.eager.base.tape.node import TapeNode

MISS = object()
"""The result of a matcher for a tape of another structure."""
_ERRORS = (TypeError, ValueError, AttributeError, IndexError, KeyError)
"""The errors of reading a node of an unexpected form."""


class Matcher:
    """The tables of one program."""

    def __init__(self, tape: Tape, program: Program) -> None:
        look, self.accumulate = tape.look, tape.accumulate
        self.program = program
        self.look = attrs.evolve(look, nodes=[], number={}, forms=list(look.forms))
        """The structure without its nodes; the forms are copied, since hooks may change them."""
        self.is_typed = STATE.wrappers
        """Whether the classes of tensors are compared: only if there are wrappers at all."""
        self.way = way_of(look, tape.roots, tape.sinks, program.order, is_typed=self.is_typed)
        segment = program.first.segment if is_whole(tape, program) else None
        places = None if segment is None else saved_places(segment)
        self.kept = kept_of(look, self.way.numbers, places)
        self.whole = None
        """The execution plan, if the tape is one segment."""
        if segment is not None:
            self.whole = WholeRun(tape, segment, self.way, self.kept)

    def match(self, roots: Any, sinks: Any, accumulate: bool, retain: bool) -> Any:
        """MISS; or the result of the backward; or, for several segments, the matched nodes."""
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


def look_again(nodes: Sequence[TapeNode], look: TapeStructure) -> TapeStructure:
    """The structure of other nodes that were matched with it."""
    number = {node: k for k, node in enumerate(nodes)}
    return TapeStructure(list(nodes), number, list(look.forms), look.key)
