"""Functions that generated code calls for side effects: copies, geometries, rebuilt views.

Used by stage 10 alone; the arguments are constants of the entry.
Rules: RT-2..RT-8, TEN-24. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

import attrs

from aotlite.backends.calling_convention import array_of
from aotlite.eager.autograd.differentiable_views import (
    accumulator,
    dead_end,
    edge_of,
    follow_base,
    root_of,
    view_node,
)
from aotlite.eager.autograd.inplace_writes import become, change_geometry, rebase
from aotlite.eager.autograd.nodes.gradient_forms import keep_form
from aotlite.eager.autograd.nodes.op_nodes import OpCall, OpNode
from aotlite.eager.autograd.nodes.retained_grads import retain_at
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.new_tensors import tensor_on
from aotlite.eager.base.tape.hooks import RemovableHandle
from aotlite.eager.base.tape.node import Edge, TapeNode, next_sequence
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, PartStep, ViewChain, ViewStep
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED, DETACH
from aotlite.stages.records.call_effects import HookPlace, RegisteredHook
from aotlite.stages.records.metadata.function_facts import Alias, OutputMeta, ViewFacts

Detached = dict[object, Tensor]
"""The detached aliases made so far, by their `detach` step: views of one alias are one family. And
the results of multi-output views, by view and place: they share a tape node."""


def read_only(place: str) -> Exception:
    """The error for a mutated input in read-only memory."""
    return noted(
        ArgumentError(
            f"runtime: {place} is read-only memory and the function writes it, expected "
            "writable memory"
        ),
        "Pass a copy of the array.",
    )


def arrays_of(tensors: Iterable[Tensor]) -> list[object]:
    """The tensors' arrays."""
    return [t._data if t._array is None else t._array for t in tensors]


def change_geometry_of(target: Tensor, steps: Iterable[ViewStep]) -> None:
    """Gives the caller's tensor its geometry after the function (RT-3)."""
    for step in steps:
        root_of(target)
        operand = _Meta(target.meta)
        target.offset += step.op.start((operand, *step.args))
        target.meta = step.result
        target.facts = None
        target._array = None
        change_geometry(target, step)


class _Meta:
    __slots__ = ("meta",)

    def __init__(self, meta: TensorMeta) -> None:
        self.meta = meta


def register(hook: RegisteredHook, function: Any, tensor: Tensor, entry: Edge | None) -> None:
    """Registers a hook of the function on a tensor of this call (HOOK-1)."""
    if hook.place is HookPlace.LEAF:
        node, index = accumulator(tensor), 0
    else:
        found = edge_of(tensor) if entry is None else entry
        if found is None:
            return  # as for a view that eager takes under no_grad: it gets no gradient
        node, index = found
    if hook.kind == "retained":
        retain_at(tensor, node, index, inside=hook.place is HookPlace.INSIDE)
        return
    tensors = node.attachments().tensors
    at = node.collected if hook.kind == "accumulated" else tensors.setdefault(index, {})
    RemovableHandle.of(at, function)


class Handed(TapeNode):
    """Passes the gradient of written bytes to a result of a compiled call, if there is one."""

    __slots__ = ()

    def __init__(self, node: TapeNode | None, index: int) -> None:
        self.edges = () if node is None else ((node, index),)
        self.sequence = next_sequence()
        self.origin = self.extra = None

    def name(self) -> str:
        return "CopyBackward"

    def run(self, grads: Sequence[Tensor | None]) -> Sequence[Any]:
        return grads if self.edges else ()


def take_history(target: Tensor, node: TapeNode | None, index: int, *, whole: bool = False) -> None:
    """Sends gradients of the written bytes to result `index` of a compiled call's node (RT-2).

    `whole`: that result is the new value of the tensor's whole base (SYN-7). `node` is None if the
    new value depends on nothing that requires grad.
    """
    if node is None:
        node, index = Handed(None, 0), 0
    root = target._root
    if root is None or not (whole or target._chain):
        rebase(target, node, index, None, None)
    elif whole and target._leaf:  # a leaf on memory of a base, written by a view of it, stays one
        root.node, root.index, root.leaf = node, index, False
        target.facts = None
    elif whole:
        become(root, target, node, index)
    else:
        rebase(target, Handed(node, index), 0, root.edge(), None)


