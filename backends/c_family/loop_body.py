"""The body of a kernel's innermost loop, and the local arrays that it works on.

Local arrays are the partial results of a reduction (`a0[64]`, one for each lane), the state of a
scan, and scratch rows of values that several passes need (`s1[...]`). Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from aotlite.backends.c_family.axis_passes import with_values
from aotlite.backends.c_family.c_types import from_memory, to_memory, value_type
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import (
    CScope,
    FunctionTexts,
    KernelFacts,
    LocalElement,
    ScalarWriter,
)
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.combiners import Combiner, combiner
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store, rows_of, values_of
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Scalar, name, parameter

VECTOR = 64
"""The bytes of a vector with a mask, and the most points of vectors with masks."""
FIRST_LOCAL_NAME = 1 << 20
"""Names from this number on are those of local arrays, not of statements."""


@attrs.frozen
class PointWork:
    """The statements and values that the innermost loop computes at each point."""

    scans: tuple[Scan, ...] = ()
    saved: tuple[tuple[Scalar, Scalar], ...] = ()
    """(value, name) of values that are written to local arrays, and the name for later loads."""
    reduces: tuple[Reduce, ...] = ()
    stores: tuple[Store, ...] = ()

    @property
    def roots(self) -> list[Scalar]:
        """All values that are computed."""
        statements: tuple[Statement, ...] = (*self.scans, *self.reduces, *self.stores)
        found = [value for each in statements for value in values_of(each)]
        return [*found, *[value for value, _ in self.saved]]

    def changed(self, change: Callable[[Scalar], Scalar]) -> PointWork:
        """Returns the same work with `change` applied to each value."""
        return PointWork(
            tuple([with_values(each, change) for each in self.scans]),
            tuple([(change(value), leaf) for value, leaf in self.saved]),
            tuple([with_values(each, change) for each in self.reduces]),
            tuple([with_values(each, change) for each in self.stores]),
        )


Settled = Callable[[Store, str, str], list[str]]
"""(store, C text of the element, C text of the value) -> the lines of a store in any order."""
Partial = Callable[[Reduce], str]
"""The C index of a reduction's partial result at a point of the innermost loop, such as [lane]."""


