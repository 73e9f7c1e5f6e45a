"""How a thread of a team goes over its points: loads first, then what is computed, then stores.

In each step the threads of a team take neighbouring bundles of `width` points, or each one point of
`width` rows side by side. Steps whose number is small are written out, all others in a loop of some
steps at a time: then several accesses are under way at once. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.c_family.c_types import from_memory, memory_type, to_memory
from aotlite.backends.c_family.loop_body import Body, Partial, PointWork
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import CScope, LocalElement
from aotlite.backends.cuda.emit.reductions.register_operands import RegisterOperands, steps_at_once
from aotlite.backends.cuda.emit.reductions.thread_layout import (
    ACCESS,
    ThreadLayout,
    is_stored_once,
    is_vector,
)
from aotlite.backends.cuda.emit.reductions.vector_access import copied, unrolled
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.expr import Affine, Scalar
from aotlite.backends.loops.program import Reduce, Store
from aotlite.ir.dtypes import DType

MOST_LANES = 8
"""A thread's lanes for which its partial results are told apart when the text is compiled."""
UNDER_WAY, FEW_UNDER_WAY = 128, 32
"""Bytes that a thread asks for at once; the second where registers are kept for other things."""


@attrs.frozen
class StepRange:
    """Steps of a loop's body, counted from `base`; `ragged`: maybe beyond the last point."""

    begin: int | str
    end: int | str
    ragged: bool
    base: str = ""
    group: str = ""
    """The first step of those whose loads have arrays of their own."""
    few: bool = False
    """Whether two steps are under way at once, since what is loaded goes on to shared memory."""


@attrs.frozen
class Access:
    """Elements of all steps between memory and a local array."""

    local: str
    first: str
    """Where a step's neighbours lie there."""
    buffer: int
    address: Affine
    dtype: DType
    back: bool = False
    """To memory."""
    pace: int = 1
    """From one neighbour to the next in the local array."""


