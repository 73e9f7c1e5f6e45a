"""Advanced indexing, by lists and masks: reads copy, writes are in place (IDX in the specs)."""

from __future__ import annotations

from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import Step, chain, new, poke, see, step
from aotlite.conformance.rules import attempt, expect, refuses, rule

PICKS: tuple[tuple[int, list[int]], ...] = (
    (1, [0]), (2, [1]), (2, [0, 1]), (2, [1, 0]), (2, [0, 0]), (3, [0, 2]), (3, [0, 1, 2]),
    (3, [-1]), (2, []),
)  # fmt: skip
MASKS: tuple[list[bool], ...] = ([True], [False], [True, False], [True, True], [False, True, True])


@rule("IDX-1a", "indexing by a list copies", [(n, where, rest) for n, where in PICKS
    for rest in ((), (2,))])  # fmt: skip
def pick_copies(on: Adapter, case: tuple[int, list[int], Shape]) -> None:
    """`a[[0]]` is new memory, even where a view could express it: later writes do not show."""
    count, places, rest = case
    base = new(on, (count, *rest))
    rows = base.view.to_list()
    expected = [rows[place] for place in places]
    made = on.pick(base.array, places)
    expect(on.to_list(made), expected, "the selection")
    poke(on, base, 100)
    poke(on, base, 200, last=True)
    expect(on.to_list(made), expected, "the selection after the write")


@rule("IDX-1b", "indexing by a mask copies", MASKS)
def mask_copies(on: Adapter, case: list[bool]) -> None:
    """`a[mask]` is new memory, even where the mask selects every element."""
    base = new(on, (len(case),))
    expected = [value for value, holds in zip(base.view.values(), case, strict=True) if holds]
    made = on.pick_mask(base.array, case)
    expect(on.to_list(made), expected, "the selection")
    poke(on, base, 100)
    poke(on, base, 200, last=True)
    expect(on.to_list(made), expected, "the selection after the write")


@rule("IDX-1c", "a write of a selection leaves the array unchanged", PICKS[:7])
def write_picked(on: Adapter, case: tuple[int, list[int]]) -> None:
    """With `b = a[[0]]`, a write to `b` does not reach `a`, or is refused."""
    count, places = case
    base = new(on, (count,))
    made = on.pick(base.array, places)
    attempt(on.setitem, made, ..., 100)
    see(on, base, "the array after the write to the selection")


LAYOUTS: tuple[tuple[Shape, tuple[Step, ...]], ...] = (
    ((2,), ()), ((3,), (("narrow", 0, 1, 2),)), ((4,), (("slice", 0, 0, 4, 2),)),
    ((2, 2), (("select", 1, 0),)), ((2, 3), (("transpose", 0, 1),)), ((3, 2), ()),
)  # fmt: skip


@rule("IDX-1d", "assignment by a list writes in place", [
    (layout, places) for layout in LAYOUTS for places in ([0], [1], [1, 0], [-1])
])  # fmt: skip
def put_writes(on: Adapter, case: tuple[Any, list[int]]) -> None:
    """`a[[0, 1]] = value` writes `a`, and where `a` is a view, its base."""
    layout, places = case
    base, [twin] = chain(on, layout)
    rows = [twin.view.select(0, place) for place in places]
    operand = new(on, (len(places), *twin.view.shape[1:]), first=50)
    on.put(twin.array, places, operand.array)
    for row, values in zip(rows, operand.view.unbind(0), strict=True):
        row.write(values.values())
    see(on, base, "the base after the assignment")


@rule("IDX-1e", "assignment by a mask writes in place", MASKS)
def put_mask_writes(on: Adapter, case: list[bool]) -> None:
    """`a[mask] = number` writes where the mask is true, through views too."""
    base, [twin] = chain(on, ((2 * len(case),), (("slice", 0, 0, 2 * len(case), 2),)))
    on.put_mask(twin.array, case, 7)
    for index, holds in enumerate(case):
        if holds:
            twin.view.select(0, index).write([7])
    see(on, base, "the base after the assignment")


@rule("IDX-6a", "of several values for one index the last one stays", [
    (1, [0, 0]), (2, [0, 1, 0]), (2, [1, -1]), (2, [0] * 40), (3, [2, 1, 2, 1, 2])
])  # fmt: skip
def last_wins(on: Adapter, case: tuple[int, list[int]]) -> None:
    """`a[[0, 0]] = [5, 6]` leaves 6 in `a[0]`."""
    count, places = case
    base, operand = new(on, (count,)), new(on, (len(places),), first=5)
    on.put(base.array, places, operand.array)
    for place, value in zip(places, operand.view.values(), strict=True):
        base.view.select(0, place).write([value])
    see(on, base, "the array after the assignment")


@rule("IDX-6b", "accumulation adds once for each mention of an index", [
    (1, [0]), (1, [0, 0]), (2, [0, 1, 0]), (2, [1, -1, 1]), (1, [0] * 40)
])  # fmt: skip
def accumulates(on: Adapter, case: tuple[int, list[int]]) -> None:
    """Accumulation into the indices `[0, 0]` adds to `a[0]` twice."""
    count, places = case
    base, operand = new(on, (count,)), new(on, (len(places),), first=5)
    on.put_add(base.array, places, operand.array)
    for place, value in zip(places, operand.view.values(), strict=True):
        target = base.view.select(0, place)
        target.write([target.values()[0] + value])
    see(on, base, "the array after the addition")


OUTSIDE: tuple[tuple[int, list[int]], ...] = ((1, [1]), (1, [-2]), (2, [0, 2]), (2, [0, 1, -3]))


@rule("IDX-7a", "an assignment out of bounds is refused and writes nothing", OUTSIDE)
def put_outside(on: Adapter, case: tuple[int, list[int]]) -> None:
    """An index out of bounds raises, and the elements of earlier indices keep their values."""
    count, places = case
    base, operand = new(on, (count,)), new(on, (len(places),), first=5)
    refused = refuses(on.put, base.array, places, operand.array)
    expect(refused, True, "whether the assignment was refused")
    see(on, base, "the array after the refusal")


@rule("IDX-7b", "a list with an index out of bounds is refused", OUTSIDE)
def pick_outside(on: Adapter, case: tuple[int, list[int]]) -> None:
    """A read by such a list raises; the index is neither dropped nor clamped."""
    count, places = case
    base = new(on, (count,))
    expect(refuses(on.pick, base.array, places), True, "whether the read was refused")


@rule("IDX-7c", "an integer index out of bounds is refused", [(1, 1), (1, -2), (2, 2), (0, 0)])
def integer_outside(on: Adapter, case: tuple[int, int]) -> None:
    """`a[n]` of an array of size `n` raises."""
    count, place = case
    base = new(on, (count,))
    refused = refuses(on.getitem, base.array, (place, ...))
    expect(refused, True, "whether the read was refused")


@rule("IDX-6c", "assignment by a list of a part of the same array: refused or right", [
    (2, [1], (0, 1)), (3, [1, 2], (0, 2)), (3, [2, 0, 1], (0, 3)), (3, [0, 1], (1, 2))
])  # fmt: skip
def put_own_part(on: Adapter, case: tuple[int, list[int], tuple[int, int]]) -> None:
    """`a[[1, 2]] = a[:2]` writes the old values of `a[:2]`, or raises."""
    count, places, window = case
    base = new(on, (count,), first=1)
    [source] = step(on, base, "narrow", 0, *window)
    values = source.view.values()
    if attempt(on.put, base.array, places, source.array) is None:
        for place, value in zip(places, values, strict=True):
            base.view.memory[place] = value
    see(on, base, "the array after the assignment")
