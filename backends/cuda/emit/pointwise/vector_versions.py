"""Versions of a vector by its conditions, so that most vectors have no branches inside.

A condition that is the same for all points of a vector becomes an `if` around two versions. Along
the vector axis a condition changes at a few points: a vector between two of them gets a version of
its own, and the points of a vector across one, or across the end of a row, are computed one by one.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotlite.backends.c_family.axis_passes import with_values
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.loop_segments import LoopSegment, folded, parts
from aotlite.backends.c_family.scalar_text import CScope, KernelFacts
from aotlite.backends.cuda.emit.kernel_code import divisor_of
from aotlite.backends.cuda.emit.pointwise.contiguous_runs import ThreadMapping
from aotlite.backends.cuda.emit.pointwise.vector_body import Vector, VectorPhase
from aotlite.backends.loops.program import Store, values_of
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.primitives import COMPARISONS

SWITCHES = 2
"""The most conditions around versions: each doubles their number."""
MOST_PARTS = 3
LONG = 4
"""The least vectors of a part of the axis that gets a version."""
CHOICES = frozenset(("where", *COMPARISONS))


class VectorVersions:
    """Prints a vector in the versions that its conditions need."""

    def __init__(
        self, spread: ThreadMapping, facts: KernelFacts, body: Body, vector: Vector
    ) -> None:
        self.spread, self.facts, self.body, self.vector = spread, facts, body, vector

    def are_many(self, stores: Sequence[Store]) -> bool:
        """Whether whole vectors have several versions."""
        return self._switch(stores) is not None or len(self._parts(stores)) > 1

    def print(
        self, stores: Sequence[Store], scope: CScope, phase: VectorPhase, depth: int = 0
    ) -> None:
        """Prints a vector into a scope that knows its first point."""
        condition = self._switch(stores) if depth < SWITCHES else None
        if condition is None:
            self._along(stores, scope, phase)
            return
        text, lines = self.body.writer.value(condition, scope), []
        for head, truth in ((f"if ({text}) {{", True), ("} else {", False)):
            inside = CScope(scope, branch=True)
            self.print(_changed(stores, {condition: truth}), inside, phase, depth + 1)
            lines += [head, *inside.lines]
        scope.lines += [*lines, "}"]

    def _along(self, stores: Sequence[Store], scope: CScope, phase: VectorPhase) -> None:
        """Prints a version for each part of the axis, and the points between parts one by one."""
        heads: list[str] = []
        lines: list[list[str]] = []
        for part in self._parts(stores):
            test = self._test(part)
            inside = CScope(scope, branch=True) if test else scope
            self.vector.printed(_changed(stores, part.truths), inside, phase)
            if not test:
                return
            heads.append(f"if ({test}) {{")
            lines.append(inside.lines)
        if phase is not VectorPhase.LOAD:
            heads.append("{")
            lines.append(self._ones(stores, scope))
        for place, (head, own) in enumerate(zip(heads, lines, strict=True)):
            scope.lines += [f"}} else {head}" if place else head, *own]
        scope.lines += ["}"] if heads else []

    def _ones(self, stores: Sequence[Store], scope: CScope) -> list[str]:
        k, index = self.spread.vector, self.vector.index
        inside = CScope(scope, 1 << k, branch=True)
        self.vector.one(stores, inside)
        return [
            "#pragma unroll 1",
            f"for (i32 e = 0; e < {self.spread.width}; ++e) {{",
            f"const {index.position} i{k} = v{k} + e;",
            f"if (i{k} < {self.spread.extents[k]}) {{",
            *inside.lines,
            *("}", "}"),
        ]

    def _test(self, part: LoopSegment) -> str:
        """Returns the test whether all points of a vector lie in a part; empty if always."""
        k, width = self.spread.vector, self.spread.width
        extent = self.spread.extents[k]
        if type(extent) is not int:
            return "" if divisor_of(extent, width) == width else f"v{k} <= {extent - width}"
        end = extent if part.end is None else min(part.end, extent)
        tests = [f"v{k} >= {part.begin}"] if (part.begin or 0) > 0 else []
        if end < extent or extent % width:
            tests.append(f"v{k} <= {end - width}")
        return " && ".join(tests)

    def _parts(self, stores: Sequence[Store]) -> list[LoopSegment]:
        """Returns the longest parts of the axis between the flips of conditions."""
        whole = LoopSegment((), None, None, {})
        roots = [value for store in stores for value in values_of(store)]
        if self.spread.width == 1 or all(scalar.op not in CHOICES for scalar in walk(roots)):
            return [whole]
        k = self.spread.vector
        found = parts(roots, k, None)[0]
        edges = [edge for part in found for edge in (part.begin, part.end)]
        if is_symbolic((self.spread.extents[k], *edges)):
            return [whole]
        least = min(LONG * self.spread.width, self.spread.extents[k] // 2)
        found = [part for part in found if self._length(part) >= least]
        return sorted(found, key=self._length, reverse=True)[:MOST_PARTS]

    def _length(self, part: LoopSegment) -> int:
        """Returns the number of points of a part."""
        extent = self.spread.extents[self.spread.vector]
        end = extent if part.end is None else min(part.end, extent)
        return end - max(part.begin or 0, 0)

    def _switch(self, stores: Sequence[Store]) -> Scalar | None:
        """Returns a condition that is the same for the whole vector and guards unsafe loads; else
        None."""
        if self.spread.width == 1:
            return None
        roots = [value for store in stores for value in values_of(store)]
        for scalar in self.facts.in_order(roots):
            bit = 1 << self.spread.vector
            if self.facts.is_lazy(scalar) and not self.facts.axes(scalar.args[0]) & bit:
                condition: Scalar = scalar.args[0]
                if self.facts.safe(condition):
                    return condition
        return None


def _changed(stores: Sequence[Store], truths: Mapping[Scalar, bool]) -> list[Store]:
    """Returns the stores with these conditions replaced by their truth."""
    if not truths:
        return list(stores)
    return [with_values(each, folded(truths)) for each in stores]
