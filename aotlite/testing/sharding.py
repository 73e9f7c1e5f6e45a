"""Meshes for tests, whose ranks cannot see each other's parts.

On a `PoisonedMesh`, while a rank computes its part, the memory of all other ranks' operands is
filled with nan. No two ranks may share memory of a result, and copies have to be equal. `guarded`
makes parts into tensors that know their rank: an op on parts of two ranks, or on a part of another
rank than the computing one, is an error, unless it is a collective.
Rules: SHD-1, SHD-2. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import leaves_of
from aotlite.ir.op import OPS, Op
from aotlite.sharding.mesh import Mesh, Parts
from aotlite.sharding.placements import Replicate
from aotlite.sharding.tensor import ShardedTensor

COLLECTIVES = [op for op in OPS.values() if op.lists == (0,) and op.schema.returns[0].is_list]
"""The ops that take and return one tensor for each rank."""

POISON = 0xFF
"""A byte that, repeated, is nan in every float dtype, and -1 in every signed integer dtype."""


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

    def each(self, function: Callable[[int], object], held: Sequence[Parts]) -> list[Any]:
        found = []
        for rank in self.ranks:
            computing = _RANK.set(rank)
            try:
                with _poisoned(rank, held):
                    found.append(function(rank))
            finally:
                _RANK.reset(computing)
        return found

    def made(self, parts: Parts, placement: object) -> None:
        for rank, part in enumerate(parts):
            if isinstance(part, RankTensor):
                assert part.rank == rank, f"rank {rank} holds a part of rank {part.rank}"
        storages = [_storages([part]) for part in parts]
        for rank, own in enumerate(storages):
            for other in range(rank):
                shared = [s for s in own if any(s is each for each in storages[other])]
                assert not shared, f"ranks {other} and {rank} hold the same memory"
        if placement == Replicate():
            first = _bytes(parts[0])
            for rank, part in enumerate(parts):
                assert _bytes(part) == first, f"rank {rank} holds another value than rank 0"


_RANK: ContextVar[int | None] = ContextVar("aotlite.testing.rank", default=None)
"""The computing rank."""


class RankTensor(Tensor):
    """A tensor that knows its rank; it wraps the tensor `inner`."""

    inner: Tensor
    rank: int

    def __new__(cls, inner: Tensor, rank: int) -> RankTensor:
        made: RankTensor = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner, made.rank = inner, rank
        return made

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["inner"], self.rank

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: int, outer_size: object, outer_stride: object
    ) -> RankTensor:
        return cls(inner["inner"], spec)

    @classmethod
    def __tensor_dispatch__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> object:
        op: Op = func.op  # type: ignore[attr-defined]
        ranks = [each.rank for each in op.operands(op.bind(args, kwargs)) if isinstance(each, cls)]
        named = {name: _inside(value) for name, value in kwargs.items()}
        found = func(*map(_inside, args), **named)
        if op in COLLECTIVES:
            in_order = list(range(len(args[0])))
            assert op.name == "broadcast" or ranks == in_order, f"{op.name}: ranks {ranks}"
            return tuple([cls(each, rank) for rank, each in enumerate(found)])
        mixed = {*ranks, *([] if _RANK.get() is None else [_RANK.get()])}
        if len(mixed) != 1:  # no `assert`, as pytest would rewrite its message
            raise AssertionError(f"{op.name}: parts of ranks {ranks}, computed by {_RANK.get()}")
        rank = ranks[0]
        if op.writes:
            return args[0]
        if isinstance(found, tuple):
            return tuple([cls(each, rank) for each in found])
        return cls(found, rank)


def _inside(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_inside, value))
    return value.inner if isinstance(value, RankTensor) else value


def guarded(x: ShardedTensor) -> ShardedTensor:
    """The tensor with parts that know their rank; an op that mixes ranks is an error.

    >>> import aotlite as al
    >>> from aotlite.sharding import Shard, ShardedTensor
    >>> x = guarded(ShardedTensor.from_dense(al.ones(4), PoisonedMesh(2), Shard(0)))
    >>> x.sum().full_tensor().inner
    tensor(4.)
    >>> x.to_local(0) + x.to_local(1)
    Traceback (most recent call last):
        ...
    AssertionError: add: parts of ranks [0, 1], computed by None
    """
    parts = [RankTensor(part, rank) for rank, part in enumerate(x.parts)]
    made: ShardedTensor = type(x).of(x.mesh, x.placement, parts, x.meta)
    return made


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
    """The storages of tensors, each once, without those of tensors without data."""
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
