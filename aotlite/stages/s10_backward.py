"""The tape node of a compiled call: runs the compiled backward when gradients arrive.

Used by stage 10 alone. A saved value that is memory of an input or result is checked as eager would
for those results whose gradient reads it; results without a gradient are absent, not zeros.
Rules: TAN-1..TAN-9, SAV-1, SAV-2, DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.backends.protocol import Run
from aotlite.backends.values import Value
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.hooks import retain
from aotlite.eager.autograd.leaf import AccumulateGrad
from aotlite.eager.autograd.node import SEQUENCE, Edge, TapeNode, released
from aotlite.eager.state import STATE, Watch
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.eager.wrappers import is_wrapper, whole
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import UNFORKED, lock
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.role import Gradient, Output, Tangent
from aotlite.ir.role import Result as ResultRole
from aotlite.stages.absent import without_tangents
from aotlite.stages.apart import Apart
from aotlite.stages.facts import LateMemory, SavedOf, SourceRole
from aotlite.stages.late_effects import LateEffect, missing
from aotlite.stages.s10_backward_writer import BackwardWriter, Step
from aotlite.stages.s10_higher import FORM, MOVED, Orders, forbid_second_order
from aotlite.stages.s10_late import Shown, refuse_history
from aotlite.stages.s10_packed import (
    PackedValues,
    same_bytes,
    saved_metas,
    with_copies,
    written_unnoticed,
)
from aotlite.stages.s10_watched import Inside, again
from aotlite.stages.s10_wrappers import coerced, coerced_with_history
from aotlite.stages.streams import After
from aotlite.stages.wrapped_choices import Choice, chosen
from aotlite.stages.wrappings import Wrapping, gradient_of

Absent = frozenset[Any]
"""Results to which no gradient arrives in a backward, and effects that do not happen in it."""
Wanted = frozenset[SourceRole] | None
"""The inputs whose gradients alone are asked for; None where all are."""
NOTHING_ABSENT: Absent = frozenset()
_LOCKS = [lock() for _ in range(64)]
"""For nodes that read what is lent, one for many of them: one for each is dear to make."""


@attrs.frozen(eq=False)
class BackwardPlan:
    """All that a compiled backward needs to know, apart from what one call saves."""

    variants: Variants | None
    """None where no gradient reaches any input: the backward only checks what eager's checks."""
    tangents: tuple[tuple[ResultRole, TensorMeta], ...]
    """Differentiable results in order, and the layout in which their gradients are expected."""
    gradients: tuple[tuple[SourceRole, TensorMeta | None], ...]
    """The inputs, and the geometry of the gradients of those that get one."""
    reach: dict[ResultRole, frozenset[SourceRole]]
    """The inputs to which the tape of each result leads."""
    flows: dict[ResultRole, frozenset[SourceRole]]
    """The inputs to which a gradient of each result flows."""
    reads: dict[ResultRole, tuple[SavedOf, ...]]
    """Whose memory the gradient of each result reads."""
    errors: dict[ResultRole, Exception]
    is_compact: bool
    """The backward is called by its compact face (`backends.values`)."""
    links: tuple[SavedOf, ...]
    """All that `reads` names, once each."""
    asks: frozenset[ResultRole]
    """The results whose gradient asks, in eager, for anything that was saved."""
    only_leaves: bool
    """Whether every input that gets a gradient is a leaf."""
    new_leaves: frozenset[SourceRole]
    """Inputs that the function makes leaves, which get the gradient as such (FUN-36)."""
    number: int = 0
    """Of the compilation (GEN-9)."""
    order: int = 1
    """Of the derivatives that it computes (DBL-2)."""
    memory: tuple[LateMemory, ...] = ()
    """What the backward finds in memory, and writes there (FUN-31)."""
    lent: tuple[tuple[int, Any], ...] = ()
    """Saved values that lie in memory of others, which may write it; and whose it is (PART-37)."""
    guarded: tuple[tuple[int, Any], ...] = ()
    """Saved values that eager's backward reads, too, and of which this one computes again what
    eager has saved; and whose memory it is (PART-40)."""
    effects: tuple[LateEffect, ...] = ()
    """What happens in the backward (TOK-4)."""
    after: After | None = None
    """Where the backward leaves the generator (RNG-5)."""
    apart: tuple[Apart, ...] = ()
    """Results whose gradients have to arrive together."""
    choices: tuple[Choice, ...] = ()
    """Where gradients are other ones for each choice of results."""
    wrappings: Mapping[Any, Wrapping] = {}
    """How tangents and gradients that are wrappers are made, by role (SUB-11, SUB-12)."""
    orders: Orders | None = None
    """The backward as something to differentiate (DBL-2); None where that is refused (DBL-1)."""
    why: str = ""
    """Why it is refused, or why not `splits`."""
    splits: bool = True
    """Gradients may arrive in parts: what is computed of them is linear (DBL-1)."""
    served: tuple[int, ...] | None = None
    """The places of the gradients as they arrive in eager, where that is another order (CAG-10)."""
    inside: Inside | None = None
    """What anomaly mode looks at (JNT-8); None where that is the gradients it gives alone."""
    further: tuple[SourceRole, ...] = ()
    """The inputs that get no gradient here, and may get one from a derivative of it (DBL-2)."""
    borrowed: tuple[tuple[int, Any], ...] = attrs.field(init=False)
    """What is lent and what is guarded: the node is told before that memory is written."""
    wrapped: tuple[bool, ...] = attrs.field(init=False)
    """For each tangent whether it is a wrapper."""

    @borrowed.default
    def _borrowed(self) -> tuple[tuple[int, Any], ...]:
        return (*self.lent, *self.guarded)

    @wrapped.default
    def _wrapped(self) -> tuple[bool, ...]:
        return tuple([Tangent(role) in self.wrappings for role, _ in self.tangents])

    def is_read(self, each: SavedOf, absent: Absent) -> bool:
        """Whether a gradient that is not absent reads this."""
        return any(each in saved for role, saved in self.reads.items() if role not in absent)

    def reached(self, absent: Absent) -> set[SourceRole]:
        """The inputs to which a gradient that is not absent flows."""
        return {of for role, _ in self.tangents if role not in absent for of in self.flows[role]}


