"""What tape nodes keep of tensors for the backward: with their versions, or packed by users' hooks.

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
    """A tensor kept for the backward, with the version it had (TEN-12).

    Under saved-tensor hooks `packed` holds what the pack hook gave instead, and `tensor` is None.
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
        """The record of a tensor that was kept when it had this version."""
        made = cls(tensor)
        made.version = version
        return made

    def unpack(self, node: TapeNode) -> Tensor:
        """The tensor, for the node that saved it. Raises AutogradError if it was written since."""
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
        """What is checked for writes when this is unpacked: not what users' hooks have packed."""
        if self.tensor is not None:
            return [self]
        value = self.packed.value
        return value.checked() if isinstance(value, Recomputed) else []

    def register_hooks(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        """From now on keeps what `pack_hook` gives for the tensor; `unpack_hook` undoes it."""
        if self.tensor is None:
            raise AutogradError(
                "register_hooks: the saved tensor has hooks already, expected one without"
            )
        HookChanges.count += 1
        self.packed = PackedTensor.of(self.tensor, pack_hook, unpack_hook)
        self.tensor = None  # type: ignore[assignment]


class Recomputed:
    """What is kept of a tensor that is computed again when it is asked for (CKP-1)."""

    __slots__ = ()

    def checked(self) -> list[SavedTensor]:
        """What is read then, and checked for writes."""
        raise AssertionError("each kind says what it reads")

    def regions(self) -> list[Any]:
        """What is computed again for it: a region, and those around it."""
        raise AssertionError("each kind says what it is part of")


def computed_again(records: Iterable[SavedTensor]) -> list[Any]:
    """The regions that are computed again when these are unpacked."""
    held = [each.packed.value for each in records if each.tensor is None]
    return [region for each in held if isinstance(each, Recomputed) for region in each.regions()]


def saved(tensor: Tensor) -> SavedTensor:
    """The tensor as it is saved now: packed where saved-tensor hooks are at work (TEN-42)."""
    kept = SavedTensor(tensor)
    watch = STATE.watch
    if watch is not None and watch.pack is not None:
        kept.register_hooks(*watch.pack)
    return kept


@attrs.frozen(eq=False)
class PackedTensor:
    """What saved-tensor hooks keep of a tensor, and the history that it had (TEN-42)."""

    value: Any
    unpack_hook: Callable[[Any], Tensor]
    edge: Edge | None

    @classmethod
    def of(
        cls, tensor: Tensor, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]
    ) -> PackedTensor:
        """What `pack` gives for the tensor, which it must not write."""
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
        """What the unpack hook gives, with the history of what was packed."""
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
# The node of exp saves its result, and y refers to the node: if the node kept y itself, the two
# would hold each other, and their memory would wait for the garbage collector. So it keeps another
# tensor on the storage, without history; `result_of` gives that the node as its history when a
# derivative of the backward reads it. The alias shares the storage's version: a write to y is
# noticed.
def detached_alias(tensor: Tensor) -> Tensor:
    """A tensor on the same storage without history (TEN-4, TEN-13)."""
    if is_wrapper(tensor):
        made: Tensor = alias_of(tensor)
        return made
    alias = Tensor(tensor.storage, tensor.meta, tensor.offset)
    alias.value = tensor.value
    return alias
