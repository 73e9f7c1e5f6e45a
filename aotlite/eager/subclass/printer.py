"""The `repr` of tensors: plain, captured and wrapper ones."""

from __future__ import annotations

from aotlite.eager.base.devices import shown
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, inner_tensors
from aotlite.ir.errors import AutogradError


def text_of(tensor: Tensor) -> str:
    """The text of a tensor: elements, dtype if it is not a default one, and history."""
    if tensor.__tensor_dispatch__ is not None:
        return _wrapper_text(tensor)
    if tensor.storage.buffer is None:
        gone = "freed" if tensor.storage.is_freed else "erased"
        return f"Tensor({tensor.meta}, {gone if tensor.storage.capture is None else 'captured'})"
    array = tensor._data
    text = shown(array, tensor.device)
    more = "" if tensor.dtype.name in ("float32", "int64", "bool") else f", dtype={tensor.dtype}"
    more += history_shown(tensor)
    return f"tensor({text}{more})"


def history_shown(tensor: Tensor) -> str:
    """The part of the text about the tensor's history; empty if it has none."""
    try:
        tensor.gradient_edge()
    except AutogradError:  # a part of a base that was written (TEN-19)
        return ", grad_fn=<invalid>"
    if tensor._node is not None:
        return f", grad_fn=<{tensor._node.name()}>"
    return ", requires_grad=True" if tensor.requires_grad_outside() else ""


def _wrapper_text(wrapper: Tensor) -> str:
    """The text of a wrapper: its class, outer geometry, and parts."""
    parts = [f"{name}={inner!r}" for name, inner in inner_tensors(wrapper).items()]
    spec = flatten(wrapper)[1]
    parts += [] if spec is None else [f"spec={spec!r}"]
    return f"{type(wrapper).__name__}({wrapper.meta}, {', '.join(parts)}{history_shown(wrapper)})"
