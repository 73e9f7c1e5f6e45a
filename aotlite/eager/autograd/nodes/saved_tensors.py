"""`SavedTensor`: a tensor that a tape node saves, with its version, or packed by users' hooks.

Rules: TEN-12, TEN-13, TEN-42, CKP-1. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import alias_of, is_wrapper
from aotlite.ir.errors import AutogradError, DTypeError, noted


class SavedTensor:
    """A tensor saved for the backward, with its version at that time (TEN-12).

    Under saved-tensor hooks, `packed` holds the pack hook's result instead, and `tensor` is None.
    """

    __slots__ = ("packed", "tensor", "version")

    packed: PackedTensor

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        version = self.version = tensor.storage.version
        if type(version) is not int:
            raise noted(
                AutogradError(
                    f"backward: a tensor to save, {tensor.meta}, is an inference tensor, expected "
                    "one that counts its writes"
                ),
                "clone() it outside of inference_mode, or compute it under no_grad. (TEN-22)",
            )

    @classmethod
    def of_version(cls, tensor: Tensor, version: int) -> SavedTensor:
        """The record of a tensor that had this version when it was saved."""
        made = cls(tensor)
        made.version = version
        return made

    def unpack(self, node: TapeNode) -> Tensor:
        """The saved tensor. Raises AutogradError if it was written since."""
        tensor = self.tensor
        if tensor is None:
            return self.packed.unpack()
        if tensor.storage.version != self.version:
            raise noted(
                AutogradError(
                    f"{node.name()}: a saved tensor {tensor.meta} is at version "
                    f"{tensor.storage.version}, expected version {self.version}: it was modified "
                    "in place"
                ),
                "Its values at the time of the forward are needed for the gradient. Write to a "
                "clone(), or write before the value is used. (TEN-12)",
            )
        return tensor

    def checked(self) -> list[SavedTensor]:
        """The records whose versions `unpack` checks: none for a tensor packed by hooks."""
        if self.tensor is not None:
            return [self]
        value = self.packed.value
        return value.checked() if isinstance(value, Recomputed) else []

    def register_hooks(
        self, pack_hook: Callable[[Tensor], object], unpack_hook: Callable[[object], Tensor]
    ) -> None:
        """Packs the tensor by `pack_hook` now; `unpack` will call `unpack_hook`."""
        if self.tensor is None:
            raise AutogradError(
                "register_hooks: the saved tensor has hooks already, expected one without"
            )
        HookChanges.count += 1
        self.packed = PackedTensor.of(self.tensor, pack_hook, unpack_hook)
        self.tensor = None  # type: ignore[assignment]


class Recomputed:
    """Stands for a saved tensor that a backward recomputes when it needs it (CKP-1)."""

    __slots__ = ()

    def checked(self) -> list[SavedTensor]:
        """The records that the recomputation reads, and whose versions it checks."""
        raise AssertionError("each kind says what it reads")

    def regions(self) -> list[Any]:
        """The regions that are recomputed for it: its own, and those around that."""
        raise AssertionError("each kind says what it is part of")


def computed_again(records: Iterable[SavedTensor]) -> list[Any]:
    """The regions that unpacking these records recomputes."""
    held = [each.packed.value for each in records if each.tensor is None]
    return [region for each in held if isinstance(each, Recomputed) for region in each.regions()]


def saved(tensor: Tensor) -> SavedTensor:
    """The record of a tensor to save now; packed where saved-tensor hooks are active (TEN-42)."""
    kept = SavedTensor(tensor)
    watch = STATE.watch
    if watch is not None and watch.pack is not None:
        kept.register_hooks(*watch.pack)
    return kept


@attrs.frozen(eq=False)
class PackedTensor:
    """The result of a pack hook, with the history of the tensor (TEN-42)."""

    value: Any
    unpack_hook: Callable[[object], Tensor]
    edge: Edge | None

    @classmethod
    def of(
        cls, tensor: Tensor, pack: Callable[[Tensor], object], unpack: Callable[[object], Tensor]
    ) -> PackedTensor:
        """Packs the tensor by `pack`, which must not write to it."""
        before, mode = tensor.storage.version, STATE.grad_mode
        STATE.grad_mode = False
        try:
            value = pack(tensor)
        finally:
            STATE.grad_mode = mode
        if tensor.storage.version != before:
            raise AutogradError(
                "saved_tensors_hooks: the pack hook modified its argument in place, expected a "
                "hook that does not write it"
            )
        return cls(value, unpack, tensor.gradient_edge())

    def unpack(self) -> Tensor:
        """The unpack hook's tensor, with the history of the packed one."""
        value = self.unpack_hook(self.value)
        if not isinstance(value, Tensor):
            raise DTypeError(
                f"saved_tensors_hooks: the unpack hook returned {type(value).__name__}, expected "
                "a tensor"
            )
        tensor = detached_alias(value)
        if self.edge is not None:
            tensor._node, tensor._index, tensor.facts = *self.edge, None
        return tensor


# Note [saved results and references]
#     y = x.exp(); del y
# The node of exp saves its result, and y refers to the node. If the node kept y itself, the two
# would be a reference cycle, and their memory would wait for the garbage collector. So it keeps
# another tensor on the same storage, without history. When a second derivative reads it,
# `result_of` gives it the node as history. The alias shares the storage's version, so that a write
# to y is detected.
def detached_alias(tensor: Tensor) -> Tensor:
    """A tensor on the same storage without history (TEN-4, TEN-13)."""
    if is_wrapper(tensor):
        made: Tensor = alias_of(tensor)
        return made
    alias = Tensor(tensor.storage, tensor.meta, tensor.offset)
    alias.value = tensor.value
    return alias
