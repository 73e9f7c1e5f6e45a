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

from aotlite.backends.protocol import Run
from aotlite.backends.values import Value, travels_as_array
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.tape import Edge, TapeNode, next_sequence, released
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.ir.arrays import NUMPY
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.memory import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.role import Gradient, Tangent
from aotlite.ir.role import Result as ResultRole
from aotlite.stages.absent import without_tangents
from aotlite.stages.facts import InputRole, Joint, SavedOf

Absent = frozenset[ResultRole]
"""Results to which no gradient arrives in a backward."""
NOTHING_ABSENT: Absent = frozenset()


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
    is_compact: bool
    """The backward is called by its compact face (`backends.values`)."""
    links: tuple[SavedOf, ...]
    """All that `reads` names, once each."""
    shares_memory: bool
    """Whether two gradients can lie in one buffer."""


class CompiledBackward(TapeNode):
    """The tape node of a compiled call."""

    __slots__ = ("links", "plan", "saved")

    links: Sequence[tuple[Storage, int]]
    """For each of the plan's `links` the storage, and its version at the end of the call."""

    def __init__(
        self, plan: BackwardPlan, edges: tuple[Edge | None, ...], saved: list[Value]
    ) -> None:
        self.plan = plan
        self.edges = edges
        self.saved: list[Value] | None = saved
        self.links = ()
        self.sequence = next_sequence()
        self.origin = None

    def results(self) -> int:
        return len(self.plan.tangents)

    def run(self, grads: list[Any]) -> Sequence[Any]:
        saved, plan = self.saved, self.plan
        if saved is None:
            raise released(self.name)
        absent = self._absent(grads)
        self._check(absent)
        if plan.variants is None:
            return ()
        values = [*saved]
        for (_, meta), grad in zip(plan.tangents, grads, strict=True):
            if grad is not None:
                values.append(_tangent(grad, meta, plan.is_compact))
        run = plan.variants(absent)
        out = NUMPY.quiet(run.compact, values) if plan.is_compact else run(values)
        found = _wrapped(out, plan)
        if absent:
            self._forget_unreached(found, absent)
        if STATE.grad_mode:
            _forbid_second_order(found, [*self.edges, *map(_edge_of, grads)])
        return found

    def _absent(self, grads: list[Any]) -> Absent:
        for grad in grads:
            if grad is None:
                pairs = zip(self.plan.tangents, grads, strict=True)
                return frozenset([role for (role, _), each in pairs if each is None])
        return NOTHING_ABSENT

    def _check(self, absent: Absent) -> None:
        """Raises what eager's backward raises for the gradients that arrived."""
        plan = self.plan
        for role, error in plan.errors.items():
            if role not in absent:
                raise noted(type(error)(*error.args), *getattr(error, "__notes__", ()))
        for i, (storage, version) in enumerate(self.links):
            if storage.version != version:
                each = plan.links[i]
                if any(each in plan.reads[role] for role in plan.reads if role not in absent):
                    raise self._modified(each, storage, version)

    def _modified(self, each: SavedOf, storage: Storage, version: int) -> Exception:
        return noted(
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


def _tangent(grad: Tensor, meta: TensorMeta, is_compact: bool) -> Value:
    """TAN-3: the gradient in the layout that the backward was recorded for."""
    if grad.meta is not meta:
        grad = grad.detach().restride(meta.stride)
    if is_compact and travels_as_array(meta):
        return grad.array
    return grad.storage.buffer, grad.offset


def _wrapped(out: list[Any], plan: BackwardPlan) -> list[Any]:
    """Gradients as tensors; those in one buffer share one storage, so that nobody adopts it
    alone.
    """
    if not plan.shares_memory:
        return [
            None if window is None or meta is None else Tensor(Storage(window[0]), meta, window[1])
            for window, (_, meta) in zip(out, plan.gradients, strict=True)
        ]
    storages: dict[int, Storage] = {}
    found: list[Any] = []
    for window, (_, meta) in zip(out, plan.gradients, strict=True):
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
        self._made: dict[Absent, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, absent: Absent) -> Any:
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
    graph: Graph | None, lower: Callable[[Graph], Run], both: Joint, *, is_compact: bool
) -> BackwardPlan | None:
    """The plan of a backward graph; None where no result is differentiable."""
    links = tuple(dict.fromkeys(each for saved in both.reads.values() for each in saved))
    facts: dict[str, Any] = {
        "reach": both.reach,
        "reads": both.reads,
        "errors": both.errors,
        "is_compact": is_compact,
        "links": links,
    }
    if graph is None:
        metas = dict(zip(both.graph.output_roles, both.graph.outputs, strict=True))
        dead = tuple((role, metas[role].meta) for role in both.reads)
        return BackwardPlan(None, dead, (), shares_memory=False, **facts) if dead else None
    tangents = tuple(
        (node.role.of, node.meta) for node in graph.placeholders if isinstance(node.role, Tangent)
    )
    gradients = tuple(
        (role.of, None if value is None else value.meta)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if isinstance(role, Gradient)
    )
    roots = [storage_root(value) for value in graph.outputs if type(value) is Node]
    shares = len(set(roots)) != len(roots) or any(root.op != "call" for root in roots)
    variants = Variants(graph, lower)
    return BackwardPlan(variants, tangents, gradients, shares_memory=shares, **facts)  # type: ignore[arg-type]
