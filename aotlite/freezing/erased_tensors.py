"""Erased tensors: what a module has in the place of parameters and buffers that were discarded.

An erased tensor has the class, shape, strides, dtype, device and `requires_grad` of the one whose
place it takes, and no memory. The frozen function that has erased it gives its compiled function a
stand-in for it, which has a digest of the content. Rule: FRZ-4. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.freezing.module_state import FixedPlace
from aotlite.ir.errors import FreezeError, noted
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.nn.parameter import Buffer


class ErasedStorage(Storage):
    """The storage of an erased tensor."""

    __slots__ = ("arguments", "of", "stand_in")

    def __init__(self, of: str, stand_in: Tensor, arguments: object) -> None:
        super().__init__(None)
        self.of = of
        self.stand_in = stand_in
        self.arguments = arguments
        """The `FrozenArguments` of the function that has erased it."""

    def no_data(self, what: str) -> Exception:
        """The error for an op on the tensor."""
        return noted(
            FreezeError(
                f"{what}: {self.of} was discarded when it was frozen, expected a tensor with data"
            ),
            "Call the frozen function, which has the folded values, or freeze the module without "
            "freezing_discard_parameters. (FRZ-4)",
        )


def erased(tensor: Tensor, of: str, stand_in: Tensor, arguments: object) -> Tensor:
    """An erased tensor for the attribute of a module, which `of` says in words."""
    return _like(tensor, ErasedStorage(of, stand_in, arguments))


def words_of(tensor: Tensor, place: FixedPlace) -> str:
    """The place of a tensor in words."""
    kind = "buffer" if isinstance(tensor, Buffer) else "parameter"
    return f"{kind} {place.path!r} of a {type(place.owner).__name__}"


class StandInStorage(Storage):
    """The storage of a stand-in."""

    __slots__ = ("digest", "value")

    def __init__(self, of: Storage, digest: str, value: ArrayValue | None) -> None:
        super().__init__(np.empty(0, np.uint8), writable=of.writable)
        self.version = of.version
        self.digest = digest
        """That of the content that was discarded."""
        self.value = value
        """The content itself, if a graph reads it as it is."""


def stand_in(tensor: Tensor, digest: str, value: ArrayValue | None) -> Tensor:
    """A tensor that guards cannot tell from the given one, without its memory."""
    return _like(tensor, StandInStorage(tensor.storage, digest, value))


def stand_in_storage(leaf: object) -> StandInStorage | None:
    """The storage of a stand-in; None for what is none."""
    storage = getattr(leaf, "storage", None)
    return storage if type(storage) is StandInStorage else None


def given_leaf(leaf: Any, arguments: object) -> Any:
    """What a call of the function with these `FrozenArguments` is given for a leaf: the stand-in of
    a tensor that it has erased. What was put there since, and what others have erased, stays."""
    storage = leaf.storage if isinstance(leaf, Tensor) else None
    if type(storage) is not ErasedStorage or storage.arguments is not arguments:
        return leaf
    found = storage.stand_in
    if found._leaf != leaf._leaf:  # requires_grad_ since
        found._leaf, found.facts = leaf._leaf, None
    return found


def _like(tensor: Tensor, storage: Storage) -> Tensor:
    made: Any = object.__new__(type(tensor))
    Tensor.__init__(made, storage, tensor.meta)
    made._leaf = tensor._leaf
    made.facts = None
    return made
