"""The loops of a pass: how a thread of a team goes over its points.

    for (s = 0; s < 4; ++s) x0[s*w .. ] = loads of step s        // several loads are in flight
    for (s = 0; s < 4; ++s) for (v = 0; v < w; ++v) a0[v] += x0[s*w + v]

In each step the threads of a team take neighboring groups of `width` points, or one point of
`width` rows side by side each. A small number of steps is unrolled; else a loop takes some steps at
a time. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.c_family.c_types import from_memory, memory_type, to_memory
from aotlite.backends.c_family.loop_body import Body, Partial, PointWork
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import CScope, LocalElement
from aotlite.backends.cuda.emit.kernel_code import IndexTypes
from aotlite.backends.cuda.emit.reductions.register_operands import RegisterOperands, steps_at_once
from aotlite.backends.cuda.emit.reductions.thread_layout import (
    ACCESS,
    ThreadLayout,
    is_stored_once,
    is_vector,
)
from aotlite.backends.cuda.emit.reductions.vector_access import copied, unrolled
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Reduce, Store
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Affine, Scalar
from aotlite.ir.symbols.proving import is_proved

MOST_LANES = 8
"""The most lanes of a thread whose partial results get constant indices, and so registers."""
UNDER_WAY, FEW_UNDER_WAY = 128, 32
"""The bytes of loads in flight of a thread; the second if registers hold kept values."""


@attrs.frozen
class StepRange:
    """The steps of a loop's body, counted from `base`. `ragged`: some may lie beyond the last
    point, so that each is tested."""

    begin: int | str
    end: int | str
    ragged: bool
    base: str = ""
    group: str = ""
    """The first step of a group whose loads share arrays."""
    few: bool = False
    """Whether only two steps are unrolled, since their loads go on to shared memory."""


@attrs.frozen
class Access:
    """The copy of elements of all steps between memory and a local array."""

    local: str
    first: str
    """The index of a step's first neighbor in the local array."""
    buffer: int
    address: Affine
    dtype: DType
    back: bool = False
    """Whether it is a copy to memory."""
    pace: int = 1
    """The distance of neighbors in the local array."""


