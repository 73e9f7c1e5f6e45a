"""`Differentiable`: what tensors show of their history, and the hooks that can be put on it.

The part of `Tensor` that is about gradients. Rules: TEN-14, TEN-23, TEN-39 to TEN-41.
Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage, no_data
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError, noted
from aotlite.ir.op import check_device
from aotlite.ir.operand import Operand

if TYPE_CHECKING:
    from aotlite.eager.autograd.history import CreationKind, Root
    from aotlite.eager.autograd.hooks import RemovableHandle
    from aotlite.eager.autograd.node import TapeNode
    from aotlite.eager.tensor import Tensor


class Differentiable(Operand):
    """An operand with a place in a history."""

    __slots__ = ()

    if TYPE_CHECKING:
        storage: Storage
        _leaf: bool
        _node: TapeNode | None
        _kind: CreationKind | None
        _root: Root | None
        _base: Tensor | None
        _grad: Tensor | None
        facts: Any

    def requires_grad_outside(self) -> bool:
        """`requires_grad` of this very object, also while a fake stands for it."""
        root = self._root
        return self._leaf or self._node is not None or (root is not None and root.requires_grad)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor (TEN-14)."""
        return _here(self).requires_grad_outside()

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Makes this leaf one that gradients are accumulated in, or no longer (TEN-14).

        Raises DTypeError for integers, AutogradError for turning it off on a non-leaf.
        """
        me = _here(self)
        value = bool(requires_grad)
        if value and not self.dtype.is_differentiable:
            raise DTypeError(
                f"requires_grad_: the dtype is {self.dtype}, expected a floating or complex one"
            )
        if not value and not me.is_leaf:
            raise AutogradError(
                "requires_grad_: the tensor is not a leaf, expected a leaf; use detach()"
            )
        if value and self.is_inference() and STATE.grad_mode is not None:
            raise noted(
                AutogradError(
                    "requires_grad_: the tensor is an inference tensor, expected an ordinary one "
                    "outside of inference_mode"
                ),
                "clone() it outside of inference_mode. (TEN-22)",
            )
        if value != me._leaf and (me._leaf or me._leads_nowhere()):
            from aotlite.eager.autograd.history import follow_leaf

            recorder = STATE.recorder
            alone = recorder is not None and recorder.changes.made_leaf(me, requires_grad=value)
            me._leaf = value
            me.facts = None
            if not alone:
                follow_leaf(me)
        return _tensor(self)

    @property
    def is_leaf(self) -> bool:
        """Whether no tape node made this tensor (TEN-14)."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> TapeNode | None:
        """The tape node whose result this tensor is; None for a leaf.

        Raises AutogradError where the view kind forbids asking (TEN-20).
        """
        from aotlite.eager.autograd.history import edge_of

        me = _here(self)
        edge_of(me)
        return me._node

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated in this leaf, or None."""
        recorder = STATE.recorder
        return self._grad if recorder is None else recorder.grads.read(_tensor(self))

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        recorder = STATE.recorder
        if value is not None and not isinstance(value, Differentiable):
            raise ArgumentError(f"grad: the value is {value!r}, expected a tensor or None")
        if value is self:
            raise ArgumentError("grad: the value is the tensor itself, expected another")
        if value is not None and value.storage.capture is not None and recorder is None:
            raise no_data("grad", value.storage)
        if value is not None and (value.shape != self.shape or value.dtype is not self.dtype):
            raise AutogradError(
                f"grad: the value is {value.meta}, expected the shape and dtype of {self.meta}"
            )
        if value is not None:
            check_device("grad: the value", value.device, self.device)
        if recorder is not None and recorder.is_outside(_tensor(self)):
            recorder.grads.write(_tensor(self), value)
        else:
            self._grad = value  # type: ignore[misc]

    @property
    def base(self) -> Tensor | None:
        """The tensor that this is a differentiable view of, never itself a view (TEN-3)."""
        _forbid_outside(self, "reading the base", "read it before the compiled function")
        return self._base

    @property
    def version(self) -> int:
        """How often the storage was written: one count for views and detached aliases (TEN-10)."""
        _forbid_outside(self, "reading the version", "read it before the compiled function")
        version = self.storage.version
        if type(version) is not int:
            raise AutogradError(
                "version: the tensor is an inference tensor, expected one that counts its writes"
            )
        return version

    _version = version

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Any] | Any = None,
    ) -> None:
        """Adds the gradients of this tensor to the `.grad` of the leaves it came from.

        With `inputs` (tensors), only to theirs, and no more is computed than they need.
        """
        self._backward(gradient, retain_graph, create_graph, inputs)

    def _backward(
        self, gradient: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
    ) -> None:
        raise TypeError("aotlite.eager.autograd.functional says how a backward runs")

    def detach_(self) -> Tensor:
        """Takes the tensor out of its history; it is a leaf that does not require grad then.

        Raises AutogradError for a view, whose history is its base's (TEN-23).
        """
        from aotlite.eager.autograd.history import detach_in_place

        me, recorder = _here(self), STATE.recorder
        detach_in_place(me, is_view=recorder is not None and recorder.changes.detached(me))
        return _tensor(self)

    def is_inference(self) -> bool:
        """Whether the tensor was made in `inference_mode` and has no autograd state (TEN-22)."""
        return type(self.storage.version) is not int

    # --- hooks
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook(grad)` when the gradient of this tensor is known, before it is used.

        A tensor that the hook returns takes the gradient's place. Raises AutogradError for a tensor
        that does not require grad.
        """
        from aotlite.eager.autograd.hooks import RemovableHandle

        edge = self._hookable("register_hook")
        if edge is None:
            return RemovableHandle.of({}, hook)
        node, index = edge
        handle = RemovableHandle.of(node.extras().tensors.setdefault(index, {}), hook)
        if STATE.recorder is not None:
            STATE.recorder.hooks.placed("gradient", _here(self), edge, handle)
        return handle

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook(tensor)` each time a gradient has been added to this leaf's `.grad`."""
        from aotlite.eager.autograd.hooks import RemovableHandle

        what = "register_post_accumulate_grad_hook"
        edge = self._hookable(what)
        if edge is None:
            return RemovableHandle.of({}, hook)
        node = edge[0]
        if not _here(self)._is_tracked_leaf():
            raise AutogradError(f"{what}: the tensor is not a leaf, expected a leaf")
        node.extras()
        handle = RemovableHandle.of(node.collected, hook)
        if STATE.recorder is not None:
            STATE.recorder.hooks.placed("accumulated", _here(self), edge, handle)
        return handle

    def retain_grad(self) -> None:
        """Makes this tensor keep its gradient in `.grad` though it is no leaf (TEN-40)."""
        from aotlite.eager.autograd.hooks import retain_at

        me = _here(self)
        if not me.requires_grad:
            self._hookable("retain_grad")
        if not me._is_tracked_leaf() and not me._leads_nowhere():
            retain_at(me, *self._hookable("retain_grad"))
            if STATE.recorder is not None:
                STATE.recorder.hooks.retained(me)

    def _is_tracked_leaf(self) -> bool:
        """Whether this is a leaf that requires grad."""
        return self._leaf and self._node is None

    def _leads_nowhere(self) -> bool:
        """Whether no gradient goes anywhere from here: as from a view under no_grad (TEN-21)."""
        from aotlite.eager.autograd.history import CreationKind

        of_no_grad = self._node is None and self._kind is CreationKind.NO_GRAD
        return of_no_grad or not self.requires_grad

    @property
    def retains_grad(self) -> bool:
        """Whether this tensor is no leaf and keeps its gradient in `.grad`."""
        from aotlite.eager.autograd.hooks import retains

        here = _here(self)
        return retains(here, here._node, here._index)

    def _hookable(self, what: str) -> Any:
        """Where its gradient goes; None for a view under no_grad, whose gradient goes nowhere."""
        from aotlite.eager.autograd.history import edge_of

        if STATE.recorder is not None:
            STATE.recorder.unrecorded = True  # no op is left behind that says so
        here = _here(self)
        edge = edge_of(here)
        if edge is None and not here.requires_grad:
            raise AutogradError(f"{what}: the tensor does not require grad, expected one that does")
        return edge


def _tensor(this: Differentiable) -> Tensor:
    """The same object, which is a tensor: no other class derives from `Differentiable`."""
    return this  # type: ignore[return-value]


def _here(tensor: Differentiable) -> Tensor:
    """The tensor itself, or the fake that stands for it while a function is captured."""
    recorder = STATE.recorder
    return _tensor(tensor) if recorder is None else recorder.here(_tensor(tensor))


def _forbid_outside(tensor: Differentiable, what: str, advice: str) -> None:
    """Refuses what a call cannot be told by, or what would have to be done at each call."""
    recorder = STATE.recorder
    if recorder is not None and recorder.is_outside(_tensor(tensor)):
        raise recorder.refuse(f"{what} of a tensor from outside", advice)
