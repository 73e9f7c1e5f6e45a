"""Writes whose destination overlaps itself or an operand (TEN-7, TEN-8): refused, or right.

The right result is that of reading all operands before the first write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape, dense
from aotlite.conformance.models.model_arrays import (
    Modeled,
    Step,
    chain,
    is_possible,
    model_views,
    new,
    see,
    step,
)
from aotlite.conformance.rules import Rule, attempt, expect, refuses, rule
from aotlite.conformance.rules.mutation.writes import write, written
from aotlite.conformance.unsupported import Absent

ARITHMETIC = ("add_", "mul_", "add_out")
ALL = (*ARITHMETIC, "copy_", "setitem")


def repeated() -> Iterator[tuple[str, Shape, Step]]:
    """Arrays with a stride of 0 in a dimension of two or more elements."""
    for way in ALL:
        yield way, (1,), ("expand", (2,))
        yield way, (1,), ("as_strided", (2,), (0,), 0)
        yield way, (2,), ("expand", (2, 2))
        yield way, (2, 1), ("as_strided", (2, 3), (1, 0), 0)


def crossing() -> Iterator[tuple[str, Shape, Step]]:
    """Arrays whose rows overlap, without a stride of 0."""
    for way in ALL:
        yield way, (3,), ("as_strided", (2, 2), (1, 1), 0)
        yield way, (3,), ("unfold", 0, 2, 1)
        yield way, (5,), ("as_strided", (2, 3), (2, 1), 0)


def check_refused(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """Checks that a write of several values to one address is refused, and writes nothing."""
    way, shape, made = case
    base, [twin] = chain(on, (shape, (made,)))
    operand = new(on, twin.view.shape, first=5)
    refused = refuses(write, on, way, twin.array, operand.array)
    expect(refused, True, "whether the write was refused")
    see(on, base, "the base after the refusal")


@rule("TEN-7a", "a write to an expanded destination is refused", repeated)
def write_repeated(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """In-place ops refuse a destination with a stride of 0, and leave it unchanged."""
    check_refused(on, case)


@rule("TEN-8a", "a write to overlapping windows is refused", crossing)
def write_crossing(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """In-place ops refuse a destination exactly if two of its indices have one address."""
    check_refused(on, case)


def interleaved() -> Iterator[tuple[str, Shape, Step]]:
    """Unusual geometry without overlap: equal strides, strides in no order, sizes of 0 and 1."""
    for way in ALL:
        yield way, (1,), ("as_strided", (1,), (0,), 0)
        yield way, (2,), ("as_strided", (1, 2), (0, 1), 0)
        yield way, (4,), ("as_strided", (2, 2), (1, 2), 0)
        yield way, (6,), ("as_strided", (2, 2), (2, 3), 0)
        yield way, (2,), ("as_strided", (2, 0), (0, 0), 0)


@rule("TEN-8b", "a write without overlap is allowed, whatever the strides", interleaved)
def write_apart(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """Dimensions of size 0 and 1 never overlap; interleaved strides may not."""
    way, shape, made = case
    base, [twin] = chain(on, (shape, (made,)))
    operand = new(on, twin.view.shape, first=5)
    write(on, way, twin.array, operand.array)
    store(twin, way, operand.view.values())
    see(on, base, "the base after the write")


def store(twin: Modeled, way: str, operands: list[Any]) -> None:
    """Writes the model, with all operands read before the write."""
    pairs = zip(twin.view.values(), operands, strict=True)
    twin.view.write([written(way, *pair) for pair in pairs])


@rule("TEN-7b", "one number may be written to an overlapping destination", [
    (way, shape, made) for way in ("fill_", "setitem")
    for shape, made in (((1,), ("expand", (2,))), ((3,), ("as_strided", (2, 2), (1, 1), 0)))
], choice=True)  # fmt: skip
def fill_repeated(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """`fill_` and the assignment of a number run, as all elements get one value."""
    way, shape, made = case
    base, [twin] = chain(on, (shape, (made,)))
    write(on, way, twin.array, 3)
    twin.view.update(lambda _: 3)
    see(on, base, "the base after the write")


@rule("TEN-7c", "an operand may be the destination itself", [
    (way, shape, again) for way in ALL for shape in ((1,), (2,), (2, 2), (0,), ())
    for again in (False, True) if shape or not again
])  # fmt: skip
def itself(on: Adapter, case: tuple[str, Shape, bool]) -> None:
    """`a.add_(a)` runs, also with another view of the same elements as the operand."""
    way, shape, again = case
    twin = new(on, shape)
    operand = step(on, twin, "narrow", 0, 0, shape[0])[0] if again else twin
    write(on, way, twin.array, operand.array)
    store(twin, way, twin.view.values())
    see(on, twin, "the array after the write")


SHIFTS: tuple[tuple[Shape, Step, Step], ...] = (
    ((3,), ("narrow", 0, 1, 2), ("narrow", 0, 0, 2)),
    ((3,), ("narrow", 0, 0, 2), ("narrow", 0, 1, 2)),
    ((4,), ("slice", 0, 0, 4, 2), ("narrow", 0, 1, 2)),
    ((2, 2), ("narrow", 0, 0, 2), ("transpose", 0, 1)),
    ((2, 2), ("transpose", 0, 1), ("narrow", 0, 0, 2)),
    ((2, 2), ("narrow", 0, 0, 2), ("select", 0, 0)),
    ((2, 2), ("narrow", 0, 0, 2), ("select", 0, 1)),
    ((2, 2), ("narrow", 0, 0, 2), ("select", 1, 0)),
    ((3,), ("narrow", 0, 0, 3), ("narrow", 0, 1, 1)),
    ((3, 3), ("narrow", 0, 0, 3), ("transpose", 0, 1)),
    ((3, 2), ("narrow", 0, 1, 2), ("narrow", 0, 0, 2)),
    ((3, 2), ("narrow", 0, 0, 2), ("narrow", 0, 1, 2)),
    ((40,), ("narrow", 0, 1, 39), ("narrow", 0, 0, 39)),
    ((40,), ("narrow", 0, 7, 33), ("narrow", 0, 0, 33)),
)
"""Shape of the base, destination, source: two different views, most of which overlap."""


def shifted(ways: tuple[str, ...]) -> list[tuple[str, Shape, Step, Step]]:
    """`SHIFTS`, each with each of some ways to write."""
    return [(way, *shift) for shift in SHIFTS for way in ways]


def overlapping(on: Adapter, case: tuple[str, Shape, Step, Step]) -> bool:
    """Writes one view of a base from another and checks the base; returns whether it refuses."""
    way, shape, *steps = case
    base = new(on, shape, first=1)
    target, source = (step(on, base, *each)[0] for each in steps)
    refused = attempt(write, on, way, target.array, source.array) is not None
    if not refused:
        operand = source.view
        if operand.shape != target.view.shape:
            operand = operand.expand(target.view.shape)
        store(target, way, operand.values())
    see(on, base, "the base after the refusal" if refused else "the base after the write")
    return refused


def refused_or_right(id: str, title: str, *ways: str) -> Rule:
    """Returns the rule that these ways to write refuse, or read all operands first."""

    @rule(id, title, shifted(ways))
    def check(on: Adapter, case: tuple[str, Shape, Step, Step]) -> None:
        """A write from an overlapping view copies the old values, or raises."""
        overlapping(on, case)

    return check


copies = refused_or_right("TEN-7d", "overlapping copies: refused or right", "copy_", "setitem")
arithmetic = refused_or_right("TEN-7e", "overlapping arithmetic: refused or right", "add_", "mul_")


@rule("TEN-7f", "overlapping source: never refused", shifted(ALL[:2] + ALL[3:]),
    choice=True)  # fmt: skip
def as_if_copied(on: Adapter, case: tuple[str, Shape, Step, Step]) -> None:
    """No write is refused because its source overlaps its destination."""
    expect(overlapping(on, case), False, "whether the write was refused")


@rule("TEN-7g", "overlapping source: always refused", shifted(ALL[:2] + ALL[3:]), choice=True)
def always_refused(on: Adapter, case: tuple[str, Shape, Step, Step]) -> None:
    """Every write is refused whose source overlaps its destination without being the same view."""
    expect(overlapping(on, case), True, "whether the write was refused")


def shifts_of_one_shape() -> Iterator[tuple[Shape, Step, Step]]:
    """The members of `SHIFTS` that broadcast nothing."""
    for shape, *steps in SHIFTS:
        base = dense([0] * math.prod(shape), shape)
        out, source = (model_views(base, [each])[0] for each in steps)
        if source.shape == out.shape:
            yield shape, steps[0], steps[1]


@rule("OUT-1", "`out=` that overlaps an input: refused or right", shifts_of_one_shape)
def out_overlaps(on: Adapter, case: tuple[Shape, Step, Step]) -> None:
    """`add(a, a, out=c)`, where `c` overlaps `a`, sums the old values, or raises."""
    shape, *steps = case
    base = new(on, shape, first=1)
    out, source = (step(on, base, *each)[0] for each in steps)
    sums = [2 * value for value in source.view.values()]
    if attempt(on.add_out, source.array, source.array, out.array) is None:
        out.view.write(sums)
    see(on, base, "the base after the call")


@rule("OUT-2", "a cumulative sum into its own input: refused or right", [
    (shape, dim, shift) for shape in ((1,), (2,), (3,), (2, 2), (3, 2)) for dim in range(len(shape))
    for shift in (0, 1)
])  # fmt: skip
def cumsum_overlaps(on: Adapter, case: tuple[Shape, int, int]) -> None:
    """`cumsum(a, out=a)`, or into `a` shifted by one row, sums the old values, or raises."""
    shape, dim, shift = case
    base = new(on, (shape[0] + shift, *shape[1:]), first=1)
    source = step(on, base, "narrow", 0, 0, shape[0])[0]
    out = step(on, base, "narrow", 0, shift, shape[0])[0]
    sums = running_sums(source.view, dim)
    if attempt(on.cumsum_out, source.array, dim, out.array) is None:
        out.view.write(sums)
    see(on, base, "the base after the call")


def running_sums(view: Any, dim: int) -> list[int]:
    """The cumulative sums of a view along a dimension, in row-major order."""
    copy = view.as_strided(view.shape, view.strides, view.offset)
    memory = list(copy.memory)
    parts = copy.unbind(dim)
    totals = [0] * len(parts[0].values()) if parts else []
    for part in parts:
        totals = [total + value for total, value in zip(totals, part.values(), strict=True)]
        for address, total in zip(part.addresses(), totals, strict=True):
            memory[address] = total
    return [memory[address] for address in copy.addresses()]


@rule("OUT-3", "a sum into a part of its input: refused or right", [
    (shape, dim, place) for shape in ((2, 1), (2, 2), (3, 2)) for dim in (0, 1) for place in (0, -1)
])  # fmt: skip
def sum_overlaps(on: Adapter, case: tuple[Shape, int, int]) -> None:
    """A reduction into a row or column of its input sums the old values, or raises."""
    shape, dim, place = case
    base = new(on, shape, first=1)
    [out] = step(on, base, "select", dim, place)
    columns = zip(*(part.values() for part in base.view.unbind(dim)), strict=True)
    sums = [sum(column) for column in columns]
    if attempt(on.sum_out, base.array, dim, out.array) is None:
        out.view.write(sums)
    see(on, base, "the base after the call")


@rule("OUT-4", "a matrix product into its own factor: refused or right", [
    (size, which, dtype) for dtype in ("int64", "float64") for size in (1, 2, 3, 5)
    for which in ("left", "right", "both", "transposed")
])  # fmt: skip
def matmul_overlaps(on: Adapter, case: tuple[int, str, str]) -> None:
    """`matmul(a, b, out=a)` multiplies the old values, or raises."""
    size, which, dtype = case
    a, b = new(on, (size, size), dtype, 1), new(on, (size, size), dtype, 2)
    left, right = {"left": (a, b), "right": (b, a), "both": (a, a), "transposed": (a, b)}[which]
    out = step(on, a, "transpose", 0, 1)[0] if which == "transposed" else a
    rows, columns = left.view.to_list(), list(zip(*right.view.to_list(), strict=True))
    product = [sum(x * y for x, y in zip(row, col, strict=True)) for row in rows for col in columns]
    if attempt(on.matmul_out, left.array, right.array, out.array) is None:
        out.view.write(product)
    see(on, a, "the factor after the call")


def broadcast_self() -> Iterator[tuple[str, Shape, Step]]:
    """An array and one row or column of it."""
    for way in ("add_", "mul_"):
        for shape in ((2,), (2, 2), (3, 3)):
            for made in (("narrow", 0, 0, 1), ("narrow", 0, 1, 1), ("narrow", 1, 0, 1)):
                if is_possible((shape, (made,))):
                    yield way, shape, made


@rule("TEN-7h", "an array with a row of itself: refused or right", broadcast_self)
def own_row(on: Adapter, case: tuple[str, Shape, Step]) -> None:
    """`a.add_(a[:1])` adds the old values of the row, or raises."""
    way, shape, made = case
    overlapping(on, (way, shape, ("view", shape), made))


REVERSED: tuple[tuple[Shape, slice, slice], ...] = (
    ((2,), slice(None), slice(None, None, -1)),
    ((3,), slice(None, None, -1), slice(None)),
    ((4,), slice(1, None), slice(2, None, -1)),
    ((2, 2), slice(None), slice(None, None, -1)),
    ((40,), slice(None), slice(None, None, -1)),
)


@rule("TEN-7i", "an array reversed into itself: refused or right", [
    (way, *keys) for keys in REVERSED for way in ("copy_", "setitem", "add_", "mul_")
])  # fmt: skip
def reversed_source(on: Adapter, case: tuple[str, Shape, slice, slice]) -> None:
    """`a[:] = a[::-1]` writes the old values, or raises."""
    way, shape, target, source = case
    base = new(on, shape)
    if attempt(on.getitem, base.array, slice(None, None, -1)):
        raise Absent("negative steps")
    overlapping(on, (way, shape, ("getitem", target), ("getitem", source)))