class Body:
    """Prints points of the innermost loop into scopes."""

    def __init__(
        self,
        loops: LoopGeometry,
        facts: KernelFacts,
        kinds: dict[int, DType],
        library: FunctionTexts,
        row: CScope,
    ) -> None:
        self.loops, self.facts, self.kinds, self.row = loops, facts, kinds, row
        self.writer = ScalarWriter(facts, library)
        self.writer.innermost = loops.innermost
        self.combining = ScalarWriter(KernelFacts(), library, "c")
        self.local_names: dict[Scalar, Scalar] = {}
        """The name of each value that lies in a local array."""
        self.lines: dict[int, str] = {}
        """For each buffer whose stores go to a local line first, the C text of the element."""
        self.declared: set[int] = set()
        self.settled: Settled | None = None
        """Prints stores in any order, as by atomics; None: they are printed like others."""
        self.count = 0
        self.kept_points: int | None = None
        """The most inner points of arrays of kept values; None: as many as there are points."""

    # --- points
    def point(self, work: PointWork, scope: CScope, partial: Partial) -> None:
        """Prints all the work at one point."""
        for scan in work.scans:
            self._scan(scan, scope)
        for value, leaf in work.saved:
            text, place = self.writer.value(value, scope), self.writer.places[leaf]
            head = "" if place.has_room else _if(scope)
            scope.lines.append(f"{head}{place.element(scope)} = {text};")
        for reduce in work.reduces:
            values = self.writer.values(reduce.values, scope)
            states = [f"a{number}{partial(reduce)}" for number in reduce.names]
            kinds = [value.dtype for value in reduce.values]
            results = self.combined(combiner(reduce.kind), kinds, states, values, scope)
            pairs = list(zip(states, results, strict=True))
            if scope.within:  # no branch, so that partial results may stay in registers
                pairs = [(s, f"{scope.within[1]} ? {r} : {s}") for s, r in pairs]
            scope.lines += [f"{s} = {r};" for s, r in pairs]
        self.stores(work.stores, scope)

    def combined(
        self,
        kind: Combiner,
        kinds: Sequence[DType],
        first: Sequence[str],
        second: Sequence[str],
        scope: CScope,
    ) -> list[str]:
        """Returns the C texts of a combination of two tuples."""
        own = CScope(None)
        count = len(kinds)
        a = [parameter(k, dtype) for k, dtype in enumerate(kinds)]
        b = [parameter(count + k, dtype) for k, dtype in enumerate(kinds)]
        for each, text in zip([*a, *b], [*first, *second], strict=True):
            fresh = self.combining.fresh()
            kept = from_array(each.dtype, text)
            own.lines.append(f"const {value_type(each.dtype)} {fresh} = {kept};")
            own.known[each] = fresh
        results = self.combining.values(kind.combine(a, b), own)
        scope.lines += own.lines
        return results

    def _scan(self, scan: Scan, scope: CScope) -> None:
        values = self.writer.values(scan.values, scope)
        kinds = [value.dtype for value in scan.values]
        states = [f"a{number}{self._column()}" for number in scan.names]
        results = self.combined(combiner(scan.kind), kinds, states, values, scope)
        positions = [scope.position(k) for k in self.loops.inner if is_axis(self.facts.extents[k])]
        first = " | ".join(positions) or "0"
        for number, kind, value, result in zip(scan.names, kinds, values, results, strict=True):
            scope.lines.append(
                f"const {value_type(kind)} n{number} = ({first}) == 0 ? {value} : {result};"
            )
            scope.known[name(number, kind)] = f"n{number}"
        for number, state in zip(scan.names, states, strict=True):
            scope.lines.append(f"{state} = n{number};")

    def _column(self) -> str:
        return "" if self.loops.vector is None else f"[i{self.loops.vector} - v0]"

    def stores(self, stores: Sequence[Store], scope: CScope) -> None:
        """Prints stores, behind all loads of their scope (K-6)."""
        lines: list[str] = []
        for store in stores:
            dtype = self.kinds[store.buffer]
            value = self.writer.value(store.value, scope)
            place = self.lines.get(store.buffer)
            if place is None:
                place = f"b{store.buffer}[{self.writer.address(store.address, scope)}]"
            if store.unordered and self.settled is not None:
                lines += self.settled(store, place, value)
                continue
            if store.combine is not None:
                inside = CScope(None)
                kind = combiner(store.combine)
                old = scope.masked(from_memory(dtype, place))
                old = self._old(store, kind, f"({old})" if scope.within else old, scope)
                (value,) = self.combined(kind, [dtype], [old], [value], inside)
                lines += inside.lines
            lines.append(f"{_if(scope)}{place} = {to_memory(dtype, value)};")
        scope.lines += lines

    def _old(self, store: Store, kind: Combiner, old: str, scope: CScope) -> str:
        """Returns the C text of the operand with which a store combines: the old element, or, with
        `from_identity`, at the first row the combiner's identity."""
        if not store.from_identity or store.buffer in self.lines:
            return old
        (start,) = kind.identity([store.value.dtype])
        space = rows_of(store, self.facts.space)
        rows = [scope.position(k) for k in space if is_axis(self.facts.extents[k])]
        first = self.writer.value(start, scope)
        return f"(({' | '.join(rows)}) == 0 ? {first} : {old})" if rows else first

    # --- local arrays
    def array(self, text: str, dtype: DType, count: int) -> None:
        """Declares a local array, once for each unit of work."""
        kind = array_type(dtype)
        self.row.lines.append(f"{kind} {text}[{count}] __attribute__((aligned(64)));")

    def new_name(self, dtype: DType) -> Scalar:
        """Returns a new name for a value in local memory."""
        self.count += 1
        return name(FIRST_LOCAL_NAME + self.count, dtype)

    def keep(self, value: Scalar, *, inner: bool) -> Scalar:
        """Returns the name of a value that is kept in a local array from now on.

        With `inner` there is an element for each point of the inner axes and the vector axis;
        without, one for each point of the vector axis.
        """
        leaf = self.new_name(value.dtype)
        text, k = f"s{leaf.args[0] - FIRST_LOCAL_NAME}", self.loops.vector
        points = self.loops.points if self.kept_points is None else self.kept_points
        count = self.loops.width * (points if inner else 1)
        # Rows end with a masked vector, or with as many as there are lanes.
        has_room = type(count) is int and count % VECTOR == 0
        room = VECTOR if has_room and self.kept_points is not None else 0
        self.array(text, value.dtype, count + room)
        column = "" if k is None else f"i{k} - v0"
        width, number = self.loops.width, partial(_number, self.loops.inner, self.facts.extents)

        def element(scope: CScope) -> str:  # without `self`, in which it is kept
            if not inner:
                return f"{text}[{column}]"
            index = number(scope)
            return f"{text}[({index}) * {width} + {column}]" if column else f"{text}[{index}]"

        axes = (1 << len(self.facts.extents)) - 1 if inner else 1 << (k or 0)
        self.facts.name_axes[leaf.args[0]] = axes
        self.writer.places[leaf] = LocalElement(axes, element, value.dtype, has_room)
        self.local_names[value] = leaf
        return leaf

    def number(self, scope: CScope) -> str:
        """Returns the C text of the number of an inner point, counted in row-major order."""
        return _number(self.loops.inner, self.facts.extents, scope)

    # --- reductions
    def accumulators(self, statement: Reduce | Scan) -> None:
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
            if self.loops.vector is None and lanes == 1:
                self.row.lines.append(f"{array_type(start.dtype)} a{number} = {text};")
                continue
            self.array(f"a{number}", start.dtype, count)
            used = f"{count}"
            if lanes == 1 and type(self.facts.extents[self.loops.vector or 0]) is not int:
                used = "v1 - v0"  # a block is larger than many an axis
            self.row.lines.append(f"for (i64 k = 0; k < {used}; ++k) a{number}[k] = {text};")

    def result(self, reduce: Reduce) -> None:
        """Prints the combination of the lanes in halves, and makes the reduction's names known."""
        kinds = [value.dtype for value in reduce.values]
        groups = reduce.lanes // reduce.near
        self._halve(reduce, kinds, groups, reduce.near, 1)
        self._halve(reduce, kinds, 1, groups, reduce.near)
        for number, kind in zip(reduce.names, kinds, strict=True):
            self._name(number, kind, reduce.lanes)

    def _halve(
        self, reduce: Reduce, kinds: Sequence[DType], groups: int, count: int, step: int
    ) -> None:
        """Combines groups of `count` lanes, which are `step` apart, into the first lane of each.

        One loop for each halving: loops of known length need no remainder loop.
        """
        width, half = self.loops.width, count // 2
        while half:
            far, scope = half * step * width, CScope(None)
            place = "k" if groups == step == 1 else "at"
            first = [f"a{number}[{place}]" for number in reduce.names]
            second = [f"a{number}[{place} + {far}]" for number in reduce.names]
            results = self.combined(combiner(reduce.kind), kinds, first, second, scope)
            sets = [f"{state} = {result};" for state, result in zip(first, results, strict=True)]
            where = [] if place == "k" else [self._place(half, count, step)]
            head = f"for (i64 k = 0; k < {groups * half * width}; ++k) {{"
            self.row.lines += [head, *where, *scope.lines, *sets, "}"]
            half //= 2

    def _place(self, half: int, count: int, step: int) -> str:
        """Returns the line that computes the index of the k-th pair of lanes."""
        width = self.loops.width
        pair = f"k / {width}" if width > 1 else "k"
        place = f"(({pair}) / {half} * {count} + ({pair}) % {half}) * {step}"
        return f"const i64 at = {place} * {width} + k % {width};"

    def _name(self, number: int, kind: DType, lanes: int) -> None:
        scalar, k = name(number, kind), self.loops.vector
        if k is None:
            element = f"a{number}" if lanes == 1 else f"a{number}[0]"
            text = from_array(kind, element)
            self.row.lines.append(f"const {value_type(kind)} n{number} = {text};")
            self.row.known[scalar] = f"n{number}"
            return
        axes = self.facts.name_axes[number]
        self.writer.places[scalar] = LocalElement(axes, lambda scope: f"a{number}[i{k} - v0]", kind)


def _if(scope: CScope) -> str:
    return f"if ({scope.within[1]}) " if scope.within else ""


def array_type(dtype: DType) -> str:
    """Returns the C type of an element of a local array."""
    return "u8" if dtype is dtypes.bool_ else value_type(dtype)


def from_array(dtype: DType, element: str) -> str:
    """Returns the C text of the value of a local array's element."""
    return f"({element} != 0)" if dtype is dtypes.bool_ else element


def _number(inner: Sequence[int], extents: Sequence[int], scope: CScope) -> str:
    text = ""
    for k in inner:
        own = scope.position(k)
        text = f"({text}) * {extents[k]} + {own}" if text else own
    return text or "0"
