"""Who shares memory with whom among some tensors: part of what a compiled entry is valid for.

Rules: GRD-2, DUP-5, ALI-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aotlite.eager.tensor import Tensor


def alias_pattern(tensors: Sequence[Tensor]) -> Any:
    """Which tensors share a storage, at what distance, and which memory from outside is shared.

    None if nothing is. Two storages can lie on one memory where NumPy's arrays lead there.
    """
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    pattern = []
    shared = False
    for index, tensor in enumerate(tensors):
        first = storages.setdefault(id(tensor.storage), index)
        shared = shared or first != index
        same = objects.setdefault(id(tensor), index)
        pattern.append((first, _byte(tensor) - _byte(tensors[first]), same))
    foreign = tuple(foreign_overlaps(tensors))
    return (tuple(pattern) if shared else None, foreign) if shared or foreign else None


def _byte(tensor: Tensor) -> int:
    """Where the tensor starts in its storage: tensors of one storage may differ in dtype."""
    return tensor.offset * tensor.meta.dtype.itemsize


def are_apart(tensors: Sequence[Tensor]) -> bool:
    """Whether no two of the tensors share memory, by storage and by the bounds of arrays."""
    storages = [tensor.storage for tensor in tensors]
    if len(set(map(id, storages))) != len(storages):
        return False
    if sum([storage.exported for storage in storages]) < 2:
        return True
    return next(foreign_overlaps(tensors), None) is None


def foreign_overlaps(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Pairs of tensors on different storages whose memory overlaps, by bounds.

    Only memory that is also an ndarray's can do that.
    """
    exported = [(i, t) for i, t in enumerate(tensors) if t.storage.exported]
    for k, (i, a) in enumerate(exported):
        for j, b in exported[k + 1 :]:
            if a.storage is not b.storage and np.may_share_memory(a.array, b.array):
                yield i, j
