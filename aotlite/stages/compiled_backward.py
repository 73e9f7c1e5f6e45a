"""The tape node of a compiled call: runs the compiled backward when gradients arrive.

Used by stage 10 alone. A saved value that is memory of an input or result is checked as eager would
for those results whose gradient reads it; results without a gradient are absent, not zeros.
Rules: TAN-1..TAN-9, SAV-1, SAV-2, DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.backends.protocol import Run, Window
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.tape import Edge, TapeNode, next_sequence, released
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.role import Gradient, Tangent
from aotlite.ir.role import Result as ResultRole
from aotlite.stages.absent import without_tangents
from aotlite.stages.facts import InputRole, Joint, SavedOf

Absent = frozenset[ResultRole]
"""Results to which no gradient arrives in a backward."""


@attrs.frozen(eq=False)
class BackwardPlan:
    """All that a compiled backward needs to know, apart from what one call saves."""

    variants: Variants | None
    """None where no gradient reaches any input: the backward only checks what eager's checks."""
    tangents: tuple[tuple[ResultRole, TensorMeta], ...]
    """Differentiable results in order, and the layout in which their gradients are expected."""
    gradients: tuple[tuple[InputRole, TensorMeta | None], ...]
    reach: dict[ResultRole, frozenset[InputRole]]
    """The inputs to which a gradient of each result flows."""
    reads: dict[ResultRole, tuple[SavedOf, ...]]
    """Whose memory the gradient of each result reads."""
    errors: dict[ResultRole, Exception]


class CompiledBackward(TapeNode):
    """The tape node of a compiled call."""

    __slots__ = ("links", "plan", "saved")

    def __init__(
        self, plan: BackwardPlan, edges: tuple[Edge | None, ...], saved: list[Window]
    ) -> None:
        self.plan = plan
        self.edges = edges
        self.saved: list[Window] | None = saved
        self.links: dict[SavedOf, tuple[Storage, int]] = {}
        self.sequence = next_sequence()
        self.origin = None

    def results(self) -> int:
        return len(self.plan.tangents)

    def link(self, tensors: dict[InputRole, Tensor], values: dict[Any, Tensor]) -> None:
        """Notes the versions of the memory of inputs and results that gradients read (SAV-2)."""
        for saved in self.plan.reads.values():
            for each in saved:
                owner: Any = each.owner
                storage = (values[owner] if owner in values else tensors[owner]).storage
                self.links[each] = storage, storage.version

    def run(self, grads: list[Any]) -> Sequence[Any]:
        if self.saved is None:
            raise released(self.name)
        plan = self.plan
        pairs = list(zip(plan.tangents, grads, strict=True))
        absent = frozenset([role for (role, _), grad in pairs if grad is None])
        self._check(absent)
        if plan.variants is None:
            return ()
        windows = list(self.saved)
        windows += [_tangent(grad, meta) for (_, meta), grad in pairs if grad is not None]
        found = _wrapped(plan.variants(absent)(windows), plan.gradients)
        if absent:
            self._forget_unreached(found, absent)
        if STATE.grad_mode:
            _forbid_second_order(found, [*self.edges, *map(_edge_of, grads)])
        return found

    def _check(self, absent: Absent) -> None:
        for role, error in self.plan.errors.items():
            if role not in absent:
                raise noted(type(error)(*error.args), *getattr(error, "__notes__", ()))
        for role, saved in self.plan.reads.items():
            if role not in absent:
                for each in saved:
                    self._check_version(each)

    def _check_version(self, each: SavedOf) -> None:
        storage, version = self.links[each]
        if storage.version != version:
            raise noted(
                AutogradError(
                    f"{self.name}: a saved tensor {each.meta} ({each.owner}) is at version "
                    f"{storage.version}, expected version {version}: it was modified in place"
                ),
                "Its values at the time of the forward are needed for the gradient. Write to a "
                "clone(), or after the backward. (SAV-2)",
            )

    def _forget_unreached(self, found: list[Any], absent: Absent) -> None:
        """TAN-8: inputs that only absent tangents lead to have no gradient, rather than zeros."""
        reached: set[Any] = set()
        for role, _ in self.plan.tangents:
            if role not in absent:
                reached |= self.plan.reach[role]
        for i, (of, _) in enumerate(self.plan.gradients):
            if of not in reached:
                found[i] = None

    def release(self) -> None:
        self.saved = None


