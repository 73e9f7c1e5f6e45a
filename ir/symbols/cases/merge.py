"""One expression of two results of a rule: that of most sizes, and that of a few.

Ground floor. Where a rule's strides are other ones for a size of 0 or 1, an expression has both,
and nothing is assumed.
"""

# Note [strides of few elements]
#     x - x.mean(1, keepdim=True) of f32[s0, 3]
# The mean has the strides (1, 1), but (1, 0) where s0 is 0, as PyTorch's. So the last one is
# `min(1, s0)`: 1 - a, where a is 1 if s0 is 0, and 0 otherwise. The search by cases then proves
# that this is the rule's result for all sizes. What is special at a size of 1, or where two sizes
# are 0 or 1 together, stays a guard. An expression of these is longer than the graph, and kernels
# would take strides at run time that are numbers for all other sizes.

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from aotlite.ir.errors import AotliteError
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.cases.parts import Fact, Open, Room, SizePart, names_in, parts_of
from aotlite.ir.symbols.cases.results import RuleQuestion
from aotlite.ir.symbols.symint import SymInt

__all__ = ["Few", "merged"]

Few: TypeAlias = tuple[Mapping[str, int], Sequence[Fact]]
"""Values of some symbols, by name, and facts."""
_RUNS = 40
"""The most runs of the function for one of these."""


def merged(
    question: RuleQuestion, result: object, names: Mapping[str, int], few: Sequence[Few]
) -> object:
    """The result, in these symbols, with what the function gives where some have few values in its
    place there. It stays as it is for a value of 1 and for values of several symbols together (Note
    [strides of few elements]), and for those of which no expression has both.
    """
    found, put = result, list[Mapping[str, int]]()
    for values, facts in few:
        if len(values) > 1 or 1 in values.values():
            continue
        # Where no other values meet these, their expression stays out: it is 0 there.
        base = result if all(_are_apart(values, other) for other in put) else found
        try:
            there = _Search(question, facts, names).result(values)
            found = _Merge(SizePart(question, facts, values), names, values).of(found, base, there)
        except _FAILS:
            continue
        put.append(values)
    return found


def _are_apart(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    """Whether some symbol has another value in each."""
    return any(name in b and b[name] != value for name, value in a.items())


class _Differ(Exception):
    """The results differ in what no expression can be."""


_FAILS = (Open, _Differ, AotliteError, ZeroDivisionError)


class _Search:
    """What the function gives in parts, as expressions of the symbols `names`."""

    def __init__(
        self, question: RuleQuestion, facts: Sequence[Fact], names: Mapping[str, int]
    ) -> None:
        self.question = question
        self.facts = facts
        self.names = names
        self.left = _RUNS

    def result(self, rooms: Mapping[str, Room]) -> object:
        """By cases: sizes from 2 on first, then where one is 0 or 1."""
        self.left -= 1
        part = SizePart(self.question, self.facts, rooms)
        try:
            return concrete(self.question.function(*part.put(self.question.operands)), self.names)
        except Open as asked:
            name = next(self._told_apart(asked.fact, rooms), None)
            if name is None or self.left < 0:
                raise
        symbol = self.question.symbols[name]
        found = base = self.result({**rooms, name: (2, symbol.upper)})
        for value in range(symbol.lower or 0, 2):
            here = {**rooms, name: value}
            values = {name: value}
            there = self.result(here)
            part = SizePart(self.question, self.facts, here)
            found = _Merge(part, self.names, values).of(found, base, there)
        return found

    def _told_apart(self, fact: Fact, rooms: Mapping[str, Room]) -> Iterator[str]:
        for name in sorted(names_in(fact)):
            symbol = self.question.symbols[name]
            many = symbol.upper is None or symbol.upper >= 2
            if name not in rooms and symbol.lower in (0, 1) and many:
                yield name


class _Merge:
    """Puts the result where symbols have some values into that for all."""

    def __init__(self, part: SizePart, names: Mapping[str, int], values: Mapping[str, int]) -> None:
        self.part = part
        self.is_there = math.prod([_is(names[name], value) for name, value in values.items()])

    def of(self, found: object, base: object, there: object) -> object:
        """`found`, plus the difference of `there` and `base` where the symbols have the values."""
        if type(base) is tuple and type(there) is tuple and type(found) is tuple:
            if len(base) != len(there):
                raise _Differ
            return tuple([self.of(*each) for each in zip(found, base, there, strict=True)])
        parts = [parts_of(each) for each in (found, base, there)]
        if parts[0] and parts[1] and parts[2] and parts[1][2:] == parts[2][2:]:
            geometry = self.of(*[each and each[:2] for each in parts])
            return found.of_sizes(*geometry)  # type: ignore[attr-defined, misc]
        if isinstance(base, (int, SymInt)) and isinstance(there, (int, SymInt)):
            return self._size(found, base, there)
        if base is there:
            return found
        raise _Differ

    def _size(self, found: Any, base: int | SymInt, there: int | SymInt) -> int | SymInt:
        same: object = self.part.put(base) == self.part.put(there)
        if same is True:
            return found
        if isinstance(base, bool) or isinstance(there, bool):
            raise _Differ
        more: int | SymInt = found + (there - base) * self.is_there
        return more


def _is(size: int, value: int) -> int:
    """1 where the size, which is not negative, is this 0 or 1; else 0."""
    if not isinstance(size, SymInt):
        return int(size == value)
    table = size.table
    if value == 0:
        return 1 - table.call("min", 1, size)
    return table.call("max", 0, table.call("min", size, 2 - size))
