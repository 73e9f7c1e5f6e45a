"""Runs a backward as a sequence of compiled segments and closed nodes; records unknown segments.

    Piece: [segment of open nodes: one graph] closed node ──pattern──> Piece ──pattern──> Piece ..

The engine runs a closed node, with its hooks. The next piece is looked up by the pattern of the
gradients that have arrived by then (layouts, absent ones, equal objects). So a hook that changes
something leads to another piece.
Rules: CAG-1, CAG-3, CAG-6, CAG-8, CAG-9, CAG-12, CAG-18, CAG-24.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.compiled_autograd.dynamic.templates import Remade, SegmentOutline, Templates
from aotlite.compiled_autograd.node_signatures import form_of, is_plain, is_released
from aotlite.compiled_autograd.recorder import Place, TapeRecorder, node_note
from aotlite.compiled_autograd.segment import Segment, SegmentCompiler
from aotlite.compiled_autograd.segment_recording import SegmentRecorder
from aotlite.compiled_autograd.structure import Roots, TapeStructure, signatures
from aotlite.eager.autograd.anomaly import known_notes
from aotlite.eager.autograd.engine import BackwardPass, Sinks, reachable
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tape.node import LAST, Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.ir.errors import AutogradError, UnsupportedError, noted
from aotlite.ir.graph import Graph


@attrs.define(eq=False)
class SegmentStep:
    """A segment, the closed node after it, and the pieces that may follow, by pattern."""

    segment: Segment | None
    closed: int | None
    """The number of the closed node; None at the end."""
    place: int
    """How many nodes have run before the closed one."""
    after: dict[Hashable, SegmentStep] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Program:
    """The compiled pieces of the tapes of one topology."""

    number: int
    order: tuple[int, ...]
    """The nodes in the order in which the engine runs them."""
    first: SegmentStep

    def graphs(self) -> list[Graph]:
        """The graphs of its segments."""
        found, pieces = [], [self.first]
        while pieces:
            piece = pieces.pop()
            if piece.segment is not None and piece.segment.graph is not None:
                found.append(piece.segment.graph)
            pieces += reversed(piece.after.values())
        return found


def order_of(look: TapeStructure, roots: Roots) -> tuple[int, ...]:
    """The order in which the engine runs the nodes, which depends on edges alone (TEN-27)."""
    starts = [edge[0] for edge, _ in roots if edge is not None]
    order, waiting = reachable(starts)
    ready = deque([n for n in dict.fromkeys(starts) if n.sequence == LAST and not waiting[n]])
    found = []
    while ready or order:
        node = ready.popleft() if ready else order.pop()
        found.append(look.number[node])
        for edge in node.edges_in_order:
            if edge is not None and edge[0] in waiting:
                waiting[edge[0]] -= 1
                if not waiting[edge[0]]:
                    ready.append(edge[0])
    return tuple(found)


@attrs.define(eq=False)
class Tape:
    """One backward: its arguments, and the structure of its tape."""

    look: TapeStructure
    roots: Roots
    sinks: Sequence[Edge | None] | None
    accumulate: bool
    retain: bool
    changes: int
    """The count of hook changes when the structure was read."""

    def sinks_to_fill(self) -> Sinks | None:
        """The sinks as a pass of the engine fills them; None for those of `backward()`."""
        return None if self.sinks is None else Sinks(self.sinks, accumulate=self.accumulate)


class TapeRun(BackwardPass):
    """A backward pass that runs compiled pieces, and records the missing ones."""

    def __init__(self, tape: Tape, compiler: SegmentCompiler, templates: Templates) -> None:
        super().__init__(tape.sinks_to_fill(), tape.retain)
        self.tape = tape
        self.compiler = compiler
        self.templates = templates
        self.is_recorded = False
        """Whether some segment was recorded: formulas ran."""
        self.outlines: dict[Hashable, SegmentOutline] | None = None
        """The outlines of tapes with the same edges, once they are needed."""
        self.is_remade = False
        """Whether some segment was made from a template."""
        self.notes: list[str] = []
        """Which sizes became symbols, or why they could not."""
        self.nodes, self.number = tape.look.nodes, tape.look.number
        self.changed: dict[int, Hashable] = {}
        """The forms of nodes that changed since the structure was read, by number."""
        self.branches = 0
        """How many pieces after a closed node were missing."""
        self._begin_roots()

    def _begin_roots(self) -> None:
        tape = self.tape
        if self.sinks is not None:
            starts = [edge[0] for edge, _ in tape.roots if edge is not None]
            self._towards(self.sinks, starts, len(tape.roots))
            self._waiting = {}
        for edge, grad in tape.roots:
            if edge is not None and grad is not None:
                self._give(edge, grad)

    # --- gradients in flight
    @property
    def gradients(self) -> dict[TapeNode, list[Tensor | None]]:
        return self._buffers

    @gradients.setter
    def gradients(self, value: dict[TapeNode, list[Tensor | None]]) -> None:
        self._buffers = value

    def at(self, place: Place) -> Tensor | None:
        if place[0] == "sink":
            return self.collected[place[1]]
        return self._buffers[self.nodes[place[1]]][place[2]]

    def places(self) -> dict[int, Place]:
        """The first place of each gradient in flight, by its id."""
        found: dict[int, Place] = {}
        for node in self._arrived():
            for index, grad in enumerate(self._buffers[node]):
                if grad is not None:
                    found.setdefault(id(grad), ("at", self.number[node], index))
        for index, grad in enumerate(self.collected):
            if grad is not None:
                found.setdefault(id(grad), ("sink", index))
        return found

    def on_their_way(self) -> list[Tensor | None]:
        """All gradients in flight: at nodes that have not run, then at sinks; None if absent."""
        found = [grad for node in self._arrived() for grad in self._buffers[node]]
        return [*found, *self.collected]

    def arrivals(self) -> tuple[Hashable, tuple[Any, ...]]:
        """The nodes at which gradients have arrived, and the signatures of the gradients."""
        counts = [(self.number[node], len(self._buffers[node])) for node in self._arrived()]
        return tuple(counts), signatures(self.on_their_way())

    def _arrived(self) -> list[TapeNode]:
        """The nodes at which gradients have arrived, by number; a hook may have added nodes."""
        for node in self._buffers:
            if node not in self.number:
                self.number[node] = len(self.nodes)
                self.nodes.append(node)
        return sorted(self._buffers, key=self.number.__getitem__)

    def _pattern(self, rest: Sequence[int]) -> Hashable:
        """The key of the piece after a closed node: arrived gradients, and changed forms."""
        tape = self.tape
        moved, tape.changes = tape.changes != HookChanges.count, HookChanges.count
        for number in rest:
            node = self.nodes[number]
            if moved or node.sequence == LAST:  # a leaf may have died, or need no gradient now
                form = form_of(node)
                if form != tape.look.forms[number]:
                    tape.look.forms[number] = self.changed[number] = form
        return self.arrivals(), tuple(sorted(self.changed.items()))

    # --- running known pieces
    def follow(self, program: Program) -> list[Tensor | None]:
        """Runs the pieces of a program; records and adds missing ones."""
        return self.follow_from(program.first, program.order, 0)

    def follow_from(
        self, piece: SegmentStep, order: Sequence[int], start: int
    ) -> list[Tensor | None]:
        """`follow` from a piece on, which begins with node `start` of the order."""
        while True:
            try:
                if piece.segment is not None:
                    piece.segment.execute(self.nodes, self)
            except AutogradError:
                self.record(order, start)  # raises at eager's node, in eager's state
                raise
            if piece.closed is None:
                return self.collected
            self._step(self.nodes[piece.closed])
            start = piece.place + 1
            pattern = self._pattern(order[start:])
            following = piece.after.get(pattern)
            if following is None:
                self.branches += 1
                piece.after[pattern] = self.record(order, start)
                return self.collected
            piece = following

    # --- recording missing pieces
    def record(self, order: Sequence[int], start: int) -> SegmentStep:
        """Records and runs the nodes from `start` on; returns the first piece."""
        pieces = _Pieces(self, order)
        while True:
            segment = self._next_segment(order, start)
            end = start + len(segment.numbers)
            closed = order[end] if end < len(order) else None
            pieces.add(pieces.ended(segment, end), closed, end)
            if closed is None:
                return pieces.linked()
            start = end + 1

    def _next_segment(self, order: Sequence[int], start: int) -> SegmentRecorder | Remade:
        """The segment that begins at `start`: from a template, or recorded."""
        numbers = [*itertools.takewhile(self._is_open, itertools.islice(order, start, None))]
        remade = self.templates.segment(self, numbers, order, start)
        if remade is not None:
            self.is_remade = True
            return remade
        segment = SegmentRecorder(self)
        self.is_recorded |= bool(numbers)
        for number in numbers:
            if not (self._is_open(number) and segment.take(number)):
                break
        return segment

    def _is_open(self, number: int) -> bool:
        node = self.nodes[number]
        if not self.tape.look.is_open(number) or is_released(node):
            return False
        if not STATE.wrappers:
            return True
        arrived = [self._buffers.get(node, ())]
        arrived += [self._buffers.get(edge[0], ()) for edge in node.edges if edge is not None]
        if not all(grad is None or is_plain(grad) for grads in arrived for grad in grads):
            return False
        return not any(edge is not None and _is_formed(edge[0]) for edge in node.edges)

    def _run(self, node: TapeNode, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        try:
            return self._run_or_record(node, grads)
        except UnsupportedError:  # the node is found to be closed
            raise
        except Exception as error:
            number = self.number.get(node)
            whose = [] if number is None else [f"for {node_note(node, number)}"]
            noted(error, *whose, *known_notes(node))
            raise

    def _run_or_record(self, node: TapeNode, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if self.recorder is None:
            return super()._run(node, grads)
        assert isinstance(self.recorder, TapeRecorder)
        wanted = None if self.sinks is None else self.sinks.wanted_of(node)
        number = self.number[node]
        run, form = partial(self._recorded, grads=grads), self.tape.look.forms[number]
        return self.recorder.run(node, number, grads, wanted, form, run)

    def _recorded(self, node: TapeNode, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of a twin node on fakes; raises a refusal that its code caught (CAP-13)."""
        assert self.recorder is not None
        with raising_refusals(self.recorder):
            return super()._run(node, grads)