def _tangent(grad: Tensor, meta: TensorMeta) -> Window:
    """TAN-3: the gradient in the layout that the backward was recorded for."""
    if grad.meta is not meta:
        grad = grad.detach().restride(meta.stride)
    return grad.storage.buffer, grad.offset


def _wrapped(
    out: list[Any], gradients: tuple[tuple[InputRole, TensorMeta | None], ...]
) -> list[Any]:
    """Gradients as tensors; those in one buffer share one storage, so that nobody adopts it
    alone.
    """
    storages: dict[int, Storage] = {}
    found: list[Any] = []
    for window, (_, meta) in zip(out, gradients, strict=True):
        if window is None or meta is None:
            found.append(None)
            continue
        buffer, start = window
        storage = storages.setdefault(id(buffer), Storage(buffer))
        found.append(Tensor(storage, meta, start))
    return found


class DoubleBackward(TapeNode):
    """Raises when a gradient of a compiled backward is differentiated again (DBL-1)."""

    __slots__ = ()

    def __init__(self, edges: list[Edge | None]) -> None:
        self.edges = tuple(edges)
        self.sequence = next_sequence()
        self.origin = None

    def run(self, grads: list[Any]) -> Sequence[Any]:
        raise noted(
            AutogradError(
                "backward: a gradient computed by a compiled function is differentiated, expected "
                "first derivatives only"
            ),
            "Differentiate the eager function for derivatives of higher order. (DBL-1)",
        )


def _edge_of(grad: Tensor | None) -> Edge | None:
    return None if grad is None else edge_of(grad)


def _forbid_second_order(found: list[Any], edges: list[Edge | None]) -> None:
    """The gradients depend on all that the inputs and the incoming gradients depend on."""
    node = DoubleBackward(edges)
    for grad in found:
        if grad is not None:
            grad._node, grad._index, grad.facts = node, 0, None


class Variants:
    """The lowered backward for each set of absent tangents, made on first use (JNT-13, TAN-8)."""

    def __init__(self, graph: Graph, lower: Callable[[Graph], Run]) -> None:
        self.graph = graph
        self._lower = lower
        self._made: dict[Absent, Run] = {}
        self._lock = threading.Lock()

    def __call__(self, absent: Absent) -> Run:
        """The callable that takes the saved values and the tangents that are not absent."""
        run = self._made.get(absent)
        if run is None:
            with self._lock:
                if absent not in self._made:
                    graph = without_tangents(self.graph, absent) if absent else self.graph
                    self._made[absent] = self._lower(graph)
                run = self._made[absent]
        return run


def plan_backward(
    graph: Graph | None, lower: Callable[[Graph], Run], both: Joint
) -> BackwardPlan | None:
    """The plan of a backward graph; None where no result is differentiable."""
    if graph is None:
        metas = dict(zip(both.graph.output_roles, both.graph.outputs, strict=True))
        dead = tuple((role, metas[role].meta) for role in both.reads)
        return BackwardPlan(None, dead, (), both.reach, both.reads, both.errors) if dead else None
    tangents = tuple(
        (node.role.of, node.meta) for node in graph.placeholders if isinstance(node.role, Tangent)
    )
    gradients = tuple(
        (role.of, None if value is None else value.meta)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if isinstance(role, Gradient)
    )
    variants = Variants(graph, lower)
    return BackwardPlan(variants, tangents, gradients, both.reach, both.reads, both.errors)  # type: ignore[arg-type]
