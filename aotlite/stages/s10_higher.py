"""Compiled backwards under grad mode: gradients with a history of their own (DBL-2).

Used by stage 10. An `Order` is a backward compiled as a forward that has a backward, for one set of
gradients that arrive and those among them that have a history. Its tape node is again a
`CompiledBackward`, whose own `Orders` make the next order when it is asked for.
Rules: DBL-1, DBL-2, SAV-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.node import Edge, TapeNode, next_sequence
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor, tensors_over
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import UNFORKED, lock
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.role import Output
from aotlite.stages.higher import earlier
from aotlite.stages.s10_backward_writer import BackwardWriter

if TYPE_CHECKING:
    from aotlite.stages.s10_backward import Absent, BackwardPlan, CompiledBackward

Arriving = Mapping[Any, bool]
"""The results whose gradients arrive, and whether these have a history."""


@attrs.frozen(eq=False)
class Order:
    """A backward as a function of saved values and gradients that can be differentiated."""

    forward: Graph
    run: Any
    plan: BackwardPlan | None
    """Of its own backward; None where no gradient has a history."""
    results: tuple[tuple[Any, int | None], ...]
    """For each input that gets a gradient which result that is; None where none comes."""


class Orders:
    """The backward of one plan as something to differentiate, made on first use."""

    def __init__(
        self, make: Callable[[Arriving], Order], incoming: Callable[[Any], Any]
    ) -> None:
        self._make = make
        self.incoming = incoming
        """The input of an order that the gradient of a result is, by role."""
        self._made: dict[Any, Step] = {}
        self._lock = lock()

    def step(self, plan: BackwardPlan, absent: Absent, arriving: Arriving) -> Step:
        """The function for gradients of this kind."""
        key = tuple(arriving.items())
        step = self._made.get(key)
        if step is None:
            with self._lock:
                step = self._made.get(key)
                if step is None:
                    step = Step(plan, absent, self._make(arriving))
                    with UNFORKED:
                        self._made[key] = step
        return step


class Step:
    """Calls an `Order`, and hooks what it gives into the tape."""

    def __init__(self, plan: BackwardPlan, absent: Absent, order: Order) -> None:
        self.order = order
        writer = _Writer(plan, absent, order.forward, order.run)
        self.call, self.source = writer.function()
        outputs = zip(order.forward.output_roles, order.forward.outputs, strict=True)
        self.metas: list[TensorMeta] = [
            value.meta for role, value in outputs if isinstance(role, Output)
        ]

    def __call__(self, node: CompiledBackward, grads: Sequence[Any]) -> list[Any]:
        """The gradients for the node's edges."""
        order, count = self.order, len(self.metas)
        found = self.call(node, list(grads))
        tensors: list[Any] = tensors_over(found[:count], self.metas)
        if order.plan is not None:
            self._hook(order.plan, node, grads, tensors, found[count:])
        return [None if index is None else tensors[index] for _, index in order.results]

    def _hook(
        self,
        plan: BackwardPlan,
        node: CompiledBackward,
        grads: Sequence[Any],
        tensors: list[Any],
        saved: list[Any],
    ) -> None:
        edges = self._edges(node, grads)
        live = {role for role, edge in edges.items() if edge is not None}
        ends = tuple([edges.get(role) for role, _ in plan.gradients])
        made = type(node)(plan, None, ends, saved)
        owners = self._owners(node, grads, tensors)
        made.links = [owners[each.owner] for each in plan.links]
        if plan.lent:
            made.lenders = [owners[owner][0] for _, owner in plan.lent]
            for storage in dict.fromkeys(made.lenders):
                storage.lend(made)
        for place, (role, _) in enumerate(plan.tangents):
            if not live.isdisjoint(plan.reach[role]):
                grad = tensors[role.index]  # type: ignore[union-attr]
                grad._node, grad._index, grad.facts = made, place, None

    def _edges(self, node: CompiledBackward, grads: Sequence[Any]) -> dict[Any, Edge | None]:
        pairs = zip(node.plan.gradients, node.edges, strict=True)
        edges = {role: edge for (role, _), edge in pairs}
        for role, grad in self._incoming(node, grads):
            edges[role] = edge_of(grad)
        return edges

    def _incoming(self, node: CompiledBackward, grads: Sequence[Any]) -> list[tuple[Any, Tensor]]:
        pairs = zip(node.plan.tangents, grads, strict=True)
        incoming = node.plan.orders.incoming  # type: ignore[union-attr]
        return [(incoming(role), grad) for (role, _), grad in pairs if grad is not None]

    def _owners(
        self, node: CompiledBackward, grads: Sequence[Any], tensors: list[Any]
    ) -> dict[Any, tuple[Storage, int]]:
        """Storages, with the versions in which they are read, by owner."""
        links = zip(node.plan.links, node.links, strict=True)
        owners = {earlier(each.owner): link for each, link in links}
        for role, grad in self._incoming(node, grads):
            owners[role] = grad.storage, grad.storage.version
        for index, tensor in enumerate(tensors):
            owners[Output(index)] = tensor.storage, tensor.storage.version
        return owners


class _Writer(BackwardWriter):
    """Writes what calls the compiled forward of an order."""

    def function(self) -> tuple[Any, str]:
        self._check()
        self._call(self._values())
        self.source.add("return found")
        number = f"{self.plan.number} backward, differentiable"
        return self.source.function(self.graph.name, number, "node, grads")


# ------------------------------------------------------------------------------------- refusal
class DoubleBackward(TapeNode):
    """Raises when a gradient is differentiated that cannot be (DBL-1)."""

    __slots__ = ("why",)

    def __init__(self, edges: list[Edge | None], why: str) -> None:
        self.edges = tuple(edges)
        self.sequence = next_sequence()
        self.origin = self.extra = None
        self.why = why

    def run(self, grads: list[Any]) -> Sequence[Any]:
        raise noted(
            AutogradError(
                "backward: a gradient computed by a compiled function is differentiated, expected "
                "first derivatives only"
            ),
            f"{self.why} Differentiate the eager function for derivatives of higher order. (DBL-1)",
        )


def forbid_second_order(
    found: list[Any], edges: Sequence[Edge | None], grads: Sequence[Any], why: str
) -> None:
    """The gradients depend on all that the inputs and the incoming gradients depend on."""
    arriving = [None if grad is None else edge_of(grad) for grad in grads]
    node = DoubleBackward([*edges, *arriving], why)
    for grad in found:
        if grad is not None:
            grad._node, grad._index, grad.facts = node, 0, None

