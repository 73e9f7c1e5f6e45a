"""`untyped_storage().resize_`: gives memory back while tensors lie on it, and takes it again.

Rules: STG-1..5. Spec: `specs/storages.md`.
"""

from __future__ import annotations

import gc
from operator import index
from typing import Any
from weakref import WeakKeyDictionary

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import ArrayBackend
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted, out_of_memory

_ARRAYS: WeakKeyDictionary[Storage, ArrayBackend[Any]] = WeakKeyDictionary()
"""The array libraries of storages that have given their memory back."""


class FreedStorage(Storage):
    """A storage of no bytes, on which tensors lie that have elements (STG-2)."""

    __slots__ = ()
    is_freed = True

    def no_data(self, what: str) -> Exception:
        """The error for access to the elements of a tensor on this storage."""
        return noted(
            UnsupportedError(
                f"{what}: the storage of the tensor was resized to 0 bytes, expected one that has "
                "its elements"
            ),
            "Give the memory back before: x.untyped_storage().resize_(nbytes), and write the "
            "elements. (STG-2)",
        )

    def nbytes(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return 0

    def export(self) -> None:
        raise self.no_data("array")

    def twin(self) -> Storage:
        raise self.no_data("hidden_alias")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.no_data("pickle")

    def __deepcopy__(self, memo: dict[int, object]) -> Storage:
        raise self.no_data("deepcopy")


def resize_storage(storage: Storage, /, nbytes: Any) -> Storage:
    """Gives a storage that many bytes, and returns it (STG-1).

    The first bytes are kept; new ones are zero. 0 gives the memory back while tensors lie on it:
    they keep their shapes and histories, and raise UnsupportedError where elements are used. No
    version counter changes. Raises ArgumentError for what is no size, and UnsupportedError for
    memory that is shared with an ndarray or read-only, for a size above 0 that a tensor on the
    storage exceeds, and in a captured function.
    """
    size = _checked(storage, nbytes)
    if size == storage.nbytes():
        return storage
    tensors = [each for each in gc.get_referrers(storage) if isinstance(each, Tensor)]
    _check_room(size, tensors)
    storage.before_write()
    arrays = _arrays_of(storage, tensors)
    if size:
        storage.buffer = _resized(storage, size, arrays)
        if storage.is_freed:
            storage.__class__ = Storage
            _ARRAYS.pop(storage, None)
    else:
        storage.buffer = None
        storage.__class__ = FreedStorage
        _ARRAYS[storage] = arrays
    for each in tensors:
        each._array = each.facts = None
    return storage


def _checked(storage: Storage, nbytes: Any) -> int:
    if STATE.recorder is not None:
        raise STATE.recorder.refuse(
            "resize_() of a storage", "resize it outside of the function, before or after the call"
        )
    if storage.buffer is None and not storage.is_freed:
        raise storage.no_data("resize_")
    try:
        size = index(nbytes)
    except TypeError:
        size = -1
    if size < 0 or isinstance(nbytes, bool):
        raise ArgumentError(f"resize_: nbytes is {nbytes!r}, expected a number of bytes, 0 or more")
    if storage.exported or not storage.writable:
        why = "is shared with an ndarray" if storage.exported else "is read-only"
        raise noted(
            UnsupportedError(f"resize_: the memory {why}, expected memory of tensors alone"),
            "Who has its address would not see it move. Use a clone(). (STG-1)",
        )
    return size


def _check_room(size: int, tensors: list[Tensor]) -> None:
    needs = [(each.offset + each.meta.span) * each.itemsize for each in tensors if each.numel()]
    needed = max(needs, default=0)
    if 0 < size < needed:
        raise noted(
            UnsupportedError(
                f"resize_: nbytes is {size}, expected 0, or at least the {needed} bytes that a "
                "tensor on the storage takes"
            ),
            "Tensors whose elements are there in part would read memory of others. (STG-3)",
        )


def _arrays_of(storage: Storage, tensors: list[Tensor]) -> ArrayBackend[Any]:
    """The array library of a storage."""
    if tensors:
        found: ArrayBackend[Any] = tensors[0].device.arrays
        return found
    known = _ARRAYS.get(storage)
    if known is None:
        raise noted(
            UnsupportedError("resize_: no tensor lies on the storage, expected one"),
            "A storage alone does not know its device.",
        )
    return known


def _resized(storage: Storage, size: int, arrays: ArrayBackend[Any]) -> Any:
    try:
        room = arrays.allocate(size, uint8)
    except MemoryError as error:
        raise out_of_memory("resize_", error) from error
    kept = min(storage.nbytes(), size)
    for start, count, source in ((kept, size - kept, 0), (0, kept, storage.buffer)):
        if count:
            line = (uint8, (count,), (1,))
            of = source if source is not storage.buffer else arrays.strided(source, *line, 0)
            arrays.copy(arrays.strided(room, *line, start), of)
    return room
