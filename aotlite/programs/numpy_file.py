"""`numpy_text`: a program as one Python file that needs NumPy alone.

What the file calls arguments and state are the names that the program has for them. Spec:
`specs/to_python.md`, PYX-13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs

from aotlite.eager.rng.generator import current
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.role import Hidden, Primal
from aotlite.programs.records import ProgramRecords
from aotlite.programs.state import ProgramState
from aotlite.python_export import python_text, save
from aotlite.python_export.file_parts import entry_name
from aotlite.python_export.program_facts import (
    GradientOrder,
    PythonArgument,
    check_writable,
    facts_of,
    graphs_of,
    state_arrays,
)
from aotlite.python_export.symbolic_sizes import size_facts


def numpy_text(
    program: ProgramRecords, state: ProgramState, path: str | None, **options: Any
) -> str:
    """The text of the file, which is written to `path`; the options are those of `python_text`.

    Raises UnsupportedError for what NumPy cannot do.
    """
    parts = program.records
    check_writable(parts)
    standing = current()
    name = entry_name(program.name)
    keys = {Hidden(number): each.path for number, each in enumerate(state.entries)}
    assert parts.convention is not None
    facts = facts_of(
        parts,
        name,
        f"The program `{name}`",
        list(_arguments(program)),
        state_arrays(keys, state.slots.tensors[: len(keys)], parts.convention.bases),
        (standing.seed, standing.offset),
        size_facts(graphs_of(parts), None, program.guards, program.rooms),
    )
    facts = attrs.evolve(facts, orders=tuple(_orders(program)))
    text = python_text(facts, fixed=program.baked_in, **options)
    save(text, path)
    return text


def _arguments(program: ProgramRecords) -> Iterator[PythonArgument]:
    kinds = {each.role: each for each in program.call.inputs}
    views = {r for r, x in kinds.items() if x.view_kind is not None or x.is_leaf_view}
    families = [zip(x.members, x.chains, strict=False) for x in program.call.families]
    chains = {role: chain for pairs in families for role, chain in pairs}
    for place in program.arguments.places:
        text = re.sub(r"^args\[(\d+)\]", r"arg_\1", program.arguments.names[place])
        leaf = program.call.leaves[place]
        if isinstance(leaf, Primal):
            same = None if leaf.index == place else leaf.index
            is_view = leaf in views
            yield PythonArgument(text, place, None, False, same, is_view, chains.get(leaf))
        elif isinstance(leaf, (bool, int, float, complex)):
            yield PythonArgument(text, place, leaf, is_number=True)


def _orders(program: ProgramRecords) -> Iterator[GradientOrder]:
    """The orders behind the first one, each for gradients of all results, with a history."""
    found: Any = program.orders
    joint = program.records.joint
    if program.order == 2 and program.records.partition.backward is None:
        yield GradientOrder(None, None, ())
    while found:
        wanted = dict.fromkeys(joint.layouts, True)
        chosen = next((each for each in found if dict(each[0]) == wanted), None)
        if chosen is None:
            raise noted(
                UnsupportedError(
                    "to_python: the program has no derivatives for gradients of all results "
                    "together, expected those"
                ),
                "Export it with order=1. (PYX-15)",
            )
        _, records, found = chosen
        joint = records.joint
        yield GradientOrder(
            records.partition.forward,
            records.partition.backward,
            tuple([(role, index) for role, index in records.results if index is not None]),
        )
