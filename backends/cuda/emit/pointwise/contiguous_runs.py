"""How the points of a vector reach memory: which of their accesses are of several elements.

A thread computes `width` neighbouring points of one axis, beginning at a multiple of `width`. What
an address goes through meanwhile is a *run* of memory. Its alignment follows from strides and start
alone, so that it is known which accesses of up to 16 bytes it takes. Nothing here is of C.
Input: addresses; output: `ContiguousRun`s. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs

from aotlite.backends.loops.analysis.expression_facts import varies_along
from aotlite.backends.loops.expr import Affine, Scalar, unknown
from aotlite.backends.loops.program import Store

BYTES = 16
"""Of the widest access that a thread makes at once."""
FURTHEST = 1 << 62
"""Of products beyond it the power of two is kept: that is what a product that wraps around has."""
MOST_TOGETHER = 4
"""Elements of each point that are accessed as one run: parts of a pair, words of a block."""


@attrs.frozen
class ThreadMapping:
    """Which points a thread takes at once, and how vectors are numbered."""

    extents: tuple[int, ...]
    order: tuple[int, ...]
    """The axes, outermost first; along the last one neighbouring threads take neighbours."""
    width: int = 1
    """Points of a vector."""
    flat: bool = False
    """Vectors are of all points in a row, and go on over the ends of the last axis."""
    patch: int | None = None
    """The axis of which a block takes several positions: what is near along it is loaded twice."""

    @property
    def vector(self) -> int:
        """The axis along which points of a vector lie."""
        return self.order[-1]

    @property
    def points(self) -> int:
        """All points."""
        return math.prod(self.extents)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of each axis, in the row-major numbering of all points."""
        found, step = [0] * len(self.extents), 1
        for k in reversed(self.order):
            found[k] = step
            step *= self.extents[k]
        return tuple(found)


@attrs.frozen
class ContiguousRun:
    """Consecutive elements of a buffer that the points of a vector go through.

    The address is that of its first element at a vector's first point; element e of the vector lies
    `offset + e * step` behind it.
    """

    buffer: int
    address: Affine
    count: int
    width: int
    """Elements of one access."""
    offset: int = 0
    step: int = 1


def moves(address: Affine, spread: ThreadMapping) -> bool:
    """Whether an address differs among the points of a vector, for all that is known."""
    axes = spread.order if spread.flat else (spread.vector,)
    return any(address.coefficients[k] and spread.extents[k] > 1 for k in axes)


def run_of(
    buffer: int, address: Affine, spread: ThreadMapping, size: int, *, exact: bool = False
) -> ContiguousRun | None:
    """The run of an address that moves; None where elements are accessed one by one.

    `size` is of the buffer. `exact`: no element beside those of the points may be touched.
    """
    step, grain = _line(address, spread)
    if step == 0 or abs(step) > 1 and (exact or not 0 < step <= MOST_TOGETHER):
        return None
    count = abs(step) * spread.width
    first = address.start - (spread.width - 1 if step < 0 else address.start % abs(step))
    offset = spread.width - 1 if step < 0 else address.start % abs(step)
    grain = math.gcd(grain, count)
    shift = first % grain
    if step > 1 and not _holds(address, spread.extents, first - address.start, step, size):
        return None
    if shift == 0 or grain < count:
        width = math.gcd(grain, first)
        moved = attrs.evolve(address, start=first)
        return ContiguousRun(buffer, moved, count, width, offset, step) if width > 1 else None
    if exact or step > 1 or size % count:
        width = math.gcd(shift, count)
        moved = attrs.evolve(address, start=first)
        return ContiguousRun(buffer, moved, count, width, offset, step) if width > 1 else None
    moved = attrs.evolve(address, start=first - shift)
    return ContiguousRun(buffer, moved, 2 * count, count, offset + shift, step)


def _line(address: Affine, spread: ThreadMapping) -> tuple[int, int]:
    """How an address goes from point to point of a vector, and what divides the addresses of all
    first points, less the start; 0 where they are no line."""
    if spread.flat:
        return (1, spread.width) if is_flat(address, spread) else (0, 1)
    if any(varies_along(value, spread.vector) for value, _ in address.dynamic):
        return 0, 1
    step = address.coefficients[spread.vector]
    others = [c for k, c in enumerate(address.coefficients) if k != spread.vector]
    found = [c for c, k in zip(others, _others(spread), strict=True) if spread.extents[k] > 1]
    found += [by * divisor(value) for value, by in address.dynamic]
    return step, math.gcd(abs(step) * spread.width, *found)


