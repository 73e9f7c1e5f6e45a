"""The values of memory that a functionalized program writes: each is a tensor outside.

Note [memory and aliases]
    y = x.view(6)[2:]; y.add_(1); z = x * 2
`x` and `y` are aliases of one memory. The write computes `add(y)` outside, and leaves it pending,
with the view chain of `y`. The read of `x` scatters it into the value of the root, and replays the
chain of `x` on that. This is the model of stage 6, with tensors where it has nodes, since nobody
knows beforehand which memory will be written: Note [Group and alias] in `s6_functionalize`.

The value of a root may lack the history that eager gives it: a write under no_grad, or through
`detach()`, leaves the history of what it writes as it was. `past` has that history then.
Rules: FNT-3 to FNT-6. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import attrs

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.kept_history import keep_history
from aotlite.ir.geometry import layout
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.views.view_ops import ALIAS, AS_STRIDED, DETACH, HIDDEN_ALIAS, VIEW

SAME = (ALIAS, DETACH, HIDDEN_ALIAS)
"""Views whose values are those of the operand."""

CLOCK = itertools.count(1)
"""Counts views and writes, so that it is known which came first."""

Emit = Callable[..., Any]
"""`emit(op, args, grad_mode)`: the result of an op outside."""


@attrs.define(eq=False, repr=False, slots=True, weakref_slot=True)
class TensorAlias:
    """A tensor object of the function: its memory, and its view chain from the root."""

    memory: WrittenMemory
    chain: ViewChain
    start: int
    """In elements of its own dtype, from the root's first element."""
    meta: TensorMeta
    made: Any = None
    """The view call that made it (`ViewResult`); None for a root, and a tensor from outside."""
    history: Any = None
    """Its `OwnHistory`; None where its history is that of the memory."""
    inner: ViewChain | None = EMPTY_CHAIN
    """The views from the tensor of that history to it; None for a window that leaves it."""
    inner_start: int = 0
    since: int = attrs.field(factory=CLOCK.__next__)
    """When it was made."""
    is_dead: bool = False
    """Whether it was taken under no_grad, or from a view that was: its gradient goes nowhere."""


@attrs.define(eq=False, repr=False)
class MemoryTensors:
    """The tensors of a memory, and their histories."""

    aliases: WeakSet[TensorAlias] = attrs.field(factory=WeakSet)
    root: TensorAlias | None = None
    """The tensor of the function that has all of this memory, which the function made."""
    histories: list[Any] = attrs.field(factory=list)
    """The histories (`OwnHistory`) of tensors that have not the memory's."""
    last_write: int = 0
    """When one of them was written last."""
    is_shared: bool = False
    """Whether tensors from outside show this memory whose histories are related unseen."""


@attrs.define(eq=False, repr=False)
class WrittenMemory:
    """The memory of one storage, or of a part of it that tensors from outside show."""

    outside: OutsideValues
    meta: TensorMeta
    """The root's geometry in eager."""
    value: Tensor
    handle: Tensor | None = None
    """The tensor outside on this memory, of the root's geometry; None if the function made it."""
    start: int = 0
    """The handle's first element in its storage."""
    version: int = 0
    past: Tensor | None = None
    """The value whose history the root has; None if that is the value's own."""
    pending: list[tuple[ViewChain, Tensor, bool]] = attrs.field(factory=list)
    """(chain, value, whether its history becomes part of the root's) of each write."""
    last: tuple[ViewChain, Tensor] | None = None
    seen: dict[ViewChain, Tensor] = attrs.field(factory=dict)
    """The values of view chains at the present version."""
    has_new_history: bool = False
    """Whether a write changed the root's history."""
    is_grown: bool = False
    """Whether `resize_` made it longer than the memory outside, which grows at the end."""
    tensors: MemoryTensors = attrs.field(factory=MemoryTensors)
    written: tuple[int, int] = (0, 0)
    """The time of the last write, if any has a history of the last of these, and the version of its
    storage after it."""

    # --- reads
    def read(self, chain: ViewChain, *, history: bool) -> Tensor:
        """The value of a chain of views; with the history that eager gives it, if asked for."""
        if self.last is not None and self.last[0] is chain and (self.past is None or not history):
            return self.last[1]
        self.fold()
        if history and self.past is not None:
            self.value, self.past = self.outside.with_past(self.past, self.value), None
            self.seen, self.last = {}, None
        waiting: list[ViewStep] = []
        at = chain
        while at and at not in self.seen:
            waiting.append(at[-1])
            at = at.before
        value = self.seen[at] if at else self.value
        for step in reversed(waiting):
            value = self.outside.shown(step, value)
        if chain:
            self.seen[chain] = value
        return value

    def fold(self) -> None:
        """Puts the pending writes into the value of the root."""
        pending, self.pending = self.pending, []
        for chain, value, has_history in pending:
            if has_history and self.past is not None:
                self.value, self.past = self.outside.with_past(self.past, self.value), None
                self.seen = {}
            root = self.value
            if not has_history and root.requires_grad_outside():
                self.past = root if self.past is None else self.past
                root = self.outside.detached(root)
                self.seen = {}
            self.value = self.outside.put(self, root, chain, value)
            self.seen = {}

    # --- writes
    def write(self, chain: ViewChain, value: Tensor, *, history: bool) -> None:
        """The memory that this chain shows has a new value from now on."""
        self.has_new_history = self.has_new_history or history
        self.tensors.last_write = next(CLOCK)
        whole = not any(step.op not in SAME for step in reversed(chain))
        if whole and not history:
            self.fold()
            if self.past is None and self.value.requires_grad_outside():
                self.past = self.value
        if whole:
            self.value, self.pending = value, []
            self.past = None if history else self.past
        else:
            if self.pending and self.pending[-1][0] is chain and self.pending[-1][2] == history:
                self.pending.pop()
            self.pending.append((chain, value, history))
        self.version += 1
        is_plain = history or self.past is None and not self.value.requires_grad_outside()
        self.last = (chain, value) if is_plain else None
        self.seen = {}

    def moved_to(self, other: WrittenMemory, prefix: ViewChain, start: int) -> None:
        """All aliases become aliases of another memory, on which this one has a chain."""
        for alias in list(self.tensors.aliases):
            alias.memory, alias.start = other, alias.start + start
            alias.chain = prefix.joined(alias.chain.steps)
            other.tensors.aliases.add(alias)
        for history in self.tensors.histories:
            history.chain = prefix.joined(history.chain.steps)
            history.start += start
        other.tensors.histories += self.tensors.histories
        other.tensors.last_write = max(other.tensors.last_write, self.tensors.last_write)
        self.tensors.aliases, self.tensors.histories = WeakSet(), []


