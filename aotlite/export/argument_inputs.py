"""Arguments of a joint graph that are one tensor: an input each, and one input of a call (EXP-14).

    module(z, z)            graph: primals_0, primals_1 -> grad_primals_0, grad_primals_1
    compiled, called so     primals_0 -> grad_primals_0 + grad_primals_1

A compiled function has one input for a tensor, whatever the number of its places, so that its
results are the caller's objects. `joined` makes the graph for that of one with an input for each.
Used by `joint_export.py`. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ExportError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Gradient, Primal
from aotlite.ir.op import OPS
from aotlite.stages.records.metadata.function_meta import FunctionMeta


def repeats(leaves: Sequence[Any], first: int) -> dict[int, int]:
    """For each leaf that was there before the earliest place of it, behind place `first`."""
    places: dict[int, int] = {}
    found = {}
    for place, leaf in enumerate(leaves):
        if place >= first and isinstance(leaf, Tensor):
            before = places.setdefault(id(leaf), place)
            if before != place:
                found[place] = before
    return found


def check_unwritten(meta: FunctionMeta, again: Mapping[int, int], words: ArgumentWords) -> None:
    """Raises ExportError for an argument that is there again and is changed: what is written to one
    of its places is seen at the other, and the graph has an input for each."""
    places = {Primal(place) for pair in again.items() for place in pair}
    for each in meta.inputs:
        if each.role in places and (each.writes or each.changes):
            word = words.leaves[each.role.index]
            raise noted(
                ExportError(
                    f"export: argument {word} is passed twice and is changed, expected a tensor "
                    "that is only read, or one for each place"
                ),
                "Pass a clone of it. (EXP-14)",
            )


def joined(graph: Graph, again: Mapping[int, int], meta: FunctionMeta) -> Graph | None:
    """The graph with one input for places that hold one tensor, whose gradient is the sum of
    theirs. None for places of which one is changed, or of which not all require grad alike."""
    facts = {each.role: each for each in meta.inputs}
    edit = graph.edit()
    values: dict[Any, Any] = dict(zip(graph.output_roles, graph.outputs, strict=True))
    inputs = {node.role: node for node in graph.placeholders}
    for place, before in again.items():
        mine, its = Primal(place), Primal(before)
        if mine not in inputs or its not in inputs:
            return None
        if any(facts[role].writes or facts[role].changes for role in (mine, its)):
            return None
        if facts[mine].requires_grad is not facts[its].requires_grad:
            return None
        more = values.pop(Gradient(mine), None)
        have = values.get(Gradient(its))
        if type(more) is Node:
            both = (have, more)
            values[Gradient(its)] = edit.call(OPS["add"], both) if type(have) is Node else more
        edit.replace_all_uses_with(inputs[mine], inputs[its])
    edit.set_outputs(list(values.values()), list(values))
    for place in again:
        edit.erase(inputs[Primal(place)])
    return edit.graph()
