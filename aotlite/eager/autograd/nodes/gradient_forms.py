"""Gradient forms: the class and layout of gradients of a wrapper subclass (SHD-15, SUB-24).

The form is recorded at the tape node whenever a wrapper gets its history: by an op, a view, a
write, a `Function`, or a compiled call. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper


def keep_form(tensor: Tensor) -> None:
    """Records the form of a wrapper's gradients at its tape node (SHD-15)."""
    if tensor._node is not None and tensor.__tensor_dispatch__ is not None:
        keep_form_at(tensor._node, tensor._index, tensor)


def keep_form_at(node: TapeNode, index: int, tensor: Tensor) -> None:
    """Records the form of the gradients of a node's result, if that is a wrapper (SHD-15)."""
    form = gradient_form(tensor) if is_wrapper(tensor) else None
    if form is not None:
        node.attachments().forms[index] = form


def keep_any_form(node: TapeNode, of: Tensor) -> None:
    """Records that gradients keep any form, where `of` is a wrapper: the form of an intermediate
    view that nobody holds is unknown (SHD-15)."""
    if of.__tensor_dispatch__ is not None:
        node.attachments().forms[0] = _as_it_is


def _as_it_is(grad: Tensor) -> Tensor:
    return grad
