"""Which tensors that are no leaves keep their gradient in `.grad`. Rule: TEN-40.

A tape node notes them by the number of its result. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import weakref
from typing import Any

from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.op.operand import Operand


def is_watched(tensor: Tensor) -> bool:
    """Whether hooks on the tensor see the gradient that arrives at it, or it is retained."""
    node, index = tensor._node, tensor._index
    if node is None and tensor._leaf:
        node = tensor._accumulator
    extra = None if node is None else node.extra
    return extra is not None and (bool(extra.tensors.get(index)) or index in extra.retained)


def _retaining(tensor: Tensor, node: Any, index: int) -> dict[int, weakref.ref[Operand]] | None:
    """Where it is noted that the tensor keeps the gradient that arrives at this result."""
    extra = None if node is None else node.extra
    if extra is None:
        return None
    places = [each for each in (extra.retained, extra.kept) if index in each]
    return next((each for each in places if each[index]() is tensor), None)


def retains(tensor: Tensor, node: Any, index: int) -> bool:
    """Whether the tensor keeps the gradient that arrives at this result."""
    return _retaining(tensor, node, index) is not None


def retain_at(tensor: Tensor, node: Any, index: int, *, inside: bool = False) -> None:
    """From now on the tensor keeps the gradient that arrives at this result.

    With `inside`, the node says what it is.
    """
    HookChanges.count += 1
    if not retains(tensor, node, index):
        extra = node.attachments()
        (extra.kept if inside else extra.retained)[index] = weakref.ref(tensor)


def move_retained(tensor: Tensor, before: tuple[Any, int], after: tuple[Any, int]) -> None:
    """Lets a tensor whose history changed keep the gradient of its new value (TEN-40)."""
    place = _retaining(tensor, *before)
    if place is not None:
        del place[before[1]]
        retain_at(tensor, *after)
