"""Compiled backwards under grad mode: gradients with a history of their own (DBL-2).

Used by stage 10. A `CompiledOrder` is a backward compiled as a function with a backward, for one
set of arriving gradients and those of them with a history. Its tape node is a `CompiledBackward`
again, whose own `CompiledOrders` make the next order on demand.
Rules: DBL-1, DBL-2, SAV-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.python_source import listed
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.nodes.gradient_forms import keep_form
from aotlite.eager.base.new_tensors import tensors_over
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode, next_sequence
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.forks import Memo
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Output, Part, Role, Tangent
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s10_runtime.backward.memory.mutations import BackwardMemoryWriter, check_forms
from aotlite.stages.s10_runtime.backward.plan import UNREAD, Absent, BackwardCall, BackwardPlan
from aotlite.stages.s10_runtime.backward.writer import BackwardWriter
from aotlite.stages.s10_runtime.subclass_code import SubclassWriter
from aotlite.stages.shared.double_backward import double_backward_refusal, owner_at_next_order

Arriving = Mapping[Role, bool]
"""The results whose gradients arrive, and whether these have a history."""


@attrs.frozen(eq=False, repr=False)
class CompiledOrder:
    """A backward as a differentiable function of saved values and gradients."""

    forward: Graph
    run: Run
    plan: BackwardPlan | None
    """The plan of its own backward; None if no gradient has a history."""
    results: tuple[tuple[Any, int | None], ...]
    """For each input the index of the result that is its gradient; None if it gets none."""
    subclass_metas: Mapping[Role, SubclassMeta]
    """How wrapper results are rebuilt, by role."""
    node: Callable[..., Any]
    """The class of its tape nodes."""
    why: str = ""
    """Why its gradients cannot be differentiated; empty if they can."""


@attrs.define(eq=False, repr=False)
class CompiledOrders:
    """The differentiable backwards of one plan, made on first use."""

    _make: Callable[[Arriving], CompiledOrder]
    incoming: Callable[[Any], object]
    """Gives the role of the order's input that is the gradient of a result."""
    _made: Memo[tuple[tuple[Role, bool], ...], DifferentiableStep] = attrs.field(factory=Memo)

    def step(self, plan: BackwardPlan, absent: Absent, arriving: Arriving) -> DifferentiableStep:
        """The differentiable backward for these gradients."""
        key = tuple(arriving.items())
        return self._made.get(key, self._step, plan, absent, arriving)

    def order(self, arriving: Arriving) -> CompiledOrder:
        """A new order for these gradients."""
        return self._make(arriving)

    def _step(self, plan: BackwardPlan, absent: Absent, arriving: Arriving) -> DifferentiableStep:
        return DifferentiableStep(plan, absent, self._make(arriving))


# Note [double backward of a compiled call]
#     g, = al.autograd.grad(f(x), x, create_graph=True)
#     g.sum().backward()
# The backward graph of f is no tape: nobody recorded how g depends on x. So stage 1's tape is kept.
# When a backward first runs in grad mode, the tape is replayed on fakes while it is recorded, and
# the result is compiled like any function, whose inputs are the saved values and the arriving
# gradients: an order. The gradients that it returns have a `CompiledBackward` of the order's own
# plan as history, whose tape is kept again. There is one order for each set of arriving gradients
# and of those with a history, since other gradients flow elsewhere. The node's saved versions are
# those of the first call: a write to x since is an error at each order. Where an order is refused
# (DBL-1), the gradient has a `DoubleBackward` as history, which raises when it is differentiated.
class DifferentiableStep:
    """Runs a `CompiledOrder` and records it. Note [double backward of a compiled call]."""

    def __init__(self, plan: BackwardPlan, absent: Absent, order: CompiledOrder) -> None:
        self.order = order
        self.call, self.source = _Writer(plan, absent, order).function()

    def __call__(self, node: BackwardCall, grads: Sequence[Tensor | None]) -> list[object]:
        """The gradients for the node's edges."""
        order = self.order
        tensors, saved = self.call(node, list(grads))
        if order.plan is not None:
            self._record_order(order.plan, node, grads, tensors, saved)
        elif order.why:
            forbid_second_order(tensors, node.sources.values(), grads, order.why)
        return [None if index is None else tensors[index] for _, index in order.results]

    def _record_order(
        self,
        plan: BackwardPlan,
        node: BackwardCall,
        grads: Sequence[Any],
        tensors: list[Any],
        saved: list[Any],
    ) -> None:
        edges = self._edges(node, grads)
        live = {role for role, edge in edges.items() if edge is not None}
        ends = tuple([edges.get(role) for role, _ in plan.gradients])
        made = self.order.node(plan, None, ends, saved)
        node.begin_order(made)
        owners = self._owners(node, grads, tensors)
        # What no node of the tape has saved before, the forms of gradients have read: the mask of
        # a result. Eager reads it as it is by then, and checks no version.
        made.saved_versions = [owners.get(each.owner, UNREAD) for each in plan.saved_tensors]
        if plan.write_observed:
            made.observed_storages = [owners[owner][0] for _, owner in plan.write_observed]
            for storage in dict.fromkeys(made.observed_storages):
                storage.add_write_observer(made)
        for place, (role, _) in enumerate(plan.tangents):
            if not live.isdisjoint(plan.facts.reachable_inputs[role]):
                grad = tensors[role.index]  # type: ignore[union-attr]
                grad._node, grad._index, grad.facts = made, place, None
                keep_form(grad)

    def _edges(self, node: BackwardCall, grads: Sequence[Tensor | None]) -> dict[Role, Edge | None]:
        edges = node.sources
        for role, grad in self._incoming(node, grads):
            edges[role] = edge_of(grad)
        return edges

    def _incoming(
        self, node: BackwardCall, grads: Sequence[Tensor | None]
    ) -> list[tuple[Any, Tensor]]:
        pairs = zip(node.plan.tangents, grads, strict=True)
        incoming = node.plan.derivatives.orders.incoming  # type: ignore[union-attr]
        return [(incoming(role), grad) for (role, _), grad in pairs if grad is not None]

    def _owners(
        self, node: BackwardCall, grads: Sequence[Any], tensors: list[Any]
    ) -> dict[object, tuple[Storage, int]]:
        """Storages by owner, each with the version in which it is read."""
        saved = zip(node.plan.saved_tensors, node.saved_versions, strict=True)
        owners = {owner_at_next_order(each.owner): version for each, version in saved}
        for each, memory, version in zip(*self._memory(node), strict=True):
            owners[owner_at_next_order(each.owner)] = memory.storage, version
        incoming = node.plan.derivatives.orders.incoming  # type: ignore[union-attr]
        for (role, _), grad in zip(node.plan.tangents, grads, strict=True):
            if grad is not None:
                for of, each in _with_parts(
                    role, grad, node.plan.facts.subclass_metas.get(Tangent(role))
                ):
                    owners[incoming(of)] = each.storage, each.storage.version
        for index, tensor in enumerate(tensors):
            wrapping = self.order.subclass_metas.get(Output(index))
            for of, each in _with_parts(Output(index), tensor, wrapping):
                owners[of] = each.storage, each.storage.version
        return owners

    def _memory(self, node: BackwardCall) -> tuple[Any, Any, Any]:
        plan = node.plan
        return (
            (plan.facts.memory, node.memory, node.memory_versions)
            if plan.facts.memory
            else ((), (), ())
        )


