"""The template of kernels of rows: a team of threads reduces a row, or some rows side by side.

    for (first = blockIdx.x; first < rows; first += gridDim.x) {
        f32 a0[4];                                       // partial results of a thread: its lanes
        for (steps) a0[v] += x[...];                     // a pass: loads, then points
        combine a0 over the team                         // `group_reduction`
        for (steps) b1[...] = x[...] / a0[0]; }          // the next pass; x stays in registers

Values that several passes need stay in registers if a thread's share is small
(`register_operands`). Passes and points are those of the C printer. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotlite.backends.c_family.axis_passes import Pass, passes
from aotlite.backends.c_family.c_types import value_type
from aotlite.backends.c_family.integer_bounds import IntegerBounds
from aotlite.backends.c_family.loop_body import (
    FIRST_LOCAL_NAME,
    Body,
    PointWork,
    array_type,
    from_array,
)
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import ROW, CScope, FunctionTexts, KernelFacts
from aotlite.backends.cuda.emit.kernel_code import (
    IndexTypes,
    KernelCode,
    constants_of,
    divisor_of,
)
from aotlite.backends.cuda.emit.reductions.group_reduction import EVERY, GroupReduction
from aotlite.backends.cuda.emit.reductions.register_operands import RegisterOperands
from aotlite.backends.cuda.emit.reductions.thread_layout import ACCESS, WARP, ThreadLayout
from aotlite.backends.cuda.emit.reductions.thread_steps import ThreadSteps, place_of
from aotlite.backends.cuda.emit.reductions.vector_access import are_aligned, unrolled
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store
from aotlite.backends.loops.rewrite import replaced
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import Size
from aotlite.ir.scalar.expression import Scalar, name


class ReductionKernel:
    """Prints a kernel whose rows are computed by teams of threads."""

    def __init__(
        self,
        geometry: LoopGeometry,
        body: Sequence[Statement],
        reuses: bool,
        layout: ThreadLayout,
        axis: int,
        index: IndexTypes,
        most: int | None = None,
    ) -> None:
        """`most`: the most points of a row of symbolic length; None: any number."""
        self.geometry, self.statements, self.reuses = geometry, body, reuses
        self.most = most
        self.types, self.index = index, index.position
        self.layout, self.axis = layout, axis
        self.extents, self.space = geometry.extents, geometry.space

    def printed(
        self, facts: KernelFacts, kinds: dict[int, DType], library: FunctionTexts, target: Target
    ) -> KernelCode:
        """Returns the body: the loops of a block over its rows."""
        self._set_axes(facts)
        units = self._units()
        space = (1 << self.space) - 1 | ROW
        self.row = CScope(CScope(None), space if self.layout.along else space & ~(1 << self.axis))
        self.body = Body(self.geometry, facts, kinds, library, self.row)
        self.body.writer.special = IntegerBounds().text
        self.combining = GroupReduction(self.body, self.layout, has_gaps=self.live)
        keeping = RegisterOperands(
            self.statements, facts, self.layout, self.geometry, self.axis, target, self.most
        )
        self.passes = passes(self.statements, facts, keeping.budget)
        keeping.choose(self.passes)
        self.steps = ThreadSteps(
            self.body, self.layout, self.geometry, self.axis, keeping, self.types
        )
        self.row.lines += self.steps.kept_arrays()
        for stage in self.passes.stages:
            self._row_stores(stage.rows)
            for each in stage.passes:
                self._pass(each)
        self._wait(self.reuses)
        blocks, shared = -(-units // self._abreast), keeping.shared_bytes
        threads = self.layout.threads
        return KernelCode(self._lines(units), blocks, threads, shared=shared, units=units)

    def _set_axes(self, facts: KernelFacts) -> None:
        of_rows = (1 << self.space) - 1 | ROW
        everything = (1 << len(self.extents)) - 1
        for each in self.statements:
            if type(each) is Reduce:
                facts.name_axes.update(dict.fromkeys(each.names, of_rows))
            elif type(each) is Scan:
                facts.name_axes.update(dict.fromkeys(each.names, everything))

    # --- rows
    @property
    def _abreast(self) -> int:
        """The units that a block takes at a time."""
        return self.layout.teams if self.layout.along else 1

    def _units(self) -> Size:
        """Returns the number of units: rows, runs of rows in order, or a block's columns."""
        last = self.space - self.geometry.ordered
        if self.layout.along:
            return math.prod(self.extents[:last])
        others = math.prod([n for k, n in enumerate(self.extents[:last]) if k != self.axis])
        return others * self._panels

    @property
    def _panels(self) -> Size:
        """The number of blocks among which rows side by side are divided."""
        return -(-self.extents[self.axis] // (self.layout.teams * self.layout.width))

    def _lines(self, units: Size) -> list[str]:
        """Returns the whole body: shared memory, constants, loops."""
        unit, aligned = self._unit(units), self.steps.aligned
        room = ["extern __shared__ block16 room[];"] * bool(self.steps.keeping.shared_bytes)
        first = [*room, *self.combining.shared.values(), *self._threads(), *constants_of(self.row)]
        if aligned:
            first.append(f"const bool aligned = {are_aligned(sorted(aligned), ACCESS)};")
        kind, abreast = self.index, self._abreast
        begin = "blockIdx.x" if abreast == 1 else f"blockIdx.x * {abreast}"
        step = "gridDim.x" if abreast == 1 else f"gridDim.x * {abreast}"
        head = f"for ({kind} first = {begin}; first < {units}; first += {step}) {{"
        return [*first, head, *unit, "}"]

    def _threads(self) -> list[str]:
        team = self.layout.team
        if not self.layout.along:
            side = self.layout.teams
            return [
                f"const i32 member = threadIdx.x / {side};",
                f"const i32 beside = threadIdx.x % {side};",
            ]
        if self.layout.teams == 1:
            return ["const i32 member = threadIdx.x;"]
        return [
            f"const i32 member = threadIdx.x % {team};",
            f"const i32 own = threadIdx.x / {team};",
        ]

    def _unit(self, units: Size) -> list[str]:
        """Returns the lines of a unit. Teams beyond the last one do nothing."""
        if not self.layout.along:
            return self._panel()
        place = "first" if self._abreast == 1 else "first + own"
        lines = [f"const {self.index} unit = {place};"]
        if self.geometry.ordered:
            inside = self._rows_in_order()
        else:
            inside = [*self.steps.positions(range(self.space), "unit"), *self.row.lines]
        if not self.live:
            return [*lines, *inside]
        lines.append(f"const bool live = unit < {units};")
        if self.combining.mask != EVERY:
            lines.append(f"const u32 {self.combining.mask} = __ballot_sync({EVERY}, live);")
        return [*lines, "if (live) {", *inside, "}"]

    def _rows_in_order(self) -> list[str]:
        """Returns the rows of a unit, one after the other. Their sums stay in registers."""
        steps, first = self.steps, self.space - self.geometry.ordered
        together = math.prod(self.extents[first : self.space])
        head = (
            f"for ({self.index} row = unit * {together}; row < (unit + 1) * {together}; ++row) {{"
        )
        rows = [head, *steps.positions(range(self.space), "row"), *self.row.lines, "}"]
        if not steps.keeping.sums:
            return rows
        sums = [*steps.positions(range(first), "unit"), *steps.sums(back=False)]
        return [*sums, *rows, *steps.sums(back=True)]

    def _panel(self) -> list[str]:
        """Returns the lines of the columns of a block, of which the last may not exist."""
        k, kind, panels = self.axis, self.index, self._panels
        extent, wide = self.extents[k], self.layout.teams * self.layout.width
        others = [each for each in range(self.space) if each != k]
        place = f"first % {panels} * {wide} + beside * {self.layout.width}"
        is_one = type(panels) is int and panels == 1
        lines = self.steps.positions(others, "first" if is_one else f"(first / {panels})")
        if divisor_of(extent, wide) == wide:
            return [*lines, f"const {kind} j{k} = {place};", *self.row.lines]
        lines += [f"const {kind} at = {place};", f"const bool live = at < {extent};"]
        return [*lines, f"const {kind} j{k} = live ? at : 0;", *self.row.lines]

    @property
    def live(self) -> bool:
        """Whether some threads have no row or column of their own."""
        if self.layout.along:
            return divisor_of(self._units(), self._abreast) < self._abreast
        wide = self.layout.teams * self.layout.width
        return divisor_of(self.extents[self.axis], wide) < wide

    def _row_stores(self, stores: Sequence[Store]) -> None:
        """Prints row-level stores, which one thread of a team does."""
        if not stores:
            return
        self._wait(self.reuses)
        lines = self._stored_once(stores) if self.layout.along else self.steps.row_stores(stores)
        tests = ["member == 0"] * (self.layout.team > 1)
        tests += ["live"] * (self.live and not self.layout.along)
        self.row.lines += [f"if ({' && '.join(tests)}) {{" if tests else "{", *lines, "}"]

    def _stored_once(self, stores: Sequence[Store]) -> list[str]:
        inside = CScope(self.row)
        self.body.stores(stores, inside)
        return inside.lines

    def _wait(self, needed: bool) -> None:
        """Prints a barrier of all threads of a row."""
        threads = self.layout.team if self.layout.along else self.layout.threads
        if needed and threads > 1:
            warp = f"__syncwarp({self.combining.mask});"
            text = "__syncthreads();" if threads > WARP else warp
            self.row.lines.append(text)

    # --- passes
    def _pass(self, each: Pass) -> None:
        """Prints the loops of a pass over the inner points, and its reductions' results."""
        width = self.layout.width if self.layout.along else 1
        workers = min(each.lanes // width, self.layout.team) if each.reduces else self.layout.team
        workers = max(workers, 1)
        self._wait(self.reuses and bool(each.stores))
        running: tuple[Scan | Reduce, ...] = (*each.scans, *each.reduces)
        for statement in running:
            self._partials(statement, workers * width)
        work = self._work(each)
        lines = self.steps.lines(work, workers)
        guarded = self.live and not self.layout.along
        self.row.lines += ["if (live) {", *lines, "}"] if guarded else lines
        if each.reduces:
            self.row.lines += self.combining.lines(each.reduces, workers)
            for reduce in each.reduces:
                self._result(reduce)

    def _work(self, each: Pass) -> PointWork:
        """Returns the work of a pass at each point, with kept values replaced by their places."""
        facts, local_names = self.body.facts, self.body.local_names
        computed = facts.computed(each.roots)
        new = [s for s in self.passes.kept if s in computed and s not in local_names]
        memo = dict(local_names)
        work = PointWork(each.scans, tuple([(s, s) for s in new]), each.reduces, each.stores)
        work = work.changed(lambda root: replaced(root, memo))
        leaves = [self._keep(scalar) for scalar in new]
        saved = [(value, leaf) for (value, _), leaf in zip(work.saved, leaves, strict=True)]
        return PointWork(work.scans, tuple(saved), work.reduces, work.stores)

    def _keep(self, value: Scalar) -> Scalar:
        """Returns the name of a value that is computed once and stays in registers."""
        leaf = self.body.new_name(value.dtype)
        text, axes = f"k{leaf.args[0] - FIRST_LOCAL_NAME}", self.body.facts.axes(value)
        count = self.steps.keeping.steps * self.layout.width
        self.row.lines.append(f"{array_type(value.dtype)} {text}[{count}];")
        self.body.facts.name_axes[leaf.args[0]] = axes
        element = f"{text}[{self.steps.element}]"
        self.body.writer.places[leaf] = place_of(element, axes, value.dtype)
        self.body.local_names[value] = leaf
        return leaf

    def _partials(self, statement: Reduce | Scan, lanes: int) -> None:
        """Declares a thread's partial results, or the state of a scan, and sets them to the
        identity. A scan that is repeated is declared once."""
        kinds = [value.dtype for value in statement.values]
        starts = combiner(statement.kind).identity(kinds)
        count = self.layout.width
        count *= statement.lanes // lanes if isinstance(statement, Reduce) else 0
        for number, start in zip(statement.names, starts, strict=True):
            text = self.body.writer.value(start, self.row)
            again = number in self.body.declared
            self.body.declared.add(number)
            kind = "" if again else f"{array_type(start.dtype)} "
            if not count:
                self.row.lines.append(f"{kind}a{number} = {text};")
                continue
            self.row.lines.append(f"{kind}a{number}[{count}];")
            head = f"for (i32 k = 0; k < {count}; ++k)"
            self.row.lines += unrolled(head, [f"a{number}[k] = {text};"])

    def _result(self, reduce: Reduce) -> None:
        """Makes the names of a reduction known to later stages."""
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind, leaf = value.dtype, name(number, value.dtype)
            if self.layout.along:
                text = from_array(kind, f"a{number}[0]")
                self.row.lines.append(f"const {value_type(kind)} n{number} = {text};")
                self.row.known[leaf] = f"n{number}"
            else:
                axes = self.body.facts.name_axes[number]
                self.body.writer.places[leaf] = place_of(f"a{number}[v]", axes, kind)
