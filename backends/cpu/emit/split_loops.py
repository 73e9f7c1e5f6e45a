"""Splits loops of a kernel where conditions change, and chooses between loops by outer conditions.

Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from aotlite.backends.c_family.loop_body import Body, PointWork
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.loop_segments import FAR, LoopSegment, folded, parts
from aotlite.backends.c_family.scalar_text import CScope, KernelFacts
from aotlite.backends.cpu.emit.loop_text import Range, clipped
from aotlite.backends.loops.expr import Scalar

SWITCHES = 3
"""Conditions of outer loops by which one loop becomes several."""

Loop = Callable[[PointWork, CScope, Range], None]
"""Prints a loop over a range of the innermost axis."""


class Splitter:
    """Prints one loop as several, in each of which more conditions are known."""

    def __init__(
        self, loops: LoopGeometry, facts: KernelFacts, body: Body, *, chooses: bool
    ) -> None:
        self.loops, self.facts, self.body = loops, facts, body
        self.chooses = chooses
        """Whether there is any `where`: most kernels have none, and nothing to look for."""

    def split(
        self, work: PointWork, parent: CScope, whole: Range, loop: Loop, *, moving: bool = True
    ) -> None:
        """A loop along the innermost axis, in parts in which its conditions are known."""
        if not self.chooses:
            loop(work, parent, whole)
            return
        k = self.loops.innermost or 0
        fixed = self.is_fixed if moving else None
        for part in parts(work.roots, k, None)[0]:
            place = clipped(whole, part, "")
            if place is None:
                continue
            own = work.changed(folded(part.truths)) if part.truths else work
            moved = parts(own.roots, k, fixed)[1]
            base = self._base(moved[0], parent) if len(moved) > 1 else ""
            for inside in moved:
                bounds = clipped(place, inside, base)
                inner = own.changed(folded(inside.truths)) if inside.truths else own
                if bounds is not None:
                    self.unswitched(
                        inner,
                        parent,
                        lambda w, scope, b=bounds: loop(w, scope, b),  # type: ignore[misc]
                    )

    def is_fixed(self, scalar: Scalar) -> bool:
        """Whether a value does not change in the innermost loop and may be computed before it."""
        bit = 1 << (self.loops.innermost or 0)
        return not self.facts.axes(scalar) & bit and self.facts.safe(scalar)

    def _base(self, part: LoopSegment, parent: CScope) -> str:
        """The name of where conditions change that depend on other axes, or on a value."""
        terms = []
        for term, coefficient in part.base:
            if isinstance(term, int):
                text = parent.position(term)
            else:
                text = f"least(most({self.body.writer.value(term, parent)}, -{FAR}), {FAR})"
            terms.append(f"{text} * ({coefficient})")
        name = self.body.writer.fresh()
        parent.lines.append(f"const i64 {name} = {' + '.join(terms)};")
        return name

    def unswitched(
        self,
        work: PointWork,
        parent: CScope,
        loop: Callable[[PointWork, CScope], None],
        depth: int = 0,
    ) -> None:
        """A loop for each truth of a condition that does not change in it and guards loads."""
        condition = self.switch(work) if depth < SWITCHES else None
        if condition is None:
            loop(work, parent)
            return
        text = self.body.writer.value(condition, parent)
        lines = []
        for head, truth in ((f"if ({text}) {{", True), ("} else {", False)):
            inside = CScope(parent, branch=True)
            change = folded({condition: truth})
            self.unswitched(work.changed(change), inside, loop, depth + 1)
            lines += [head, "APART();", *inside.lines]
        parent.lines += [*lines, "}"]

    def switch(self, work: PointWork) -> Scalar | None:
        if not self.chooses:
            return None
        k = self.loops.innermost
        bit = 0 if k is None else 1 << k
        for scalar in self.facts.in_order(work.roots):
            if self.facts.is_lazy(scalar) and not self.facts.axes(scalar.args[0]) & bit:
                condition: Scalar = scalar.args[0]
                return condition
        return None
