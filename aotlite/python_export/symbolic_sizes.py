"""`SizeFacts`: the symbols for sizes of one program, as a file needs them.

A symbol is a variable that the entry reads from the shape of an argument. The conditions under
which the graphs hold are checks. Kernels are printed at two vectors of sizes that meet these
conditions, those of the call and larger ones: only calls that are the same for both are the
program's. Rules: PYX-12. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.binding import Binding, bindings_of, computed_in, names_among
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.polynomial import Range
from aotlite.python_export.kernels.argument_text import literal

_WORDS = frozenset("and or not min max abs".split())
"""The words of conditions that mean the same in Python."""
_EQUAL = re.compile(r"(s\d+) == (s?\d+)")
_ANY: Range = (None, None)
_ALL = (_ANY, (0, None))
"""The bounds that every size is within."""
_FACTORS = (2, 3, 4, 5, 6, 7, 8)
_MOST_TRIED = 20_000
"""The vectors of sizes among which those that meet the conditions are looked for."""


@attrs.frozen(eq=False)
class Bound:
    """A condition on the bounds of a symbol."""

    name: str
    least: int | None
    most: int | None

    @property
    def text(self) -> str:
        """`7 <= s0 <= 40`."""
        below = f"{self.least} <= " if self.least else ""
        return f"{below}{self.name}{f' <= {self.most}' if self.most is not None else ''}"

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the symbol's value is within the bounds."""
        value = values[self.name]
        return value >= (self.least or 0) and (self.most is None or value <= self.most)


Condition = Assumption | Bound


@attrs.frozen(eq=False)
class SizeFacts:
    """The symbols of a program; none of a program whose sizes are numbers."""

    bindings: tuple[Binding, ...] = ()
    guards: tuple[str, ...] = ()
    samples: tuple[Mapping[str, int], ...] = ()
    """Two vectors of sizes that meet the guards."""

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols, in the order in which they can be read."""
        return tuple([each.symbol for each in self.bindings])

    def reading(self, each: Binding, size: str) -> str:
        """The line that reads a symbol, where `size` is the text of the size that gives it."""
        rest, times = literal(each.rest), each.times
        text = size if rest == "0" else f"{size} - ({rest})"
        return f"{each.symbol} = {text if times == 1 else f'({text}) // {times}'}"


NO_SIZES = SizeFacts()


def symbols_in(graph: Graph) -> set[str]:
    """The symbols that a graph reads, without those that it computes."""
    read = names_among([(node.args, node.meta) for node in graph.nodes])
    return read - {each.symbol for each in computed_in(graph)}


def size_facts(
    graphs: Sequence[Graph],
    shapes: Mapping[Any, tuple[int, ...]] | None,
    guards: Sequence[Assumption],
    rooms: Mapping[str, Range],
) -> SizeFacts:
    """The facts of a forward and what follows it, for a call with these shapes by role; for sizes
    that meet the guards where no call is known. `rooms` are the bounds of symbols by name.

    Raises UnsupportedError for symbols that no shape gives, and for conditions that are no Python.
    """
    counted = {each.symbol for each in computed_in(graphs[0])}
    wanted = {name for graph in graphs for name in symbols_in(graph)} - counted
    if not wanted and not guards:
        return NO_SIZES
    found = bindings_of(graphs[0].placeholders, wanted)
    if found.free:
        raise _refused(f"no shape of an argument gives {', '.join(found.free)}")
    names = [each.symbol for each in found.given]
    bounds = [Bound(name, *rooms[name]) for name in names if rooms.get(name, _ANY) not in _ALL]
    conditions: list[Condition] = [*bounds, *guards]
    texts = tuple([each.text for each in conditions])
    for text in texts:
        other = set(re.findall(r"[A-Za-z_]\w*", text)) - _WORDS - {*names}
        if other:
            raise _refused(f"the condition {text!r} on sizes needs {', '.join(sorted(other))}")
    values: Mapping[str, int] = {}
    if shapes is None:
        values = _meeting(names, conditions)
    else:
        for each in found.given:
            size = each.value(shapes[each.source.role][each.dim], values)
            values = {**values, each.symbol: size}
    fixed = fixed_by(texts)
    larger = ({n: size if n in fixed else k * size for n, size in values.items()} for k in _FACTORS)
    second = next((each for each in larger if all(one.holds(each) for one in conditions)), None)
    if second is None:
        raise _refused("no multiple of the sizes of the call meets the conditions on sizes")
    return SizeFacts(found.given, texts, (values, second))


def _meeting(names: Sequence[str], conditions: Sequence[Condition]) -> dict[str, int]:
    """Sizes that meet the conditions: small ones, and those near the numbers in them."""
    numbers = {int(found) for each in conditions for found in re.findall(r"\b\d+\b", each.text)}
    near = {number + step for number in numbers for step in (-1, 0, 1)} | {2, 3, 4, 6, 8}
    sizes = sorted(size for size in near if size > 0)
    vectors = itertools.islice(itertools.product(sizes, repeat=len(names)), _MOST_TRIED)
    found = (dict(zip(names, vector, strict=True)) for vector in vectors)
    for values in found:
        if all(each.holds(values) for each in conditions):
            return values
    raise _refused(f"no sizes {', '.join(names)} of {len(sizes)} tried meet the conditions on them")


def fixed_by(conditions: Sequence[str]) -> set[str]:
    """The symbols that conditions fix to one size, by themselves or by a symbol that is fixed.

    >>> sorted(fixed_by(["s0 == 4", "s1 == s0", "s2 >= 2"]))
    ['s0', 's1']
    """
    pairs = [found.groups() for each in conditions if (found := _EQUAL.fullmatch(each))]
    fixed: set[str] = set()
    for _ in pairs:
        for left, right in pairs:
            if right.isdigit() or right in fixed:
                fixed.add(left)
            elif left in fixed:
                fixed.add(right)
    return fixed


def _refused(what: str) -> Exception:
    return noted(
        UnsupportedError(f"to_python: {what}, expected sizes of arrays as symbols"),
        "Write the file for the sizes of the call: leave out dynamic=True. (PYX-12)",
    )
