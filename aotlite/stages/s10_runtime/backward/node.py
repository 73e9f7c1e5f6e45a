"""The tape node of a compiled call: runs the compiled backward when gradients arrive.

Entries make it (`forward/writer.py`). A saved tensor in the memory of an input or result is checked
for writes as eager checks it, for the results whose gradient reads it. A result without a gradient
is absent: its gradient is None, not zeros.
Rules: TAN-1..TAN-9, SAV-1, SAV-2, DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aotlite.backends.calling_convention import Value
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.base.modes import STATE, Watch
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.hooks import NodeAttachments, retain
from aotlite.eager.base.tape.node import SEQUENCE, Edge, TapeNode, released
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import whole
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import lock
from aotlite.ir.graph.role import Output, Result
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.s10_runtime.backward.double_backward import FORM, MOVED, forbid_second_order
from aotlite.stages.s10_runtime.backward.memory.mutations import (
    TensorForm,
    refuse_history,
    versions_of,
)
from aotlite.stages.s10_runtime.backward.memory.packed_saves import (
    PackedValues,
    check_copies,
    copy_before_write,
)
from aotlite.stages.s10_runtime.backward.plan import (
    NOTHING_ABSENT,
    UNREAD,
    Absent,
    BackwardPlan,
    copied_error,
)
from aotlite.stages.s10_runtime.backward.undefined_tangents import missing
from aotlite.stages.s10_runtime.subclass_code import dense_gradients, with_history

Wanted = frozenset[SourceRole] | None
"""The inputs whose gradients alone are asked for; None where all are."""
_LOCKS = [lock() for _ in range(64)]
"""Locks of nodes with values that are copied on write. Many nodes share one: making it costs."""


class CompiledBackward(TapeNode):
    """The tape node of a compiled call.

    `ends` are the nodes that accumulate the inputs' gradients, if all inputs that get one are
    leaves. Otherwise it is None, and `edges` are given.
    """

    __slots__ = (
        "_arrived",
        "_closed",
        "_edges",
        "_left",
        "_lock",
        "_packed",
        "copies",
        "ends",
        "higher_order_edges",
        "memory",
        "memory_forms",
        "memory_versions",
        "observed_storages",
        "plan",
        "saved",
        "saved_versions",
    )

    hears_absent = False
    """Its results are those of many ops: where none arrives at one, eager does not get there."""

    _arrived: Absent
    """Results whose gradients came in the backward that runs; unset unless some `may_reopen`."""
    _closed: Absent
    """Results whose backward raises from now on; unset before a release, or without such."""
    _left: list[Value | None]
    """The saved values that the other results' backwards need; unset likewise."""
    _lock: threading.RLock
    """Held while the backward reads values that are copied on write, and while they are copied;
    unset without such."""
    observed_storages: Sequence[Storage]
    """The storage of each of the plan's `write_observed`; unset without such."""
    copies: dict[int, Value]
    """Copies of byte-checked values, made when the user got their memory; unset without such."""

    higher_order_edges: tuple[Edge | None, ...]
    """Where gradients of the plan's `higher_order_inputs` go; unset if it has none."""
    _packed: PackedValues | None
    """What saved-tensor hooks keep in the place of `saved`; unset without hooks."""
    saved_versions: Sequence[tuple[Storage, int]]
    """Of each of the plan's `saved_tensors` the storage, and its version at the end of the call."""
    memory: tuple[Tensor, ...]
    """An alias of each of the plan's `memory`; unset if it has none."""
    memory_forms: tuple[TensorForm, ...]
    """The caller's tensors in `memory`, with their forms as the call ended; unset likewise."""
    memory_versions: Sequence[int]
    """The versions of `memory` at the end of the call; unset likewise."""

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
        self.saved_versions = ()
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None
        if plan.write_observed:
            self._lock = _LOCKS[self.sequence % len(_LOCKS)]
            self.copies = {}
        if STATE.watch is not None:
            self._note(STATE.watch)

    def _note(self, watch: Watch) -> None:
        watch.made(self)
        if watch.pack is not None and self.saved is not None:
            graph = None if self.plan.variants is None else self.plan.variants.graph
            copied = [index for index, _ in self.plan.copied_on_write]
            self._packed = PackedValues.of(self.saved, graph, copied, watch.pack)
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
        if self.plan.derivatives.higher_order_inputs:
            found.update(
                zip(self.plan.derivatives.higher_order_inputs, self.higher_order_edges, strict=True)
            )
        return found

    @property
    def edges_in_order(self) -> Sequence[Edge | None]:
        edges, places = self.edges, self.plan.edge_order
        return edges if places is None else [edges[place] for place in places]

    def results(self) -> int:
        return len(self.plan.tangents)

    def leaf_nodes(self) -> list[AccumulateGrad | None] | None:
        ends = self.ends
        if self.plan.facts.effects:  # only the engine knows which of them happen
            return None
        if ends is not None:
            for end in ends:
                # A leaf that `t_` has changed since accumulates in another node, to which this one
                # passes its gradient. A leaf with hooks calls them.
                if end is not None and (end.edges or end.extra is not None) and not end.is_plain:
                    return None
        return ends

    def begin_order(self, made: CompiledBackward) -> None:
        """Hands on what `made`, the tape node of this call's gradients, checks at its backward."""
        if hasattr(self, "memory_forms"):
            made.memory_forms = self.memory_forms

    def run(self, grads: list[Tensor | None]) -> Sequence[Any]:
        return self._run(grads, None)

    def run_for(self, grads: list[Tensor | None], wanted: Sequence[bool]) -> Sequence[object]:
        if not self.plan.facts.effects:
            return self._run(grads, None)
        pairs = zip(self.plan.gradients, wanted, strict=True)
        return self._run(grads, frozenset([role for (role, _), is_wanted in pairs if is_wanted]))

    def _run(self, grads: list[Tensor | None], wanted: Wanted) -> Sequence[Any]:
        compute = self._with_history if STATE.grad_mode else self.gradients
        found = compute(grads, wanted)
        extra = self.extra
        return found if extra is None or not extra.kept else self._retain(found, extra)

    def _retain(
        self, found: Sequence[Tensor | None], extra: NodeAttachments
    ) -> Sequence[Tensor | None]:
        """Stores the gradients of results that retain theirs, also inside a call (HOOK-4)."""
        places = {role: place for place, (role, _) in enumerate(self.plan.tangents)}
        for (role, _), grad in zip(self.plan.gradients, found, strict=True):
            kept = extra.kept.get(places[role]) if isinstance(role, Output) else None
            tensor = None if kept is None else kept()
            if tensor is not None and grad is not None:
                retain(tensor, grad)
        return found

    def gradients(self, grads: list[Tensor | None], wanted: Wanted = None) -> list[Any]:
        """The gradients of the inputs, without a history: runs the compiled backward."""
        if self.saved is None:
            return self._unpacked(grads, partial(self.gradients, wanted=wanted))
        if self.plan.byte_checked and self.copies:
            check_copies(self)
        variants = self.plan.variants
        if STATE.wrappers and variants is not None:
            grads = dense_gradients(grads, self.plan.tangents, self.plan.wrapped)
        absent = NOTHING_ABSENT
        for grad in grads:
            if grad is None:
                absent = self.absent(grads)
                break
        if self.plan.may_reopen:
            self._arrived = frozenset([role for role, _ in self.plan.tangents]) - absent
        if self.plan.facts.effects:
            absent |= missing(self.plan.facts.effects, absent, wanted)
        if variants is None:
            self.check(absent)
            return [None] * len(self.edges)
        step = variants.whole
        if step is None or absent:
            step = variants.step(absent, self.plan)
        if not self.plan.copied_on_write:
            return step(self, grads)
        with self._lock:
            return step(self, grads)

    def _with_history(self, grads: list[Tensor | None], wanted: Wanted) -> Sequence[Any]:
        """`gradients` in grad mode (`create_graph`): a later backward differentiates or refuses."""
        plan = self.plan
        if plan.variants is None:
            return self.gradients(grads, wanted)
        if plan.facts.memory:
            refuse_history(self.name(), plan.facts.memory, plan.variants.graph, self.absent(grads))
        if plan.derivatives.orders is not None:
            return self._differentiable(grads)
        found = self.gradients(grads, wanted)
        forbid_second_order(found, self.sources.values(), grads, plan.derivatives.why)
        return found

    def _differentiable(self, grads: list[Tensor | None]) -> Sequence[object]:
        """The gradients with a history of their own (DBL-2)."""
        if self.saved is None:
            return self._unpacked(grads, self._differentiable)
        plan = self.plan
        if plan.byte_checked and self.copies:
            check_copies(self)
        metas = plan.facts.subclass_metas
        formed = with_history(grads, plan.tangents, metas) if STATE.wrappers else grads
        moved = plan.facts.memory and versions_of(self.memory) != self.memory_versions
        if formed is None or moved:
            found = self.gradients(grads)
            why = MOVED if moved else FORM
            forbid_second_order(found, self.sources.values(), grads, why)
            return found
        grads = formed
        pairs = zip(plan.tangents, grads, strict=True)
        arriving = {role: edge_of(g) is not None for (role, _), g in pairs if g is not None}
        orders: Any = plan.derivatives.orders
        step = orders.step(plan, self.absent(grads), arriving)
        if not plan.copied_on_write:
            return step(self, grads)
        with self._lock:
            return step(self, grads)

    def formed(self, index: int, grad: Tensor) -> Any:
        form = None if self.extra is None else self.extra.forms.get(index)
        if form is not None:
            return form(grad)
        return grad if self.plan.wrapped[index] else whole(grad)

    def before_write(self, storage: Storage) -> None:
        copy_before_write(self, storage)

    def _unpacked(self, grads: list[Tensor | None], run: Callable[[list[Any]], object]) -> Any:
        """Calls `run` with the saved values that hooks unpack or an earlier backward has left.
        Raises AutogradError where there are none: they are released."""
        packed, left = getattr(self, "_packed", None), getattr(self, "_left", None)
        absent, closed = self.absent(grads), getattr(self, "_closed", NOTHING_ABSENT)
        if packed is None and left is None or closed - absent:
            raise released(self.name())
        if packed is not None and self.plan.asks_without(absent):
            packed.check_region()
        self.saved = left if packed is None else packed.unpack()
        try:
            return run(grads)
        finally:
            self.saved = None

    def absent(self, grads: Sequence[Tensor | None]) -> Absent:
        """The results without a gradient."""
        pairs = zip(self.plan.tangents, grads, strict=True)
        return frozenset([role for (role, _), each in pairs if each is None])

    def check(self, absent: Absent) -> None:
        """Raises what eager's backward raises for the gradients that arrive (SAV-2)."""
        plan = self.plan
        for role, error in plan.facts.errors.items():
            if role not in absent:
                raise self._of_this_call(role, error)
        packed = getattr(self, "_packed", None)
        read = plan.read(absent)
        saved = zip(plan.saved_tensors, read, self.saved_versions, strict=True)
        for each, is_read, (storage, version) in saved:
            if packed is not None and not packed.is_written(storage, version):
                continue
            if storage.version != version and is_read:
                raise noted(
                    AutogradError(
                        f"{self.name()}: a saved tensor {each.meta} ({each.owner}) is at version "
                        f"{storage.version}, expected version {version}: it was modified in place"
                    ),
                    "Its values at the time of the forward are needed for the gradient. Write to a "
                    "clone(), or after the backward. (SAV-2)",
                )

    def _of_this_call(self, role: Result, error: Exception) -> Exception:
        """The error of a result, with the versions that this call's storages have (SAV-2)."""
        made = copied_error(error)
        inside = self.plan.facts.written_inside.get(role)
        owners = [each.owner for each in self.plan.saved_tensors]
        if inside is not None and inside.owner in owners and self.saved_versions:
            storage, end = self.saved_versions[owners.index(inside.owner)]
            texts = [inside.at(x, storage.version, end) if type(x) is str else x for x in made.args]
            made.args = tuple(texts)
        return made

    def release(self) -> None:
        if not self.plan.write_observed:
            self._let_go()
            return
        with self._lock:  # another thread may be copying saved values
            self._let_go()
            if getattr(self, "_left", None) is None:
                self.copies = {}

    def _let_go(self) -> None:
        if self.plan.may_reopen and self._stays_open():
            return
        self.saved = self._packed = None
        self.saved_versions = self.observed_storages = ()
        if self.plan.may_reopen:
            self._left = None  # type: ignore[assignment]

    def _stays_open(self) -> bool:
        """Frees what no later backward reads. False if no backward can follow (SAV-1)."""
        plan = self.plan
        before = getattr(self, "_closed", NOTHING_ABSENT)
        all_of_them = frozenset([role for role, _ in plan.tangents])
        closed = self._closed = before | plan.closed(getattr(self, "_arrived", all_of_them))
        if closed >= all_of_them:
            return False
        if getattr(self, "_packed", None) is None:
            values = self._left if self.saved is None else self.saved
            self._left = plan.left(values, closed)
        self.saved = None
        pairs = zip(plan.read(closed), self.saved_versions, strict=True)
        self.saved_versions = [pair if is_read else UNREAD for is_read, pair in pairs]
        return True