class OutsideValues:
    """The ops by which values are read and written, on tensors outside."""

    def __init__(self, emit: Emit, composed: Emit, *, copies_views: bool) -> None:
        self._emit = emit
        self._composed = composed
        self._copies_views = copies_views

    def emit(self, op: Op, *args: object, grad_mode: bool = True) -> Any:
        """The result of an op outside: what is read belongs to no grad mode of the reader."""
        return self._emit(op, args, grad_mode)

    def with_past(self, past: Tensor, value: Tensor) -> Tensor:
        """The value with the history of another one."""
        made: Tensor = self._composed(keep_history, past, value)
        return made

    def detached(self, value: Tensor) -> Tensor:
        made: Tensor = self.emit(DETACH, value)
        return made

    def shown(self, step: ViewStep, value: Tensor) -> Tensor:
        """A view of a value; a copy of it, where views are removed."""
        if step.op in SAME:
            return value
        own = value.meta
        if step.op is AS_STRIDED or step.op.recasts:
            value = self.exact(value, step.operand)
        elif step.op is VIEW and not layout.view_strides(own.shape, own.stride, step.result.shape):
            value = self.exact(value, step.operand)
        found: Tensor = self.emit(step.op, value, *step.args)
        return self.emit(CLONE, found) if self._copies_views else found

    def put(self, memory: WrittenMemory, root: Tensor, chain: ViewChain, value: Tensor) -> Tensor:
        """The root's value with this value where the chain shows it."""
        return self.put_into(memory.meta, root, chain, value)

    def put_into(
        self, geometry: TensorMeta, root: Tensor, chain: ViewChain, value: Tensor
    ) -> Tensor:
        """A value of this geometry with another value where the chain shows it."""
        steps = [step for step in chain if step.op not in SAME]
        parents = [root]
        for step in steps[:-1]:
            parents.append(self.shown(step, parents[-1]))
        for step, parent in zip(reversed(steps), reversed(parents), strict=True):
            if step.op is AS_STRIDED:
                parent = self.exact(parent, step.operand)
            value = self._composed(step.op.put, parent, value, *step.args)
            if step.op.recasts:
                value = self.in_layout(value, parent.meta)
        return self.in_layout(value, geometry)

    def exact(self, value: Tensor, eager: TensorMeta) -> Tensor:
        """The value in exactly these strides."""
        if value.meta.stride == eager.stride:
            return value
        made: Tensor = self.emit(RESTRIDE, value, eager.stride)
        return made

    def in_layout(self, value: Tensor, eager: TensorMeta) -> Tensor:
        """The value with its dimensions in eager's order: bits of sums depend on it (FUN-12)."""
        meta = value.meta
        if layout.lies_like(meta.shape, meta.stride, eager.stride):
            return value
        made: Tensor = self.emit(RESTRIDE, value, layout.packed_like(eager.shape, eager.stride))
        return made


__all__ = ["EMPTY_CHAIN", "SAME", "OutsideValues", "TensorAlias", "WrittenMemory"]
