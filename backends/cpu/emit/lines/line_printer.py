"""The printer of lines: a C function that computes what `line_steps` says, for a block of points.

    y[i] = sin(sin(x[i] * 2) * 2) + 1      for (y0 = 0; y0 < n; y0 += 512) {
                                               points0(x + y0, line1, y1 - y0);
                                               for (i = y0 ..) y[i] = line1[i - y0] + 1; }

    points0(q0, p1, n) {  f32 p0[512];
        for (at = 0; at < n; ++at) p0[at] = q0[at] * 2;
        line_sin_f32_f32(p0, p1, n);
        ... }

All versions of a kernel, and kernels that differ in their axes, call the same function. It is
printed in place of its call if it needs more than rows of memory. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from aotlite.backends.c_family.c_types import from_memory, memory_type, value_type
from aotlite.backends.c_family.loop_body import Body, PointWork, array_type
from aotlite.backends.c_family.scalar_text import CScope, LocalElement, ScalarWriter
from aotlite.backends.cpu.emit.lines.line_functions import (
    filler,
    line_function,
    shared_function,
    whole,
)
from aotlite.backends.cpu.emit.lines.line_steps import LineStep, line_steps, names_in
from aotlite.backends.loops.program import Store
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Scalar, walk

MOST_POINTS = 512
"""The most points of a block."""
LEAST_POINTS = 64
MOST_BYTES = 1 << 15
"""The bytes of the lines of a loop above which its blocks are shorter: a first-level cache."""

Place = tuple[DType, int]
"""The dtype of a line's array, and its number among those of this dtype."""


@attrs.frozen
class _Inputs:
    """What lines are computed of: loads along the loop, and values that are the same along it."""

    loads: tuple[Scalar, ...]
    still: tuple[Scalar, ...]


