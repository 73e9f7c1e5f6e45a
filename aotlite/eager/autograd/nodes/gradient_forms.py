"""What tape nodes note of wrappers: the form that gradients of a result have (SHD-15, SUB-24).

A form is kept where a tensor is given its history: by an op, a view, a write, a user's function, or
a compiled call. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper


def keep_form(tensor: Tensor) -> None:
    """Notes at a wrapper's tape node in which form its gradients are (SHD-15)."""
    if tensor._node is not None and tensor.__tensor_dispatch__ is not None:
        keep_form_at(tensor._node, tensor._index, tensor)


def keep_form_at(node: TapeNode, index: int, tensor: Tensor) -> None:
    """Notes in which form gradients of a node's result are, if that is a wrapper (SHD-15)."""
    form = gradient_form(tensor) if is_wrapper(tensor) else None
    if form is not None:
        node.attachments().forms[index] = form


def keep_any_form(node: TapeNode, of: Tensor) -> None:
    """Notes that gradients stay as they come, where `of` is a wrapper: of a view that nobody holds,
    nothing else is known (SHD-15)."""
    if of.__tensor_dispatch__ is not None:
        node.attachments().forms[0] = _as_it_is


def _as_it_is(grad: Any) -> Any:
    return grad
