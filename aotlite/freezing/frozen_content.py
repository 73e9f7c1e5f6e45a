"""The content of frozen tensors: digests of their bytes, made again only where they may differ.

A digest holds as long as the tensor has the storage, the geometry and the version that it had: each
write raises the version. That is not enough for memory that NumPy shares (`Storage.exported`), for
a hidden alias (`.data`), which counts apart and exports the memory, and for tensors made in
inference mode, which count nothing: their bytes are read at each call. Rules: FRZ-6, FRZ-7.
Spec: `specs/freezing.md`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.interop import from_numpy
from aotlite.ir.arrays import host_array
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import ArrayValue

_AT_ONCE = 1 << 24
"""Bytes of a tensor with gaps that are copied at once, to be read."""


class FrozenContent:
    """The digest of one frozen tensor, and the state in which it was made."""

    __slots__ = ("_buffer", "_meta", "_offset", "_storage", "_version", "digest")

    def __init__(self, tensor: Tensor) -> None:
        storage = tensor.storage
        self._storage: ref[Storage] = ref(storage)
        self._version, self._buffer = storage.version, id(storage.buffer)
        self._meta, self._offset = tensor.meta, tensor.offset
        self.digest = digest_of(tensor)

    def holds(self, tensor: Any) -> bool:
        """Whether the digest is that of a tensor as it is, by state alone; never of an ndarray."""
        storage: Storage | None = getattr(tensor, "storage", None)
        return (
            storage is not None
            and storage.version == self._version
            and not storage.exported
            and tensor.meta is self._meta
            and self._storage() is storage
            and tensor.offset == self._offset
            and id(storage.buffer) == self._buffer
            and type(storage.version) is int
        )


class FrozenContents:
    """The digests of the frozen tensors of one function, by their numbers."""

    def __init__(self) -> None:
        self._known: dict[int, FrozenContent] = {}
        self.digests_made = 0

    def digest(self, number: int, leaf: object) -> str:
        """The digest of frozen tensor or ndarray `number` as it is now."""
        known = self._known.get(number)
        if known is None or not known.holds(leaf):
            known = self._known[number] = FrozenContent(tensor_of_leaf(leaf))
            self.digests_made += 1
        return known.digest

    def digests(self, numbers: Sequence[int], leaves: Sequence[object]) -> tuple[str, ...]:
        """The digests of some frozen tensors as they are now."""
        return tuple([self.digest(number, leaves[number]) for number in numbers])


def tensor_of_leaf(leaf: Any) -> Tensor:
    """The tensor on the memory of a frozen tensor or ndarray."""
    return leaf if isinstance(leaf, Tensor) else from_numpy(leaf)


def value_of_leaf(leaf: object) -> ArrayValue:
    """The value of a frozen tensor or ndarray, on its own memory."""
    tensor = tensor_of_leaf(leaf)
    return ArrayValue(tensor.storage.buffer, tensor.meta, tensor.offset)


def digest_of(tensor: Tensor) -> str:
    """The digest of a tensor's geometry and bytes. Equal numbers with other bits differ: 0.0 and
    -0.0 do, and a nan equals itself."""
    return digest_of_array(tensor.meta, tensor._data)


def digest_of_array(meta: TensorMeta, array: object) -> str:
    """The digest of an array of any library with this meta."""
    found = hashlib.sha256(str(meta).encode())
    for part in _parts(np.asarray(host_array(array))):
        found.update(part)
    return found.hexdigest()


def _parts(array: np.ndarray) -> Sequence[memoryview | bytes]:
    """The elements in order: of memory without gaps itself, else of copies of rows."""
    if not array.size:
        return ()
    if array.flags.c_contiguous:
        flat: Any = array.reshape(-1).view(np.uint8)
        return (memoryview(flat),)
    if array.nbytes <= _AT_ONCE or not array.ndim:
        return (np.ascontiguousarray(array).tobytes(),)
    return [part for row in array for part in _parts(row)]
