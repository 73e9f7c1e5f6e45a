"""`OwnHistory`: the history of tensors that share memory with tensors of another history.

    y = x.detach(); y.mul_(w)        `y` has the history of that write, and `x` keeps its own
    f(a, b), which overlap           each has its history, and both show the same bytes

The memory has the bytes, without any history. A history has the last value that it was known for;
where the bytes have changed since, the value that a reader gets is `keep_history(value, bytes)`.
Rules: FNT-4, FNT-6. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.memory import TensorAlias, WrittenMemory
from aotlite.ir.meta import TensorMeta


@attrs.define(eq=False, repr=False)
class OwnHistory:
    """The history of one tensor on a memory, and of the views that were taken of it."""

    chain: ViewChain
    """The views from the root of the memory to the tensor."""
    start: int
    meta: TensorMeta
    """The geometry of the tensor when it got this history."""
    value: Tensor | None
    """A value with this history; None where no value was of this tensor yet."""
    version: int
    """The version of the memory whose bytes the value has; -1 for none."""
    handle: Tensor | None = None
    """The tensor outside that has this history; None if the function made it."""
    owner: TensorAlias | None = None
    """The tensor of the function that has it, if there is no handle."""
    written: tuple[int, int] | None = None
    """The time of the last write with a history, and the version of its storage after it."""
    turned: ViewChain = EMPTY_CHAIN
    """The views from that geometry to the one that the owner had at that write."""
    leaf: Tensor | None = None
    """The leaf outside, where the function made one of a view (FNT-8)."""
    yields: bool = False
    """Whether it is of a view whose base requires no grad: once a write gave the base a history,
    the view has that, unless it is a leaf (TEN-23)."""
    seen: dict[ViewChain, Tensor] = attrs.field(factory=dict)

    def now(self, memory: WrittenMemory) -> Tensor:
        """The value with this history and the present bytes."""
        value = self.value
        assert value is not None
        if self.version != memory.version:
            past, value = value, self.bytes_of(memory)
            if past.requires_grad_outside():
                value = memory.outside.with_past(past, value)
            self.value, self.version, self.seen = value, memory.version, {}
        return value

    def bytes_of(self, memory: WrittenMemory) -> Tensor:
        """The present bytes, without a history, in eager's order of elements."""
        found = memory.read(self.chain, history=False)
        if found.requires_grad_outside():
            found = memory.outside.detached(found)
        return memory.outside.in_layout(found, self.meta)

    def read(self, memory: WrittenMemory, inner: ViewChain) -> Tensor:
        """The present value of a view of the tensor, with its history."""
        value = self.now(memory)
        waiting: list[Any] = []
        at = inner
        while at and at not in self.seen:
            waiting.append(at[-1])
            at = at.before
        value = self.seen[at] if at else value
        for step in reversed(waiting):
            value = memory.outside.shown(step, value)
        if inner:
            self.seen[inner] = value
        return value

    def write(self, memory: WrittenMemory, inner: ViewChain, value: Tensor) -> Tensor:
        """The value of the tensor, where a view of it has a new value with a history."""
        if inner:
            root = self.bytes_of(memory) if self.value is None else self.now(memory)
            value = memory.outside.put_into(self.meta, root, inner, value)
        return value


def own_history_of(memory: WrittenMemory) -> None:
    """Gives all tensors on a memory, which share its history, a history of their own."""
    mine = [alias for alias in list(memory.tensors.aliases) if alias.history is None]
    memory.fold()
    value = memory.value if memory.past is None else memory.past
    made = OwnHistory(
        EMPTY_CHAIN,
        0,
        memory.meta,
        value,
        memory.version if memory.past is None else -1,
        memory.handle,
        memory.tensors.root,
        memory.written if memory.has_new_history else None,
    )
    memory.tensors.histories.append(made)
    for alias in mine:
        alias.history, alias.inner, alias.inner_start = made, alias.chain, alias.start
    if memory.value.requires_grad_outside():
        memory.value = memory.outside.detached(memory.value)
    memory.past, memory.seen, memory.last, memory.has_new_history = None, {}, None, False
