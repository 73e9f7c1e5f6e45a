"""How a thread of a team goes over its points: loads first, then what is computed, then stores.

In each step the threads of a team take neighbouring bundles of `width` points, or each one point of
`width` rows side by side. Steps whose number is small are written out, all others in a loop of some
steps at a time: then several accesses are under way at once. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.c_family.emit_body import Body, Partial, Work
from aotlite.backends.c_family.emit_geometry import Geometry
from aotlite.backends.c_family.emit_scalar import Place, Scope
from aotlite.backends.c_family.emit_types import from_memory, memory_type
from aotlite.backends.cuda.emit_vectors import copied, unrolled
from aotlite.backends.cuda.kept import Keeping, steps_at_once
from aotlite.backends.cuda.layout import Layout, is_stored_once, is_vector
from aotlite.backends.loops.expr import Scalar
from aotlite.backends.loops.program import Reduce, Store
from aotlite.ir.dtypes import DType

MOST_LANES = 8
"""A thread's lanes for which its partial results are told apart when the text is compiled."""


@attrs.frozen
class Part:
    """Steps `begin` to `end` of a loop's body, counted from `base`; maybe beyond the last point."""

    begin: int
    end: int
    ragged: bool
    base: str = ""


class Steps:
    """Prints the loops of passes."""

    def __init__(
        self,
        body: Body,
        layout: Layout,
        geometry: Geometry,
        axis: int,
        keeping: Keeping,
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
    def lines(self, work: Work, workers: int, live: bool) -> list[str]:
        """The loops of one pass, in which so many threads of the team take part."""
        loads = self._loads(work)
        lines = self._all(work, loads, workers, live)
        for load in loads:
            if load not in self.keeping.loads:
                del self.body.writer.places[load]
        return lines

    def _all(self, work: Work, loads: list[Scalar], workers: int, live: bool) -> list[str]:
        pace = workers * self.stride
        count = -(-self.points // pace)
        kept = [load for load in loads if load in self.keeping.loads]
        if workers == self.layout.team and self._is_short(count, loads, work):
            whole = self.points // pace
            parts = [Part(0, whole, False)] * (whole > 0)
            parts += [Part(whole, count, True)] * (count > whole)
            lines = self._declared([each for each in loads if each not in kept], count)
            for part in parts:
                lines += self._part(part, work, loads, workers, live)
            self.loaded |= set(kept)
            return ["{", *lines, "}"]
        lines = self._looped(work, loads, workers, live)
        return [f"if (member < {workers}) {{", *lines, "}"] if workers < self.layout.team else lines

    def kept_arrays(self) -> list[str]:
        """The declarations of what stays in registers."""
        return self._declared(sorted(self.keeping.loads, key=self._name), self.keeping.steps)

    def _is_short(self, count: int, loads: Sequence[Scalar], work: Work) -> bool:
        """Whether all steps are written out: what is kept has its place then, and little is few."""
        return self.keeping.is_any or count <= self._at_once(work, loads, self.layout.team)

    def _looped(self, work: Work, loads: Sequence[Scalar], workers: int, live: bool) -> list[str]:
        """A loop of some steps at a time, then the last ones."""
        at_once = self._at_once(work, loads, workers)
        pace = at_once * workers * self.stride
        whole = self.points // pace * pace
        lines: list[str] = []
        if whole:
            head = f"for ({self.index} base = 0; base < {whole}; base += {pace}) {{"
            part = Part(0, at_once, False, "base")
            inside = [
                *self._declared(loads, at_once),
                *self._part(part, work, loads, workers, live),
            ]
            lines += [head, *inside, "}"]
        if whole < self.points:
            left = -(-(self.points - whole) // (workers * self.stride))
            part = Part(0, left, True, str(whole) if whole else "")
            inside = [*self._declared(loads, left), *self._part(part, work, loads, workers, live)]
            lines += ["{", *inside, "}"]
        return lines

    def _at_once(self, work: Work, loads: Sequence[Scalar], workers: int) -> int:
        sizes = [load.dtype.itemsize for load in loads]
        lanes = max([self._lanes(each, workers) for each in work.reduces], default=1)
        if lanes > MOST_LANES:
            return 1
        return 1 if work.scans else steps_at_once(sizes, self.layout.width, lanes)

    def _lanes(self, reduce: Reduce, workers: int) -> int:
        """Lanes of a thread, beside those of its neighbours."""
        return reduce.lanes // (workers * self.stride)

    # --- a part
    def _part(
        self, part: Part, work: Work, loads: Sequence[Scalar], workers: int, live: bool
    ) -> list[str]:
        lines = self._ahead(part, loads, workers)
        for load in loads:
            self._place(load)
        scope, vectors = self._point(work, workers)
        tests = ["live"] * (live and bool(work.stores)) + [self._inside()] * part.ragged
        inside = [*self.arrays(vectors), *self._step(scope), *self._stored(vectors)]
        inside = [f"if ({' && '.join(tests)}) {{", *inside, "}"] if tests else inside
        return [*lines, *self._turns(part, workers, inside)]

    def _inside(self) -> str:
        return f"point < {self.points}"

    def _turns(self, part: Part, workers: int, lines: Sequence[str]) -> list[str]:
        """The steps of a part."""
        base = f"{part.base} + " if part.base else ""
        member = "member" if self.layout.team > 1 else ""
        place = f"s * {workers} + {member}" if member else "s"
        place = f"({place}) * {self.stride}" if self.stride > 1 else place
        first = [f"const {self.index} point = {base}{place};"]
        first += self.positions(range(self.space, len(self.extents)), "point", "j")
        head = f"for (i32 s = {part.begin}; s < {part.end}; ++s)"
        return unrolled(head, [*first, *lines])

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
    def _loads(self, work: Work) -> list[Scalar]:
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

    def _place(self, load: Scalar) -> None:
        """From now on it is read where it was loaded to."""
        text = from_memory(load.dtype, f"{self._name(load)}[{self.element}]")
        axes = self.body.facts.axes(load)
        self.body.writer.places[load] = place_of(text, axes, load.dtype)

    @property
    def element(self) -> str:
        return f"s * {self.layout.width} + v"

    def _ahead(self, part: Part, loads: Sequence[Scalar], workers: int) -> list[str]:
        """The loads of all steps of a part: by vectors, or by elements where some buffer begins
        between two."""
        width = self.layout.width
        vectors = [load for load in loads if width > 1 and self.keeping.is_vector(load)]
        if not loads:
            return []
        plain = self._copies(part, loads, workers, [])
        if not vectors:
            return plain
        self.aligned |= {load.args[0] for load in vectors}
        wide = self._copies(part, loads, workers, vectors)
        return ["if (aligned) {", *wide, "} else {", *plain, "}"]

    def _copies(
        self, part: Part, loads: Sequence[Scalar], workers: int, vectors: Sequence[Scalar]
    ) -> list[str]:
        scope, lines = self._scope("j"), list[str]()
        for load in loads:
            source = f"b{load.args[0]} + ({self.body.writer.address(load.args[1], scope)})"
            to, width = f"{self._name(load)} + s * {self.layout.width}", self.layout.width
            if load in vectors or width == 1:
                nbytes = load.dtype.itemsize * (width if load in vectors else 1)
                lines.append(
                    copied(nbytes, to, source) if load in vectors else f"*({to}) = *({source});"
                )
                continue
            step = load.args[1].coefficients[self.axis]
            element = f"{self._name(load)}[{self.element}] = ({source})[v * {step}];"
            lines += unrolled(f"for (i32 v = 0; v < {width}; ++v)", [element])
        lines = [*scope.lines, *lines]
        if part.ragged:
            lines = [f"if ({self._inside()}) {{", *lines, "}"]
        return self._turns(part, workers, lines)

    # --- points
    def _scope(self, stem: str) -> Scope:
        """A scope of one point; `stem` is of its position along the axis of neighbours."""
        inner = range(self.space, len(self.extents))
        scope = Scope(self.body.row, sum(1 << k for k in {*inner, self.axis}))
        for k in inner:
            scope.positions[k] = f"j{k}"
        scope.positions[self.axis] = f"{stem}{self.axis}"
        return scope

    def _point(self, work: Work, workers: int) -> tuple[Scope, list[Store]]:
        """What is computed at one point, and the vectors that are stored behind a step."""
        vectors = [each for each in work.stores if self._is_vector(each, work.stores)]
        self.body.lines = {each.buffer: f"y{each.buffer}[v]" for each in vectors}
        scope = self._scope("i")
        self.body.point(work, scope, self._partial(workers))
        self.body.lines = {}
        return scope, vectors

    def _is_vector(self, store: Store, stores: Sequence[Store]) -> bool:
        width = self.layout.width
        is_wide = width > 1 and is_vector(store.address, self.axis, width)
        return is_wide and is_stored_once(stores, store.buffer)

    def _partial(self, workers: int) -> Partial:
        def partial(reduce: Reduce) -> str:
            lanes = self._lanes(reduce, workers)
            if lanes == 1:
                return "[v]"
            turn = "s" if lanes <= MOST_LANES else f"(point / {workers * self.stride})"
            return f"[{turn} % {lanes} * {self.layout.width} + v]"

        return partial

    def _step(self, scope: Scope) -> list[str]:
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
        scope = Scope(self.body.row, 1 << self.axis)
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


def place_of(text: str, axes: int, dtype: DType) -> Place:
    """An element of a local array, which is the same in all scopes that know its axes."""
    return Place(axes, lambda _: text, dtype)