class CompiledBackward(TapeNode):
    """The tape node of a compiled call.

    `ends` are the nodes that collect the inputs' gradients, where all inputs that get one are
    leaves; elsewhere it is None, and `edges` are given.
    """

    __slots__ = (
        "_edges",
        "_lock",
        "_packed",
        "copies",
        "ends",
        "further",
        "lenders",
        "links",
        "memory",
        "plan",
        "saved",
        "shown",
        "versions",
    )

    hears_absent = False
    """Its results are those of many ops: where none arrives at one, eager does not get there."""

    _lock: threading.RLock
    """Held while the backward reads what is lent, and while that is copied; not there without."""
    lenders: Sequence[Storage]
    """For each of the plan's `borrowed` the storage; not there without."""
    copies: dict[int, Value]
    """What guarded values were when the user came to hold their memory; not there without such."""

    further: tuple[Edge | None, ...]
    """Where gradients of the plan's `further` go; not there if it has none."""
    _packed: PackedValues | None
    """What saved-tensor hooks keep in the place of `saved`; not there if none do."""
    links: Sequence[tuple[Storage, int]]
    """For each of the plan's `links` the storage, and its version at the end of the call."""
    memory: tuple[Tensor, ...]
    """An alias of each of the plan's `memory`; not there if it has none."""
    shown: tuple[Shown, ...]
    """The caller's tensors that this is memory of, as they were; not there either."""
    versions: Sequence[int]
    """Those that `memory` had at the end of the call; not there either."""

    def __init__(
        self,
        plan: BackwardPlan,
        ends: list[AccumulateGrad | None] | None,
        edges: tuple[Edge | None, ...] | None,
        saved: list[Value],
    ) -> None:
        self.plan = plan
        self.ends = ends
        self._edges = edges
        self.saved: list[Value] | None = saved
        self.links = ()
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None
        if plan.borrowed:
            self._lock = _LOCKS[self.sequence % len(_LOCKS)]
            self.copies = {}
        if STATE.watch is not None:
            self._note(STATE.watch)

    def _note(self, watch: Watch) -> None:
        watch.made(self)
        if watch.pack is not None and self.saved is not None:
            graph = None if self.plan.variants is None else self.plan.variants.graph
            lent = [index for index, _ in self.plan.lent]
            self._packed = PackedValues.of(self.saved, graph, lent, watch.pack)
            self.saved = None

    @property
    def edges(self) -> tuple[Edge | None, ...]:  # type: ignore[override]
        """Where the gradients go."""
        edges = self._edges
        if edges is None:
            ends: Any = self.ends
            edges = self._edges = tuple([None if end is None else (end, 0) for end in ends])
        return edges

    @property
    def sources(self) -> dict[SourceRole, Edge | None]:
        """Where gradients of the inputs go, at this order and later ones."""
        pairs = zip(self.plan.gradients, self.edges, strict=True)
        found = {role: edge for (role, _), edge in pairs}
        if self.plan.further:
            found.update(zip(self.plan.further, self.further, strict=True))
        return found

    @property
    def served(self) -> Sequence[Edge | None]:
        edges, places = self.edges, self.plan.served
        return edges if places is None else [edges[place] for place in places]

    def results(self) -> int:
        return len(self.plan.tangents)

    def leaf_nodes(self) -> list[AccumulateGrad | None] | None:
        ends = self.ends
        if self.plan.effects:  # the engine tells which of them happen
            return None
        if ends is not None:
            for end in ends:
                # A leaf that was `t_`'d since collects by another node, to which this passes on.
                # One with hooks calls them.
                if end is not None and (end.edges or end.extra is not None) and not end.is_plain:
                    return None
        return ends

    def begin_order(self, made: CompiledBackward) -> None:
        """Told that gradients of this call have a tape node, `made`."""
        if hasattr(self, "shown"):
            made.shown = self.shown

    def run(self, grads: list[Any]) -> Sequence[Any]:
        return self._run(grads, None)

    def run_for(self, grads: list[Any], wanted: Sequence[bool]) -> Sequence[Any]:
        if not self.plan.effects:
            return self._run(grads, None)
        pairs = zip(self.plan.gradients, wanted, strict=True)
        return self._run(grads, frozenset([role for (role, _), is_wanted in pairs if is_wanted]))

    def _run(self, grads: list[Any], wanted: Wanted) -> Sequence[Any]:
        found = self._found(grads, wanted)
        return found if self.extra is None or not self.extra.kept else self._kept(found)

    def _kept(self, found: Sequence[Any]) -> Sequence[Any]:
        """Gives results that retain their gradients what came to them, inside too (HOOK-4)."""
        places = {role: place for place, (role, _) in enumerate(self.plan.tangents)}
        for (role, _), grad in zip(self.plan.gradients, found, strict=True):
            kept = self.extra.kept.get(places[role]) if isinstance(role, Output) else None
            tensor = None if kept is None else kept()
            if tensor is not None and grad is not None:
                retain(tensor, grad)
        return found

    def _found(self, grads: list[Any], wanted: Wanted) -> Sequence[Any]:
        plan = self.plan
        if not STATE.grad_mode or plan.variants is None:
            return self.gradients(grads, wanted)
        if plan.memory:
            refuse_history(self.name(), plan.memory, plan.variants.graph, self.absent(grads))
        if plan.orders is not None:
            return self._differentiable(grads)
        found = self.gradients(grads, wanted)
        forbid_second_order(found, self.sources.values(), grads, plan.why)
        return found

    def _differentiable(self, grads: list[Any]) -> Sequence[Any]:
        """The gradients with a history of their own (DBL-2)."""
        if self.saved is None:
            return self._unpacked(grads, self._differentiable)
        if self.plan.guarded and self.copies:
            self.check_copies()
        formed = self._with_history(grads) if STATE.wrappers else grads
        moved = self.plan.memory and [m.storage.version for m in self.memory] != self.versions
        if formed is None or moved:
            found = self.gradients(grads)
            why = MOVED if moved else FORM
            forbid_second_order(found, self.sources.values(), grads, why)
            return found
        grads = formed
        pairs = zip(self.plan.tangents, grads, strict=True)
        arriving = {role: edge_of(g) is not None for (role, _), g in pairs if g is not None}
        orders: Any = self.plan.orders
        step = orders.step(self.plan, self.absent(grads), arriving)
        if not self.plan.lent:
            return step(self, grads)
        with self._lock:
            return step(self, grads)

    def gradients(self, grads: list[Any], wanted: Wanted = None) -> list[Any]:
        if self.saved is None:
            return self._unpacked(grads, partial(self.gradients, wanted=wanted))
        if self.plan.guarded and self.copies:
            self.check_copies()
        variants = self.plan.variants
        if STATE.wrappers and variants is not None:
            grads = self._dense(grads)
        absent = NOTHING_ABSENT
        for grad in grads:
            if grad is None:
                absent = self.absent(grads)
                break
        if self.plan.effects:
            absent |= missing(self.plan.effects, absent, wanted)
        if variants is None:
            self.check(absent)
            return [None] * len(self.edges)
        step = variants.whole
        if step is None or absent:
            step = variants.step(absent, self.plan)
        if not self.plan.lent:
            return step(self, grads)
        with self._lock:
            return step(self, grads)

    def formed(self, index: int, grad: Any) -> Any:
        form = None if self.extra is None else self.extra.forms.get(index)
        if form is not None:
            return form(grad)
        return grad if self.plan.wrapped[index] else whole(grad)

    def _dense(self, grads: list[Any]) -> list[Any]:
        """TAN-5: the gradients, without wrappers where none are expected."""
        plan = self.plan
        return [
            grad if known or grad is None or not is_wrapper(grad) else coerced(grad, role, None)
            for grad, known, (role, _) in zip(grads, plan.wrapped, plan.tangents, strict=True)
        ]

    def _with_history(self, grads: list[Any]) -> list[Any] | None:
        """The gradients in the forms that are expected; None where one of them loses a history."""
        found = []
        for grad, (role, _) in zip(grads, self.plan.tangents, strict=True):
            wrapping = self.plan.wrappings.get(Tangent(role))
            formed = None if grad is None else coerced_with_history(grad, role, wrapping)
            if formed is None and grad is not None:
                return None
            found.append(formed)
        return found

    def look_inside(self, grads: list[Any], wanted: Sequence[bool] | None) -> bool:
        inside = self.plan.inside
        if inside is None or self.saved is None:
            return False
        return inside.look(self, self._dense(grads) if STATE.wrappers else grads, wanted)

    def keep(self, storage: Storage) -> None:
        """PART-37: copies the saved values in this memory, which is about to change.

        Of guarded ones a copy is kept beside them, where the change may go unnoticed (PART-40).
        """
        variants = self.plan.variants
        with self._lock:
            if self.saved is None or variants is None:
                return
            pairs = zip(self.plan.borrowed, self.lenders, strict=True)
            here = [index for (index, _), lender in pairs if lender is storage]
            guarded = {index for index, _ in self.plan.guarded}.intersection(here)
            if storage.exported and guarded:
                made = with_copies(self.saved, saved_metas(variants.graph), sorted(guarded))
                self.copies |= {i: made[i] for i in guarded if i not in self.copies}
            lent = [index for index in here if index not in guarded]
            self.saved = with_copies(self.saved, saved_metas(variants.graph), lent)

    def check_copies(self) -> None:
        """Raises AutogradError where a guarded value was written unnoticed (PART-40)."""
        variants, saved = self.plan.variants, self.saved
        if saved is None or variants is None:
            return
        metas = saved_metas(variants.graph)
        for index, copy in self.copies.items():
            if not same_bytes(saved[index], copy, metas[index]):
                raise written_unnoticed(self.name(), metas[index])

    def _unpacked(self, grads: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """`run` with what saved-tensor hooks unpack; without such, it has been released."""
        packed = getattr(self, "_packed", None)
        if packed is None:
            raise released(self.name())
        if not self.plan.asks <= self.absent(grads):
            packed.check_region()
        self.saved = packed.unpack()
        try:
            return run(grads)
        finally:
            self.saved = None

    def absent(self, grads: Sequence[Any]) -> Absent:
        """The results without a gradient."""
        pairs = zip(self.plan.tangents, grads, strict=True)
        return frozenset([role for (role, _), each in pairs if each is None])

    def check(self, absent: Absent) -> None:
        """Raises what eager's backward raises for the gradients that arrived."""
        plan = self.plan
        for role, error in plan.errors.items():
            if role not in absent:
                raise again(error)
        packed = getattr(self, "_packed", None)
        for each, (storage, version) in zip(plan.links, self.links, strict=True):
            if packed is not None and not packed.is_written(storage, version):
                continue
            if storage.version != version and plan.is_read(each, absent):
                raise noted(
                    AutogradError(
                        f"{self.name()}: a saved tensor {each.meta} ({each.owner}) is at version "
                        f"{storage.version}, expected version {version}: it was modified in place"
                    ),
                    "Its values at the time of the forward are needed for the gradient. Write to a "
                    "clone(), or after the backward. (SAV-2)",
                )

    def release(self) -> None:
        if not self.plan.borrowed:
            self._let_go()
            return
        self.copies = {}
        with self._lock:  # another thread may be copying what is lent
            self._let_go()

    def _let_go(self) -> None:
        self.saved = self._packed = None
        self.links = self.lenders = ()


class Variants:
    """The backward for each set of absent tangents, made on first use (JNT-13, TAN-8)."""

    def __init__(
        self,
        graph: Graph,
        lower: Callable[[Graph], Run],
        arrivals: tuple[frozenset[ResultRole], ...] = (),
        effects: tuple[LateEffect, ...] = (),
    ) -> None:
        self.graph = graph
        self.arrivals = arrivals
        """What the graph's `Arrived` inputs ask."""
        self.effects = effects
        self.sources: list[str] = []
        """The functions made so far, as Python."""
        self.whole: Step | None = None
        """The one for all tangents."""
        self._lower = lower
        self._made: dict[Absent, Step] = {}
        self._lock = lock()

    def step(self, absent: Absent, plan: BackwardPlan) -> Step:
        """The function that takes a node and gradients, of which those are None."""
        step = self._made.get(absent)
        if step is None:
            with self._lock:
                if absent not in self._made:
                    graph, plan = _for_choice(self.graph, plan, absent)
                    for each in plan.apart:
                        each.check(absent)
                    if absent or self.arrivals:
                        graph = self._without(graph, plan, absent)
                    writer = BackwardWriter(plan, absent, graph, self._lower(graph))
                    step, source = writer.function()
                    with UNFORKED:
                        self.sources.append(source)
                        self._made[absent] = step
                step = self._made[absent]
            if not absent:
                self.whole = step
        return step

    def _without(self, graph: Graph, plan: BackwardPlan, absent: Absent) -> Graph:
        reached = plan.reached(absent)
        return without_tangents(graph, absent, reached, self.arrivals, self.effects)


def _for_choice(
    graph: Graph, plan: BackwardPlan, absent: Absent
) -> tuple[Graph, BackwardPlan]:
    """Graph and plan for the results whose gradients arrive, where that makes others (TAN-8)."""
    if not plan.choices:
        return graph, plan
    arrived = frozenset([of for of, _ in plan.tangents if of not in plan.errors]) - absent
    graph, choice = chosen(graph, plan.choices, arrived)
    if choice.error is not None:
        raise again(choice.error)
    known = {role: how for role, how in plan.wrappings.items() if isinstance(role, Tangent)}
    given = [gradient_of(role.of) for role, v in graph.outputs_with(Gradient) if v is not None]
    flows = dict.fromkeys(plan.flows, frozenset(given))
    return graph, attrs.evolve(plan, wrappings={**known, **choice.wrappings}, flows=flows)