def _is_formed(node: TapeNode) -> bool:
    """Whether a node converts arriving gradients to wrappers (SUB-24)."""
    if node.extra is not None and node.extra.forms:
        return True
    leaf = node.leaf if type(node) is AccumulateGrad else None
    return leaf is not None and not is_plain(leaf)


class _Pieces:
    """The pieces of a tape that is being recorded."""

    def __init__(self, run: TapeRun, order: Sequence[int]) -> None:
        self.run = run
        self.order = order
        self.found: list[tuple[Hashable, SegmentStep]] = []
        self.pattern: Hashable = None

    def add(self, segment: Segment | None, closed: int | None, place: int) -> None:
        """Adds a segment that has run, and runs the closed node after it."""
        self.found.append((self.pattern, SegmentStep(segment, closed, place)))
        if closed is not None:
            self.run._step(self.run.nodes[closed])
            self.pattern = self.run._pattern(self.order[place + 1 :])

    def ended(self, recorded: SegmentRecorder | Remade, place: int) -> Segment | None:
        """Compiles and runs a recorded segment; None if no graph can express it (CAG-4): then the
        engine runs its nodes."""
        try:
            return recorded.end()
        except UnsupportedError:
            recorded.give_up()
        first = place - len(recorded.numbers)
        for at in range(first, place):
            self.add(None, self.order[at], at)
        return None

    def linked(self) -> SegmentStep:
        """The first piece, linked to the others."""
        for (_, before), (pattern, piece) in itertools.pairwise(self.found):
            before.after[pattern] = piece
        return self.found[0][1]
