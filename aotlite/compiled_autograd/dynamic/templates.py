"""Templates: recordings with symbolic sizes, which serve segments of other sizes.

    1st sizes ──> recorded with numbers, and compiled
    2nd       ──> recorded with symbols, and compiled for all sizes: the template
    3rd, 4th, .. ──> the template's kernels, if its assumptions hold: no formula runs, and no stage

A graph of which the backend makes no kernels for all sizes gets the numbers, and is compiled.

Rule: CAG-5. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.compiled_autograd.dynamic.recording import Unsymbolic, record_with
from aotlite.compiled_autograd.dynamic.sizes import Item, Symbols, outline_of, rank_of, symbols_of
from aotlite.compiled_autograd.node_signatures import is_plain, records_of, saver_of
from aotlite.compiled_autograd.segment import (
    RecordingRun,
    Segment,
    SegmentCompiler,
    SegmentRecording,
)
from aotlite.eager.base.tape.node import TapeNode
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.pipeline.size_regions.kernels import Instance, SizedKernels
from aotlite.stages.s10_runtime.backward.node import CompiledBackward

_MOST_TAPES = 256
"""The largest number of edge topologies whose outlines are kept; the oldest is dropped."""
_MOST_FAMILIES = 8
"""The largest number of families of one outline; the oldest is dropped."""


@attrs.frozen(eq=False)
class Template:
    """A recording with symbolic sizes, and the assumptions under which it holds."""

    symbols: Symbols
    recording: SegmentRecording
    pure: Graph | None
    """Its graph behind stage 7; None if gradients only pass through."""
    kernels: SizedKernels | None
    """Those of `pure` for all sizes; None where each size has its own."""
    log: tuple[Assumption, ...]

    @classmethod
    def of(cls, run: RecordingRun, symbols: Symbols, recording: SegmentRecording) -> Template:
        """The template of a recording, compiled. Raises Unsymbolic if a stage takes no symbols."""
        pure, kernels, table = None, None, symbols.table
        if recording.graph is not None:
            try:
                pure = run.compiler.pure(recording.graph)
            except UnsupportedError as error:
                raise Unsymbolic(f"the graph takes no symbols for sizes: {error}") from error
        run.compiler.prove(table)
        log, table.closed = tuple(table.log), True
        if pure is not None and symbols.places:
            kernels = run.compiler.sized(pure, table)
        return cls(symbols, recording, pure, kernels, log)

    def segment(self, values: Mapping[str, int], compiler: SegmentCompiler) -> Segment:
        """The segment at these values of the symbols."""
        found = attrs.evolve(self.recording, graph=self.pure).at(values)
        if found.graph is None:
            return found.of(None, None)
        kernels = self.kernels
        sized = None if kernels is None else Instance(kernels, found.graph, values)
        return found.of(found.graph, compiler.lowered(found.graph, sized))

    def values(self, items: Sequence[Item]) -> dict[str, int] | None:
        """The values of the symbols in a segment with these items; None if it does not fit."""
        fits = self.symbols.misfit(items) is None
        return self.symbols.values(items) if fits else None

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether all assumptions hold for these values."""
        try:
            return all(assumption.holds(values) for assumption in self.log)
        except AotliteError:  # evaluating an assumption can fail on sizes that do not fit
            return False


@attrs.define(eq=False)
class SegmentFamily:
    """Recorded segments that differ in sizes only, and the template for them."""

    samples: list[tuple[Item, ...]]
    """The items of each recorded segment that no earlier template fitted."""
    template: Template | None = None

    def misfit(self, items: Sequence[Item]) -> tuple[int, object]:
        """The index of the first item that does not fit, and the item that would."""
        if self.template is None:
            pairs = zip(self.samples[-1], items, strict=True)
            found = next(k for k, (mine, item) in enumerate(pairs) if mine != item)
            return found, self.samples[-1][found]
        symbols = self.template.symbols
        number = symbols.misfit(items)
        assert number is not None
        return number, concrete(symbols.items[number], symbols.values(items))


@attrs.define(eq=False)
class SegmentOutline:
    """All that is known of segments that are equal but for sizes."""

    families: list[SegmentFamily] = attrs.field(factory=list)
    fixed: set[tuple[int, int]] = attrs.field(factory=set)
    """(index of a meta, dimension) of sizes that a formula needs as numbers."""
    is_static: bool = False
    """Whether the segment cannot be recorded with symbols."""


@attrs.frozen(eq=False)
class Seen:
    """The items of a segment that is about to be recorded."""

    outline: SegmentOutline
    items: tuple[Item, ...]
    ends: tuple[tuple[int, int], ...]
    """(number of a node, number of items up to and with it)."""

    def difference(self, number: int, was: Item) -> str:
        """A clause on how item `number` differs from `was`."""
        owner = next((node for node, end in self.ends if number < end), None)
        where = "a gradient that arrives" if owner is None else f"NodeCall {owner}"
        item, kind = self.items[number], "an argument"
        if type(item) is not int:
            pairs = [*zip(was.shape, item.shape, strict=True)]
            pairs += zip(was.stride, item.stride, strict=True)
            place = next(k for k, (old, new) in enumerate(pairs) if old != new)
            kind = "a size" if place < len(item.shape) else "a stride"
            was, item = pairs[place]
        return f"{where}: {kind} was {was} and is {item}"