class ThreadSteps:
    """Prints the loops of passes."""

    def __init__(
        self,
        body: Body,
        layout: ThreadLayout,
        geometry: LoopGeometry,
        axis: int,
        keeping: RegisterOperands,
        index: IndexTypes,
    ) -> None:
        self.body, self.layout, self.axis = body, layout, axis
        self.extents, self.space = geometry.extents, geometry.space
        self.points, self.keeping = keeping.points, keeping
        self.types, self.index = index, index.position
        self.stride = layout.width if layout.along else 1
        self.aligned: set[int] = set()
        """The buffers with vectorized accesses, whose alignment the kernel tests."""
        self.names: dict[Scalar, str] = {}
        self.loaded: set[Scalar] = set()
        """The loads that are kept already."""

    # --- loops
    def lines(self, work: PointWork, workers: int) -> list[str]:
        """Returns the loops of one pass, in which `workers` threads of the team take part."""
        loads = self._loads(work)
        lines = self._all(work, loads, workers)
        for load in loads:
            if load not in self.keeping.loads:
                del self.body.writer.places[load]
        return lines

    def _all(self, work: PointWork, loads: list[Scalar], workers: int) -> list[str]:
        if type(self.points) is not int:
            if workers == self.layout.team and self.keeping.is_any:
                return ["{", *self._written_out_to_most(work, loads), "}"]
            return self._of_workers(self._looped_to_any(work, loads, workers), workers)
        count = -(-self.points // (workers * self.stride))
        if workers == self.layout.team and self._is_short(count, loads, work):
            return ["{", *self._written_out(count, work, loads), "}"]
        return self._of_workers(self._looped(work, loads, workers), workers)

    def _of_workers(self, lines: list[str], workers: int) -> list[str]:
        return [f"if (member < {workers}) {{", *lines, "}"] if workers < self.layout.team else lines

    def _written_out(self, count: int, work: PointWork, loads: Sequence[Scalar]) -> list[str]:
        """Returns all steps unrolled: first the kept loads, then groups of steps with other
        loads."""
        team = self.layout.team
        whole = self.points // (team * self.stride)
        lines, others = self._kept(loads)
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

    def _written_out_to_most(self, work: PointWork, loads: Sequence[Scalar]) -> list[str]:
        """Returns the same for a row of symbolic length, each of whose points is tested."""
        steps, team = self.keeping.steps, self.layout.team
        lines, others = self._kept(loads)
        size = math.gcd(self._at_once(work, others, team), steps) if others else steps
        part = StepRange("g", f"g + {size}", True, group="g")
        inside = [*self._declared(others, size), *self._part(part, work, others, team)]
        return lines + unrolled(f"for (i32 g = 0; g < {steps}; g += {size})", inside)

    def _kept(self, loads: Sequence[Scalar]) -> tuple[list[str], list[Scalar]]:
        """Returns the lines of the kept loads, and the other loads."""
        team = self.layout.team
        kept = [load for load in loads if load in self.keeping.loads]
        shared = [load for load in kept if load in self.keeping.shared]
        own = [load for load in kept if load not in self.keeping.shared]
        lines = [line for part in self._parts() for line in self._ahead(part, own, team)]
        for part in self._parts():
            lines += self._ahead(attrs.evolve(part, few=True), shared, team)
        for load in kept:
            self._place(load)
        self.loaded |= set(kept)
        return lines, [load for load in loads if load not in self.keeping.loads]

    def _parts(self) -> list[StepRange]:
        """Returns all steps of the team as two ranges: complete steps, then the ragged one."""
        if type(self.points) is not int:
            return [StepRange(0, self.keeping.steps, True)]
        pace = self.layout.team * self.stride
        whole, count = self.points // pace, -(-self.points // pace)
        parts = [StepRange(0, whole, False), StepRange(whole, count, True)]
        return [part for part in parts if part.begin != part.end]

    def kept_arrays(self) -> list[str]:
        """Returns the declarations of kept values, in registers and in shared memory."""
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
        """Whether all steps are unrolled: they are few, or values are kept in registers."""
        return self.keeping.is_any or count <= self._at_once(work, loads, self.layout.team)

    def _looped(self, work: PointWork, loads: Sequence[Scalar], workers: int) -> list[str]:
        """Returns a loop of some steps at a time, then the remaining ones."""
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

    def _looped_to_any(self, work: PointWork, loads: Sequence[Scalar], workers: int) -> list[str]:
        """Returns the same loop over any number of points: of the remaining ones each is tested."""
        at_once = self._at_once(work, loads, workers)
        whole = self.points // (at_once * workers * self.stride) * (at_once * workers * self.stride)
        lines = []
        for head, part in (
            (
                f"for ({self.index} base = 0; base < {whole}; "
                f"base += {at_once * workers * self.stride}) {{",
                StepRange(0, at_once, False, "base"),
            ),
            (f"if ({whole} < {self.points}) {{", StepRange(0, at_once, True, f"{whole}")),
        ):
            inside = self._part(part, work, loads, workers)
            lines += [head, *self._declared(loads, at_once), *inside, "}"]
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
        """Returns the lanes of a thread for each of its neighbors."""
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
        """Returns the loop over the steps of a part."""
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
        """Returns declarations of positions along axes, from a point's row-major number."""
        found, step = [], 1
        wide, unsigned = self.types.item, self.types.unsigned
        for place, k in reversed(list(enumerate(axes))):
            is_first = type(step) is int and step == 1
            text = index if is_first else f"({wide}){index} / {unsigned(step)}"
            if place and is_axis(self.extents[k]):
                number = unsigned(self.extents[k])
                text = f"({wide}){index} % {number}" if is_first else f"{text} % {number}"
            elif place:
                text = "0"
            found.append(f"const {self.index} {stem}{k} = {text};")
            step *= self.extents[k]
        return found[::-1]

    # --- loads
    def _loads(self, work: PointWork) -> list[Scalar]:
        """Returns the loads of the pass that no earlier pass has kept."""
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
        """Makes a load's value known in its local array."""
        own = f"{self._first(group, load in self.keeping.shared)} + v"
        text = from_memory(load.dtype, f"{self._name(load)}[{own}]")
        axes = self.body.facts.axes(load)
        self.body.writer.places[load] = place_of(text, axes, load.dtype)

    @property
    def element(self) -> str:
        """The index in an array of all steps, of the present step and neighbor."""
        return f"{self._first('')} + v"

    def _first(self, group: str, is_shared: bool = False) -> str:
        """Returns the index of a step's first neighbor in a thread's or the shared array."""
        step = f"(s - {group})" if group else "s"
        step = f"(s * {self.layout.threads} + threadIdx.x)" if is_shared else step
        return f"{step} * {self.layout.width}"

    def _ahead(self, part: StepRange, loads: Sequence[Scalar], workers: int) -> list[str]:
        """Returns the loads of all steps of a part."""
        found = []
        for load in loads:
            group = "" if load in self.keeping.loads else part.group
            buffer, address = load.args
            first = self._first(group, load in self.keeping.shared)
            found.append(Access(self._name(load), first, buffer, address, load.dtype))
        return self._moves(part, found, workers)

    def _moves(self, part: StepRange, found: Sequence[Access], workers: int) -> list[str]:
        """Returns copies between memory and local arrays: by vectors if buffers are aligned, else
        by elements."""
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
        """Returns the copy of one step's neighbors."""
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
        """Returns the lines that load the sums of rows in order before the first row, or store them
        (`back`) after the last one. Each point of a row belongs to the same thread throughout."""
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
        """Returns the declaration of a sum's array, filled with the identity if that is its
        start."""
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
        """Returns the distance between a thread's elements of a sum. In shared memory elements of
        other threads lie between, so that a warp accesses different banks."""
        return self.layout.threads if store.buffer in self.keeping.shared_sums else 1

    # --- points
    def _scope(self, stem: str) -> CScope:
        """Returns the scope of one point; `stem` names its position along the neighbors' axis."""
        inner = range(self.space, len(self.extents))
        axes = sum(1 << k for k in {*inner, self.axis})
        # Loads that need a point stay inside where a row may have none.
        sure = all(is_proved(extent > 0) for extent in self.extents[self.space :])
        scope = CScope(self.body.row, axes, branch=not sure)
        for k in inner:
            scope.positions[k] = f"j{k}"
        scope.positions[self.axis] = f"{stem}{self.axis}"
        return scope

    def _point(self, work: PointWork, workers: int) -> tuple[CScope, list[Store]]:
        """Returns the scope of one point's work, and the stores that are vectors after a step."""
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
        """Returns the loop over the neighbors of a step."""
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
        """Returns row-level stores of all neighboring rows."""
        vectors = [each for each in stores if self._is_vector(each, stores)]
        self.body.lines = {each.buffer: f"y{each.buffer}[v]" for each in vectors}
        scope = CScope(self.body.row, 1 << self.axis)
        self.body.stores(stores, scope)
        self.body.lines = {}
        return [*self.arrays(vectors), *self._step(scope), *self._stored(vectors)]

    def arrays(self, vectors: Sequence[Store]) -> list[str]:
        """Returns declarations of local arrays for vectorized stores."""
        kinds, width = self.body.kinds, self.layout.width
        return [
            f"alignas(16) {memory_type(kinds[each.buffer])} y{each.buffer}[{width}];"
            for each in vectors
        ]


def place_of(text: str, axes: int, dtype: DType) -> LocalElement:
    """Returns an element of a local array with one text in all scopes that know its axes."""
    return LocalElement(axes, lambda _: text, dtype)
