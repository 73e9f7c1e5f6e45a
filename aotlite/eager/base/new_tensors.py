"""Fast constructors of tensors over given memory, for results of compiled calls and views.

They bypass `Tensor.__init__`, and so must set every slot. Rule: TEN-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.meta import TensorMeta


def tensor_over(buffer: object, meta: TensorMeta, offset: int = 0) -> Tensor:
    """A plain tensor on a new storage over `buffer`: `Tensor(Storage(buffer), meta, offset)`.

    Inlined, since the two constructors would take a fourth of a small compiled call.
    """
    storage = _new_storage(Storage)
    storage.buffer = buffer
    storage.version = 0
    storage.writable = True
    storage.exported = False
    storage.capture = storage.write_observers = None
    made = _new_tensor(Tensor)
    made.storage = storage
    made.meta = made.facts = meta
    made.offset = offset
    made.value = None
    made._array = None
    made._leaf = False
    made._node = None
    made._index = 0
    made._root = None
    made._chain = EMPTY_CHAIN
    made._seen = 0
    made._kind = None
    made._base = None
    made._grad = None
    made._accumulator = None
    return made


def tensor_on(
    storage: Storage, meta: TensorMeta, offset: int, kind: type[Tensor] | None = None
) -> Tensor:
    """A tensor on a storage that other tensors share, so that `facts_of` must compute its facts."""
    made = _new_tensor(kind or Tensor)
    made.storage = storage
    made.meta = meta
    made.offset = offset
    made.value = made.facts = None
    made._array = None
    made._leaf = False
    made._node = None
    made._index = 0
    made._root = None
    made._chain = EMPTY_CHAIN
    made._seen = 0
    made._kind = None
    made._base = None
    made._grad = None
    made._accumulator = None
    return made


def tensors_over(
    windows: Sequence[tuple[Any, int] | None], metas: Sequence[TensorMeta | None]
) -> list[Tensor | None]:
    """A plain tensor for each (buffer, offset) with a meta; one storage for each buffer.

    Inlined like `tensor_over`: a training step has hundreds of gradients.
    """
    made: list[Tensor | None] = []
    storages: dict[int, Storage] = {}
    last = storage = None
    new, empty, add = _new_tensor, EMPTY_CHAIN, made.append
    for window, meta in zip(windows, metas, strict=True):
        if window is None or meta is None:
            add(None)
            continue
        buffer, offset = window
        if buffer is not last or storage is None:
            last, storage = buffer, storages.get(id(buffer))
            if storage is None:
                storage = storages[id(buffer)] = Storage(buffer)
        tensor = new(Tensor)
        tensor.storage = storage
        tensor.meta = meta
        tensor.facts = meta
        tensor.offset = offset
        tensor.value = None
        tensor._array = None
        tensor._leaf = False
        tensor._node = None
        tensor._index = 0
        tensor._root = None
        tensor._chain = empty
        tensor._seen = 0
        tensor._kind = None
        tensor._base = None
        tensor._grad = None
        tensor._accumulator = None
        add(tensor)
    return made


_new_tensor: Callable[[type[Tensor]], Tensor] = object.__new__
_new_storage: Callable[[type[Storage]], Storage] = object.__new__
