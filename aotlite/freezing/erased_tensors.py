"""Erased tensors: what a module has in the place of parameters and buffers that were discarded.

An erased tensor has the class, shape, strides, dtype, device and `requires_grad` of the one whose
place it takes, and no memory. Rule: FRZ-4. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import FreezeError, noted
from aotlite.nn.parameter import Buffer


class ErasedStorage(Storage):
    """The storage of an erased tensor."""

    __slots__ = ("of",)

    def __init__(self, of: str) -> None:
        super().__init__(None)
        self.of = of

    def no_data(self, what: str) -> Exception:
        """The error for an op on the tensor."""
        return noted(
            FreezeError(
                f"{what}: {self.of} was discarded when it was frozen, expected a tensor with data"
            ),
            "Call the frozen function, which has the folded values, or freeze the module without "
            "freezing_discard_parameters. (FRZ-4)",
        )


def erased(tensor: Tensor, path: str, module: object) -> Tensor:
    """An erased tensor for the attribute of a module, whose dotted path from the frozen one this
    is."""
    kind = "buffer" if isinstance(tensor, Buffer) else "parameter"
    return _like(tensor, ErasedStorage(f"{kind} {path!r} of a {type(module).__name__}"))


def stand_in(tensor: Tensor) -> Tensor:
    """A tensor that guards cannot tell from the given one, without its memory."""
    storage = Storage(np.empty(0, np.uint8))
    storage.version = tensor.storage.version
    storage.writable = tensor.storage.writable
    return _like(tensor, storage)


def _like(tensor: Tensor, storage: Storage) -> Tensor:
    made: Any = object.__new__(type(tensor))
    Tensor.__init__(made, storage, tensor.meta)
    made._leaf = tensor._leaf
    made.facts = None
    return made
