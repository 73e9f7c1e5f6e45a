"""`retain_grad`: non-leaf tensors that keep their gradient in `.grad`. Rule: TEN-40.

Their tape nodes record them, by the number of the result. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import weakref
from typing import Any

from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.op.operand import Operand


def is_watched(tensor: Tensor) -> bool:
    """Whether the tensor has hooks on its gradient, or retains it."""
    node, index = tensor._node, tensor._index
    if node is None and tensor._leaf:
        node = tensor._accumulator
    extra = None if node is None else node.extra
    return extra is not None and (bool(extra.tensors.get(index)) or index in extra.retained)


def _retaining(tensor: Tensor, node: Any, index: int) -> dict[int, weakref.ref[Operand]] | None:
    """The node's dict that records the tensor as retaining the gradient of this result, if any."""
    extra = None if node is None else node.extra
    if extra is None:
        return None
    places = [each for each in (extra.retained, extra.kept) if index in each]
    return next((each for each in places if each[index]() is tensor), None)


def retains(tensor: Tensor, node: object, index: int) -> bool:
    """Whether the tensor retains the gradient of this result."""
    return _retaining(tensor, node, index) is not None


def retain_at(tensor: Tensor, node: Any, index: int, *, inside: bool = False) -> None:
    """Makes the tensor retain the gradient of this result.

    With `inside`, the node itself provides the gradient (HOOK-4).
    """
    HookChanges.count += 1
    if not retains(tensor, node, index):
        extra = node.attachments()
        (extra.kept if inside else extra.retained)[index] = weakref.ref(tensor)


def move_retained(tensor: Tensor, before: tuple[object, int], after: tuple[object, int]) -> None:
    """Moves a retained gradient to the new history of a tensor (TEN-40)."""
    place = _retaining(tensor, *before)
    if place is not None:
        del place[before[1]]
        retain_at(tensor, *after)
