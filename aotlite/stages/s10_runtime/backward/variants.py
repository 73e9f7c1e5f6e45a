"""The variants of a compiled backward: one for each set of absent tangents.

Used by stage 10 alone. Rules: JNT-13, TAN-8, SAV-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.ir.forks import Memo
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.role import Gradient, Role, Saved, Tangent
from aotlite.stages.records.backward.joint import ArrivalChoice
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta, gradient_of
from aotlite.stages.s10_runtime.backward.plan import Absent, BackwardPlan, copied_error
from aotlite.stages.s10_runtime.backward.undefined_tangents import without_tangents
from aotlite.stages.s10_runtime.backward.writer import BackwardWriter, Step


def _changed(graph: Graph, key: object, change: Callable[[Graph], Graph]) -> Graph:
    return change(graph)


@attrs.define(eq=False, repr=False)
class CompiledVariants:
    """The backward for each set of absent tangents, made on first use (JNT-13, TAN-8)."""

    graph: Graph
    _lower: Callable[[Graph], Run]
    runs_user_code: bool = False
    """Whether a function made so far calls a user's code, which gets all inputs."""
    whole: Step | None = None
    """The function for all tangents; None until it is made."""
    changed: Callable[[Graph, object, Callable[[Graph], Graph]], Graph] = _changed
    """Returns a graph after a change, which has a key among the graph's changes."""
    _made: Memo[Absent, tuple[Step, str]] = attrs.field(factory=Memo)
    """The functions, each with its source."""
    _needed: dict[Absent, frozenset[int]] = attrs.field(factory=dict)

    @property
    def sources(self) -> list[str]:
        """The sources of the functions made so far."""
        return [source for _, source in self._made.values()]

    def needed(self, absent: Absent, plan: BackwardPlan) -> frozenset[int]:
        """The numbers of the saved values that backwards without these gradients take."""
        if self.runs_user_code:
            roles = [node.role for node in self.graph.placeholders]
            return frozenset([role.index for role in roles if isinstance(role, Saved)])
        found = self._needed.get(absent)
        if found is None:
            graph = self._without(self.graph, plan, absent)
            users = {value for node in graph.nodes for value in node.inputs()}
            roles = [node.role for node in graph.placeholders if node in users]
            found = frozenset([role.index for role in roles if isinstance(role, Saved)])
            self._needed[absent] = found
        return found

    def step(self, absent: Absent, plan: BackwardPlan) -> Step:
        """The backward for these absent tangents: a function of a node and its gradients."""
        step, _ = self._made.get(absent, self._function, absent, plan)
        if not absent:
            self.whole = step
        return step

    def _function(self, absent: Absent, plan: BackwardPlan) -> tuple[Step, str]:
        graph, plan = _for_choice(self.graph, plan, absent)
        for each in plan.facts.required_arrivals:
            each.check(absent)
        if absent or plan.facts.arrivals:
            graph = self._without(graph, plan, absent)
        run = self._lower(graph)
        self.runs_user_code |= run.runs_user_code
        return BackwardWriter(plan, absent, graph, run).function()

    def _without(self, graph: Graph, plan: BackwardPlan, absent: Absent) -> Graph:
        rest = absent, plan.reached(absent), plan.facts.arrivals, plan.facts.effects
        return self.changed(graph, absent, lambda each: without_tangents(each, *rest))


def _for_choice(graph: Graph, plan: BackwardPlan, absent: Absent) -> tuple[Graph, BackwardPlan]:
    """Graph and plan for this set of arriving gradients, if they depend on the set (TAN-8)."""
    if not plan.facts.arrival_choices:
        return graph, plan
    arrived = frozenset([of for of, _ in plan.tangents if of not in plan.facts.errors]) - absent
    graph, choice = chosen(graph, plan.facts.arrival_choices, arrived)
    if choice.error is not None:
        raise copied_error(choice.error)
    known: dict[Role, SubclassMeta] = {
        role: how for role, how in plan.facts.subclass_metas.items() if isinstance(role, Tangent)
    }
    given = [gradient_of(role.of) for role, v in graph.outputs_with(Gradient) if v is not None]
    receiving = dict.fromkeys([of for of, _ in plan.tangents], frozenset(given))
    metas = {**known, **choice.subclass_metas}
    facts = attrs.evolve(plan.facts, subclass_metas=metas, receiving_inputs=receiving)
    return graph, attrs.evolve(plan, facts=facts)


def chosen(
    graph: Graph, choices: Sequence[ArrivalChoice], arrived: frozenset[Role]
) -> tuple[Graph, ArrivalChoice]:
    """The backward graph with one choice's gradients only, and the choice."""
    number = next((k for k, each in enumerate(choices) if each.arrived == arrived), 0)
    kept: list[tuple[Role, Any]] = []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        of: Any = role.of if isinstance(role, Gradient) else None
        if of is None or of.attr == str(number):
            kept.append((role if of is None else Gradient(of.of), value))
    output = output_node([value for _, value in kept], [role for role, _ in kept])
    edit = Graph((*graph.nodes[:-1], output), graph.name).edit()
    edit.eliminate_dead_code()
    return edit.graph(), choices[number]