def write_window(target: Tensor, window: tuple[object, int], meta: TensorMeta) -> None:
    """Copies the bytes of a window into the target; none if it is the target's memory (RT-4)."""
    buffer, start = window
    if buffer is not target.storage.buffer or start != target.offset:
        meta.device.arrays.copy(target._data, array_of(window, meta))


def write_seen(target: Tensor, value: object, meta: TensorMeta, first: int) -> None:
    """Copies the bytes of all memory of a tensor that the function uses (RT-4, FUN-11).

    `value` is an array or a window; it starts `first` elements from the tensor's first one.
    """
    place = target.storage.buffer, target.offset + first
    meta.device.arrays.copy(array_of(place, meta), array_of(value, meta))


def is_simple(view: ViewFacts) -> bool:
    """Whether `plain_view` or `linked_view` can rebuild a view: its steps are relative to its
    source, and no write came between them.
    """
    if view.requires_grad and view.under_grad and any(type(s) is PartStep for s in view.chain):
        return False  # results of one multi-output view share a tape node
    return not (_is_special(view) or any(map(_stands_apart, view.chain)))


def is_detached(view: ViewFacts) -> bool:
    """Whether `detached_view` can rebuild a view: simple views, and then `detach`."""
    *steps, last = view.chain or (None,)
    if last is None or last.op is not DETACH or view.version is not None:
        return False
    return not (_is_special(view) or any(map(_stands_apart, steps)))


def _is_special(view: ViewFacts) -> bool:
    lagging = view.stale or view.is_dead_end or view.follows_base
    return view.own_history or view.is_leaf or lagging


def _stands_apart(step: ViewStep) -> bool:
    """Whether the step starts a view family, is absolute, or changes the dtype."""
    op = step.op
    return op.cuts_history or op is AS_STRIDED or op.recasts


@attrs.frozen(eq=False, repr=False)
class QuickView:
    """Facts of a view that are known before the call: its steps, its meta, and its start."""

    chain: ViewChain
    steps: tuple[ViewStep, ...]
    meta: TensorMeta
    start: int
    """Elements from the source's first one."""
    kind: CreationKind | None
    nodes: tuple[TapeNodeParts, ...]
    """The constant parts of the tape nodes of its steps; empty without nodes."""

    @classmethod
    def of(cls, view: ViewFacts) -> QuickView:
        """The facts of a simple view."""
        steps = view.chain.steps
        start = sum([step.op.result_for((step.operand, *step.args))[1] for step in steps])
        kind = None if view.kind is CreationKind.LEAF_VIEW else view.kind
        linked = view.requires_grad and view.under_grad
        nodes = tuple([_node_parts(view_node(step, _NOWHERE)) for step in steps if linked])
        return cls(view.chain, steps, steps[-1].result, start, kind, nodes)


TapeNodeParts = tuple[OpCall, Any]
_NOWHERE: Any = (None, 0)


def _node_parts(node: OpNode) -> TapeNodeParts:
    return node.call, node.kept


def plain_view(source: Tensor, how: QuickView) -> Tensor:
    """RT-6: the view of a source without history, or one taken under no_grad: no tape node."""
    storage = source.storage
    out = tensor_on(storage, how.meta, source.offset + how.start)
    out._root = source._root or root_of(source)
    out._base = source if source._base is None else source._base
    before = source._chain
    out._chain = how.chain if before is EMPTY_CHAIN else before.joined(how.steps)
    out._seen = storage.version
    out._kind = how.kind or source._kind
    return out


