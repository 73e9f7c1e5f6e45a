"""Loops that call functions: in two versions, or by lines of points where they call many.

A function may have a shorter body with the same bits for most numbers (`ScalarFunction.usual`). A
loop is printed in blocks of `BLOCK` points, each with a test:

    for (y0 = 0; y0 < n; y0 += 512) {
        u32 usual = 1;  for (i = y0 ..) usual &= fabs(x[i]) <= 86;
        if (usual) for (i = y0 ..) exp without special cases
        else for (i = y0 ..) exp with them }

Operands that are not in memory are computed once, into a local array. A loop that would be long
calls C functions of a line of points instead (`lines`), which make the test themselves:

    for (y0 = 0; y0 < n; y0 += 512) {
        for (i = y0 ..) line1[i - y0] = x[i] * 2;
        line_sin_f32_f32(line1, line2, 512);
        for (i = y0 ..) y[i] = line2[i - y0] + 1; }

Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.c_family.loop_body import FIRST_LOCAL_NAME, Body, PointWork
from aotlite.backends.c_family.scalar_text import CScope, LocalElement
from aotlite.backends.cpu.emit.lines.line_printer import LinePrinter
from aotlite.backends.cpu.emit.lines.line_steps import calls_by_lines
from aotlite.backends.cpu.emit.loop_text import Range, for_loop, in_steps, is_whole
from aotlite.backends.cpu.emit.split_loops import Loop
from aotlite.backends.loops.rewrite import replaced
from aotlite.ir.scalar.expression import Scalar, function, walk
from aotlite.ir.scalar.functions import FiniteVersion, find, substituted
from aotlite.ir.scalar.functions.function_registry import USUAL
from aotlite.ir.scalar.primitives import PRIMITIVES

BLOCK = 512
"""The points of a block: one unusual number sends them all through the slow loop."""


@attrs.frozen
class _Guarded:
    call: Scalar
    usual: FiniteVersion


class FiniteLoops:
    """Prints loops in two versions if a function in them has a shorter body, or by lines."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.block = 1, False
        """For a loop over a block: a number that divides its first point, and whether it has as
        many points as blocks have."""
        self.lines = LinePrinter(body)

    def applies(self, work: PointWork, axis: int) -> bool:
        """Whether a loop along this axis calls a function with a shorter body, or is printed by
        lines."""
        return bool(self._guarded(work, axis) or calls_by_lines(work, self.body.facts, axis))

    def print(self, work: PointWork, outside: CScope, place: Range, axis: int, loop: Loop) -> None:
        """Prints the loop by lines, or in two versions if it calls a function with a shorter body;
        else as it is."""
        calls = calls_by_lines(work, self.body.facts, axis)
        found = [] if calls else self._guarded(work, axis)
        if calls:
            self._print_lines(work, calls, outside, place, (axis, loop))
        elif found:
            self._print_two(work, found, outside, place, (axis, loop))
        else:
            loop(work, outside, place)

    def _print_two(
        self,
        work: PointWork,
        found: list[_Guarded],
        outside: CScope,
        place: Range,
        of_loop: tuple[int, Loop],
    ) -> None:
        axis, loop = of_loop
        part, flag = CScope(outside), self.body.writer.fresh()
        lines = self._lines(found, axis)
        self._question(found, lines, flag, (part, axis))
        memo = {**lines, **{each.call: _short(each, lines) for each in found}}
        usual, rare = CScope(part), CScope(part)
        self._inside(work.changed(lambda root: replaced(root, memo)), usual, place, BLOCK, loop)
        calls = [each.call for each in found]
        rest, _ = self.lines.printed(work, calls, rare, axis, BLOCK)
        self._inside(rest, rare, place, BLOCK, loop)
        part.lines += [f"if ({flag}) {{", *usual.lines, "} else {", *rare.lines, "}"]
        outside.lines += in_steps("y", place, BLOCK, part.lines)

    def _print_lines(
        self,
        work: PointWork,
        calls: list[Scalar],
        outside: CScope,
        place: Range,
        of_loop: tuple[int, Loop],
    ) -> None:
        axis, loop = of_loop
        part = CScope(outside)
        rest, points = self.lines.printed(work, calls, part, axis)
        rest, copied = self.lines.copied(rest, part, axis)
        if rest.roots:
            self._inside(rest, part, place, points, loop)
        part.lines += copied
        outside.lines += in_steps("y", place, points, part.lines)

    def _inside(
        self, work: PointWork, scope: CScope, place: Range, points: int, loop: Loop
    ) -> None:
        """Prints the loop over a block of a range."""
        self.block = (points if place[0] == 0 else 1), is_whole(place, points)
        loop(work, scope, ("y0", "y1"))
        self.block = 1, False

    def _guarded(self, work: PointWork, axis: int) -> list[_Guarded]:
        """Returns the calls that vary in the loop, whose operands contain no other such call, and
        no scan that the loop computes."""
        facts, found = self.body.facts, []
        going = {number for scan in work.scans for number in scan.names}
        for scalar in facts.in_order(work.roots):
            if scalar.op in PRIMITIVES or not facts.axes(scalar) & 1 << axis:
                continue
            usual = _usual(scalar)
            if usual is None:
                continue
            inside = list(walk(scalar.args))
            calls = [each for each in inside if each.op not in PRIMITIVES]
            scanned = any(each.op == "name" and each.args[0] in going for each in inside)
            if not scanned and not any(map(_usual, calls)):
                found.append(_Guarded(scalar, usual))
        return found

    def _lines(self, found: list[_Guarded], axis: int) -> dict[Scalar, Scalar]:
        """Returns the name of each operand's local array; operands in memory need none."""
        lines: dict[Scalar, Scalar] = {}
        for operand in [operand for each in found for operand in each.call.args]:
            if operand.op not in ("load", "name", "const") and operand not in lines:
                lines[operand] = self._line(operand, axis)
        return lines

    def _line(self, operand: Scalar, axis: int) -> Scalar:
        body, dtype = self.body, operand.dtype
        leaf = body.new_name(dtype)
        text = f"usual{leaf.args[0] - FIRST_LOCAL_NAME}"
        body.array(text, dtype, BLOCK)
        axes = body.facts.axes(operand) | 1 << axis
        body.facts.name_axes[leaf.args[0]] = axes
        body.writer.places[leaf] = LocalElement(axes, lambda scope: f"{text}[i{axis} - y0]", dtype)
        return leaf

    def _question(
        self,
        found: list[_Guarded],
        lines: dict[Scalar, Scalar],
        flag: str,
        where: tuple[CScope, int],
    ) -> None:
        """Prints the loop that fills the local arrays and computes the flag of the block."""
        part, axis = where
        scope = CScope(part, 1 << axis)
        for operand, leaf in lines.items():
            text = self.body.writer.value(operand, scope)
            scope.lines.append(f"{self.body.writer.places[leaf].element(scope)} = {text};")
        for each in found:
            condition = substituted(each.usual.condition, each.call.args)
            text = self.body.writer.value(condition, scope)
            scope.lines.append(f"{flag} &= {text};")
        part.lines += [f"u32 {flag} = 1;", *for_loop(axis, ("y0", "y1"), scope)]


def _usual(scalar: Scalar) -> FiniteVersion | None:
    return find(scalar.op, [operand.dtype for operand in scalar.args]).usual


def _short(guarded: _Guarded, lines: dict[Scalar, Scalar]) -> Scalar:
    """Returns the call of the shorter body, on operands in local arrays."""
    operands = [lines.get(operand, operand) for operand in guarded.call.args]
    return function(guarded.call.op + USUAL, guarded.call.dtype, *operands)
