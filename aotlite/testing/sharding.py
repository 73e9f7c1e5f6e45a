"""`PoisonedMesh`: a mesh whose ranks cannot see each other's parts, for tests.

While the part of a rank is computed, the memory of every other rank's operands holds bytes that are
nan as floats. Of every result, no two ranks may share memory, and copies have to be equal.
Rules: SHD-1, SHD-2. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

from aotlite.eager.storage import Storage
from aotlite.eager.wrappers import leaves_of
from aotlite.sharding.mesh import Mesh, Parts
from aotlite.sharding.placements import Replicate

POISON = 0xFF
"""The byte of which nan is made, in every dtype of floats, and -1 in every signed integer."""


@attrs.frozen
class PoisonedMesh(Mesh):
    """A `Mesh` for tests: a rank that reads another's part computes nan.

    >>> import aotlite as al
    >>> from aotlite.sharding import Shard, ShardedTensor
    >>> mesh = PoisonedMesh(2)
    >>> x = ShardedTensor.from_dense(al.ones(4), mesh, Shard(0))
    >>> mesh.each(lambda rank: x.to_local(rank).sum(), [x.parts])
    [tensor(2.), tensor(2.)]
    >>> mesh.each(lambda rank: x.to_local(0).sum(), [x.parts])
    [tensor(2.), tensor(nan)]
    """

    def each(self, function: Callable[[int], Any], held: Sequence[Parts]) -> list[Any]:
        found = []
        for rank in self.ranks:
            with _poisoned(rank, held):
                found.append(function(rank))
        return found

    def made(self, parts: Parts, placement: Any) -> None:
        storages = [_storages([part]) for part in parts]
        for rank, own in enumerate(storages):
            for other in range(rank):
                shared = [s for s in own if any(s is each for each in storages[other])]
                assert not shared, f"ranks {other} and {rank} hold the same memory"
        if placement == Replicate():
            first = _bytes(parts[0])
            for rank, part in enumerate(parts):
                assert _bytes(part) == first, f"rank {rank} holds another value than rank 0"


@contextmanager
def _poisoned(rank: int, held: Sequence[Parts]) -> Iterator[None]:
    own = _storages([parts[rank] for parts in held])
    others = _storages([part for parts in held for k, part in enumerate(parts) if k != rank])
    poisoned = [s for s in others if not any(s is each for each in own)]
    saved = [(buffer, buffer.copy()) for buffer in map(_bytes_of, poisoned)]
    for buffer, _ in saved:
        buffer[...] = POISON
    try:
        yield
    finally:
        for buffer, before in saved:
            buffer[...] = before


def _bytes_of(storage: Storage) -> Any:
    """The memory as bytes."""
    buffer: Any = storage.buffer
    flat = (buffer if buffer.flags.c_contiguous else buffer.T).reshape(-1).view(np.uint8)
    assert np.shares_memory(flat, buffer), "the memory has gaps"
    return flat


def _storages(tensors: Sequence[Any]) -> list[Storage]:
    """The memory that tensors lie on, each once; none of tensors without data."""
    found: dict[int, Storage] = {}
    for tensor in tensors:
        for leaf in leaves_of(tensor):
            buffer = leaf.storage.buffer
            if isinstance(buffer, np.ndarray) and buffer.size and buffer.flags.writeable:
                found[id(leaf.storage)] = leaf.storage
    return list(found.values())


def _bytes(part: Any) -> list[bytes]:
    leaves = [leaf for leaf in leaves_of(part) if leaf.storage.buffer is not None]
    return [np.ascontiguousarray(leaf.detach().array).tobytes() for leaf in leaves]