class ThreadSteps:
    """Prints the loops of passes."""

    def __init__(
        self,
        body: Body,
        layout: ThreadLayout,
        geometry: LoopGeometry,
        axis: int,
        keeping: RegisterOperands,
        index: str,
    ) -> None:
        self.body, self.layout, self.axis = body, layout, axis
        self.extents, self.space = geometry.extents, geometry.space
        self.points, self.keeping, self.index = keeping.points, keeping, index
        self.stride = layout.width if layout.along else 1
        self.aligned: set[int] = set()
        """Buffers that vectors are loaded from or stored to."""
        self.names: dict[Scalar, str] = {}
        self.loaded: set[Scalar] = set()
        """What lies in registers already."""

    # --- loops
    def lines(self, work: PointWork, workers: int) -> list[str]:
        """The loops of one pass, in which so many threads of the team take part."""
        loads = self._loads(work)
        lines = self._all(work, loads, workers)
        for load in loads:
            if load not in self.keeping.loads:
                del self.body.writer.places[load]
        return lines

    def _all(self, work: PointWork, loads: list[Scalar], workers: int) -> list[str]:
        count = -(-self.points // (workers * self.stride))
        if workers == self.layout.team and self._is_short(count, loads, work):
            return ["{", *self._written_out(count, work, loads), "}"]
        lines = self._looped(work, loads, workers)
        return [f"if (member < {workers}) {{", *lines, "}"] if workers < self.layout.team else lines

    def _written_out(self, count: int, work: PointWork, loads: Sequence[Scalar]) -> list[str]:
        """All steps: first the loads of what is kept, then groups of steps with all others."""
        team = self.layout.team
        whole = self.points // (team * self.stride)
        kept = [load for load in loads if load in self.keeping.loads]
        others = [load for load in loads if load not in self.keeping.loads]
        shared = [load for load in kept if load in self.keeping.shared]
        own = [load for load in kept if load not in self.keeping.shared]
        lines = [line for part in self._parts() for line in self._ahead(part, own, team)]
        for part in self._parts():
            lines += self._ahead(attrs.evolve(part, few=True), shared, team)
        for load in kept:
            self._place(load)
        self.loaded |= set(kept)
        size = math.gcd(self._at_once(work, others, team), whole) if others else whole
        if whole:
            part = StepRange("g", f"g + {size}", False, group="g")
            inside = [*self._declared(others, size), *self._part(part, work, others, team)]
            lines += unrolled(f"for (i32 g = 0; g < {whole}; g += {size})", inside)
        if count > whole:
            part = StepRange(whole, count, True, group=str(whole))
            inside = [*self._declared(others, 1), *self._part(part, work, others, team)]
            lines += ["{", *inside, "}"]
        return lines

    def _parts(self) -> list[StepRange]:
        """All steps of the team: those of which none is beyond the last point, then the others."""
        pace = self.layout.team * self.stride
        whole, count = self.points // pace, -(-self.points // pace)
        parts = [StepRange(0, whole, False), StepRange(whole, count, True)]
        return [part for part in parts if part.begin != part.end]

    def kept_arrays(self) -> list[str]:
        """The declarations of what stays in registers, and in shared memory."""
        keeping = self.keeping
        names = sorted(keeping.loads, key=self._name)
        lines = self._declared(
            [each for each in names if each not in keeping.shared], keeping.steps
        )
        for load, place in keeping.shared.items():
            kind = memory_type(load.dtype)
            lines.append(
                f"{kind} *const {self._name(load)} = ({kind} *)(room + {place // ACCESS});"
            )
        return lines

    def _is_short(self, count: int, loads: Sequence[Scalar], work: PointWork) -> bool:
        """Whether all steps are written out: what is kept has its place then, and little is few."""
        return self.keeping.is_any or count <= self._at_once(work, loads, self.layout.team)

    def _looped(self, work: PointWork, loads: Sequence[Scalar], workers: int) -> list[str]:
        """A loop of some steps at a time, then the last ones."""
        at_once = self._at_once(work, loads, workers)
        pace = at_once * workers * self.stride
        whole = self.points // pace * pace
        lines: list[str] = []
        if whole:
            head = f"for ({self.index} base = 0; base < {whole}; base += {pace}) {{"
            part = StepRange(0, at_once, False, "base")
            inside = [
                *self._declared(loads, at_once),
                *self._part(part, work, loads, workers),
            ]
            lines += [head, *inside, "}"]
        if whole < self.points:
            left = -(-(self.points - whole) // (workers * self.stride))
            part = StepRange(0, left, True, str(whole) if whole else "")
            inside = [*self._declared(loads, left), *self._part(part, work, loads, workers)]
            lines += ["{", *inside, "}"]
        return lines

    def _at_once(self, work: PointWork, loads: Sequence[Scalar], workers: int) -> int:
        sizes = [load.dtype.itemsize for load in loads]
        lanes = max([self._lanes(each, workers) for each in work.reduces], default=1)
        if lanes > MOST_LANES:
            return 1
        if work.scans and self.layout.width == 1:
            return 1
        room = FEW_UNDER_WAY if self.keeping.is_any else UNDER_WAY
        return steps_at_once(sizes, self.layout.width, lanes, room)

    def _lanes(self, reduce: Reduce, workers: int) -> int:
        """Lanes of a thread, beside those of its neighbours."""
        return reduce.lanes // (workers * self.stride)

    # --- a part
    def _part(
        self, part: StepRange, work: PointWork, loads: Sequence[Scalar], workers: int
    ) -> list[str]:
        lines = self._ahead(part, loads, workers)
        for load in loads:
            self._place(load, part.group)
        scope, vectors = self._point(work, workers)
        inside = [*self.arrays(vectors), *self._step(scope), *self._stored(vectors)]
        inside = [f"if ({self._inside()}) {{", *inside, "}"] if part.ragged else inside
        return [*lines, *self._turns(part, workers, inside)]

    def _inside(self) -> str:
        return f"point < {self.points}"

    def _turns(self, part: StepRange, workers: int, lines: Sequence[str]) -> list[str]:
        """The steps of a part."""
        base = f"{part.base} + " if part.base else ""
        member = "member" if self.layout.team > 1 else ""
        place = f"s * {workers} + {member}" if member else "s"
        place = f"({place}) * {self.stride}" if self.stride > 1 else place
        first = [f"const {self.index} point = {base}{place};"]
        first += self.positions(range(self.space, len(self.extents)), "point", "j")
        head = f"for (i32 s = {part.begin}; s < {part.end}; ++s)"
        lines = unrolled(head, [*first, *lines])
        return ["#pragma unroll 2", *lines[1:]] if part.few else lines

    def positions(self, axes: Sequence[int], index: str, stem: str = "i") -> list[str]:
        """The declarations of positions along axes, of a point's number in row-major order."""
        found, step = [], 1
        wide = "u32" if self.index == "i32" else "u64"
        for place, k in reversed(list(enumerate(axes))):
            text = index if step == 1 else f"({wide}){index} / {step}u"
            if place and self.extents[k] > 1:
                text = (
                    f"({wide}){index} % {self.extents[k]}u"
                    if step == 1
                    else f"{text} % {self.extents[k]}u"
                )
            elif place:
                text = "0"
            found.append(f"const {self.index} {stem}{k} = {text};")
            step *= self.extents[k]
        return found[::-1]

    # --- loads
    def _loads(self, work: PointWork) -> list[Scalar]:
        """What the pass loads, and no pass before it has kept."""
        computed = self.body.facts.in_order(work.roots)
        found = [each for each in computed if self.keeping.is_loaded_ahead(each)]
        return [each for each in found if each not in self.loaded]

    def _name(self, load: Scalar) -> str:
        return self.names.setdefault(load, f"x{len(self.names)}")

    def _declared(self, loads: Sequence[Scalar], count: int) -> list[str]:
        width = self.layout.width
        return [
            f"alignas(16) {memory_type(load.dtype)} {self._name(load)}[{count * width}];"
            for load in loads
        ]

    def _place(self, load: Scalar, group: str = "") -> None:
        """From now on it is read where it was loaded to."""
        own = f"{self._first(group, load in self.keeping.shared)} + v"
        text = from_memory(load.dtype, f"{self._name(load)}[{own}]")
        axes = self.body.facts.axes(load)
        self.body.writer.places[load] = place_of(text, axes, load.dtype)

    @property
    def element(self) -> str:
        """Of an array of all steps: at the step and the neighbour that are computed."""
        return f"{self._first('')} + v"

    def _first(self, group: str, is_shared: bool = False) -> str:
        """Where a step's neighbours lie in an array: a thread's own, or all threads'."""
        step = f"(s - {group})" if group else "s"
        step = f"(s * {self.layout.threads} + threadIdx.x)" if is_shared else step
        return f"{step} * {self.layout.width}"

    def _ahead(self, part: StepRange, loads: Sequence[Scalar], workers: int) -> list[str]:
        """The loads of all steps of a part."""
        found = []
        for load in loads:
            group = "" if load in self.keeping.loads else part.group
            buffer, address = load.args
            first = self._first(group, load in self.keeping.shared)
            found.append(Access(self._name(load), first, buffer, address, load.dtype))
        return self._moves(part, found, workers)

    def _moves(self, part: StepRange, found: Sequence[Access], workers: int) -> list[str]:
        """Between memory and local arrays: by vectors, or by elements where some buffer begins
        between two."""
        width = self.layout.width
        vectors = [
            each
            for each in found
            if each.pace == 1 and width > 1 and is_vector(each.address, self.axis, width)
        ]
        if not found:
            return []
        plain = self._copies(part, found, workers, [])
        if not vectors:
            return plain
        self.aligned |= {each.buffer for each in vectors}
        wide = self._copies(part, found, workers, vectors)
        return ["if (aligned) {", *wide, "} else {", *plain, "}"]

    def _copies(
        self, part: StepRange, found: Sequence[Access], workers: int, vectors: Sequence[Access]
    ) -> list[str]:
        scope, lines = self._scope("j"), list[str]()
        for each in found:
            place = f"b{each.buffer} + ({self.body.writer.address(each.address, scope)})"
            lines += self._copy(each, place, each in vectors)
        lines = [*scope.lines, *lines]
        if part.ragged:
            lines = [f"if ({self._inside()}) {{", *lines, "}"]
        return self._turns(part, workers, lines)

    def _copy(self, each: Access, place: str, is_vector: bool) -> list[str]:
        """The neighbours of one step."""
        width = self.layout.width
        local = f"{each.local} + {each.first}"
        ends = (place, local) if each.back else (local, place)
        if is_vector:
            return [copied(each.dtype.itemsize * width, *ends)]
        pace = each.address.coefficients[self.axis : self.axis + 1]
        steps = {local: each.pace, place: pace[0] if pace else 0}
        to, source = [f"({end})[v * {steps[end]}]" for end in ends]
        return unrolled(f"for (i32 v = 0; v < {width}; ++v)", [f"{to} = {source};"])

    # --- sums that rows in order share
    def sums(self, *, back: bool) -> list[str]:
        """Takes what stores combine with to registers, before the first row, or back to memory
        behind the last one: at each point of a row it is the same thread's."""
        kinds = self.body.kinds
        found, lines = list[Access](), list[str]()
        for store in self.keeping.sums:
            k, pace = store.buffer, self._pace(store)
            first = f"s * {self.layout.width * pace}"
            lines += [] if back else self._new_sum(store)
            if back or not store.from_identity:
                found.append(Access(f"q{k}", first, k, store.address, kinds[k], back, pace))
        for part in self._parts():
            lines += self._moves(part, found, self.layout.team)
        return lines

    def _new_sum(self, store: Store) -> list[str]:
        """The array of what a store combines with, of its identity where that is what it is."""
        dtype, local = self.body.kinds[store.buffer], f"q{store.buffer}"
        count, pace = self.keeping.steps * self.layout.width, self._pace(store)
        kind = memory_type(dtype)
        lines = [f"alignas(16) {kind} {local}[{count}];"]
        if pace > 1:
            place = self.keeping.shared_sums[store.buffer] // ACCESS
            lines = [f"{kind} *const {local} = ({kind} *)(room + {place}) + threadIdx.x;"]
        if not store.from_identity:
            return lines
        (start,) = combiner(str(store.combine)).identity([dtype])
        text = to_memory(dtype, self.body.writer.value(start, self.body.row))
        head = f"for (i32 k = 0; k < {count}; ++k)"
        return [*lines, *unrolled(head, [f"{local}[k * {pace}] = {text};"])]

    def _pace(self, store: Store) -> int:
        """From one of a thread's elements of a sum to the next one: in shared memory those of the
        other threads lie between, so that a warp's are in different banks."""
        return self.layout.threads if store.buffer in self.keeping.shared_sums else 1

    # --- points
    def _scope(self, stem: str) -> CScope:
        """A scope of one point; `stem` is of its position along the axis of neighbours."""
        inner = range(self.space, len(self.extents))
        scope = CScope(self.body.row, sum(1 << k for k in {*inner, self.axis}))
        for k in inner:
            scope.positions[k] = f"j{k}"
        scope.positions[self.axis] = f"{stem}{self.axis}"
        return scope

    def _point(self, work: PointWork, workers: int) -> tuple[CScope, list[Store]]:
        """What is computed at one point, and the vectors that are stored behind a step."""
        vectors = [each for each in work.stores if self._is_vector(each, work.stores)]
        self.body.lines = {each.buffer: f"y{each.buffer}[v]" for each in vectors}
        width = self.layout.width
        sums = {
            each.buffer: f"q{each.buffer}[(s * {width} + v) * {self._pace(each)}]"
            for each in self.keeping.sums
        }
        self.body.lines |= sums
        scope = self._scope("i")
        self.body.point(work, scope, self._partial(workers))
        self.body.lines = {}
        return scope, vectors

    def _is_vector(self, store: Store, stores: Sequence[Store]) -> bool:
        width = self.layout.width
        is_wide = width > 1 and is_vector(store.address, self.axis, width)
        return is_wide and store.combine is None and is_stored_once(stores, store.buffer)

    def _partial(self, workers: int) -> Partial:
        def partial(reduce: Reduce) -> str:
            lanes = self._lanes(reduce, workers)
            if lanes == 1:
                return "[v]"
            turn = "s" if lanes <= MOST_LANES else f"(point / {workers * self.stride})"
            return f"[{turn} % {lanes} * {self.layout.width} + v]"

        return partial

    def _step(self, scope: CScope) -> list[str]:
        """All neighbours of a step, one after the other."""
        k = self.axis
        position = f"const {self.index} i{k} = j{k} + v;"
        width = self.layout.width
        return unrolled(f"for (i32 v = 0; v < {width}; ++v)", [position, *scope.lines])

    def _stored(self, vectors: Sequence[Store]) -> list[str]:
        lines: list[str] = []
        width = self.layout.width
        for store in vectors:
            self.aligned.add(store.buffer)
            dtype = self.body.kinds[store.buffer]
            scope, own = self._scope("j"), f"y{store.buffer}"
            to = f"b{store.buffer} + ({self.body.writer.address(store.address, scope)})"
            each = unrolled(f"for (i32 v = 0; v < {width}; ++v)", [f"({to})[v] = {own}[v];"])
            lines += [
                *scope.lines,
                "if (aligned) {",
                copied(dtype.itemsize * width, to, own),
                *("} else {", *each, "}"),
            ]
        return lines

    # --- rows side by side
    def row_stores(self, stores: Sequence[Store]) -> list[str]:
        """Stores of row level, of all neighbours."""
        vectors = [each for each in stores if self._is_vector(each, stores)]
        self.body.lines = {each.buffer: f"y{each.buffer}[v]" for each in vectors}
        scope = CScope(self.body.row, 1 << self.axis)
        self.body.stores(stores, scope)
        self.body.lines = {}
        return [*self.arrays(vectors), *self._step(scope), *self._stored(vectors)]

    def arrays(self, vectors: Sequence[Store]) -> list[str]:
        """The declarations of the lines that stores of vectors go to first."""
        kinds, width = self.body.kinds, self.layout.width
        return [
            f"alignas(16) {memory_type(kinds[each.buffer])} y{each.buffer}[{width}];"
            for each in vectors
        ]


def place_of(text: str, axes: int, dtype: DType) -> LocalElement:
    """An element of a local array, which is the same in all scopes that know its axes."""
    return LocalElement(axes, lambda _: text, dtype)
