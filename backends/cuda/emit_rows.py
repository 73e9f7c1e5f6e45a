"""Kernels of rows: a block takes a row, its threads the inner points.

The threads go over the points as the lanes of reductions say; partial results are combined in the
order of the IR. Statements are sorted into passes, and points printed, as the C printer does.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotlite.backends.c_family.emit_body import Body, Partial, Work, array_type, from_array
from aotlite.backends.c_family.emit_geometry import Geometry
from aotlite.backends.c_family.emit_passes import Pass, passes
from aotlite.backends.c_family.emit_scalar import ROW, Facts, Library, Scope
from aotlite.backends.c_family.emit_types import value_type
from aotlite.backends.cuda.emit_common import (
    WARP,
    Code,
    apart,
    constants_of,
    positions,
    row_of,
)
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.expr import name
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store
from aotlite.ir.dtypes import DType

MOST = 256
"""Most threads of a block."""


class Rows:
    """Rows of the space axes, each computed by the threads of one block."""

    def __init__(self, geometry: Geometry, body: Sequence[Statement], reuses: bool) -> None:
        self.geometry, self.statements, self.reuses = geometry, body, reuses
        lanes = [each.lanes for each in body if type(each) is Reduce]
        self.threads = max(WARP, min(MOST, max(lanes, default=MOST)))
        self.shared: list[str] = []

    def printed(self, facts: Facts, kinds: dict[int, DType], library: Library) -> Code:
        """The loops of a block over its rows."""
        self._set_axes(facts)
        self.row = row_of(self.geometry)
        self.body = Body(self.geometry, facts, kinds, library, self.row)
        for stage in passes(self.statements, facts, 0).stages:
            self._row_stores(stage.rows)
            for each in stage.passes:
                self._pass(each)
        self._wait(self.reuses or bool(self.shared))
        first = [*self.shared, "const i64 thread = threadIdx.x;", *constants_of(self.row)]
        return Code([*first, *self._loops()], self._units(), self.threads)

    def _set_axes(self, facts: Facts) -> None:
        of_rows = (1 << self.geometry.space) - 1 | ROW
        everything = (1 << len(self.geometry.extents)) - 1
        for each in self.statements:
            if type(each) is Reduce:
                facts.name_axes.update(dict.fromkeys(each.names, of_rows))
            elif type(each) is Scan:
                facts.name_axes.update(dict.fromkeys(each.names, everything))

    # --- rows
    def _units(self) -> int:
        last = self.geometry.space - self.geometry.ordered
        return math.prod(self.geometry.extents[:last])

    def _loops(self) -> list[str]:
        """The loop of a block over its rows; rows that go in order are of one block."""
        extents, space = self.geometry.extents, self.geometry.space
        units = self._units()
        together = math.prod(extents[space - self.geometry.ordered : space])
        lines = [*positions(range(space), extents, "row"), *self.row.lines]
        if self.geometry.ordered:
            first = f"for (i64 row = unit * {together}; row < (unit + 1) * {together}; ++row) {{"
            lines = [first, *lines, "}"]
        else:
            lines = ["const i64 row = unit;", *lines]
        head = f"for (i64 unit = blockIdx.x; unit < {units}; unit += gridDim.x) {{"
        return [head, *lines, "}"]

    def _row_stores(self, stores: Sequence[Store]) -> None:
        """One thread stores what is of row level."""
        if not stores:
            return
        self._wait(self.reuses)
        inside = Scope(self.row)
        self.body.stores(stores, inside)
        self.row.lines += ["if (thread == 0) {", *inside.lines, "}"]

    def _wait(self, needed: bool) -> None:
        if needed:
            self.row.lines.append("__syncthreads();")

    # --- passes
    def _pass(self, each: Pass) -> None:
        """One loop over the inner points; what must go in order is computed by one thread."""
        inner = range(self.geometry.space, len(self.geometry.extents))
        alone = bool(each.scans) or not apart(each.stores, self.geometry.extents, inner)
        lanes = each.lanes if each.reduces else self.threads
        workers = 1 if alone else min(lanes, self.threads)
        self._wait(self.reuses and bool(each.stores))
        running: tuple[Scan | Reduce, ...] = (*each.scans, *each.reduces)
        for statement in running:
            self._partials(statement, workers)
        if workers == 1:
            loop = self._in_order(each)
        else:
            loop = self._strided(each, lanes, workers)
        if workers < self.threads:
            loop = [f"if (thread < {workers}) {{", *loop, "}"]
        self.row.lines += loop
        for reduce in each.reduces:
            self._result(reduce, workers)

    def _partials(self, statement: Reduce | Scan, workers: int) -> None:
        """Declares a thread's partial results, or the state of a scan, which a pass may repeat."""
        kinds = [value.dtype for value in statement.values]
        starts = combiner(statement.kind).identity(kinds)
        count = max(statement.lanes // workers, 1) if type(statement) is Reduce else 0
        for number, start in zip(statement.names, starts, strict=True):
            text = self.body.writer.value(start, self.row)
            again = number in self.body.declared
            self.body.declared.add(number)
            kind = "" if again else f"{array_type(start.dtype)} "
            if not count:
                self.row.lines.append(f"{kind}a{number} = {text};")
                continue
            self.row.lines.append(f"{kind}a{number}[{count}];")
            self.row.lines.append(f"for (i64 k = 0; k < {count}; ++k) a{number}[k] = {text};")

    def _in_order(self, each: Pass) -> list[str]:
        def partial(reduce: Reduce) -> str:
            return "[0]" if reduce.lanes == 1 else f"[point % {reduce.lanes}]"

        head = f"for (i64 point = 0; point < {self.geometry.points}; ++point) {{"
        return [head, *self._point(each, partial), "}"]

    def _strided(self, each: Pass, lanes: int, workers: int) -> list[str]:
        """A thread's points: those of its lanes, in order."""
        points = self.geometry.points
        if lanes == workers:
            head = f"for (i64 point = thread; point < {points}; point += {lanes}) {{"
            return [head, *self._point(each, lambda _: "[0]"), "}"]
        return [
            f"for (i64 base = thread; base < {points}; base += {lanes}) {{",
            f"for (i64 k = 0; k < {lanes // workers}; ++k) {{",
            f"const i64 point = base + k * {workers};",
            f"if (point < {points}) {{",
            *self._point(each, lambda _: "[k]"),
            *("}", "}", "}"),
        ]

    def _point(self, each: Pass, partial: Partial) -> list[str]:
        extents = self.geometry.extents
        inner = self.geometry.inner
        scope = Scope(self.row, sum(1 << k for k in inner))
        self.body.point(Work(each.scans, (), each.reduces, each.stores), scope, partial)
        return [*positions(inner, extents, "point"), *scope.lines]

    # --- results
    def _result(self, reduce: Reduce, workers: int) -> None:
        """Combines partial results in halves: those of a thread, of the block, of a warp."""
        kept = max(reduce.lanes // workers, 1)
        if kept > 1:
            self._halve_own(reduce, kept)
        if workers > WARP:
            self._halve_block(reduce, workers)
        if workers > 1:
            self._halve_warp(reduce, min(workers, WARP))
        self._broadcast(reduce, self.threads if workers > WARP else 1)

    def _joined(self, reduce: Reduce, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """The lines that combine partial results into the first of them."""
        scope, kinds = Scope(None), [value.dtype for value in reduce.values]
        results = self.body.combined(combiner(reduce.kind), kinds, first, second, scope)
        sets = [f"{state} = {result};" for state, result in zip(first, results, strict=True)]
        return [*scope.lines, *sets]

    def _halve_own(self, reduce: Reduce, kept: int) -> None:
        first = [f"a{number}[k]" for number in reduce.names]
        second = [f"a{number}[k + half]" for number in reduce.names]
        self.row.lines += [
            f"for (i64 half = {kept // 2}; half; half /= 2)",
            "for (i64 k = 0; k < half; ++k) {",
            *self._joined(reduce, first, second),
            "}",
        ]

    def _halve_block(self, reduce: Reduce, workers: int) -> None:
        """Halves down to one warp, through shared memory."""
        first = [f"s{number}[thread]" for number in reduce.names]
        second = [f"s{number}[thread + half]" for number in reduce.names]
        self.row.lines += [
            *[f"s{number}[thread] = a{number}[0];" for number in reduce.names],
            "__syncthreads();",
            f"for (i64 half = {workers // 2}; half >= {WARP}; half /= 2) {{",
            "if (thread < half) {",
            *self._joined(reduce, first, second),
            "}",
            "__syncthreads();",
            "}",
            *[f"a{number}[0] = s{number}[thread];" for number in reduce.names],
        ]

    def _halve_warp(self, reduce: Reduce, lanes: int) -> None:
        """Halves of a warp's lanes: the first lane has the result; all take part."""
        first = [f"a{number}[0]" for number in reduce.names]
        second = [f"far{number}" for number in reduce.names]
        far = []
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind = array_type(value.dtype)
            call = f"__shfl_down_sync(0xffffffffu, a{number}[0], half)"
            far.append(f"const {kind} far{number} = ({kind}){call};")
        lines = [*far, *self._joined(reduce, first, second)]
        self.row.lines += [f"for (u32 half = {lanes // 2}; half; half /= 2) {{", *lines, "}"]

    def _broadcast(self, reduce: Reduce, room: int) -> None:
        """Makes the first thread's results known to all."""
        first = [f"s{number}[0] = a{number}[0];" for number in reduce.names]
        self.row.lines += ["if (thread == 0) {", *first, "}", "__syncthreads();"]
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind = value.dtype
            self.shared.append(f"__shared__ {array_type(kind)} s{number}[{room}];")
            text = from_array(kind, f"s{number}[0]")
            self.row.lines.append(f"const {value_type(kind)} n{number} = {text};")
            self.row.known[name(number, kind)] = f"n{number}"
