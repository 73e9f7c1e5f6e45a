"""One kernel as a C function over a range of units: rows, or blocks of the vector axis.

Loops from outside: units (which run in parallel), inner axes, the vector axis. What is computed in
which pass is decided in `emit_passes.py`, where a value is declared in `emit_scalar.py`.
Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from aotlite.backends.cpu.emit_passes import Pass, Passes, of_no_points, passes, without_lets
from aotlite.backends.cpu.emit_scalar import ROW, Facts, Library, Place, Scope, Writer
from aotlite.backends.cpu.emit_types import from_memory, memory_type, to_memory, value_type
from aotlite.backends.loops.combiners import Combiner, combiner
from aotlite.backends.loops.expr import Scalar, name, parameter
from aotlite.backends.loops.program import Kernel, Reduce, Scan, Store
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

BLOCK = 4096
"""Points of the vector axis that a unit without inner axes takes, where rows are few."""
COLUMNS = 512
"""Points of the vector axis in a unit that reduces along other axes."""
SCRATCH = 1 << 16
"""Bytes of local arrays for values that are kept between passes."""


@attrs.frozen
class Geometry:
    """How the axes of a kernel become loops."""

    extents: tuple[int, ...]
    space: int
    vector: int | None
    """The axis of the innermost loop if it is a space axis; else it is the last inner axis."""
    block: int
    """Points of the vector axis in a unit; its extent where it is not divided."""

    @property
    def outer(self) -> list[int]:
        """The axes whose positions a unit has one of."""
        return [k for k in range(self.space) if k != self.vector]

    @property
    def inner(self) -> list[int]:
        """The inner axes."""
        return list(range(self.space, len(self.extents)))

    @property
    def blocks(self) -> int:
        """How many blocks the vector axis has."""
        return 1 if self.vector is None else -(-self.extents[self.vector] // self.block)

    @property
    def units(self) -> int:
        """The number of units."""
        return math.prod([self.extents[k] for k in self.outer]) * self.blocks

    @property
    def points(self) -> int:
        """Inner points."""
        return math.prod([self.extents[k] for k in self.inner])

    @property
    def width(self) -> int:
        """Elements of a local array for each inner point."""
        return 1 if self.vector is None else self.block


def geometry(kernel: Kernel, extents: tuple[int, ...]) -> Geometry:
    """The loops of a kernel; one without a decided vector axis has its last axis."""
    vector = len(extents) - 1 if kernel.vector is None else kernel.vector
    if vector >= kernel.space or vector < 0:
        return Geometry(extents, kernel.space, None, 1)
    extent = extents[vector]
    rows = math.prod(extents[: kernel.space]) // max(extent, 1)
    block = extent
    if len(extents) > kernel.space:
        block = min(extent, COLUMNS)
    elif rows < 64:
        block = min(extent, BLOCK)
    return Geometry(extents, kernel.space, vector, max(block, 1))


class KernelPrinter:
    """The text of one kernel."""

    def __init__(
        self, kernel: Kernel, kinds: dict[int, DType], facts: Facts, library: Library
    ) -> None:
        self.kernel, self.kinds, self.facts, self.library = kernel, kinds, facts, library
        self.loops = geometry(kernel, facts.extents)
        body = without_lets(kernel.body)
        if self.loops.points == 0:
            body = of_no_points(body)
        self.body = body
        self.all_axes = (1 << len(facts.extents)) - 1
        for each in body:
            if type(each) is Reduce:
                facts.name_axes.update(dict.fromkeys(each.names, (1 << facts.space) - 1 | ROW))
            elif type(each) is Scan:
                facts.name_axes.update(dict.fromkeys(each.names, self.all_axes))
        room = SCRATCH // max(self.loops.points * self.loops.width, 1)
        self.passes: Passes = passes(body, facts, room)
        self.writer = Writer(facts, library)
        self.combining = Writer(Facts(), library, "c")
        self.declared: set[int] = set()
        self.numbers: dict[Scalar, int] = {}
        self.ready: set[Scalar] = set()
        self.vectors: set[Scalar] = set()
        self.function = Scope(None)
        self.row = Scope(self.function, sum(1 << k for k in self.loops.outer) | ROW)

    def text(self) -> list[str]:
        """The lines of the function's body."""
        for stage in self.passes.stages:
            self._row_stage(stage.rows, stage.passes)
            for each in stage.passes:
                self._pass(each)
        return [*self.function.lines, *self._units()]

    def _units(self) -> list[str]:
        """The loop over units, whose positions are counted on."""
        digits = [(f"i{k}", self.facts.extents[k]) for k in self.loops.outer]
        vector = self.loops.vector
        if vector is not None and self.loops.blocks > 1:
            digits.append(("block", self.loops.blocks))
        start: list[str] = []
        after: list[str] = []
        rest = self.loops.units
        for place, (text, extent) in enumerate(digits):
            rest //= extent
            quotient = "begin" if rest == 1 else f"begin / {rest}"
            start.append(f"i64 {text} = {quotient}{'' if place == 0 else f' % {extent}'};")
            if place:
                last = digits[place - 1][0]
                after.insert(0, f"if ({text} == {extent}) {{ {text} = 0; ++{last}; }}")
        if digits:
            after.insert(0, f"++{digits[-1][0]};")
        head = "for (i64 unit = begin; unit < end; ++unit) {"
        return [*start, head, *self._bounds(), *self.row.lines, *after, "}"]

    def _bounds(self) -> list[str]:
        vector, block = self.loops.vector, self.loops.block
        if vector is None:
            return []
        extent = self.facts.extents[vector]
        if self.loops.blocks == 1:
            return [f"const i64 v0 = 0, v1 = {extent};"]
        whole = extent % block == 0
        last = f"v0 + {block}"
        if not whole:
            last = f"v0 + {block} < {extent} ? v0 + {block} : {extent}"
        return [f"const i64 v0 = block * {block};", f"const i64 v1 = {last};"]

    # --- row stages
    def _row_stage(self, stores: Sequence[Store], following: Sequence[Pass]) -> None:
        """Stores of row level, and the row-level values along the vector axis that passes use."""
        if self.loops.vector is None:
            self._stores(stores, self.row)
            return
        vectors = [value for each in following for value in self._vectors_of(each)]
        vectors = list(dict.fromkeys(vectors))
        if not vectors and not stores:
            return
        scope = self._vector_scope(self.row)
        for value in vectors:
            self._keep(value, "r", scope, inner=False)
        self._stores(stores, scope)
        self._close_vector(scope, self.row)

    def _vectors_of(self, each: Pass) -> list[Scalar]:
        """The uppermost operations of row level that vary along the vector axis."""
        bit = 1 << (self.loops.vector or 0)
        found: list[Scalar] = []
        todo, done = list(each.roots), set(self.vectors)
        while todo:
            scalar = todo.pop()
            if scalar in done:
                continue
            done.add(scalar)
            axes = self.facts.axes(scalar)
            computed = scalar.op not in ("axis", "const", "load", "name")
            if computed and not self.facts.is_element(scalar) and axes & bit:
                if self.facts.safe(scalar):
                    found.append(scalar)
                    continue
            todo += self.facts.computed_for(scalar)
        return found

    # --- scopes of loops
    def _vector_scope(self, parent: Scope) -> Scope:
        return Scope(parent, 1 << (self.loops.vector or 0))

    def _close_vector(self, scope: Scope, parent: Scope) -> None:
        k = self.loops.vector
        head = f"for (i64 i{k} = v0; i{k} < v1; ++i{k}) {{"
        parent.lines += [head, *scope.lines, "}"]

    # --- passes
    def _pass(self, each: Pass) -> None:
        going: tuple[Reduce | Scan, ...] = (*each.scans, *each.reduces)
        for statement in going:
            self._accumulators(statement)
        kept = self._new_kept(each)
        for scalar in kept:
            self._array("s", scalar, self.loops.points * self.loops.width, self.row)
        if self.loops.vector is None and each.lanes > 1 and self._lanes_fit(each.lanes):
            self._nest(each, kept, self.loops.inner[:-1], self._lane_loops)
        elif self.loops.vector is None:
            self._nest(each, kept, self.loops.inner[:-1], self._plain_loop)
        else:
            self._nest(each, kept, self.loops.inner, self._block_loop)
        self.ready |= set(kept)
        for scalar in kept:
            self.writer.places[scalar] = self._scratch(scalar)
        for reduce in each.reduces:
            self._result(reduce)

    def _new_kept(self, each: Pass) -> list[Scalar]:
        computed = self.facts.computed(each.roots)
        return [s for s in self.passes.kept if s in computed and s not in self.ready]

    def _lanes_fit(self, lanes: int) -> bool:
        """Whether each run of the last axis begins at lane 0."""
        *before, last = [self.facts.extents[k] for k in self.loops.inner]
        return last % lanes == 0 or math.prod(before) == 1

    def _nest(
        self,
        each: Pass,
        kept: list[Scalar],
        axes: list[int],
        innermost: Callable[[Pass, list[Scalar], Scope], None],
    ) -> None:
        """Loops over inner axes around the innermost one."""
        scopes = [self.row]
        for k in axes:
            scopes.append(Scope(scopes[-1], 1 << k))
        innermost(each, kept, scopes[-1])
        for k in reversed(axes):
            inside = scopes.pop()
            head = f"for (i64 i{k} = 0; i{k} < {self.facts.extents[k]}; ++i{k}) {{"
            scopes[-1].lines += [head, *inside.lines, "}"]

    def _plain_loop(self, each: Pass, kept: list[Scalar], parent: Scope) -> None:
        """One point after the other; partial results by the number of the point."""
        k = self.loops.inner[-1]
        scope = Scope(parent, 1 << k)
        lanes = max([reduce.lanes for reduce in each.reduces], default=1)
        if lanes > 1:
            scope.lines.append(f"const i64 point = {self._point(scope)};")
        self._body(each, kept, scope, lambda reduce: _lane("point", reduce.lanes))
        head = f"for (i64 i{k} = 0; i{k} < {self.facts.extents[k]}; ++i{k}) {{"
        parent.lines += [head, *scope.lines, "}"]

    def _lane_loops(self, each: Pass, kept: list[Scalar], parent: Scope) -> None:
        """As many points at once as there are partial results, then those that are left."""
        extent, lanes = self.facts.extents[self.loops.inner[-1]], each.lanes
        whole = extent // lanes * lanes
        if whole:
            inside = Scope(parent)
            self._lane_loop(each, kept, inside, ("base", lanes))
            head = f"for (i64 base = 0; base < {whole}; base += {lanes}) {{"
            parent.lines += [head, *inside.lines, "}"]
        if extent > whole:
            self._lane_loop(each, kept, parent, (str(whole), extent - whole))

    def _lane_loop(
        self, each: Pass, kept: list[Scalar], parent: Scope, place: tuple[str, int]
    ) -> None:
        begin, count = place
        k = self.loops.inner[-1]
        scope = Scope(parent, 1 << k)
        scope.lines.append(f"const i64 i{k} = {begin} + lane;")
        self._body(each, kept, scope, lambda reduce: "[lane]")
        parent.lines += [f"for (i64 lane = 0; lane < {count}; ++lane) {{", *scope.lines, "}"]

    def _block_loop(self, each: Pass, kept: list[Scalar], parent: Scope) -> None:
        """A block of the vector axis at one inner point."""
        scope = self._vector_scope(parent)
        if any(reduce.lanes > 1 for reduce in each.reduces):
            parent.lines.append(f"const i64 point = {self._point(parent)};")
        k, width = self.loops.vector, self.loops.width

        def partial(reduce: Reduce) -> str:
            column = f"i{k} - v0"
            if reduce.lanes > 1:
                column = f"(point & {reduce.lanes - 1}) * {width} + {column}"
            return f"[{column}]"

        self._body(each, kept, scope, partial)
        self._close_vector(scope, parent)

    def _point(self, scope: Scope) -> str:
        """The number of an inner point."""
        text = "0"
        for k in self.loops.inner:
            own = scope.position(k)
            text = own if text == "0" else f"({text}) * {self.facts.extents[k]} + {own}"
        return text

    # --- the innermost body
    def _body(
        self, each: Pass, kept: list[Scalar], scope: Scope, partial: Callable[[Reduce], str]
    ) -> None:
        for scan in each.scans:
            self._scan(scan, scope)
        for scalar in kept:
            text = self.writer.value(scalar, scope)
            scope.lines.append(f"{self._scratch(scalar).element(scope)} = {text};")
        for reduce in each.reduces:
            values = self.writer.values(reduce.values, scope)
            states = [f"a{number}{partial(reduce)}" for number in reduce.names]
            kinds = [value.dtype for value in reduce.values]
            results = self.combined(combiner(reduce.kind), kinds, states, values, scope)
            scope.lines += [f"{s} = {r};" for s, r in zip(states, results, strict=True)]
        self._stores(each.stores, scope)

    def combined(
        self,
        kind: Combiner,
        dtypes_: Sequence[DType],
        first: Sequence[str],
        second: Sequence[str],
        scope: Scope,
    ) -> list[str]:
        """The C texts of a combination."""
        own = Scope(None)
        count = len(dtypes_)
        a = [parameter(k, dtype) for k, dtype in enumerate(dtypes_)]
        b = [parameter(count + k, dtype) for k, dtype in enumerate(dtypes_)]
        for each, text in zip([*a, *b], [*first, *second], strict=True):
            fresh = self.combining.fresh()
            kept = from_array(each.dtype, text)
            own.lines.append(f"const {value_type(each.dtype)} {fresh} = {kept};")
            own.known[each] = fresh
        results = self.combining.values(kind.combine(a, b), own)
        scope.lines += own.lines
        return results

    def _scan(self, scan: Scan, scope: Scope) -> None:
        values = self.writer.values(scan.values, scope)
        kinds = [value.dtype for value in scan.values]
        column = "" if self.loops.vector is None else f"[i{self.loops.vector} - v0]"
        states = [f"a{number}{column}" for number in scan.names]
        results = self.combined(combiner(scan.kind), kinds, states, values, scope)
        positions = [scope.position(k) for k in self.loops.inner if self.facts.extents[k] > 1]
        first = " | ".join(positions) or "0"
        for number, kind, value, result in zip(scan.names, kinds, values, results, strict=True):
            scope.lines.append(
                f"const {value_type(kind)} n{number} = ({first}) == 0 ? {value} : {result};"
            )
            scope.known[name(number, kind)] = f"n{number}"
        for number, state in zip(scan.names, states, strict=True):
            scope.lines.append(f"{state} = n{number};")

    def _stores(self, stores: Sequence[Store], scope: Scope) -> None:
        """Stores, behind all loads of their scope."""
        lines = []
        for store in stores:
            dtype = self.kinds[store.buffer]
            value = self.writer.value(store.value, scope)
            place = f"b{store.buffer}[{self.writer.address(store.address, scope)}]"
            lines.append((store, dtype, value, place))
        for store, dtype, value, place in lines:
            if store.combine is not None:
                old = from_memory(dtype, place)
                kind = combiner(store.combine)
                (value,) = self.combined(kind, [dtype], [old], [value], scope)
            scope.lines.append(f"{place} = {to_memory(dtype, value)};")

    # --- local arrays
    def _array(self, stem: str, scalar: Scalar, count: int, scope: Scope) -> str:
        text = f"{stem}{self._number(scalar)}"
        kind = array_type(scalar.dtype)
        scope.lines.append(f"{kind} {text}[{count}] __attribute__((aligned(64)));")
        return text

    def _number(self, scalar: Scalar) -> int:
        return self.numbers.setdefault(scalar, len(self.numbers))

    def _scratch(self, scalar: Scalar) -> Place:
        """The scratch row of a value of element level."""
        text, dtype = f"s{self._number(scalar)}", scalar.dtype

        def element(scope: Scope) -> str:
            index = self._point(scope)
            if self.loops.vector is not None:
                index = f"({index}) * {self.loops.width} + i{self.loops.vector} - v0"
            return f"{text}[{index}]"

        return Place(self.all_axes, element, dtype)

    def _keep(self, value: Scalar, stem: str, scope: Scope, *, inner: bool) -> None:
        """Writes a row-level value along the vector axis to a local array."""
        array = self._array(stem, value, self.loops.width, self.row)
        k = self.loops.vector
        text = self.writer.value(value, scope)
        scope.lines.append(f"{array}[i{k} - v0] = {text};")
        self.vectors.add(value)
        axes = self.facts.axes(value)
        self.writer.places[value] = Place(axes, lambda scope: f"{array}[i{k} - v0]", value.dtype)

    # --- reductions
    def _accumulators(self, statement: Reduce | Scan) -> None:
        """Declares the partial results of a reduction, or the state of a scan."""
        kinds = [value.dtype for value in statement.values]
        identity = combiner(statement.kind).identity(kinds)
        lanes = statement.lanes if type(statement) is Reduce else 1
        count = lanes * self.loops.width
        for number, start in zip(statement.names, identity, strict=True):
            if number in self.declared:
                continue
            self.declared.add(number)
            text = self.writer.value(start, self.row)
            kind = array_type(start.dtype)
            if self.loops.vector is None and lanes == 1:
                self.row.lines.append(f"{kind} a{number} = {text};")
                continue
            self.row.lines += [
                f"{kind} a{number}[{count}] __attribute__((aligned(64)));",
                f"for (i64 k = 0; k < {count}; ++k) a{number}[k] = {text};",
            ]

    def _result(self, reduce: Reduce) -> None:
        """Combines the partial results in halves and makes the names known."""
        kinds = [value.dtype for value in reduce.values]
        width, lanes = self.loops.width, reduce.lanes
        if lanes > 1:
            scope = Scope(self.row)
            first = [f"a{number}[k]" for number in reduce.names]
            second = [f"a{number}[k + half * {width}]" for number in reduce.names]
            results = self.combined(combiner(reduce.kind), kinds, first, second, scope)
            sets = [f"{state} = {result};" for state, result in zip(first, results, strict=True)]
            self.row.lines += [
                f"for (i64 half = {lanes // 2}; half; half /= 2)",
                f"for (i64 k = 0; k < half * {width}; ++k) {{",
                *scope.lines,
                *sets,
                "}",
            ]
        for number, kind in zip(reduce.names, kinds, strict=True):
            self._name(number, kind, lanes)

    def _name(self, number: int, kind: DType, lanes: int) -> None:
        scalar, k = name(number, kind), self.loops.vector
        if k is None:
            element = f"a{number}" if lanes == 1 else f"a{number}[0]"
            text = from_array(kind, element)
            self.row.lines.append(f"const {value_type(kind)} n{number} = {text};")
            self.row.known[scalar] = f"n{number}"
            return
        axes = self.facts.name_axes[number]
        self.writer.places[scalar] = Place(axes, lambda scope: f"a{number}[i{k} - v0]", kind)


def _lane(point: str, lanes: int) -> str:
    return f"[{point} & {lanes - 1}]" if lanes > 1 else ""


def array_type(dtype: DType) -> str:
    """The C type of an element of a local array."""
    return "u8" if dtype is dtypes.bool_ else value_type(dtype)


def from_array(dtype: DType, element: str) -> str:
    """The value of an element of a local array."""
    return f"({element} != 0)" if dtype is dtypes.bool_ else element


def parameters(kernel_kinds: Sequence[tuple[int, DType, bool, bool]]) -> str:
    """The C parameters for buffers: (number, dtype, written, alone in its memory)."""
    found = []
    for number, dtype, written, alone in kernel_kinds:
        const = "" if written else "const "
        restrict = "restrict " if alone else ""
        found.append(f"{const}{memory_type(dtype)} *{restrict}b{number}")
    return ", ".join(found)
