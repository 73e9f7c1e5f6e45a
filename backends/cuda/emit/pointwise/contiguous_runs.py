"""Vectorized access: which addresses of a thread's neighboring points form wide loads and stores.

A thread computes `width` neighboring points of one axis, from a multiple of `width` on. The
addresses that it passes are a *run* of memory. Its alignment follows from strides and start:

    width 4, float32, b0[8*i0 + i1]        one access of 16 bytes
                      b0[8*i0 + i1 + 2]    two accesses of 8 bytes, or two aligned ones around it
                      b0[8*i0 + 2*i1]      a run of 8 elements, of which every other one is used

Nothing here is of C. Input: addresses; output: `ContiguousRun`s. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs

from aotlite.backends.cuda.emit.kernel_code import divisor_of
from aotlite.backends.loops.analysis.expression_facts import varies_along
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import Store
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, unknown

BYTES = 16
"""The bytes of a thread's widest access."""
FURTHEST = 1 << 62
"""Beyond this only the power of two of a product is kept, which survives wrapping."""
MOST_TOGETHER = 4
"""The largest step between points of a run: parts of a pair, words of a block."""


@attrs.frozen
class ThreadMapping:
    """The mapping of points to threads: each thread takes vectors of `width` points."""

    extents: tuple[int, ...]
    order: tuple[int, ...]
    """The axes, outermost first. Along the last one neighboring threads take neighbors."""
    width: int = 1
    """The points of a vector."""
    flat: bool = False
    """Whether all points count as one axis, so that vectors cross the ends of the last axis."""
    patch: int | None = None
    """The axis of which a block takes several positions, as in a stencil, so that elements near
    each other along it are loaded by one block."""

    @property
    def vector(self) -> int:
        """The axis along which the points of a vector lie."""
        return self.order[-1]

    @property
    def points(self) -> int:
        """The number of points."""
        return math.prod(self.extents)

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of each axis in the row-major numbering of all points."""
        found, step = [0] * len(self.extents), 1
        for k in reversed(self.order):
            found[k] = step
            step *= self.extents[k]
        return tuple(found)


@attrs.frozen
class ContiguousRun:
    """Consecutive elements of a buffer that the points of a vector access.

    `address` is the run's first element, at the vector's first point. Point e accesses the element
    `offset + e * step` of the run.
    """

    buffer: int
    address: Affine
    count: int
    width: int
    """The elements of one access."""
    offset: int = 0
    step: int = 1


def moves(address: Affine, spread: ThreadMapping) -> bool:
    """Whether an address may differ among the points of a vector."""
    axes = spread.order if spread.flat else (spread.vector,)
    return any(address.coefficients[k] and is_axis(spread.extents[k]) for k in axes)


def run_of(
    buffer: int, address: Affine, spread: ThreadMapping, size: int, *, exact: bool = False
) -> ContiguousRun | None:
    """Returns the run of an address that moves; None if elements are accessed one by one.

    `size` is the buffer's. `exact`: only elements of the points may be touched, as of a store.
    """
    step, grain = _line(address, spread)
    if type(step) is not int or step == 0:
        return None
    if abs(step) > 1 and (exact or not 0 < step <= MOST_TOGETHER):
        return None
    if type(address.start) is not int:
        return _run_of_any_start(buffer, address, spread, step, grain)
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
    if exact or step > 1 or divisor_of(size, count) < count:
        width = math.gcd(shift, count)
        moved = attrs.evolve(address, start=first)
        return ContiguousRun(buffer, moved, count, width, offset, step) if width > 1 else None
    moved = attrs.evolve(address, start=first - shift)
    return ContiguousRun(buffer, moved, 2 * count, count, offset + shift, step)


def _run_of_any_start(
    buffer: int, address: Affine, spread: ThreadMapping, step: int, grain: int
) -> ContiguousRun | None:
    """Returns the run of an address of symbolic start: neighbors, aligned for all sizes."""
    count = spread.width
    if step != 1 or divisor_of(address.start, math.gcd(grain, count)) < count:
        return None
    return ContiguousRun(buffer, address, count, count) if count > 1 else None


def _line(address: Affine, spread: ThreadMapping) -> tuple[int, int]:
    """Returns (step of the address from point to point, a divisor of the addresses of all first
    points minus the start). Step 0: the addresses are no line."""
    if spread.flat:
        return (1, spread.width) if is_flat(address, spread) else (0, 1)
    if any(varies_along(value, spread.vector) for value, _ in address.dynamic):
        return 0, 1
    step = address.coefficients[spread.vector]
    if type(step) is not int or step == 0:
        return step, 1
    others = [c for k, c in enumerate(address.coefficients) if k != spread.vector]
    found = [c for c, k in zip(others, _others(spread), strict=True) if is_axis(spread.extents[k])]
    found += [by * divisor(value) for value, by in address.dynamic]
    grain = abs(step) * spread.width
    for each in found:
        grain = divisor_of(each, grain)
    return step, grain


def is_flat(address: Affine, spread: ThreadMapping) -> bool:
    """Whether an address is the number of the point, plus a constant."""
    steps = zip(address.coefficients, spread.strides, spread.extents, strict=True)
    return not address.dynamic and all(c == step or not is_axis(n) for c, step, n in steps)


def _others(spread: ThreadMapping) -> list[int]:
    return [k for k in range(len(spread.extents)) if k != spread.vector]


def _holds(address: Affine, extents: Sequence[int], before: int, step: int, size: int) -> bool:
    """Whether all elements of the runs lie in the buffer, also the unused ones."""
    if is_symbolic((*address.coefficients, *extents, size)):
        return False
    low = high = address.start + before
    for c, n in zip(address.coefficients, extents, strict=True):
        low, high = low + min(c * (n - 1), 0), high + max(c * (n - 1), 0)
    return not address.dynamic and low >= 0 and high + step <= size


def choices(value: Scalar) -> list[int]:
    """Returns the constants among which nested `where`s choose a value."""
    seen: dict[Scalar, None] = {}
    for each in unknown(value, seen, _branches):
        seen[each] = None
    found = [each.args[0] for each in seen if each.op == "const"]
    return [number if is_symbolic((number,)) else int(number) for number in found]


def _branches(value: Scalar) -> tuple[Scalar, ...]:
    return value.args[1:] if value.op == "where" else ()


def divisor(value: Scalar) -> int:
    """Returns a number that divides an integer value wherever it is computed. 0: it is 0."""
    known: dict[Scalar, int] = {}
    for each in unknown(value, known, _divided):
        known[each] = _own_divisor(each, [known[operand] for operand in _divided(each)])
    return known[value]


def _divided(value: Scalar) -> tuple[Scalar, ...]:
    """Returns the operands whose divisors decide a value's."""
    return value.args if value.op in ("add", "sub", "mul") else _branches(value)


