"""The C text of loops and of their ranges.

Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import re

from aotlite.backends.c_family.loop_segments import LoopSegment
from aotlite.backends.c_family.scalar_text import CScope
from aotlite.ir.symbols.proving import is_proved

WHOLE = 64
"""Rows of a multiple of so many points have a version without remainders."""
FOURS = "FOURS"
"""The line before a loop over vectors, of which a whole row has a multiple of four."""
_PART = re.compile(r"(const i64 [vwxy]1 = least\([vwxy]0 \+ (\d+), .*);")
Range = tuple[int | str, int | str]
"""[begin, end): numbers, or C texts."""


def in_steps(stem: str, whole: Range, step: int, lines: list[str]) -> list[str]:
    """Returns a loop over parts [stem0, stem1) of a range, of which the last may be shorter."""
    begin, end = whole
    last = f"{stem}0 + {step}" if is_whole(whole, step) else f"least({stem}0 + {step}, {end})"
    head = f"for (i64 {stem}0 = {begin}; {stem}0 < {end}; {stem}0 += {step}) {{"
    return [head, f"const i64 {stem}1 = {last};", *lines, "}"]


def is_whole(place: Range, step: int) -> bool:
    """Whether a range is known to be divided into parts of `step` points without a rest."""
    begin, end = place
    return isinstance(begin, int) and isinstance(end, int) and (end - begin) % step == 0


def part_bounds(stem: str, number: str, extent: int, size: int) -> list[str]:
    """Returns the lines that define the bounds stem0, stem1 of a part of an axis."""
    if type(extent) is int and extent <= size:
        return [f"const i64 {stem}0 = 0, {stem}1 = {extent};"]
    first = f"const i64 {stem}0 = {number} * {size};"
    even = type(extent) is int and extent % size == 0
    last = f"{stem}0 + {size}" if even else f"least({stem}0 + {size}, {extent})"
    return [first, f"const i64 {stem}1 = {last};"]


def of_whole_rows(lines: list[str], row: str) -> list[str]:
    """Returns the version for whole rows of lines: the same with facts that the C compiler leaves
    remainders out for. `row` is the name of a row's length."""
    found = []
    for line in lines:
        part = _PART.match(line)
        if line.startswith(f"const i64 {row} = "):
            line = line.replace(";", f" & -{WHOLE}; SURE({row} > 0);")
        elif part is not None and int(part[2]) % WHOLE == 0:
            line = f"{part[1]} & -{WHOLE};"
        found.append(f"WHOLE_{FOURS}" if line == FOURS else line)
    return found


def is_part(place: Range) -> bool:
    """Whether a range is a part that `in_steps` or `part_bounds` made, which does not end before it
    begins."""
    begin, end = map(str, place)
    return len(begin) == len(end) == 2 and (begin[0], begin[1], end[1]) == (end[0], "0", "1")


def for_loop(k: int, place: Range, scope: CScope) -> list[str]:
    begin, end = place
    return [f"for (i64 i{k} = {begin}; i{k} < {end}; ++i{k}) {{", *scope.lines, "}"]


def of_point(lanes: int) -> str:
    return f"[point & {lanes - 1}]" if lanes > 1 else ""


def clipped(place: Range, part: LoopSegment, base: str) -> Range | None:
    """Returns the intersection of a range and a part of the axis; None if it is empty."""
    begin = _bounded(place, part.begin, base)
    end = _bounded(place, part.end, base)
    first = place[0] if begin is None else begin
    last = place[1] if end is None else end
    if isinstance(first, int) and isinstance(last, int) and first >= last:
        return None
    return first, last


def _bounded(place: Range, edge: int | None, base: str) -> int | str | None:
    """Returns an edge clamped to a range, as far as it is not known to lie there; None for the edge
    of the whole loop."""
    if edge is None:
        return None
    low, high = place
    if not base and isinstance(low, int) and isinstance(high, int) and isinstance(edge, int):
        return min(max(edge, low), high)
    text = f"{base} + {edge}".replace("+ -", "- ") if base else str(edge)
    is_above = is_below = False
    if not base and not isinstance(low, str) and not isinstance(high, str):
        is_above, is_below = is_proved(edge >= low), is_proved(edge <= high)
    if is_above and is_below:
        return edge
    text = text if is_above else f"most({text}, {low})"
    return text if is_below else f"least({text}, {high})"
