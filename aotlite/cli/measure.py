"""Measurements of the demo: bytes that a tape keeps, times of alternating steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from aotlite.eager.autograd.nodes.op_nodes import OpNode, SliceAssign
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor


def saved_bytes(result: Tensor, outside: Iterable[Tensor]) -> int:
    """Returns the bytes that the tape behind `result` keeps for the backward, each storage once.

    Storages of tensors in `outside` do not count: parameters and arguments are alive anyway.
    """
    known = {id(tensor.storage) for tensor in outside}
    storages = {id(s): s for s in _saved_storages(result) if id(s) not in known}
    return sum(storage.buffer.nbytes for storage in storages.values())


def _saved_storages(result: Tensor) -> Iterator[Storage]:
    for node in _tape(result.grad_fn):
        inner = node.written if isinstance(node, SliceAssign) else node
        if isinstance(inner, OpNode):
            for saved in inner.kept_tensors():
                yield saved.tensor.storage


def _tape(start: Any) -> Iterator[object]:
    """Yields each tape node behind this one, itself included, once."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack += [edge[0] for edge in node.edges if edge is not None]


def alternating_medians(actions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Returns the median seconds of each action. They run in turns, so that all meet the same load
    of the machine."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, taken in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
