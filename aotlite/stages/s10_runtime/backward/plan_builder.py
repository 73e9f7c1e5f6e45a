"""Makes the plan of a compiled backward from its graph and the facts of stage 4.

Used by the pipeline. Rules: TAN-8, SUB-11, CAG-10. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, Result, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import SavedOwner
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.records.metadata.function_facts import FamilyMeta
from aotlite.stages.records.metadata.subclass_meta import gradient_of, outermost_role
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.backward.variants import CompiledVariants

NO_DERIVATIVES = Derivatives()
Tangents = tuple[tuple[Result, TensorMeta], ...]
Gradients = tuple[tuple[SourceRole, TensorMeta | None], ...]


def plan_backward(
    graph: Graph | None,
    lower: Callable[[Graph], Run],
    both: Joint,
    leaves: Container[SourceRole],
    families: Sequence[FamilyMeta],
    *,
    copied_on_write: tuple[tuple[int, SavedOwner], ...] = (),
    byte_checked: tuple[tuple[int, SavedOwner], ...] = (),
    derivatives: Derivatives = NO_DERIVATIVES,
    number: int = 0,
) -> BackwardPlan | None:
    """The plan of a backward graph; None if no result is differentiable.
    `leaves` are the leaf inputs that require grad."""
    tangents, gradients = _ends(graph, both, families)
    if graph is None and not tangents:
        return None
    is_leaf = [meta is None or role in leaves for role, meta in gradients]
    if graph is not None and both.kept_tape is not None:
        reached = both.kept_tape.higher_order_inputs
        inputs = tuple([role for role, meta in gradients if meta is None and role in reached])
        derivatives = attrs.evolve(derivatives, higher_order_inputs=inputs)
    return BackwardPlan(
        None if graph is None else CompiledVariants(graph, lower),
        tangents,
        gradients,
        both.backward,
        derivatives,
        number,
        only_leaves=graph is not None and all(is_leaf),
        copied_on_write=copied_on_write,
        byte_checked=byte_checked,
        edge_order=None if graph is None else _edge_order(both.order, gradients),
    )


def _ends(
    graph: Graph | None, both: Joint, families: Sequence[FamilyMeta]
) -> tuple[Tangents, Gradients]:
    """The plan's `tangents` and `gradients`. The latter include inputs of results with an error,
    so that asking for their gradients raises it, and inputs of effects."""
    backward = both.backward
    reached = {of for result in backward.errors for of in backward.reachable_inputs[result]}.union(
        [of for each in backward.effects for of in each.reachable_inputs]
    )
    # The meta of a part stands for its wrapper's: only whether there is one counts.
    metas: dict[Any, Any] = {
        of: n.meta for n in both.graph.placeholders for of in (n.role, outermost_role(n.role))
    }
    metas |= {family.role: family.meta for family in families}
    metas = {role: meta for role, meta in metas.items() if role in reached}
    if graph is None:
        return tuple(both.layouts.items()), tuple(metas.items())
    return tuple(_expected(graph, both).items()), tuple(_given(graph, both, metas).items())


def _edge_order(
    order: Sequence[object], gradients: Sequence[tuple[object, object]]
) -> tuple[int, ...] | None:
    """The places of gradients in the order of accumulation; None if they are in that order."""
    turn = {role: place for place, role in enumerate(order)}
    found = sorted(range(len(gradients)), key=lambda k: turn.get(gradients[k][0], len(turn)))
    return None if found == list(range(len(gradients))) else tuple(found)


def _expected(graph: Graph, both: Joint) -> dict[Any, Any]:
    """The differentiable results, each with the layout expected of its gradient."""
    found: dict[Any, Any] = {}
    for node in graph.placeholders:
        if isinstance(node.role, Tangent):
            of = gradient_of(node.role.of)
            wrapping = both.backward.subclass_metas.get(Tangent(of))
            found[of] = node.meta if wrapping is None else wrapping.meta
    return found


def _given(graph: Graph, both: Joint, metas: Mapping[object, object]) -> dict[Any, Any]:
    """The inputs that get gradients, each with the gradient's meta, else that of `metas`."""
    found: dict[Any, Any] = {}
    for role, meta in graph.output_metas_with(Gradient):
        of = gradient_of(role.of)
        wrapping = both.backward.subclass_metas.get(Gradient(of))
        if wrapping is None:
            found[of] = found.get(of, metas.get(of)) if meta is None else meta
        else:
            found[of] = wrapping.meta
    return found
