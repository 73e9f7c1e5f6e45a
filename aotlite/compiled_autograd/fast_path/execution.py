"""Runs a matched tape that consists of one segment, in one call of its kernels.

`matcher` has checked every node, and collected the saved values. Rules: CAG-2, CAG-10, CAG-14.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from aotlite.backends.calling_convention import array_of, travels_as_array, window_of
from aotlite.compiled_autograd.execution import Program, Tape
from aotlite.compiled_autograd.fast_path.saved import ARRAY, CHECKED, WINDOW, SavedChecks, Slot
from aotlite.compiled_autograd.fast_path.topology import Reached, Way
from aotlite.compiled_autograd.recorder import note_forward
from aotlite.compiled_autograd.segment import Segment
from aotlite.compiled_autograd.structure import Roots
from aotlite.eager.autograd.leaf_backward import collect, collect_windows
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import NO_RESULTS, OpNode
from aotlite.eager.base.new_tensors import tensors_over
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


def is_whole(tape: Tape, program: Program) -> bool:
    """Whether a program is one segment whose results all go to leaves and sinks as new tensors."""
    first = program.first
    segment = first.segment
    if first.closed is not None or segment is None or segment.run is None or segment.shared:
        return False
    edges = [edge for edge, _ in tape.roots]
    if len(set(edges)) != len(edges) or None in edges:
        return False
    plain = all(type(of) is int for _, of in segment.leaves)
    plain = plain and all(of is Ellipsis or type(of) is int for of in segment.collected)
    known = {OpNode, AccumulateGrad, CompiledBackward}
    return plain and all(type(node) in known and not node.extra for node in tape.look.nodes)


def uses_of(segment: Segment) -> list[int]:
    """For each input of a segment: passed as an array or a window, or only checked."""
    assert segment.graph is not None and segment.run is not None
    found = []
    for node, read in zip(segment.graph.placeholders, segment.run.reads, strict=True):
        meta: Any = node.meta
        found.append(CHECKED if not read else ARRAY if travels_as_array(meta) else WINDOW)
    return found


def saved_places(segment: Segment) -> dict[Slot, int]:
    """The slots that a segment reads, and how each value is passed."""
    pairs = zip(segment.places, uses_of(segment), strict=True)
    return {place[1:]: use for place, use in pairs if place[0] == "saved"}


def picker(places: Sequence[int], count: int) -> Callable[[Any], Sequence[Any]]:
    """A function that picks the items at these places from a list of `count`."""
    if list(places) == list(range(count)):
        return list
    return itemgetter(*places) if len(places) > 1 else lambda values: [values[k] for k in places]


def _layout(meta: TensorMeta, leaf: TensorMeta | None) -> tuple[TensorMeta, int]:
    """The meta of a gradient, and its bytes if its leaf can take the buffer over; else -1."""
    fits = meta is leaf and meta.contiguous
    return meta, meta.span * meta.dtype.itemsize if fits else -1


class WholeRun:
    """The execution plan of a matched tape. A node's row is its index in `Way.numbers`."""

    def __init__(self, tape: Tape, segment: Segment, way: Way, kept: SavedChecks) -> None:
        self.kernels: Any = segment.run
        rows = {number: row for row, number in enumerate(way.numbers)}
        self.numbers = way.numbers
        """The numbers of the nodes, row by row."""
        self._take_inputs(tape, segment, rows, kept)
        self._take_kept(tape, segment, rows)
        self._take_results(tape, segment, way)

    def _take_inputs(
        self, tape: Tape, segment: Segment, rows: dict[int, int], kept: SavedChecks
    ) -> None:
        number = tape.look.number
        roots = [edge and (number[edge[0]], edge[1]) for edge, _ in tape.roots]
        known: dict[Any, int] = {("saved", *slot): k for k, slot in enumerate(kept.given)}
        order = []
        self.starts: list[tuple[int, int]] = []
        """(index of the root, how it is passed) of each root gradient that is read."""
        self.compiled: list[tuple[int, int, int, TensorMeta]] = []
        """(row, index, how it is passed, meta) of each saved value of a compiled call."""
        others: list[Any] = []
        assert segment.graph is not None
        uses = uses_of(segment)
        for node, place, use in zip(segment.graph.placeholders, segment.places, uses, strict=True):
            if use == CHECKED:
                continue
            if place not in known:
                others.append(place)
                if place[0] == "at":
                    self.starts.append((roots.index(place[1:]), use))
                else:
                    meta: Any = node.meta
                    self.compiled.append((rows[place[1]], place[2], use, meta))
            order.append(place)
        # `_values` returns the values of `kept`, then the root gradients, then those of calls.
        others.sort(key=lambda place: place[0] != "at")
        known.update({place: len(known) + k for k, place in enumerate(others)})
        places = [known[place] for place in order]
        self.arrange = picker(places, len(known))
        """Reorders the values to the graph's inputs."""

    def _take_kept(self, tape: Tape, segment: Segment, rows: dict[int, int]) -> None:
        nodes: Any = tape.look.nodes
        of_ops = [k for k, _ in segment.kept if type(nodes[k]) is OpNode]
        self.ops = [rows[k] for k in of_ops]
        """The rows of op nodes with saved values."""
        self.results = [rows[k] for k in of_ops if nodes[k].saved_results]
        """The rows of op nodes that saved a result."""
        self.calls = [rows[k] for k, _ in segment.kept if type(nodes[k]) is not OpNode]
        """The rows of compiled calls."""

    def _take_results(self, tape: Tape, segment: Segment, way: Way) -> None:
        assert segment.graph is not None
        self.metas: list[Any] = [value.meta for value in segment.graph.outputs]
        ends = {number: k for k, number in enumerate(way.end_numbers)}
        leaves, values = [ends[number] for number, _ in segment.leaves], []
        self.repeats: list[int] = []
        """Results that a second leaf gets as well: it gets a copy."""
        for _, of in segment.leaves:
            if of in values:
                self.repeats.append(of)
                of = len(self.metas) + len(self.repeats) - 1
            values.append(of)
        self.metas += [self.metas[of] for of in self.repeats]
        self.of = values
        """The indices of the results that leaves get, in order."""
        self.pick = picker(values, len(self.metas))
        """Picks these results."""
        self.pick_leaves = picker(leaves, len(way.ends))
        """Picks the leaves that get them."""
        self.ends = [way.ends[k][0] for k in leaves]
        """The places of the leaves' nodes."""
        pairs = zip(leaves, values, strict=True)
        self.layouts = [_layout(self.metas[of], way.ends[k][1]) for k, of in pairs]
        """For each gradient its meta, and the bytes of a buffer that its leaf can take over."""
        sinks = tape.sinks is not None
        self.collected = list(segment.collected) if sinks else None
        roots = [storage_root(value) for value in segment.graph.outputs]
        apart = len(set(roots)) == len(roots)
        self.is_new = apart and not sinks and not self.repeats
        """Whether each result is on memory of its own, and all of them go to leaves."""

    # --- running
    def run(self, roots: Roots, reached: Reached, values: list[Any], *, retain: bool) -> list[Any]:
        """Runs the kernels; accumulates the leaves' gradients, returns those at the sinks."""
        nodes: Any = reached.nodes
        values = self._values(roots, nodes, values)
        if not retain:
            for row in self.ops:
                nodes[row].kept = None
            for row in self.results:
                nodes[row].saved_results = NO_RESULTS
            for row in self.calls:
                nodes[row].release()
        try:
            found = self.kernels.called(values)
        except Exception as error:
            note_forward(error, zip(self.numbers, nodes, strict=True))
            raise
        if self.is_new:
            leaves, windows = self.pick_leaves(reached.leaves), self.pick(found)
            del found
            collect_windows(leaves, windows, self.layouts)
            return []
        found = [*found, *[found[of] for of in self.repeats]]
        found = tensors_over(found, self.metas)
        edges = reached.edges
        ends = [edges[place][0] for place in self.ends]
        given = [found[of] for of in self.of]
        collected = self.collected or ()
        kept = [None if of is Ellipsis else found[of] for of in collected]
        del found
        collect(given, ends)
        return kept

    def _values(self, roots: Roots, nodes: Any, values: list[object]) -> list[object]:
        for number, use in self.starts:
            grad = roots[number][1]
            values.append(grad._data if use == ARRAY else (grad.storage.buffer, grad.offset))
        for row, place, use, meta in self.compiled:
            value = nodes[row].saved[place]
            if use == WINDOW:
                value = window_of(value)
            else:
                value = array_of(value, meta)
            values.append(value)
        given = list(self.arrange(values))
        values.clear()  # the kernels free each value after its last read
        return given
