"""`SizeFacts`: the symbols for sizes of one program, as a file needs them.

A symbol is a variable that the entry reads from the shape of an argument. The conditions under
which the graphs hold are checks. Kernels are printed at two vectors of sizes that meet these
conditions, those of the call and larger ones: only calls that are the same for both are the
program's. Rules: PYX-12. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.symbolic.binding import Binding, bindings_of, names_among
from aotlite.ir.symbols.assumption import Assumption
from aotlite.python_export.kernels.argument_text import literal

_WORDS = frozenset("and or not min max abs".split())
"""The words of conditions that mean the same in Python."""
_FACTORS = (2, 3, 4, 5, 6, 7, 8)


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


def size_facts(
    inputs: Sequence[Node], shapes: Mapping[Any, tuple[int, ...]], guards: Sequence[Assumption]
) -> SizeFacts:
    """The facts of a graph's inputs, for a call with these shapes by role.

    Raises UnsupportedError for symbols that no shape gives, and for conditions that are no Python.
    """
    wanted = names_among([node.meta for node in inputs])
    if not wanted and not guards:
        return SizeFacts()
    found = bindings_of(inputs, wanted)
    if found.free:
        raise _refused(f"no shape of an argument gives {', '.join(found.free)}")
    values: dict[str, int] = {}
    for each in found.given:
        values[each.symbol] = each.value(shapes[each.source.role][each.dim], values)
    texts = tuple([each.text for each in guards])
    for text in texts:
        other = set(re.findall(r"[A-Za-z_]\w*", text)) - _WORDS - values.keys()
        if other:
            raise _refused(f"the condition {text!r} on sizes needs {', '.join(sorted(other))}")
    larger = ({name: k * size for name, size in values.items()} for k in _FACTORS)
    second = next((each for each in larger if all(g.holds(each) for g in guards)), None)
    if second is None:
        raise _refused("no multiple of the sizes of the call meets the conditions on sizes")
    return SizeFacts(found.given, texts, (values, second))


def _refused(what: str) -> Exception:
    return noted(
        UnsupportedError(f"to_python: {what}, expected sizes of arrays as symbols"),
        "Write the file for the sizes of the call: leave out dynamic=True. (PYX-12)",
    )