class LinePrinter:
    """Prints the steps of a loop by lines."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.declared: set[str] = set()
        """The arrays of lines that the kernel has."""
        self.arrays: dict[Scalar, str] = {}
        """The array of each line that loops use."""

    def printed(
        self,
        work: PointWork,
        calls: Sequence[Scalar],
        part: CScope,
        axis: int,
        points: int | None = None,
    ) -> tuple[PointWork, int]:
        """Prints the computation of calls for the block [y0, y1) of an axis. Returns the work that
        is left, of names of lines, and the points of a block, which are `points` if these are
        given."""
        facts, names = self.body.facts, set[Scalar]()

        def named(value: Scalar) -> Scalar:
            leaf = self.body.new_name(value.dtype)
            facts.name_axes[leaf.args[0]] = facts.axes(value) | 1 << axis
            names.add(leaf)
            return leaf

        steps, rest = line_steps(work, calls, facts, axis, named)
        left = names & names_in(rest.roots)
        places = _places(steps, left)
        points = points or _points(places.values())
        inputs = self._inputs(steps, axis, names)
        own = places if inputs is None else {x: places[x] for x in places if x in left}
        arrays = {leaf: self._array(*place, points) for leaf, place in own.items()}
        if inputs is None:
            self._print(steps, part, axis, arrays)
        else:
            self._call(steps, part, axis, inputs, places, arrays, points)
        for leaf in left:
            self._set(self.body.writer, leaf, f"{arrays[leaf]}[i{axis} - y0]")
            self.arrays[leaf] = arrays[leaf]
        return rest, points

    def copied(self, work: PointWork, part: CScope, axis: int) -> tuple[PointWork, list[str]]:
        """Returns the work without stores of whole lines to rows of memory, and the C text that
        copies these lines when the rest of the block is computed."""
        copied, lines = set[int](), list[str]()
        part.positions[axis] = "y0"
        for k, store in enumerate(work.stores):
            text = self.arrays.get(store.value)
            if text is None or not self._is_row(store, work, axis):
                continue
            copied.add(k)
            place = f"b{store.buffer} + {self.body.writer.address(store.address, part)}"
            size = store.value.dtype.itemsize
            lines.append(f"__builtin_memcpy({place}, {text}, (y1 - y0) * {size});")
        del part.positions[axis]
        stores = [store for k, store in enumerate(work.stores) if k not in copied]
        return attrs.evolve(work, stores=tuple(stores)), lines

    def _is_row(self, store: Store, work: PointWork, axis: int) -> bool:
        """Whether a store writes its points next to each other, as they are in local arrays."""
        address, kind = store.address, store.value.dtype
        alone = sum(each.buffer == store.buffer for each in work.stores) == 1
        plain = store.combine is None and not store.unordered and not address.dynamic
        as_stored = _is_plain(kind) and self.body.kinds[store.buffer] is kind
        moves = store.buffer in self.body.lines or address.coefficients[axis] != 1
        return alone and plain and as_stored and not moves

    def _set(self, writer: ScalarWriter, value: Scalar, text: str) -> None:
        axes = self.body.facts.axes(value)
        writer.places[value] = LocalElement(axes, lambda scope: text, value.dtype, has_room=True)

    def _array(self, kind: DType, number: int, points: int) -> str:
        """Returns the name of the array of a line, and declares it if it is new."""
        text = f"line{number}_{kind.short}_{points}"
        if text not in self.declared:
            self.declared.add(text)
            self.body.array(text, kind, points)
        return text

    def _inputs(self, steps: list[LineStep], axis: int, names: set[Scalar]) -> _Inputs | None:
        """Returns what steps need; None if that is more than rows of memory that are there at each
        point, and values that are the same along the loop."""
        facts, loads, still = self.body.facts, dict[Scalar, None](), dict[Scalar, None]()
        todo = [value for each in steps for value, _ in each.filled]
        todo += [value for each in steps for value in each.call.args]
        done = set(names)
        while todo:
            scalar = todo.pop()
            if scalar in done or scalar.op == "const":
                continue
            done.add(scalar)
            if not facts.axes(scalar) & 1 << axis:
                if not facts.safe(scalar):
                    return None
                still[scalar] = None
            elif scalar.op == "load":
                if not facts.safe(scalar) or type(scalar.args[1].coefficients[axis]) is not int:
                    return None
                loads[scalar] = None
            elif scalar.op in ("axis", "name") or facts.is_lazy(scalar):
                return None
            else:
                todo += scalar.operands[::-1]
        return _Inputs(tuple(loads), tuple(still))

    # --- in place
    def _print(
        self, steps: list[LineStep], part: CScope, axis: int, arrays: Mapping[Scalar, str]
    ) -> None:
        """Prints the steps in place of a call."""
        for leaf, text in arrays.items():
            self._set(self.body.writer, leaf, f"{text}[at]")
        count = self.body.writer.fresh()
        part.lines.append(f"const i64 {count} = y1 - y0;")
        head = [f"const i64 i{axis} = y0 + at;"]
        loop = _LoopText(self.body.writer, part, 1 << axis, count, head)
        part.lines += self._steps_text(steps, loop, arrays)

    # --- as a function
    def _call(
        self,
        steps: list[LineStep],
        part: CScope,
        axis: int,
        inputs: _Inputs,
        places: Mapping[Scalar, Place],
        results: Mapping[Scalar, str],
        points: int,
    ) -> None:
        """Prints the call of the function of the steps, and the function unless there is one."""
        library, own = (
            self.body.writer.library,
            ScalarWriter(self.body.facts, self.body.writer.library),
        )
        part.positions[axis] = "y0"
        scope, given, parameters = CScope(None), list[str](), list[str]()
        rows: dict[Scalar, str] = {}
        for k, load in enumerate(inputs.loads):
            number, address = load.args
            step = address.coefficients[axis]
            element = from_memory(load.dtype, f"q{k}[at]" if step == 1 else f"q{k}[at * ({step})]")
            self._set(own, load, element)
            if step == 1 and _is_plain(load.dtype):
                rows[load] = f"q{k}"
            given.append(f"b{number} + {self.body.writer.address(address, part)}")
            parameters.append(f"const {memory_type(load.dtype)} *restrict q{k}")
        del part.positions[axis]
        for k, value in enumerate(inputs.still):
            scope.known[value] = f"v{k}"
            given.append(self.body.writer.value(value, part))
            parameters.append(f"const {value_type(value.dtype)} v{k}")
        inside = {leaf: f"p{number}_{kind.short}" for leaf, (kind, number) in places.items()}
        for leaf, text in inside.items():
            self._set(own, leaf, f"{text}[at]")
        made = {inside[leaf]: text for leaf, text in results.items()}
        kinds = {text: array_type(leaf.dtype) for leaf, text in inside.items()}
        arrays = [
            f"{kind} {text}[{points}] __attribute__((aligned(64)));"
            for text, kind in sorted(kinds.items())
            if text not in made
        ]
        loop = _LoopText(own, scope, 1 << axis, "n", rows=rows)
        lines = self._steps_text(steps, loop, inside)
        parameters += [f"{kinds[text]} *restrict {text}" for text in sorted(made)]
        name = shared_function(library, [*parameters, "i64 n"], [*arrays, *scope.lines, *lines])
        given += [made[text] for text in sorted(made)]
        part.lines.append(f"{name}({', '.join([*given, 'y1 - y0'])});")

    # --- either
    def _steps_text(
        self, steps: list[LineStep], loop: _LoopText, arrays: Mapping[Scalar, str]
    ) -> list[str]:
        """Returns the lines that compute the steps for `loop.count` points."""
        library, rounded = loop.writer.library, loop.writer.fresh()
        lines = [f"const i64 {rounded} = {whole(loop.count)};"]
        for step in steps:
            if step.filled:
                lines += self._fill(step, loop, rounded, arrays)
            still = [each not in arrays for each in step.call.args]
            name = line_function(library, step.call, still)
            given = [
                loop.writer.value(each, loop.outside) if is_still else arrays[each]
                for each, is_still in zip(step.call.args, still, strict=True)
            ]
            lines.append(f"{name}({', '.join([*given, arrays[step.result]])}, {rounded});")
        return lines

    def _fill(
        self, step: LineStep, loop: _LoopText, rounded: str, arrays: Mapping[Scalar, str]
    ) -> list[str]:
        """Returns the loop that writes the values of a step to their lines.

        If it loads lines alone, it goes over all points of these. Else it goes to the last point,
        and copies of that follow it: numbers that are as usual as it is.
        """
        scope, copies = CScope(loop.outside, loop.axes), list[str]()
        scope.lines += loop.head
        for value, leaf in step.filled:
            if value in loop.rows:
                size = f"{loop.count} * {value.dtype.itemsize}"
                copies.append(f"__builtin_memcpy({arrays[leaf]}, {loop.rows[value]}, {size});")
                continue
            text = loop.writer.value(value, scope)
            scope.lines.append(f"{arrays[leaf]}[at] = {text};")
        facts = self.body.facts
        inside = [x for x in walk([v for v, _ in step.filled]) if facts.axes(x) & loop.axes]
        is_local = all(x.op not in ("load", "name") or x in arrays for x in inside)
        count = rounded if is_local else loop.count
        head = f"for (i64 at = 0; at < {count}; ++at) {{"
        lines = copies + ([head, *scope.lines, "}"] if len(copies) < len(step.filled) else [])
        if is_local:
            return lines
        for _, leaf in step.filled:
            name = filler(loop.writer.library, leaf.dtype)
            lines.append(f"{name}({arrays[leaf]}, {loop.count});")
        return lines


@attrs.frozen
class _LoopText:
    """How a loop over the points of a block is printed."""

    writer: ScalarWriter
    outside: CScope
    axes: int
    count: str
    """The C text of the number of points."""
    head: Sequence[str] = ()
    """The first lines of the loop's body."""
    rows: Mapping[Scalar, str] = attrs.field(factory=dict)
    """For loads of elements next to each other, as they are in lines, the C text of the first."""


