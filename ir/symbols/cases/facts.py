"""`assumed_in`: what is known of the symbols of a table, and what else is assumed of them.

Ground floor. It is asked for each rule that assumes something, while the log grows.
"""

from __future__ import annotations

import attrs

from aotlite.ir.symbols.calls import settled
from aotlite.ir.symbols.cases.parts import Fact, moved_fact, named, names_in
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["assumed_in"]


@attrs.frozen(eq=False)
class Assumed:
    """What is known of the symbols of a table, and assumed, at some point of its trace."""

    at: tuple[int, ...]
    """How long the log was, how many symbols there were, and how many of them were known."""
    known: dict[str, int | SymInt]
    """What each symbol is known to be, if some are another one, or a number."""
    moved: list[tuple[Fact, Fact | bool]]
    """The facts of the log, and as facts on the symbols that are left."""
    facts: list[tuple[Fact, set[str]]]
    """Those that say something, with the symbols in them."""


def assumed_in(table: SymbolTable) -> Assumed:
    """What symbols are known to be, and what else is assumed: of what was found for a shorter log
    the part that is still so is taken."""
    at = len(table.log), len(table.symbols), table.facts.value_count
    found: Assumed | None = table.cache.get((Assumed,))
    if found is None or found.at != at:
        known = found.known if found and found.at[1:] == at[1:] else _known(table)
        moved = _moved(table, known, found)
        said = [each for _, each in moved if not isinstance(each, bool) and not _is_empty(each)]
        facts = [(fact, names_in(fact)) for fact in said]
        found = table.cache[Assumed,] = Assumed(at, known, moved, facts)
    return found


def _known(table: SymbolTable) -> dict[str, int | SymInt]:
    """What each symbol is known to be, if some are another one, or a number."""
    found: dict[str, int | SymInt] = {}
    if table.facts.value_count:
        for name in table.symbols:
            size = table.named(name)
            is_free = table.facts.settled(size.terms) is size.terms
            found[name] = size if is_free else settled(table, size)
    return found


def _moved(
    table: SymbolTable, known: dict[str, int | SymInt], before: Assumed | None
) -> list[tuple[Fact, Fact | bool]]:
    """The facts of the log, and as facts on the symbols that are left."""
    if not known:
        return [(each.fact, each.fact) for each in table.log]
    earlier = [] if before is None or not before.known else before.moved
    old = {} if before is None else before.known
    other = {name for name, size in known.items() if size is not old.get(name)}
    found: list[tuple[Fact, Fact | bool]] = []
    for index, assumption in enumerate(table.log):
        fact = assumption.fact
        if index < len(earlier) and earlier[index][0] is fact and not names_in(fact) & other:
            found.append(earlier[index])
        else:
            found.append((fact, moved_fact(fact, named(known))))
    return found


def _is_empty(fact: Fact) -> bool:
    """Whether it says that a size equals itself, as what says which symbols are equal does then."""
    return isinstance(fact, SymBool) and fact.left is fact.right