def is_flat(address: Affine, spread: ThreadMapping) -> bool:
    """Whether an address goes on by 1 from each point to the next one of all."""
    steps = zip(address.coefficients, spread.strides, spread.extents, strict=True)
    return not address.dynamic and all(c == step or n == 1 for c, step, n in steps)


def _others(spread: ThreadMapping) -> list[int]:
    return [k for k in range(len(spread.extents)) if k != spread.vector]


def _holds(address: Affine, extents: Sequence[int], before: int, step: int, size: int) -> bool:
    """Whether a buffer has all elements of the runs, also those between what is loaded."""
    low = high = address.start + before
    for c, n in zip(address.coefficients, extents, strict=True):
        low, high = low + min(c * (n - 1), 0), high + max(c * (n - 1), 0)
    return not address.dynamic and low >= 0 and high + step <= size


def choices(value: Scalar) -> list[int]:
    """The numbers among which a value chooses, as far as they are known."""
    seen: dict[Scalar, None] = {}
    for each in unknown(value, seen, _branches):
        seen[each] = None
    return [int(each.args[0]) for each in seen if each.op == "const"]


def _branches(value: Scalar) -> tuple[Scalar, ...]:
    return value.args[1:] if value.op == "where" else ()


def divisor(value: Scalar) -> int:
    """A number that divides an integer value; 0 divides 0 alone."""
    known: dict[Scalar, int] = {}
    for each in unknown(value, known, _divided):
        known[each] = _own_divisor(each, [known[operand] for operand in _divided(each)])
    return known[value]


def _divided(value: Scalar) -> tuple[Scalar, ...]:
    """The values whose divisors tell a value's."""
    return value.args if value.op in ("add", "sub", "mul") else _branches(value)


def _own_divisor(value: Scalar, parts: list[int]) -> int:
    match value.op:
        case "const":
            return abs(int(value.args[0]))
        case "where" | "add" | "sub":
            return math.gcd(*parts)
        case "mul":
            product = math.prod(parts)
            return product if product < FURTHEST else math.gcd(product, FURTHEST)
    return 1


def runs_of_stores(
    stores: Sequence[Store], spread: ThreadMapping, sizes: Mapping[int, int]
) -> dict[int, ContiguousRun]:
    """The run of each store that has one, by its place among the stores.

    Where a buffer is stored to several times, all is stored point by point, in order; but for
    stores of neighbouring elements, which are one run.
    """
    found: dict[int, ContiguousRun] = {}
    for number in {store.buffer for store in stores}:
        places = [k for k, store in enumerate(stores) if store.buffer == number]
        addresses = [stores[k].address for k in places]
        step = 1 if spread.flat else addresses[0].coefficients[spread.vector]
        if any(stores[k].unordered and stores[k].combine for k in places):
            continue
        if len(places) == 1 and abs(step) == 1:
            run = run_of(number, addresses[0], spread, sizes[number], exact=True)
            found |= {} if run is None else {places[0]: run}
        elif len(places) == step and _are_neighbours(addresses):
            runs = [run_of(number, each, spread, sizes[number]) for each in addresses]
            found |= {k: run for k, run in zip(places, runs, strict=True) if run is not None}
    return found


def _are_neighbours(addresses: Sequence[Affine]) -> bool:
    """Whether addresses are those of all parts of one group."""
    alike = {attrs.evolve(each, start=0) for each in addresses}
    starts = sorted([each.start for each in addresses])
    first, count = starts[0], len(starts)
    return len(alike) == 1 and first % count == 0 and starts == [*range(first, first + count)]


def together(itemsizes: Iterable[int]) -> int:
    """Points of a vector: the narrowest elements fill 16 bytes, if the widest take 32 at most."""
    found = list(itemsizes)
    return max(1, min(BYTES // min(found), 2 * BYTES // max(found))) if found else 1
