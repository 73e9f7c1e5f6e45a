"""`FunctionCtx`: the `ctx` that passes values from a user's forward to its backward.

Rules: TEN-12, TEN-13, TEN-30, TEN-31. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor, detached_alias, saved
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.node import SEQUENCE, Edge, TapeNode, released
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, DTypeError, noted


class FunctionCtx:
    """The `ctx` of a `Function`'s forward and backward. Users may set attributes on it."""

    needs_input_grad: tuple[bool, ...]
    """For each argument of the forward, whether it requires grad."""

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._name = name
        self._dirty: tuple[Tensor, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materialize_grads = True
        self.to_save: tuple[Tensor | None, ...] = ()
        self._kept: list[_Kept | None] | None = []
        self._node: Any = None

    # --- for the forward
    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves tensors for the backward, which reads them from `saved_tensors`.

        Inputs and results keep their history, and are checked for in-place writes (TEN-12).
        """
        for i, each in enumerate(tensors):
            if each is not None and not isinstance(each, Tensor):
                raise DTypeError(
                    f"save_for_backward: argument {i} is {each!r}, expected a tensor or None; "
                    "keep other things as attributes of ctx"
                )
        self.to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declares the inputs that the forward modified in place; it must return them."""
        self._dirty = _tensors("mark_dirty", tensors)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declares the results that have no gradient."""
        self._constant = _tensors("mark_non_differentiable", tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Sets whether the backward gets zeros, or else None, for a result without a gradient."""
        self._materialize_grads = value

    # --- for the backward
    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors. Raises AutogradError if they were freed, or written since."""
        kept, node = self._kept, self._node and self._node()
        if kept is None or node is None and kept:
            raise released(self._name)
        return tuple([None if each is None else each.unpack(node) for each in kept])

    def name(self) -> str:
        """The name of the tape node."""
        return self._name

    # --- for the call
    def _save_now(self, node: TapeNode, args: Sequence[object], outs: Sequence[object]) -> None:
        """Performs the save of `save_for_backward`, when the results have their history."""
        self._node = weakref.ref(node)
        own = [id(each) if getattr(each, "_node", None) is node else None for each in outs]
        known = {id(each) for each in (*args, *outs)}
        self._kept = []
        recorder = STATE.recorder
        for each in self.to_save:
            if each is None:
                self._kept.append(None)
                continue
            index = own.index(id(each)) if id(each) in own else None
            inner = id(each) not in known and not each._leaf and each.dtype.is_differentiable
            # A result with its history would make a reference cycle with its node (TEN-13).
            alone = index is not None or inner
            kept = each if recorder is None else recorder.here(each)
            record = saved(detached_alias(kept) if alone else kept)
            self._kept.append(_Kept(record, index, is_inner=inner))
        self.to_save = ()
        # Breaks the cycle: a marked tensor may be a result, which holds the node, which holds ctx.
        self._dirty = self._constant = ()

    def _edges(self) -> list[Edge | None]:
        """The edges of the arguments, for their gradients."""
        node = self._node and self._node()
        return [] if node is None else list(node.edges)

    def _kept_records(self) -> list[SavedTensor]:
        """The records that the backward may unpack."""
        return [each.record for each in self._kept or () if each is not None]

    def _release(self) -> None:
        """Frees the saved tensors."""
        if self._kept:
            self._kept = None


def _tensors(name: str, tensors: tuple[Any, ...]) -> tuple[Tensor, ...]:
    recorder = STATE.recorder
    for i, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise DTypeError(f"{name}: argument {i} is {each!r}, expected a tensor")
    return tensors if recorder is None else tuple([recorder.here(each) for each in tensors])


class _Kept:
    """One saved tensor of a `Function`."""

    __slots__ = ("index", "is_inner", "record")

    def __init__(self, record: SavedTensor, index: int | None, *, is_inner: bool) -> None:
        self.record = record
        self.index = index
        """The number of the result that it is; None if it is none."""
        self.is_inner = is_inner
        """Whether it is neither an argument nor a result, so that its own history is unknown."""

    def unpack(self, node: TapeNode) -> Tensor:
        tensor = self.record.unpack(node)
        if self.index is not None:
            linked = detached_alias(tensor)
            linked._node, linked._index, linked.facts = node, self.index, None
            return linked
        if self.is_inner and STATE.grad_mode:
            return Undifferentiable(
                f"{node.name()}: a saved tensor {tensor.meta} that is neither an argument nor a "
                "result is differentiated, expected arguments and results only in a backward that "
                "is differentiated again",
                "How it depends on the arguments is not known. Return it as another result, or, "
                "if it is a constant, keep it as an attribute of ctx. (TEN-31)",
                list(node.edges),
            ).mark(tensor)
        return tensor


class Undifferentiable(TapeNode):
    """The tape node of a value without a gradient: it raises when a backward reaches it."""

    __slots__ = ("advice", "message")

    def __init__(self, message: str, advice: str, edges: list[Edge | None]) -> None:
        self.message = message
        self.advice = advice
        self.edges = tuple(edges)
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None

    def mark(self, value: object) -> Any:
        """The value with this node as its history, if it is a tensor that could have a gradient."""
        tracked = any(edge is not None for edge in self.edges)
        if not isinstance(value, Tensor) or not value.dtype.is_differentiable or not tracked:
            return value
        marked = detached_alias(value)
        marked._node, marked._index, marked.facts = self, 0, None
        return marked

    def run(self, grads: list[Any]) -> Sequence[Any]:
        raise noted(AutogradError(self.message), self.advice)
