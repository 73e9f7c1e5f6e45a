"""Loop splitting and unswitching: the innermost loop is printed in parts without conditions.

It is split where a condition on its axis changes (`loop_segments`). A condition that is invariant
in it moves outside: `if (c) for (...) A else for (...) B`. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from aotlite.backends.c_family.loop_body import Body, PointWork
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.loop_segments import FAR, LoopSegment, folded, parts
from aotlite.backends.c_family.scalar_text import CScope, KernelFacts
from aotlite.backends.cpu.emit.loop_text import Range, clipped
from aotlite.ir.scalar.expression import Scalar

SWITCHES = 3
"""The most invariant conditions that are moved out of a loop: each doubles its text."""

Loop = Callable[[PointWork, CScope, Range], None]
"""Prints a loop over a range of the innermost axis."""


class Splitter:
    """Prints a loop as several, in each of which more conditions are known."""

    def __init__(
        self, loops: LoopGeometry, facts: KernelFacts, body: Body, *, chooses: bool
    ) -> None:
        self.loops, self.facts, self.body = loops, facts, body
        self.chooses = chooses
        """Whether the kernel has conditions. Most have none, and are not looked through."""

    def split(
        self, work: PointWork, parent: CScope, whole: Range, loop: Loop, *, moving: bool = True
    ) -> None:
        """Prints a loop along the innermost axis in parts in which its conditions are known.

        With `moving` it is also split at places that depend on other axes.
        """
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
        """Whether a value is invariant in the innermost loop and safe to compute before it."""
        return not self.moves(scalar) and self.facts.safe(scalar)

    def moves(self, scalar: Scalar) -> bool:
        """Whether a value changes in the innermost loop."""
        return bool(self.facts.axes(scalar) & 1 << (self.loops.innermost or 0))

    def _base(self, part: LoopSegment, parent: CScope) -> str:
        """Declares the base of a part's bounds, and returns its name."""
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
        """Prints an `if` with a loop in each branch, for an invariant condition that guards loads;
        the loop as it is if there is none."""
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