def linked_view(source: Tensor, how: QuickView) -> Tensor:
    """RT-6: `plain_view` of a source that requires grad, with the tape nodes of its steps."""
    edge = edge_of(source)
    out = plain_view(source, how)
    for call, kept in how.nodes:
        out._node = OpNode(call, kept, (edge,))
        edge = out._node, 0
    return out


def detached_view(source: Tensor, how: QuickView) -> Tensor:
    """RT-6: what `detach` gave, and a view of an inference tensor, which have no base."""
    return tensor_on(source.storage, how.meta, source.offset + how.start)


def rebuilt(source: Tensor, view: ViewFacts, detached: Detached) -> Tensor:
    """RT-6: the view of `source` that eager's result is."""
    kind = view.kind
    mode = STATE.grad_mode
    try:
        # A stale view may be viewed, but its history may not be asked for.
        STATE.grad_mode = None if mode is None else False
        past = _last_detach(view.chain)
        origin = _replayed(source, view.chain[:past], detached)
        as_usual = not (view.is_dead_end or view.stale or view.own_history)
        # A view of what no_grad showed of a leaf on a base that requires none has no history.
        if mode is not None:
            STATE.grad_mode = view.under_grad and view.requires_grad and as_usual
        out = _replayed(origin, view.chain[past:], detached)
    finally:
        STATE.grad_mode = mode
    if out._root is not None:  # the mode of the replay says nothing of the kind
        out._kind = origin._kind if kind in (None, CreationKind.LEAF_VIEW) else kind
    if kind is not None and kind is not CreationKind.LEAF_VIEW and out._root is not None:
        if view.is_dead_end or view.keeps_node:
            out._node, out._index = dead_end(view.chain[-1])
        if view.stale:
            out._seen = -1
    if view.follows_base and not (view.stale or view.is_leaf):
        follow_base(out)
    return out


def with_own_history(view: Tensor, node: TapeNode, index: int, kind: CreationKind | None) -> Tensor:
    """META-8: a rebuilt view whose gradient goes to result `index` of the compiled backward."""
    if view._root is not None and view._base is None and not view._chain:
        become(view._root, view, node, index)  # what detach() gave: its views follow it
    view._node, view._index, view.facts = node, index, None
    view._kind = None if kind is CreationKind.LEAF_VIEW else kind
    view._seen = view.storage.version
    keep_form(view)
    return view


def rebuilt_after(result: tuple[int, OutputMeta]) -> float:
    """The order of rebuilding: leaves first, those that are views of leaves after them."""
    output = result[1]
    if isinstance(output, Alias) and output.view.is_leaf:
        return len(output.view.chain.steps)
    return inf


def as_leaf(view: Tensor) -> Tensor:
    """A rebuilt view that the function has made a leaf which requires grad (TEN-23)."""
    view._leaf, view.facts = True, None
    return view


def _last_detach(chain: ViewChain) -> int:
    """The number of steps up to the last detach: histories before it do not matter."""
    return max([i + 1 for i, step in enumerate(chain) if step.op.cuts_history], default=0)


def _replayed(source: Tensor, chain: Iterable[ViewStep], detached: Detached) -> Tensor:
    """`source` seen through the chain."""
    out = source
    for step in chain:
        if type(step) is PartStep:
            out = _part(out, step, detached)
        elif not step.op.cuts_history:
            out = out._apply(step.op, (out, *step.args))
        elif id(step) in detached:
            out = detached[id(step)]
        else:
            out = detached[id(step)] = out._apply(step.op, (out, *step.args))
    return out


def _part(source: Tensor, step: PartStep, made: Detached) -> Tensor:
    """One result of a multi-output view of `source`, whose tape node is that of the others."""
    base = source if source._base is None else source._base  # set_ may put two on one memory
    whole = id(step.parts), STATE.grad_mode, id(base)
    if (whole, step.index) not in made:
        results = source._apply(step.parts.op, (source, *step.parts.args))
        made.update({(whole, index): result for index, result in enumerate(results)})
        made[whole, -1] = base  # it lives as long as its id is a key
    return made[whole, step.index]