def _is_plain(kind: DType) -> bool:
    """Whether elements in memory are what local arrays have."""
    return memory_type(kind) == f"m_{array_type(kind)}"


def _places(steps: list[LineStep], left: set[Scalar]) -> dict[Scalar, Place]:
    """Returns the array of each line. Lines that are not needed at the same time share one."""
    last = dict.fromkeys(left, len(steps))
    for k, step in enumerate(steps):
        for leaf in step.needed | set(step.made):
            last[leaf] = max(last.get(leaf, k), k)
    found: dict[Scalar, Place] = {}
    counts: dict[DType, int] = {}
    free: list[Place] = []
    living: list[Scalar] = []
    for k, step in enumerate(steps):
        for leaf in step.made:
            own = [place for place in free if place[0] is leaf.dtype]
            if own:
                free.remove(own[-1])
            else:
                number = counts[leaf.dtype] = counts.get(leaf.dtype, -1) + 1
                own = [(leaf.dtype, number)]
            found[leaf] = own[-1]
            living.append(leaf)
        free += [found[leaf] for leaf in living if last[leaf] == k]
        living = [leaf for leaf in living if last[leaf] > k]
    return found


def _points(places: Iterable[Place]) -> int:
    """Returns the points of a block whose lines have these arrays."""
    of_point = sum([kind.itemsize for kind, _ in set(places)])
    points = MOST_POINTS
    while points > LEAST_POINTS and points * of_point > MOST_BYTES:
        points //= 2
    return points
