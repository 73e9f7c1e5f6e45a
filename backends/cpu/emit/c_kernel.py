"""The printer of one kernel: a C function over a range of units, rows or blocks of the vector axis.

    kernel sum_0[i0<100, *i1<640]:             static NEVER_INLINE void run_k0(..., begin, end) {
      v0 = reduce<sum lanes=64>(..)              i64 i0 = begin;
      each row: b1[i0] = v0                      for (i64 unit = begin; unit < end; ++unit) {
                                                   f32 a0[64];  set to 0
                                                   for (base = 0; base < 640; base += 64)
                                                     for (lane = 0; lane < 64; ++lane) a0[lane] += .
                                                   halves of a0;  b1[i0] = a0[0];  ++i0; } }

Loops from the outside: units, inner axes, the vector axis. `axis_passes` decides the passes,
`split_loops` splits loops, `staging` sends operands through local memory, `loop_body` prints
points. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from aotlite.backends.c_family.axis_passes import Pass, Passes, of_no_points, passes, with_values
from aotlite.backends.c_family.loop_body import VECTOR, Body, Partial, PointWork
from aotlite.backends.c_family.loop_geometry import TILE
from aotlite.backends.c_family.loop_segments import parts, with_chosen_addresses
from aotlite.backends.c_family.scalar_text import ROW, CScope, FunctionTexts, KernelFacts
from aotlite.backends.cpu.emit.finite_path import FiniteLoops
from aotlite.backends.cpu.emit.loop_text import Range, in_steps, of_point, part_bounds
from aotlite.backends.cpu.emit.loop_units import geometry
from aotlite.backends.cpu.emit.masked_loops import MaskedLoops, quotient_by_size
from aotlite.backends.cpu.emit.split_loops import Loop, Splitter
from aotlite.backends.cpu.emit.staging import Stager, prefetches
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import (
    Kernel,
    Reduce,
    Scan,
    Statement,
    Store,
    loads_of,
    values_of,
)
from aotlite.backends.loops.rewrite import replaced, without_lets
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.primitives import COMPARISONS
from aotlite.ir.symbols.proving import is_proved

SCRATCH = 1 << 16
"""The most bytes of local arrays for values that are kept between passes."""

SHORT_ROW = 1 << 13
"""Rows of any length have a version that keeps values of so many points between passes."""
FEW = 80
"""The most scalars of a loop in lanes that is split at places which depend on other axes."""
CHOICES = frozenset(("where", *COMPARISONS))
"""A kernel is looked through for loops to split if it has one of these operations."""
TOGETHER = 8
"""Inner points whose values are added to an array of partial results in one go, so that each
partial result is loaded and stored once for all of them."""


class KernelPrinter:
    """Prints the body of one kernel's function."""

    def __init__(
        self,
        kernel: Kernel,
        kinds: dict[int, DType],
        facts: KernelFacts,
        library: FunctionTexts,
        *,
        of_short_rows: bool = False,
        of_narrow_rows: bool = False,
    ) -> None:
        """`of_short_rows`: rows of symbolic length have at most `short_row` points.
        `of_narrow_rows`: they have at most as many as a masked vector, in `narrowed` kernels."""
        self.facts, self.kinds, self.library = facts, kinds, library
        self.loops = geometry(kernel, facts.extents)
        body = self._prepared(kernel)
        self._set_axes(body)
        self.short_row = VECTOR if of_narrow_rows else SHORT_ROW // self.loops.width
        of_short_rows |= of_narrow_rows
        points = self.loops.points * self.loops.width
        if type(points) is not int:
            points = self.short_row * self.loops.width if of_short_rows else SCRATCH + 1
        room = SCRATCH // max(points, 1)
        self.passes: Passes = passes(body, facts, room)
        self.lane_passes = 0
        every = walk([value for each in body for value in values_of(each)])
        self.apart = ["APART();"] if any(map(facts.is_lazy, every)) else []
        """The lines that keep gcc from vectorizing loops around the innermost one (`_jumps`)."""
        self.function = CScope(None)
        self.row = CScope(self.function, sum(1 << k for k in self.loops.outer) | ROW)
        self.body = Body(self.loops, facts, kinds, library, self.row)
        self.body.kept_points = self.short_row if of_short_rows else None
        self.usual = FiniteLoops(self.body)
        self.masks = MaskedLoops(self.body, only=of_narrow_rows)
        self.splitter = Splitter(self.loops, facts, self.body, chooses=self.chooses)
        self.body.writer.special = partial(quotient_by_size, self.splitter.moves)
        loaded = frozenset(load.args[0] for load in loads_of(kernel))
        self.stager = Stager(self.splitter, self.body, library, loaded)

    def _prepared(self, kernel: Kernel) -> list[Statement]:
        body = list(without_lets(kernel).body)
        if self.loops.points == 0:
            body = of_no_points(body)
        roots = [value for each in body for value in values_of(each)]
        self.chooses = any(scalar.op in CHOICES for scalar in walk(roots))
        if not self.chooses:
            return body
        k = self.loops.innermost
        bit = 0 if k is None else 1 << k
        plain = KernelFacts(self.facts.extents, self.facts.space)
        for each in body:
            if type(each) is Reduce or type(each) is Scan:
                plain.name_axes.update(dict.fromkeys(each.names, bit))

        def fixed(condition: Scalar) -> bool:
            return not plain.axes(condition) & bit

        return [with_values(each, lambda root: with_chosen_addresses(root, fixed)) for each in body]

    def _set_axes(self, body: Sequence[Statement]) -> None:
        of_rows = (1 << self.loops.space) - 1 | ROW
        for each in body:
            if type(each) is Reduce:
                self.facts.name_axes.update(dict.fromkeys(each.names, of_rows))
            elif type(each) is Scan:
                everything = (1 << len(self.loops.extents)) - 1
                self.facts.name_axes.update(dict.fromkeys(each.names, everything))

    def text(self) -> list[str]:
        """Returns the lines of the function's body."""
        for stage in self.passes.stages:
            self._row_stage(stage.rows, stage.passes)
            for each in stage.passes:
                self._pass(each)
        end = ["STREAMED();"] if any("stream(" in line for line in self.row.lines) else []
        return [*self.function.lines, *self._units(), *end]

    # --- units
    def _units(self) -> list[str]:
        """Returns the loop over units. Positions are counted on from unit to unit, like an
        odometer, since a division for each unit would cost more than a short row."""
        digits = [(f"i{k}", self.facts.extents[k]) for k in self.loops.outer]
        digits += [("tile", self.loops.tiles)] if is_axis(self.loops.tiles) else []
        digits += [("block", self.loops.blocks)] if is_axis(self.loops.blocks) else []
        start: list[str] = []
        after: list[str] = []
        for place, (text, extent) in enumerate(digits):
            rest = math.prod([each for _, each in digits[place + 1 :]])
            quotient = "begin" if rest == 1 else f"begin / {rest}"
            first = f"{quotient}{'' if place == 0 else f' % {extent}'}"
            if first != "begin" and is_symbolic((rest, extent)):
                first = f"begin ? {first} : 0"  # divisions take longer than a short row
            start.append(f"i64 {text} = {first};")
            if place:
                last = digits[place - 1][0]
                after.insert(0, f"if ({text} == {extent}) {{ {text} = 0; ++{last}; }}")
        if digits:
            after.insert(0, f"++{digits[-1][0]};")
        head = "for (i64 unit = begin; unit < end; ++unit) {"
        return [*start, head, *self.apart, *self._bounds(), *self.row.lines, *after, "}"]

    def _bounds(self) -> list[str]:
        found = []
        if self.loops.vector is not None:
            extent = self.facts.extents[self.loops.vector]
            found += part_bounds("v", "block", extent, self.loops.block)
            if not is_axis(self.loops.blocks):
                end = f", v1 = {extent}" if is_symbolic((extent,)) else ""
                found = [f"const i64 v0 = 0{end};"]
        if self.loops.tile is not None:
            extent = self.facts.extents[self.loops.tile]
            if is_axis(self.loops.tiles):
                found += part_bounds("u", "tile", extent, TILE)
            else:
                found.append(f"const i64 u0 = 0, u1 = {extent};")
        return found

    def _block(self) -> Range:
        """Returns the range of the vector axis in a unit."""
        if is_axis(self.loops.blocks):
            return "v0", "v1"
        return 0, self.facts.extents[self.loops.vector or 0]

    # --- row stages
    def _row_stage(self, stores: Sequence[Store], following: Sequence[Pass]) -> None:
        """Prints row-level stores, and row-level values along the vector axis that passes use."""
        work = self._renamed(PointWork(stores=tuple(stores)))
        if self.loops.vector is None:
            self.splitter.unswitched(work, self.row, self._store_row)
            return
        vectors = [value for each in following for value in self._vectors_of(each)]
        saved = [(value, self.body.keep(value, inner=False)) for value in dict.fromkeys(vectors)]
        work = PointWork(saved=tuple(saved), stores=work.stores)
        loop = self._vector_loop(lambda reduce: "")
        if self.loops.tile is not None and stores:
            self.stager.tiled(work, self.row, self.loops.tile, self._block(), loop)
        elif saved or stores:
            self.stager.streamed(work, self.row, self._block(), loop)

    def _store_row(self, work: PointWork, scope: CScope) -> None:
        self.body.stores(work.stores, scope)

    def _vectors_of(self, each: Pass) -> list[Scalar]:
        """Returns the outermost row-level operations that vary along the vector axis."""
        bit = 1 << (self.loops.vector or 0)
        found: list[Scalar] = []
        todo, done = list(each.roots), set(self.body.local_names)
        while todo:
            scalar = todo.pop()
            if scalar in done:
                continue
            done.add(scalar)
            computed = scalar.op not in ("axis", "const", "load", "name")
            of_vector = self.facts.axes(scalar) & bit and not self.facts.is_element(scalar)
            if computed and of_vector and self.facts.safe(scalar):
                found.append(scalar)
            else:
                todo += self.facts.computed_for(scalar)
        return found

    def _renamed(self, work: PointWork) -> PointWork:
        """Returns the work with values that lie in local arrays loaded from there."""
        memo = dict(self.body.local_names)
        return work.changed(lambda root: replaced(root, memo))

    # --- passes
    def _pass(self, each: Pass) -> None:
        going: tuple[Reduce | Scan, ...] = (*each.scans, *each.reduces)
        for statement in going:
            self.body.accumulators(statement)
        computed = self.facts.computed(each.roots)
        new = [s for s in self.passes.kept if s in computed and s not in self.body.local_names]
        work = self._renamed(
            PointWork(each.scans, tuple([(s, s) for s in new]), each.reduces, each.stores)
        )
        leaves = [self.body.keep(scalar, inner=True) for scalar in new]
        values = [value for value, _ in work.saved]
        work = PointWork(
            work.scans, tuple(zip(values, leaves, strict=True)), work.reduces, work.stores
        )
        if self.loops.vector is not None and self.stager.has_inner_tiles(work):
            self._nest(work, self.loops.inner[:-1], self._inner_tiles)
        elif self.loops.vector is not None and self._only_reduces(work):
            self._nest(work, self.loops.inner[:-1], self._several)
        elif self.loops.vector is not None:
            self._nest(work, self.loops.inner, self._blocks)
        elif each.lanes > 1 and self._lanes_fit(each.lanes):
            self._nest(work, self.loops.inner[:-1], self._lanes)
        else:
            self._nest(work, self.loops.inner[:-1], self._points)
        for reduce in each.reduces:
            self.body.result(reduce)

    def _lanes_fit(self, lanes: int) -> bool:
        """Whether each run along the last axis begins at lane 0."""
        *before, last = [self.facts.extents[k] for k in self.loops.inner]
        return last % lanes == 0 or math.prod(before) == 1

    def _nest(
        self, work: PointWork, axes: list[int], innermost: Callable[[PointWork, CScope], None]
    ) -> None:
        """Prints loops over inner axes around the innermost one."""
        scopes = [self.row]
        for k in axes:
            scopes.append(self._inside(scopes[-1], k))
        innermost(work, scopes[-1])
        for k in reversed(axes):
            inside = scopes.pop()
            head = f"for (i64 i{k} = 0; i{k} < {self.facts.extents[k]}; ++i{k}) {{"
            scopes[-1].lines += [head, *self.apart, *inside.lines, "}"]

    def _inside(self, parent: CScope, k: int) -> CScope:
        """Returns the scope of a loop over an inner axis. Loads that need a point stay inside where
        the axis may have none."""
        extent = self.facts.extents[k]
        sure = type(extent) is int or is_proved(extent > 0)
        return CScope(parent, 1 << k, branch=not sure)

    def _points(self, work: PointWork, parent: CScope) -> None:
        """Prints a loop over single points. The number of a point gives its lane."""
        k = self.loops.inner[-1]
        lanes = max([reduce.lanes for reduce in work.reduces], default=1)

        def loop(part: PointWork, outside: CScope, place: Range) -> None:
            def point(scope: CScope) -> None:
                if lanes > 1:
                    scope.lines.append(f"const i64 point = {self.body.number(scope)};")
                self.body.point(part, scope, lambda reduce: of_point(reduce.lanes))

            masked = 0 if part.reduces else self.masks.lanes(part, k)
            inside, again = partial(self._inside, outside, k), self.masks.may_repeat(part)
            outside.lines += self.masks.loop(k, place, masked, inside, point, repeats=again)

        self.stager.streamed(work, parent, (0, self.facts.extents[k]), self._in_two(k, loop))

    def _lanes(self, work: PointWork, parent: CScope) -> None:
        """Prints a loop over as many points at a time as there are lanes: it vectorizes."""
        k = self.loops.inner[-1]
        lanes = max([reduce.lanes for reduce in work.reduces])
        self.lane_passes += 1

        def loop(part: PointWork, outside: CScope, place: Range) -> None:
            if isinstance(place[0], int) and isinstance(place[1], int):
                self._lane_loops(part, outside, (place[0], place[1]), lanes)
            elif place[0] == 0 or self.usual.block[0] % lanes == 0:
                self._long_lane_loops(part, outside, place, lanes)
            else:
                self._moved_lane_loops(part, outside, place, lanes)

        few = len(self.facts.in_order(work.roots)) <= FEW
        whole = (0, self.facts.extents[k])
        self.splitter.split(work, parent, whole, self._in_two(k, loop), moving=few)

    def _lane_loops(
        self, work: PointWork, parent: CScope, place: tuple[int, int], lanes: int
    ) -> None:
        """Prints the points before the first lane 0, then loops over whole sets of lanes, then the
        remaining points."""
        begin, end = place
        first, last = -(-begin // lanes) * lanes, end // lanes * lanes
        if last < first:
            first = last = end
        below = begin // lanes * lanes
        self._lane_loop(work, parent, str(below), (begin - below, first - below))
        if first < last:
            inside = CScope(parent)
            self._lane_loop(work, inside, "base", (0, lanes))
            head = f"for (i64 base = {first}; base < {last}; base += {lanes}) {{"
            parent.lines += [head, *self._fetches(work, lanes), *inside.lines, "}"]
        self._lane_loop(work, parent, str(last), (0, end - last))

    def _fetches(self, work: PointWork, lanes: int) -> list[str]:
        """Returns prefetches of the next row, for the second pass over a row."""
        second = self.lane_passes == 2 and len(self.loops.inner) == 1 and self.loops.outer
        return prefetches(self.loops, work, lanes) if second else []

    def _long_lane_loops(self, work: PointWork, parent: CScope, place: Range, lanes: int) -> None:
        """Prints the loops of `_lane_loops` from lane 0 on, where the end is a parameter."""
        begin, end = place
        if self.masks.only:
            count = f"{end}" if begin == 0 else f"{end} - {begin}"
            self._last_lanes(work, parent, f"{begin}", count, lanes)
            return
        last, inside = self.body.writer.fresh(), CScope(parent)
        parent.lines.append(f"const i64 {last} = {end} & -{lanes};")
        self._lane_loop(work, inside, "base", (0, lanes))
        head = f"for (i64 base = {begin}; base < {last}; base += {lanes}) {{"
        parent.lines += [head, *self._fetches(work, lanes), *inside.lines, "}"]
        if not self.usual.block[1]:
            self._last_lanes(work, parent, last, f"{end} - {last}", lanes)

    def _moved_lane_loops(self, work: PointWork, parent: CScope, place: Range, lanes: int) -> None:
        """Prints the loops of `_lane_loops` for bounds that are known only when the kernel runs."""
        self.masks.fits &= not self.masks.only
        begin, end, first, last, below = [self.body.writer.fresh() for _ in range(5)]
        parent.lines += [
            f"const i64 {begin} = {place[0]}, {end} = {place[1]};",
            f"const i64 {below} = {begin} & -{lanes};",
            f"const i64 {first} = least({end}, ({begin} + {lanes - 1}) & -{lanes});",
            f"const i64 {last} = most({first}, {end} & -{lanes});",
        ]
        self._lane_loop(work, parent, below, (f"{begin} - {below}", f"{first} - {below}"))
        inside = CScope(parent)
        self._lane_loop(work, inside, "base", (0, lanes))
        head = f"for (i64 base = {first}; base < {last}; base += {lanes}) {{"
        parent.lines += [head, *inside.lines, "}"]
        self._lane_loop(work, parent, last, (0, f"{end} - {last}"))

    def _last_lanes(
        self, work: PointWork, parent: CScope, base: str, count: str, lanes: int
    ) -> None:
        """Prints the points behind the last whole set of lanes."""
        k = self.loops.inner[-1]
        masked = self.masks.lanes(work, k)
        self.masks.fits &= masked == lanes or not self.masks.only
        if not masked:
            self._lane_loop(work, parent, base, (0, count))
            return
        inside = partial(self._inside, parent, k)
        if lanes <= masked or not self.masks.is_heavy(work):
            point = partial(self.body.point, work, partial=lambda reduce: "[lane]")
            parent.lines += self.masks.rest(k, base, count, lanes, inside, point)
            return
        start = self.body.writer.fresh()
        point = partial(self.body.point, work, partial=lambda reduce: f"[{start} + lane]")
        rest, own = f"{base} + {start}", f"least({count} - {start}, {masked})"
        head = f"for (i64 {start} = 0; {start} < {count}; {start} += {masked}) {{"
        parent.lines += [head, *self.masks.rest(k, rest, own, masked, inside, point), "}"]

    def _lane_loop(self, work: PointWork, parent: CScope, base: str, bounds: Range) -> None:
        """Prints a loop over points of different lanes."""
        if bounds[0] == bounds[1]:
            return
        k = self.loops.inner[-1]
        scope = self._inside(parent, k)
        scope.lines.append(f"const i64 i{k} = {base} + lane;")
        self.body.point(work, scope, lambda reduce: "[lane]")
        head = f"for (i64 lane = {bounds[0]}; lane < {bounds[1]}; ++lane) {{"
        parent.lines += [head, *scope.lines, "}"]

    def _blocks(self, work: PointWork, parent: CScope) -> None:
        """Prints a loop over a block of the vector axis, at one inner point."""
        if any(reduce.lanes > 1 for reduce in work.reduces):
            parent.lines.append(f"const i64 point = {self.body.number(parent)};")
        self.stager.streamed(work, parent, self._block(), self._vector_loop(self._of_block))

    def _of_block(self, reduce: Reduce) -> str:
        column = f"i{self.loops.vector} - v0"
        if reduce.lanes > 1:
            column = f"(point & {reduce.lanes - 1}) * {self.loops.width} + {column}"
        return f"[{column}]"

    def _inner_tiles(self, work: PointWork, parent: CScope) -> None:
        """Prints tiles of the vector axis and the last inner axis."""
        k = self.loops.inner[-1]
        inside = CScope(parent)
        loop = self._vector_loop(self._of_block)
        self.stager.tiled(work, inside, k, self._block(), loop)
        parent.lines += in_steps("u", (0, self.facts.extents[k]), TILE, inside.lines)

    def _only_reduces(self, work: PointWork) -> bool:
        """Whether a pass only reduces along its inner axes, with one lane and no conditions."""
        k, last = self.loops.innermost or 0, self.loops.inner[-1]
        if work.scans or work.saved or work.stores or self.splitter.switch(work) is not None:
            return False
        if any(reduce.lanes > 1 for reduce in work.reduces) or self.usual.applies(work, k):
            return False
        split = self.chooses and any(
            len(each) > 1 for each in parts(work.roots, k, self.splitter.is_fixed)
        )
        return hint_of(self.facts.extents[last]) >= 2 * TOGETHER and not split

    def _several(self, work: PointWork, parent: CScope) -> None:
        """Prints a loop that takes `TOGETHER` points of the last inner axis at a time."""
        k = self.loops.inner[-1]
        extent = self.facts.extents[k]
        whole = self._whole_sets(extent, parent)
        inside = CScope(parent)
        self._together(work, inside, [f"at + {n}" for n in range(TOGETHER)])
        head = f"for (i64 at = 0; at < {whole}; at += {TOGETHER}) {{"
        parent.lines += [head, *inside.lines, "}"]
        if isinstance(whole, int):
            for left in range(whole, extent):
                self._together(work, parent, [str(left)])
            return
        inside = CScope(parent)
        self._together(work, inside, ["at"])
        parent.lines += [f"for (i64 at = {whole}; at < {extent}; ++at) {{", *inside.lines, "}"]

    def _whole_sets(self, extent: int, parent: CScope) -> int | str:
        """Returns the points of an axis that `TOGETHER` divides."""
        if type(extent) is int:
            return extent // TOGETHER * TOGETHER
        whole = self.body.writer.fresh()
        parent.lines.append(f"const i64 {whole} = {extent} & -{TOGETHER};")
        return whole

    def _together(self, work: PointWork, parent: CScope, places: list[str]) -> None:
        last, vector = self.loops.inner[-1], self.loops.vector or 0
        everywhere: list[CScope] = []
        for place in places:
            outside = self._inside(parent, last)
            outside.positions[last] = self.body.writer.fresh()
            outside.lines.append(f"const i64 {outside.positions[last]} = {place};")
            everywhere.append(outside)

        def point(scope: CScope) -> None:
            for outside in everywhere:
                inside = CScope(outside, 1 << vector)
                inside.within = scope.within
                self.body.point(work, inside, lambda reduce: f"[i{vector} - v0]")
                scope.lines += inside.lines

        lanes = self.masks.lanes(work, vector)
        loop = self.masks.loop(vector, self._block(), lanes, partial(CScope, None), point)
        parent.lines += [*[line for each in everywhere for line in each.lines], *loop]

    def _vector_loop(self, state: Partial) -> Loop:
        k = self.loops.vector or 0

        def loop(work: PointWork, outside: CScope, place: Range) -> None:
            def point(scope: CScope) -> None:
                self.body.point(work, scope, state)

            lanes = self.masks.lanes(work, k)
            inside, again = partial(CScope, outside, 1 << k), self.masks.may_repeat(work)
            outside.lines += self.masks.loop(k, place, lanes, inside, point, repeats=again)

        return self._in_two(k, loop)

    def _in_two(self, k: int, loop: Loop) -> Loop:
        """Returns the loop in two versions, or by lines, for its functions (`FiniteLoops`)."""
        return lambda work, outside, place: self.usual.print(work, outside, place, k, loop)
