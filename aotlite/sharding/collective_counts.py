"""`CommDebugMode`: which collectives a block ran, and which redistributions nobody asked for."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar, Token


class CommDebugMode:
    """A block that counts collectives, by op, and lists the redistributions that ops made.

    >>> import aotlite as al
    >>> from aotlite.sharding import Mesh, ShardedTensor, Shard
    >>> x = ShardedTensor.from_dense(al.arange(4.0), Mesh(2), Shard(0))
    >>> with CommDebugMode() as comm:
    ...     y = x.cumsum(0)
    >>> comm.get_comm_counts(), comm.implicit
    ({'all_gather': 1}, ['cumsum: Shard(dim=0) -> Replicate() of f32[4]'])
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.implicit: list[str] = []
        """For each: the op, the placement before and after, and of what."""
        self._before: list[Token[CommDebugMode | None]] = []

    def __enter__(self) -> CommDebugMode:
        self._before.append(_MODE.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _MODE.reset(self._before.pop())

    def get_comm_counts(self) -> dict[str, int]:
        """How often each collective ran."""
        return dict(self._counts)

    def get_total_counts(self) -> int:
        """How many collectives ran."""
        return self._counts.total()


_MODE: ContextVar[CommDebugMode | None] = ContextVar("aotlite.sharding.mode", default=None)


def note_collective(name: str) -> None:
    """Counts a collective, if a block does."""
    mode = _MODE.get()
    if mode is not None:
        mode._counts[name] += 1


def note_implicit(op: str, source: object, target: object, meta: object) -> None:
    """Lists a redistribution that an op made, if a block does."""
    mode = _MODE.get()
    if mode is not None:
        mode.implicit.append(f"{op}: {source} -> {target} of {meta}")
