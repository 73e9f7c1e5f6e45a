"""Differences of observations in values and memory alone, for engines without histories.

Place: beside `observe`, which also compares histories, versions and bases.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation, TensorSnapshot


def memory_differences(mine: Observation, its: Observation) -> list[str]:
    """Returns the differences in results, identity, geometry, values and shared memory.

    Not compared: histories, gradients, bases, versions, names of errors, offsets of empty tensors,
    strides of dimensions of size 1 and of values on new memory; nor anything after an error of the
    other engine, which may refuse more.
    """
    if its.error is not None:
        return []
    if mine.error is not None:
        return [f"error: {mine.error!r}, eager none"]
    return differences(_plain(mine, its), _plain(its, its))


def _plain(world: Observation, its: Observation) -> Observation:
    """The observation, restricted to values and memory."""
    given = {each.storage for each in its.called[: its.given]}
    written = [] if its.write is not None else world.written
    return Observation(
        plain=world.plain,
        given=world.given,
        objects=world.objects,
        called=_all_plain(world.called, given),
        written=_all_plain(written, given),
    )


def _all_plain(seen: Sequence[TensorSnapshot], given: set[int]) -> list[TensorSnapshot]:
    return [_plain_one(each, is_given=each.storage in given) for each in seen]


def _plain_one(seen: TensorSnapshot, *, is_given: bool) -> TensorSnapshot:
    wide = zip(seen.shape, seen.stride, strict=True)
    stride = tuple([step for size, step in wide if size > 1]) if is_given else ()
    empty = 0 in seen.shape
    return attrs.evolve(
        seen,
        stride=() if empty else stride,
        offset=0 if empty else seen.offset,
        dtype=seen.dtype.rpartition(".")[2].rstrip("_"),
        requires_grad=False,
        leaf=True,
        node=False,
        version=0,
        base=None,
    )
