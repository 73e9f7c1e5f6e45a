"""Marked sizes that a capture fixes, and what to do about it (DYN-3).

    al.mark_dynamic(x, 0)
    compiled(x, y)                 # x + y: size 0 of argument 1 changes with it, so mark that, too

Used by `region`. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import GuardError, noted
from aotlite.ir.graph.role import Hidden, Primal
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.cases.parts import Room, SizePart, names_in, no_matter
from aotlite.ir.symbols.polynomial import Symbol
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.size_regions.proof.witnesses import Retrace
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.symbolic_sizes import (
    NumberSource,
    SizeRequest,
    SizeSource,
    Source,
    SymbolicSizes,
    sources_of,
)

_LINE = (
    "let that line not depend on the number. By default, and with dynamic=True, a size at which "
    "the program is another one is an entry of its own."
)


def check_marks(sizes: SymbolicSizes, inputs: Sequence[CapturedInput], retrace: Retrace) -> None:
    """Raises GuardError if the program fixes a size that the user marked as a symbol.

    Not at 0 or 1, which may be special to an op: such a size is an entry of its own, and a function
    that fixes every size is refused with the first one of 2 or more.
    """
    for name, asked in sizes.asked.items():
        if not asked.is_marked or sizes.table.hints[name] in (0, 1) or _is_one(asked):
            continue
        fixing = _fixing(sizes, name)
        if fixing is None:
            continue
        what = f"{sizes.sources[name]} {asked.how_asked}, and the function fixes it"
        lines = ", ".join(map(repr, fixing))
        raise noted(
            GuardError(f"compile: {what}: {lines}, expected a function of every size"),
            _advice(sizes, name, fixing, inputs, retrace),
        )


def _is_one(asked: SizeRequest) -> bool:
    """Whether the user's own bounds leave one size."""
    return asked.least is not None and asked.least == asked.most


def _fixing(sizes: SymbolicSizes, name: str) -> list[Assumption] | None:
    """The assumptions that leave one value of a symbol; None if others are left."""
    table = sizes.table
    about = [each for each in table.log if name in names_in(each.fact)]
    low, high = table.range(table.named(name))
    alone = [each for each in about if _fixes(table, name, each)][:1]
    return alone or (about if low is not None and low == high else None)


# ----------------------------------------------------------------------------- what to do about it
def _advice(
    sizes: SymbolicSizes,
    name: str,
    fixing: Sequence[Assumption],
    inputs: Sequence[CapturedInput],
    retrace: Retrace,
) -> str:
    """What to do about a marked size that is fixed."""
    size, asked = sizes.table.hints[name], sizes.asked[name]
    others = _changing_with(sizes, name, inputs, retrace)
    if others:
        return _mark_too(others, asked)
    outside = [each for each in inputs if isinstance(each.role, Hidden)]
    hidden = [each for each in outside if size in each.entry_meta.shape]
    if hidden and fixing[0].op is not None:
        return (
            f"{hidden[0].place} has a size of {size}, too, and is no argument: if that is the one, "
            f"pass the tensor, and {'name' if asked.in_shapes else 'mark'} both. Or "
            f"{asked.undoing}."
        )
    if _narrows(asked, fixing):
        room = f"min={asked.least}, max={asked.most}"
        whose = "Dim" if asked.in_shapes else "mark"
        return (
            f"The {whose}'s own bounds ({room}) and that line leave {size} alone: widen the bounds."
        )
    if fixing[0].op is not None:
        return (
            f"{_first(asked.undoing)}, or compute the numbers that {fixing[0].op} takes there "
            "from this size."
        )
    return f"{_first(asked.undoing)}, or {_LINE}"


def _first(text: str) -> str:
    """A text as the begin of a sentence."""
    return text[0].upper() + text[1:]


def _narrows(asked: SizeRequest, fixing: Sequence[Assumption]) -> bool:
    """Whether the bounds of the mark were needed to leave one value."""
    return (asked.least, asked.most) != (None, None) and not any(x.specializes for x in fixing)


def _mark_too(others: Mapping[Source, bool], asked: SizeRequest) -> str:
    """The advice to mark these sizes; for each, whether it always equals the one that is marked."""
    listed = " and ".join(map(str, others))
    have, them, both = ("have", "them", "all") if len(others) > 1 else ("has", "that", "both")
    is_size = all(isinstance(each, SizeSource) for each in others)
    is_mark = is_size and not asked.in_shapes
    how = f"mark {them}, too" if is_mark else f"name {them} in dynamic_shapes, too"
    dim = f", or give {both} one Dim in dynamic_shapes" if all(others.values()) else ""
    return f"{listed[0].upper()}{listed[1:]} {have} to change with it: {how}{dim}."


# Note [what changes with a marked size]
#     al.mark_dynamic(x, 0); compiled(x, y)      # s0 == 4: x + y, where y is f32[4]
# The 4 may be any number of the program. So the function is traced once more, with a symbol for
# every size: the log of that says `s0 == s1`, and s1 is size 0 of argument 1.
def _changing_with(
    sizes: SymbolicSizes, name: str, inputs: Sequence[CapturedInput], retrace: Retrace
) -> dict[Source, bool]:
    """The sizes and ints of arguments, no symbols so far, of which the program needs that they
    change with this size; for each, whether they are equal. Empty where they alone do not help."""
    free = dict.fromkeys(_free_sources(inputs, retrace), SizeRequest())
    known = {each: asked for each, asked in sizes.requests.items() if not asked.is_float}
    whole = SymbolicSizes({**free, **known})
    try:
        retrace.check_silent()
        retrace.traced(whole)
    except Exception:  # the function may raise anything when it runs again: nothing is advised then
        return {}
    names = {source: each for each, source in whole.sources.items()}
    start = names.get(sizes.sources[name])
    if start is None:
        return {}
    group = _connected(whole, start)
    if any(_fixing(whole, each) is not None for each in group):
        return {}
    size = whole.table.hints[start]
    found = {whole.sources[each]: whole.table.hints[each] == size for each in sorted(group)}
    return {source: same for source, same in found.items() if source not in sizes.requests}


def _free_sources(inputs: Sequence[CapturedInput], retrace: Retrace) -> Iterator[Source]:
    """The sizes and ints that might be symbols."""
    first = retrace.compilation.options.num_params_buffers
    for each in inputs:
        role = each.role
        if isinstance(role, Primal) and role.index >= first and not is_wrapper(each.fake):
            yield from sources_of(role, each.entry_meta)
    for index, leaf in enumerate(retrace.leaves):
        if type(leaf) is int:
            yield NumberSource(index)


def _connected(sizes: SymbolicSizes, start: str) -> set[str]:
    """The symbols that equations of the log tie to one, by way of others too."""
    ties = [names_in(x.fact) for x in sizes.table.log if getattr(x.fact, "relation", "") == "=="]
    found, grown = set[str](), {start}
    while grown != found:
        found = grown
        grown = found.union(*[each for each in ties if each & found])
    return found & sizes.sources.keys()


# -------------------------------------------------------------------------------------- one guard
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