class Remade:
    """A segment made from a template; like a `SegmentRecorder`."""

    def __init__(self, run: RecordingRun, template: Template, values: Mapping[str, int]) -> None:
        self.run = run
        self.template = template
        self.values = values
        self.numbers = template.recording.numbers

    @property
    def recording(self) -> SegmentRecording:
        """What formulas would record."""
        return self.template.recording.at(self.values)

    def end(self) -> Segment:
        """Makes the segment, and runs it."""
        segment = self.template.segment(self.values, self.run.compiler)
        segment.execute(self.run.nodes, self.run)
        return segment

    def give_up(self) -> None:
        """Does nothing: no gradient in flight was changed."""


class Templates:
    """The templates of all segments that one `CompiledAutograd` has recorded."""

    def __init__(self) -> None:
        self._outlines: dict[Hashable, dict[Hashable, SegmentOutline]] = {}
        """By the edges of a tape: its outlines."""

    @property
    def outlines(self) -> list[SegmentOutline]:
        """All outlines."""
        return [each for known in self._outlines.values() for each in known.values()]

    def segment(
        self, run: RecordingRun, numbers: Sequence[int], order: Sequence[int], start: int
    ) -> Remade | None:
        """The segment of these nodes, made from a template or newly recorded with symbols.

        None if it has to be recorded with numbers; its sizes are remembered as a sample then.
        """
        if not numbers or not all(_is_as_saved(run.nodes[number]) for number in numbers):
            return None
        if not all(grad is None or is_plain(grad) for grad in run.on_their_way()):
            return None
        seen = self._seen(run, numbers, start)
        template = self._fitting(seen) or self._symbolic(run, numbers, seen)
        if template is None:
            seen.outline.families.append(SegmentFamily([seen.items]))
            del seen.outline.families[:-_MOST_FAMILIES]
            return None
        try:
            for number, absent in template.recording.kept:
                node: Any = run.nodes[number]
                if type(node) is CompiledBackward:
                    node.check(absent)
        except AotliteError:
            return None  # the recording raises it at the node's turn
        return Remade(run, template, template.symbols.values(seen.items))

    def _seen(self, run: RecordingRun, numbers: Sequence[int], start: int) -> Seen:
        look, items = run.tape.look, list[Item]()
        forms, ends = [], []
        for number in numbers:
            forms.append(outline_of(look.forms[number], items))
            ends.append((number, len(items)))
        places, signatures = run.arrivals()
        arrived = []
        for each in signatures:
            if each is not None:
                items.append(each[0])
                each = rank_of(each[0]), each[1]
            arrived.append(each)
        if run.outlines is None:
            run.outlines = self._of(look.key)
        rest = start, tuple(numbers), _beyond(run, numbers)
        where = *rest, tuple(forms), places, tuple(arrived)
        outline = run.outlines.get(where)
        if outline is None:
            outline = run.outlines[where] = SegmentOutline()
        return Seen(outline, tuple(items), tuple(ends))

    def _of(self, key: Any) -> dict[Hashable, SegmentOutline]:
        """The outlines of tapes with the same edges."""
        edges = key[0], key[3:]
        found = self._outlines.get(edges)
        if found is None:
            if len(self._outlines) >= _MOST_TAPES:
                self._outlines.pop(next(iter(self._outlines)), None)
            found = self._outlines[edges] = {}
        return found

    def _fitting(self, seen: Seen) -> Template | None:
        """The template that fits these sizes, if there is one."""
        for family in seen.outline.families:
            if family.template is not None:
                values = family.template.values(seen.items)
                if values is not None and family.template.holds(values):
                    return family.template
        return None

    def _symbolic(self, run: RecordingRun, numbers: Sequence[int], seen: Seen) -> Template | None:
        """A template with symbols for the sizes that differ from earlier samples; None if the
        segment is of no family, or cannot be symbolic.
        """
        outline = seen.outline
        for family in outline.families:
            if outline.is_static:
                break
            if family.template is not None and family.template.values(seen.items) is not None:
                continue  # it fits, but its assumptions do not hold: another family
            samples = [*family.samples, seen.items]
            symbols = symbols_of(samples, outline.fixed)
            if symbols is None:
                continue
            run.is_recorded = True
            change = ""  # in a segment of a tape whose sizes differ elsewhere
            if symbols.places:
                change = seen.difference(*family.misfit(seen.items)) + ": "
            try:
                forms = {number: run.tape.look.forms[number] for number in numbers}
                template = Template.of(run, symbols, record_with(run, symbols, forms))
            except Unsymbolic as error:
                outline.is_static = True
                run.notes.append(f"{change}{error}")
                return None
            if change:
                run.notes.append(f"{change}it is a symbol from now on")
            family.template = template
            if symbols.places:
                family.samples = samples
            self._fix(outline, family, symbols)
            return template
        return None

    def _fix(self, outline: SegmentOutline, family: SegmentFamily, symbols: Symbols) -> None:
        """Makes constants of the sizes that the recording read as numbers."""
        settled = symbols.settled()
        if settled:
            outline.fixed.update(symbols.places[name] for name in settled)
            del family.samples[:-1]


def _beyond(run: RecordingRun, numbers: Sequence[int]) -> tuple[int, ...]:
    """For each edge that leaves these nodes the number of gradients its target takes."""
    inside = {run.nodes[number] for number in numbers}
    edges = [edge for number in numbers for edge in run.nodes[number].edges]
    return tuple([e[0].results() for e in edges if e is not None and e[0] not in inside])


def _is_as_saved(node: TapeNode) -> bool:
    """Whether no saved value of a node was written since."""
    saver = saver_of(node)
    return saver is None or all(
        record.tensor is not None and record.tensor.storage.version == record.version
        for record in records_of(saver)
    )