def _own_divisor(value: Scalar, parts: list[int]) -> int:
    match value.op:
        case "const":
            number = value.args[0]
            return abs(int(number)) if type(number) is int else 1
        case "where" | "add" | "sub":
            return math.gcd(*parts)
        case "mul":
            product = math.prod(parts)
            return product if product < FURTHEST else math.gcd(product, FURTHEST)
    return 1


def runs_of_stores(
    stores: Sequence[Store], spread: ThreadMapping, sizes: Mapping[int, int]
) -> dict[int, ContiguousRun]:
    """Returns the runs of stores, by their place among the stores.

    A buffer with several stores is stored point by point, in order, unless the stores are
    neighbors, such as the two parts of a pair: then they are one run.
    """
    found: dict[int, ContiguousRun] = {}
    for number in {store.buffer for store in stores}:
        places = [k for k, store in enumerate(stores) if store.buffer == number]
        addresses = [stores[k].address for k in places]
        step = 1 if spread.flat else addresses[0].coefficients[spread.vector]
        if any(stores[k].unordered and stores[k].combine for k in places):
            continue
        if type(step) is not int:
            continue
        if len(places) == 1 and abs(step) == 1:
            run = run_of(number, addresses[0], spread, sizes[number], exact=True)
            found |= {} if run is None else {places[0]: run}
        elif len(places) == step and _are_neighbors(addresses):
            runs = [run_of(number, each, spread, sizes[number]) for each in addresses]
            found |= {k: run for k, run in zip(places, runs, strict=True) if run is not None}
    return found


def _are_neighbors(addresses: Sequence[Affine]) -> bool:
    """Whether addresses are neighbors that make up one aligned group."""
    if is_symbolic([each.start for each in addresses]):
        return False
    alike = {attrs.evolve(each, start=0) for each in addresses}
    starts = sorted([each.start for each in addresses])
    first, count = starts[0], len(starts)
    return len(alike) == 1 and first % count == 0 and starts == [*range(first, first + count)]


def together(itemsizes: Iterable[int]) -> int:
    """Returns the points of a vector for elements of these sizes: the narrowest ones fill 16 bytes,
    and the widest at most 32."""
    found = list(itemsizes)
    return max(1, min(BYTES // min(found), 2 * BYTES // max(found))) if found else 1
