"""The memory accesses of a printed kernel, sweep by sweep, which `memory_traffic.py` counts.

A sweep goes over all points of a kernel once. Elements that several of its accesses touch are taken
to come from a cache after the first. Input: the printers' decisions; output: `Touch`es. Nothing
here is of C. Spec: `specs/cuda_traffic.md`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import attrs

from aotlite.backends.c_family.axis_passes import Passes
from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.loops.analysis.affine import Bounds, whole
from aotlite.backends.loops.analysis.conditions import executed
from aotlite.backends.loops.program import Store, values_of
from aotlite.ir.scalar.expression import Affine, Scalar

SECTOR = 32
"""The bytes of the smallest memory transaction."""


@attrs.frozen
class Touch:
    """The accesses of one load, or one store, at all points where it is executed."""

    buffer: int
    address: Affine
    bounds: Bounds
    itemsize: int
    scattered: bool = False
    """Whether neighboring threads access distant addresses, so that each access moves a sector."""

    @property
    def is_estimate(self) -> bool:
        """Whether the address depends on loaded values."""
        return bool(self.address.dynamic)


@attrs.frozen
class Sweep:
    """The loads and stores of one sweep."""

    loads: tuple[Touch, ...]
    stores: tuple[Touch, ...]


def swept(
    roots: Iterable[Scalar],
    stores: Sequence[Store],
    facts: KernelFacts,
    fast: int | None,
    *,
    ready: Collection[Scalar] = (),
    turned: Collection[Scalar] = (),
    fresh: Collection[Store] = (),
) -> Sweep:
    """Returns the accesses of a sweep for these values and stores.

    `fast`: the axis along which neighboring threads have neighboring points. `ready`: values that
    an earlier sweep left in registers. `turned`: loads that are transposed through tiles. `fresh`:
    stores that combine from the identity, without loading.
    """
    values = [*roots, *[value for each in stores for value in values_of(each)]]
    needed = _needed(values, ready)
    everywhere = whole(facts.extents)
    loads = [
        touch(each, each.args[0], each.args[1], bounds, None if each in turned else fast)
        for each, bounds in executed(values, everywhere).items()
        if each.op == "load" and bounds is not None and each in needed
    ]
    stored = [touch(each.value, each.buffer, each.address, everywhere, fast) for each in stores]
    combined = [
        each
        for each, store in zip(stored, stores, strict=True)
        if store.combine and store not in fresh
    ]
    return Sweep((*loads, *combined), tuple(stored))


def _needed(values: Iterable[Scalar], ready: Collection[Scalar]) -> set[Scalar]:
    """Returns the scalars that are loaded or computed for values, in all branches."""
    todo, found = list(values), set()
    while todo:
        scalar = todo.pop()
        if scalar not in found and scalar not in ready:
            found.add(scalar)
            todo += scalar.operands
    return found


def touch(value: Scalar, number: int, address: Affine, bounds: Bounds, fast: int | None) -> Touch:
    """Returns one access. Its strides decide whether it is scattered."""
    itemsize: int = value.dtype.itemsize
    wide = [abs(c) * itemsize >= SECTOR for c in address.coefficients]
    steps = zip(address.coefficients, bounds, strict=False)
    moving = [c != 0 and last > first for c, (first, last) in steps]
    dense = any(moves and not far for moves, far in zip(moving, wide, strict=True))
    scattered = fast is not None and fast < len(wide) and moving[fast] and wide[fast] and dense
    return Touch(number, address, bounds[: len(wide)], itemsize, scattered)


def of_passes(
    found: Passes,
    facts: KernelFacts,
    kept: Collection[Scalar],
    fast: int | None,
    fresh: Collection[Store],
) -> list[Sweep]:
    """Returns the sweeps of a kernel of rows, one for each pass. Values that stay in registers are
    loaded once."""
    sweeps: list[Sweep] = []
    ready: set[Scalar] = set()
    for stage in found.stages:
        work = [((), stage.rows), *[(each.roots, each.stores) for each in stage.passes]]
        for roots, stores in work:
            sweep = swept(roots, stores, facts, fast, ready=ready, fresh=fresh)
            sweeps += [sweep] if sweep.loads or sweep.stores else []
            values = [*roots, *[value for each in stores for value in values_of(each)]]
            ready |= {x for x in _needed(values, ready) if _stays(x, found, facts, kept)}
    return sweeps


def _stays(scalar: Scalar, found: Passes, facts: KernelFacts, kept: Collection[Scalar]) -> bool:
    """Whether a thread keeps a value from its first use on."""
    if scalar in kept or scalar in found.kept:
        return True
    return scalar.op == "load" and not facts.is_element(scalar)


def sectors(each: Touch, unit: int = SECTOR) -> int:
    """Returns the number of units of `unit` bytes that an access touches (TRA-1).

    A buffer begins at a whole unit. Runs of memory closer than a unit count as one run; runs
    farther apart share no unit.
    """
    per, address = max(unit // each.itemsize, 1), each.address
    scale = max(each.itemsize // unit, 1)
    low = address.start
    moving = []
    for c, (first, last) in zip(address.coefficients, each.bounds, strict=True):
        low += min(c * first, c * last)
        if c and last > first:
            moving.append((abs(c), last - first + 1))
    span = 1
    rest: list[tuple[int, int]] = []
    for step, count in sorted(moving):
        if step < span + per and not rest:
            span += step * (count - 1)
        else:
            rest.append((step, count))
    starts = [0] * per
    starts[low % per] = 1
    for step, count in rest:
        starts = _moved(starts, step, count)
    runs = [n * ((place + span - 1) // per + 1) for place, n in enumerate(starts)]
    return scale * sum(runs)


def _moved(starts: Sequence[int], step: int, count: int) -> list[int]:
    """Returns the number of runs that begin at each place of a unit, with one more axis."""
    per = len(starts)
    found = [0] * per
    period = per // math.gcd(per, step)
    for turn in range(min(period, count)):
        times = (count - turn - 1) // period + 1
        for place, number in enumerate(starts):
            found[(place + turn * step) % per] += number * times
    return found
