"""Which tensors share memory: part of the guards of a compiled entry.

Rules: GRD-2, DUP-5, ALI-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import NUMPY
from aotlite.ir.geometry.overlap import Geometry, overlaps, overlaps_bytes
from aotlite.ir.meta import TensorMeta


def on_one_storage(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The positions of the tensors, grouped by storage, in order.

    >>> import aotlite as al
    >>> x = al.ones(4)
    >>> on_one_storage([x, al.ones(2), x[1:]])
    [[0, 2], [1]]
    """
    groups: dict[int, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault(id(tensor.storage), []).append(index)
    return list(groups.values())


def first_byte(tensor: Tensor) -> int:
    """The offset of the tensor in its storage in bytes, as tensors of one storage may differ in
    dtype."""
    return tensor.offset * tensor.meta.dtype.itemsize


SharedMemory = tuple[
    tuple[tuple[int, ...], ...], tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int], ...]
]


def shared_memory(tensors: Sequence[Tensor], written: Sequence[int]) -> SharedMemory:
    """How tensors share memory, as far as it matters where those at `written` are written (GRD-2).

    (groups of tensors on the storage of a written one; overlapping pairs among them, with their
    distance in bytes; the same for pairs on memory that two storages share). Other sharing, and the
    distance of tensors that do not overlap, do not matter.

    >>> import aotlite as al
    >>> x, y = al.ones(6), al.ones(6)
    >>> shared_memory([x[:3], x[2:], x[5:], y, y], [0])
    (((0, 1, 2),), ((0, 1, 8), (1, 2, 12)), ())
    """
    wanted = set(written)
    groups = [tuple(group) for group in on_one_storage(tensors)]
    groups = [group for group in groups if len(group) > 1 and not wanted.isdisjoint(group)]
    pairs = [pair for group in groups for pair in _overlapping(tensors, group)]
    near = [(i, j, first_byte(tensors[j]) - first_byte(tensors[i])) for i, j in pairs]
    foreign = [each for each in foreign_distances(tensors) if not wanted.isdisjoint(each[:2])]
    return tuple(groups), tuple(sorted(near)), tuple(foreign)


def _overlapping(tensors: Sequence[Tensor], group: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The pairs of a group on one storage that share a byte; found by sorting."""
    by_start = sorted(group, key=lambda i: first_byte(tensors[i]))
    for k, i in enumerate(by_start, 1):
        end = first_byte(tensors[i]) + tensors[i].meta.span * tensors[i].meta.dtype.itemsize
        for j in islice(by_start, k, None):
            if first_byte(tensors[j]) >= end:
                break
            if overlaps_bytes(*_laid_out(tensors[i]), *_laid_out(tensors[j])):
                yield min(i, j), max(i, j)


def _laid_out(tensor: Tensor) -> tuple[Geometry, int]:
    meta = tensor.meta
    return (meta.shape, meta.stride, tensor.offset), meta.dtype.itemsize


def have_common_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two dense tensors share a byte, by one storage or by memory of a NumPy array."""
    if a.storage is b.storage:
        return overlaps_bytes(*_laid_out(a), *_laid_out(b))
    if a.storage.buffer is None or b.storage.buffer is None:
        return False
    return next(foreign_overlaps([a, b]), None) is not None


def are_apart(*tensors: Tensor) -> bool:
    """Whether no two of the tensors share a storage, or memory of NumPy arrays."""
    storages = {tensor.storage for tensor in tensors}
    if len(storages) != len(tensors):
        return False
    return sum([storage.exported for storage in storages]) < 2 or is_foreign(tensors, ())


def is_foreign(tensors: Sequence[Tensor], expected: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the pairs of `foreign_overlaps` are the expected ones, at those distances."""
    return foreign_distances(tensors) == expected


def foreign_distances(tensors: Sequence[Tensor]) -> tuple[tuple[int, int, int], ...]:
    """The pairs of `foreign_overlaps`, with their distance in bytes."""
    return tuple(
        [(i, j, _address(tensors[j]) - _address(tensors[i])) for i, j in foreign_overlaps(tensors)]
    )


def foreign_overlaps(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Pairs of tensors on different storages that share a byte (ALI-5).

    Two storages can share memory if they were made from NumPy arrays that do.
    """
    exported = [(i, t) for i, t in enumerate(tensors) if t.storage.exported and t.meta.numel]
    for (i, a), (j, b) in _near(exported) if len(exported) > 1 else ():
        if a.storage is not b.storage and overlaps(_in_bytes(a), _in_bytes(b)):
            yield i, j


_Numbered = tuple[int, Tensor]
_FEW = 4


def _near(tensors: list[_Numbered]) -> list[tuple[_Numbered, _Numbered]]:
    """The pairs whose address ranges meet, in order; for many tensors found by sorting."""
    if len(tensors) <= _FEW:
        pairs = combinations(tensors, 2)
        return [(a, b) for a, b in pairs if _bounds_meet(a[1], b[1])]
    found = []
    by_start = sorted([(_address(tensor), i, tensor) for i, tensor in tensors], key=_place)
    for k, (start, i, a) in enumerate(by_start, 1):
        end = start + a.meta.span * a.meta.dtype.itemsize
        for later, j, b in islice(by_start, k, None):
            if later >= end:
                break
            found.append(((i, a), (j, b)) if i < j else ((j, b), (i, a)))
    return sorted(found, key=lambda pair: (pair[0][0], pair[1][0]))


def _bounds_meet(a: Tensor, b: Tensor) -> bool:
    if a.meta.device.arrays is b.meta.device.arrays is NUMPY:
        return np.may_share_memory(a._data, b._data)
    first, second = _address(a), _address(b)
    return first < second + _bytes(b) and second < first + _bytes(a)


def _bytes(tensor: Tensor) -> int:
    return tensor.meta.span * tensor.meta.dtype.itemsize


def _place(found: tuple[int, int, Tensor]) -> tuple[int, int]:
    return found[:2]


def _address(tensor: Tensor) -> int:
    if tensor.meta.device.arrays is not NUMPY:
        return tensor.storage.data_ptr() + first_byte(tensor)
    return int(tensor._data.__array_interface__["data"][0])


def _in_bytes(tensor: Tensor) -> Geometry:
    meta, size = tensor.meta, tensor.meta.dtype.itemsize
    return (*meta.shape, size), (*[step * size for step in meta.stride], 1), _address(tensor)


def is_within(meta: TensorMeta, start: int, held: TensorMeta) -> bool:
    """Whether each element of a window is one of `held`, and not in a gap between its elements."""
    if start < 0 or start + meta.span > held.span:
        return False
    return held.dense or _addresses(meta, start) <= _addresses(held, 0)


def _addresses(meta: TensorMeta, start: int) -> set[int]:
    found = {start}
    for size, stride in zip(meta.shape, meta.stride, strict=True):
        found = {address + i * stride for address in found for i in range(size)}
    return found
