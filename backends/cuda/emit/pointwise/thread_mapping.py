"""The choice of a `ThreadMapping`: the one with which most bytes move in wide, coalesced accesses.

Candidates are single points, vectors along the last axis, and vectors of all points as one axis.
Input: the stores of a pointwise kernel. Nothing here is of C. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs

from aotlite.backends.c_family.axis_passes import cost
from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.cuda.emit.pointwise.contiguous_runs import (
    MOST_TOGETHER,
    ContiguousRun,
    ThreadMapping,
    choices,
    is_flat,
    moves,
    run_of,
    runs_of_stores,
    together,
)
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import Store, values_of
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Affine, walk

LEAST_ROW = 8
"""In rows of at least so many vectors an incomplete one at the end does not matter."""
OPERATIONS = 1200
"""The most operations of a vector, whose points are unrolled."""
PATCH_ROWS = 8
PATCH_VECTORS = 32
"""The rows and vectors of a patch, which a block takes at once for a stencil."""


@attrs.frozen
class _Access:
    """A load or a store; stores have a larger weight."""

    buffer: int
    address: Affine
    itemsize: int
    weight: int


def spread_of(
    stores: Sequence[Store],
    facts: KernelFacts,
    itemsizes: Mapping[int, int],
    *,
    tiles: bool = False,
) -> ThreadMapping:
    """Returns the mapping with the best accesses.

    `tiles`: loads go through tiles in shared memory, so that points stay divided along axes.
    """
    found = _accesses(stores, itemsizes)
    best = _by_ones(found, facts.extents)
    if type(best.points) is int and best.points < 2:
        return best
    quality = _quality(best, stores, found, facts.sizes)
    for spread in _candidates(stores, found, best):
        other = _quality(spread, stores, found, facts.sizes)
        if other > quality and not (tiles and spread.flat):
            best, quality = spread, other
    return best if best.flat or tiles else attrs.evolve(best, patch=_patch(found, best))


def vector_axis(stores: Sequence[Store], extents: Sequence[int]) -> int | None:
    """Returns the axis along which vectors would lie; None without axes."""
    found = _accesses(stores, {store.buffer: store.value.dtype.itemsize for store in stores})
    return _by_ones(found, extents).order[-1] if extents else None


def _accesses(stores: Sequence[Store], itemsizes: Mapping[int, int]) -> list[_Access]:
    """Returns the accesses of a point, also those in branches."""
    roots = [value for store in stores for value in values_of(store)]
    loads = [each for each in walk(roots) if each.op == "load"]
    found = [_Access(x.args[0], x.args[1], x.dtype.itemsize, 1) for x in loads]
    return found + [_Access(s.buffer, s.address, itemsizes[s.buffer], 2) for s in stores]


def _by_ones(found: Sequence[_Access], extents: Sequence[int]) -> ThreadMapping:
    """Returns the mapping of single points, with the axis of most neighboring bytes last."""
    gains = dict.fromkeys(range(len(extents)), 0)
    for each in found:
        for k, c in enumerate(each.address.coefficients[: len(extents)]):
            if type(c) is int and 1 <= abs(c) <= MOST_TOGETHER and is_axis(extents[k]):
                gains[k] += each.weight * _bytes(each, extents) // abs(c)
    last = max(gains, key=lambda k: (gains[k], k), default=None)
    every = range(len(extents))
    order = every if last is None else [*[k for k in every if k != last], last]
    return ThreadMapping(tuple(extents), tuple(order))


def _candidates(
    stores: Sequence[Store], found: Sequence[_Access], ones: ThreadMapping
) -> Iterable[ThreadMapping]:
    """Yields mappings by vectors: along the last axis, and of all points as one axis."""
    k, extent = ones.vector, hint_of(ones.extents[ones.vector])
    of_axis = [(each.itemsize, each.address.coefficients[k]) for each in found]
    steps = [(size, abs(step)) for size, step in of_axis if type(step) is int]
    sizes = [size * step for size, step in steps if 1 <= step <= MOST_TOGETHER]
    width = _within(together(sizes), stores)
    if extent % width == 0 or extent >= LEAST_ROW * width:
        yield attrs.evolve(ones, width=width)
    flat = attrs.evolve(ones, flat=True)
    sizes = [each.itemsize for each in found if is_flat(each.address, flat)]
    if len(ones.extents) > 1 and sizes:
        yield attrs.evolve(flat, width=_within(together(sizes), stores))


def _within(width: int, stores: Sequence[Store]) -> int:
    """Returns the width, halved until a vector has at most `OPERATIONS` operations."""
    roots = [value for store in stores for value in values_of(store)]
    operations = sum(cost(scalar) for scalar in walk(roots))
    while width > 1 and width * operations > OPERATIONS:
        width //= 2
    return width


def _quality(
    spread: ThreadMapping,
    stores: Sequence[Store],
    found: Sequence[_Access],
    sizes: Mapping[int, int],
) -> float:
    """Returns the bytes of all accesses, each weighted by how well it is made."""
    runs = runs_of_stores(stores, spread, sizes)
    of_stores = [runs.get(k) for k in range(len(stores))]
    loads = found[: len(found) - len(stores)]
    of_loads = [run_of(x.buffer, x.address, spread, sizes[x.buffer]) for x in loads]
    return sum(
        each.weight * _bytes(each, spread.extents) * _share(each, spread, run)
        for each, run in zip(found, [*of_loads, *of_stores], strict=True)
    )


def _share(each: _Access, spread: ThreadMapping, run: ContiguousRun | None) -> float:
    """Returns the quality of an access, from 0 for scattered to 1 for one that all points share."""
    if not moves(each.address, spread):
        return 1.0
    if run is not None:
        return 0.95 if run.width >= spread.width else 0.85
    step = abs(hint_of(each.address.coefficients[spread.vector]))
    if step > MOST_TOGETHER:
        return 0.0
    # Single points: neighboring threads access neighbors. Vectors: with gaps between them.
    return (0.8 if spread.width == 1 else 0.3) / max(step, 1)


def _bytes(each: _Access, extents: Sequence[int]) -> int:
    """Returns the bytes of all elements of an access, each once."""
    moving = zip(each.address.coefficients, extents, strict=False)
    return each.itemsize * math.prod([hint_of(n) for c, n in moving if c])


def _patch(found: Sequence[_Access], spread: ThreadMapping) -> int | None:
    """Returns the axis along which a stencil's loads of one buffer are neighbors; else None."""
    near: dict[int, int] = {}
    families: dict[tuple[int, tuple[int, ...]], set[int]] = {}
    for each in found:
        if each.weight == 1:
            key = each.buffer, each.address.coefficients
            families.setdefault(key, set()).update(_starts(each.address))
    for (_, coefficients), starts in families.items():
        for k in spread.order[:-1]:
            steps = {coefficients[k], 2 * coefficients[k]} - {0}
            if hint_of(spread.extents[k]) >= PATCH_ROWS and any(
                a + step in starts for a in starts for step in steps
            ):
                near[k] = near.get(k, 0) + len(starts)
    return max(near, key=lambda k: near[k], default=None)


def _starts(address: Affine) -> set[int]:
    """Returns the possible starts of an address; a chosen one has several."""
    if not address.dynamic:
        return {address.start}
    if len(address.dynamic) > 1:
        return set()
    ((value, step),) = address.dynamic
    return {address.start + step * each for each in choices(value)}
