"""Changes of tensors that are no ops, and hooks, in a stacked mode.

`requires_grad_` and `detach_` change the tensor outside at once, as in eager; `set_` and `resize_`
are replayed when the function has returned. Rules: FNT-8, FNT-11.
Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.func.mode_protocol import OuterMode
from aotlite.ir.meta import TensorMeta


class StateChanges:
    """Tells the mode of changes of autograd state and memory, and refuses hooks."""

    def __init__(self, recorder: OuterMode) -> None:
        self._recorder = recorder

    # --- changes
    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """The tensor becomes, or ceases to be, a leaf that requires grad."""
        return tensor._base is not None

    def detached(self, tensor: Tensor) -> bool:
        """The tensor is detached in place."""
        given = self._recorder.given.get(id(tensor))
        return tensor._base is not None or given is not None and given._base is not None

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """`set_`. Raises UnsupportedError unless a mode can do it."""
        raise self._recorder.refuse(
            "set_", "use functionalize inside, or compute with the source itself"
        )

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """`resize_`. Raises UnsupportedError unless a mode can do it."""
        raise self._recorder.refuse("resize_", "make a tensor of the new size")

    # --- hooks
    def placed(self, kind: str, tensor: Tensor, edge: object, handle: Any) -> None:
        """A hook was registered on a tensor: tensors outside have histories of their own."""
        handle.hooks.pop(handle.id, None)
        raise self._recorder.refuse("a hook of a tensor", "register it on a result, outside")

    def retained(self, tensor: Tensor) -> None:
        """The tensor retains its gradient."""
        raise self._recorder.refuse("retain_grad", "call it on a result, outside")

    def removing(self, handle: object) -> None:
        """A hook of the function's own is removed."""

    def call(self, hook: Callable[..., Any], grad: Any) -> Any:
        """Calls a hook in a backward inside."""
        return hook(grad)

    def call_of_node(self, hook: Callable[..., Any], *grads: Any) -> Any:
        """Calls a hook of a tape node in a backward inside."""
        return hook(*grads)