def _with_parts(
    role: object, tensor: Tensor, wrapping: SubclassMeta | None
) -> Iterator[tuple[Any, Tensor]]:
    """A tensor and all its parts, each with its role."""
    yield role, tensor
    for name, of, inner in () if wrapping is None else wrapping.parts:
        yield from _with_parts(of, getattr(tensor, name), inner)


class _Writer(BackwardWriter):
    """Writes the function that calls an order's forward; it returns results and saved values."""

    def __init__(self, plan: BackwardPlan, absent: Absent, order: CompiledOrder) -> None:
        super().__init__(plan, absent, order.forward, order.run)
        self.order = order
        # Memory that the first order reads is a saved value of this one, and unchanged.
        self.late = BackwardMemoryWriter((), absent, self.graph, self.source)

    def function(self) -> tuple[Any, str]:
        self._check()
        if self.plan.facts.memory:
            self.source.use(check_forms)
            self.source.add("check_forms(node.name(), node.memory_forms)")
        self._call(self._values())
        self._results()
        number = f"{self.plan.number} backward, differentiable"
        return self.source.function(self.graph.name, number, "node, grads")

    def _results(self) -> None:
        source = self.source
        given = list(self.graph.outputs_with((Output, Part)))
        metas = source.record(tuple([value.meta for _, value in given]), "V", "metas")
        source.use(tensors_over)
        made = f"tensors_over(found[:{len(given)}], {metas})"
        if not self.order.subclass_metas:
            source.add(f"return {made}, found[{len(given)}:]")
            return
        names = {role: f"t{i}" for i, (role, _) in enumerate(given)}
        source.add(f"{listed(list(names.values()))} = {made}")
        writer = SubclassWriter(source)
        count = sum(index is not None for _, index in self.order.results)
        tensors = [self._whole(writer, Output(k), names) for k in range(count)]
        source.add(f"return [{', '.join(tensors)}], found[{len(given)}:]")

    def _whole(self, writer: SubclassWriter, role: Output, names: Mapping[object, str]) -> str:
        wrapping = self.order.subclass_metas.get(role)
        return (
            names[role] if wrapping is None else writer.made_of(wrapping, lambda _, of: names[of])
        )


# ------------------------------------------------------------------------------------- refusal
FORM = "A gradient arrived in another form, which its class computes without a history."
MOVED = "Its backward reads memory that was written since the call."


class DoubleBackward(TapeNode):
    """The history of a gradient that cannot be differentiated: its backward raises (DBL-1)."""

    __slots__ = ("count", "why")

    def __init__(self, edges: list[Edge | None], count: int, why: str) -> None:
        self.edges = tuple(edges)
        self.count = count
        self.sequence = next_sequence()
        self.origin = self.extra = None
        self.why = why

    def results(self) -> int:
        return self.count

    def run(self, grads: list[Tensor | None]) -> Sequence[Any]:
        raise double_backward_refusal(self.why)


def forbid_second_order(
    found: list[Tensor | None],
    edges: Iterable[Edge | None],
    grads: Sequence[Tensor | None],
    why: str,
) -> None:
    """Makes a `DoubleBackward` the history of the gradients.

    It depends on all inputs and arriving gradients.
    """
    arriving = [None if grad is None else edge_of(grad) for grad in grads]
    node = DoubleBackward([*edges, *arriving], len(found), why)
    for index, grad in enumerate(found):
        if grad is not None:
            grad._node, grad._index, grad.facts = node, index, None
