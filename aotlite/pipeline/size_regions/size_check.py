"""Marked sizes that a capture fixes (DYN-3). Spec: `specs/size_regions.md`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from aotlite.ir.errors import GuardError, noted
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.cases.parts import Room, SizePart, names_in, no_matter
from aotlite.ir.symbols.polynomial import Symbol
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.symbolic_sizes import SizeRequest, SymbolicSizes


def check_marks(sizes: SymbolicSizes) -> None:
    """Raises GuardError if the program fixes a size that the user marked as a symbol.

    Not at 0 or 1, which may be special to an op: such a size is an entry of its own, and a function
    that fixes every size is refused with the first one of 2 or more.
    """
    table = sizes.table
    for name, asked in sizes.asked.items():
        if not asked.is_marked or table.hints[name] in (0, 1) or _is_one(asked):
            continue
        about = [each for each in table.log if name in names_in(each.fact)]
        low, high = table.range(table.named(name))
        fixing = [each for each in about if _fixes(table, name, each)][:1]
        if not fixing and (low is None or low != high):
            continue
        what = f"{sizes.sources[name]} is marked as dynamic, and the function fixes it"
        lines = ", ".join(map(repr, fixing or about))
        raise noted(
            GuardError(f"compile: {what}: {lines}, expected a function of every size"),
            "Leave out the mark, or let that line not depend on the number.",
        )


def _is_one(asked: SizeRequest) -> bool:
    """Whether the user's own bounds leave one size."""
    return asked.least is not None and asked.least == asked.most


@attrs.frozen
class _About:
    """One symbol, for a `SizePart`."""

    table: SymbolTable
    symbols: Mapping[str, Symbol]


def _fixes(table: SymbolTable, name: str, guard: Assumption) -> bool:
    """Whether a guard on this size alone is known to fail for all others: `s0 == 4`, and also
    `s0 - min(1, s0) == 3`, which is x[1:] of 4."""
    fact, hint = guard.fact, table.hints[name]
    if not isinstance(fact, SymBool) or fact.relation != "==" or names_in(fact) != {name}:
        return False
    about = _About(table, {name: table.symbols[name]})
    others: list[Room] = [0, 1, (2, hint - 1), (hint + 1, None)]
    if hint == 2:
        del others[2]
    parts = [SizePart(about, (), {name: room}, asked=no_matter) for room in others]
    return all(part.knows(fact.negated()) for part in parts)
