"""Writes in place: through views and chains of views, by every op; and the results of the ops."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape, dense, nested
from aotlite.conformance.models.model_arrays import (
    Chain,
    Modeled,
    Step,
    chain,
    demand_writes,
    fill,
    is_possible,
    model_views,
    new,
    poke,
    see,
    step,
)
from aotlite.conformance.rules import Rule, attempt, expect, rule
from aotlite.conformance.rules.cases import SHAPES, layouts, views
from aotlite.conformance.rules.memory.views import STEPPED
from aotlite.conformance.unsupported import Absent


def check_reaches(on: Adapter, case: Chain) -> None:
    """A write through a view reaches its base, at its place and nowhere else."""
    demand_writes(on)
    base, made = chain(on, case)
    for view in made:
        poke(on, view, 100)
        see(on, base, "the base after the write through the view")
        poke(on, view, 200, last=True)
        for twin in (base, *made):
            see(on, twin, "the array after the second write")


def reaches(id: str, name: str, title: str, *arguments: tuple[object, ...]) -> Rule:
    """Returns the rule that writes of an op's views reach the base, for all layouts."""
    return rule(id, title, partial(views, name, arguments))(check_reaches)


narrow = reaches("WRT-1", "narrow", "narrow writes its base", (0, 0, 1), (0, 1, 1), (1, 0, 1))
select = reaches("WRT-2", "select", "select writes its base", (0, 0), (0, -1), (1, 1))
stepped = reaches("WRT-3", "slice", "a slice with a step writes its base", *STEPPED)
transpose = reaches("WRT-4", "transpose", "transpose writes its base", (0, 1), (1, 2))
view = reaches("WRT-5", "view", "view writes its base", ((1,),), ((2, 1),), ((2,),), ((6,),))
unsqueeze = reaches("WRT-6", "unsqueeze", "unsqueeze writes its base", (0,), (1,))
squeeze = reaches("WRT-7", "squeeze", "squeeze writes its base", (0,), (1,))
split = reaches("WRT-10", "split", "the parts of split write their base", (1, 0), (2, 0), (1, 1))
index = reaches(
    "WRT-13",
    "getitem",
    "a basic index writes its base",
    (...,),
    ((slice(1, None), ...),),
    ((None, ...),),
    ((0, ...),),
    ((..., 0),),
    ((slice(None), 1, ...),),
)


def other_views() -> Iterator[Chain]:
    """Views that some libraries return read-only, or as scalars."""
    yield from views("diagonal", [()])
    yield from views("unfold", [(0, 1, 1), (0, 2, 1)])
    yield from views("expand", [((2,),), ((2, 2),)])
    yield from views("unbind", [(0,)])
    yield from (case for case in views("getitem", [(0,)]) if len(case[0]) == 1)


@rule("WRT-8", "a writable view shares memory both ways, or is a copy", other_views)
def both_ways(on: Adapter, case: Chain) -> None:
    """If a write does not show in the base, writes of the base do not show in the view."""
    demand_writes(on)
    base, made = chain(on, case)
    for view in made:
        unseen = base.values()
        if attempt(poke, on, view, 100) is None and on.to_list(base.array) == unseen:
            copy = on.to_list(view.array)
            fill(on, base, 55)
            return expect(on.to_list(view.array), copy, "the copy after a write to the base")
        see(on, base, "the base after the write through the view, or its refusal")
        see(on, view, "the view after the write through it, or its refusal")


def can_be_written(id: str, name: str, *arguments: tuple[object, ...]) -> Rule:
    """Returns the rule (a choice) that views of an op can be written."""
    cases = partial(views, name, arguments)
    return rule(id, f"{name} can be written", cases, choice=True)(check_reaches)


diagonal = can_be_written("WRT-9", "diagonal", ())
unfold = can_be_written("WRT-11", "unfold", (0, 1, 1), (0, 2, 2))

CHAINS: tuple[Step, ...] = (
    ("narrow", 0, 0, 1),
    ("narrow", 0, 1, 1),
    ("select", 0, 0),
    ("transpose", 0, 1),
    ("slice", 0, 0, 2, 2),
    ("unsqueeze", 0),
)


def chains() -> Iterator[Chain]:
    """A view of a view, in every layout."""
    for first in CHAINS:
        for shape, steps in views(first[0], [first[1:]]):
            yield shape, steps
    for outer in CHAINS:
        for shape, steps in list(views(outer[0], [outer[1:]])):
            if len(steps) == 2:
                yield shape, (*steps, ("unsqueeze", 0))


@rule("WRT-14", "a view of a view writes the base", chains)
def chained(on: Adapter, case: Chain) -> None:
    """A write through the last of a chain of views reaches the base."""
    check_reaches(on, case)


def pairs_of_views() -> Iterator[tuple[Shape, Step, Step]]:
    """Two views of one base."""
    for shape in ((1,), (2,), (2, 2), (2, 3)):
        possible = [each for each in CHAINS if is_possible((shape, (each,)))]
        yield from ((shape, a, b) for a, b in itertools.product(possible, repeat=2))


@rule("WRT-15", "two views of one base show each other's writes", pairs_of_views)
def siblings(on: Adapter, case: tuple[Shape, Step, Step]) -> None:
    """A write shows in both views where they overlap, and nowhere else."""
    shape, *steps = case
    base = new(on, shape)
    first, second = (step(on, base, *each)[0] for each in steps)
    poke(on, first, 100)
    poke(on, second, 200, last=True)
    for twin in (first, second, base):
        see(on, twin, "the array after both writes")


IN_PLACE = ("add_", "mul_", "fill_", "copy_")
WRITES: tuple[str, ...] = (*IN_PLACE, "setitem", "iadd", "add_out")


def writes() -> Iterator[tuple[str, Chain]]:
    """Every way to write, in every layout."""
    for case in layouts():
        yield from ((way, case) for way in WRITES)


def write(on: Adapter, way: str, array: Any, operand: Any) -> Any:
    """Writes an operand by one of `WRITES`; returns the library's result.

    Raises `Absent` if `+=` binds another object, as it has then written nothing.
    """
    match way:
        case "iadd":
            return _augment(on, array, operand)
        case "setitem":
            return on.setitem(array, ..., operand)
        case "fill_":
            return on.fill_(array, 3)
        case "add_out":
            return on.add_out(array, operand, array)
    return getattr(on, way)(array, operand)


def _augment(on: Adapter, array: object, operand: object) -> object:
    if on.iadd(array, operand) is not array:
        raise Absent("`+=` in place")  # IMM-2: an array that is not written is left alone
    return array


def written(way: str, value: int, operand: int) -> int:
    """Returns the value of an element after `write`."""
    match way:
        case "add_" | "iadd" | "add_out":
            return value + operand
        case "mul_":
            return value * operand
        case "fill_":
            return 3
    return operand


@rule("WRT-16", "every in-place op on a view writes the base", writes)
def every_write(on: Adapter, case: tuple[str, Chain]) -> None:
    """The elements of the view have new values; all others of the base keep theirs."""
    way, (shape, steps) = case
    if way == "iadd" and not steps:
        steps = (("unsqueeze", 0),)
    base, [twin] = chain(on, (shape, steps))
    operand = new(on, twin.view.shape, first=5)
    write(on, way, twin.array, operand.array)
    pairs = zip(twin.view.values(), operand.view.values(), strict=True)
    twin.view.write([written(way, *pair) for pair in pairs])
    see(on, twin, "the view after the write")
    see(on, base, "the base after the write")
    see(on, operand, "the operand after the write")


@rule("WRT-17", "an in-place op returns its operand", [
    (way, shape) for shape in ((1,), (), (2, 2), (0,)) for way in IN_PLACE
])  # fmt: skip
def same_object(on: Adapter, case: tuple[str, Shape]) -> None:
    """`add_`, `mul_`, `fill_` and `copy_` return the written object itself, or None."""
    way, shape = case
    twin, operand = new(on, shape), new(on, shape)
    result = write(on, way, twin.array, operand.array)
    expect(result is twin.array or result is None, True, "whether the result is the written object")


@rule("WRT-18", "an op with `out=` returns `out`", [(1,), (), (2, 2), (0,)])
def same_out(on: Adapter, case: Shape) -> None:
    """The op writes `out` and returns the same object."""
    a, out = new(on, case), new(on, case, first=9)
    result = on.add_out(a.array, a.array, out.array)
    expect(result is out.array, True, "whether the result is the written object")
    out.view.write([2 * value for value in a.view.values()])
    see(on, out, "out")


@rule("WRT-19", "`out=` of a view writes its base", [(3,), (2, 2), (3, 2)])
def out_view(on: Adapter, case: Shape) -> None:
    """`out=` may be a view with gaps: the base has the values."""
    base = new(on, case)
    [view] = step(on, base, "slice", 0, 0, case[0], 2)
    operand = new(on, view.view.shape, first=5)
    on.add_out(operand.array, operand.array, view.array)
    view.view.write([2 * value for value in operand.view.values()])
    see(on, base, "the base of out")


def smaller() -> Iterator[tuple[Shape, Shape, str]]:
    """Destinations and operands that broadcast to them."""
    for shape in ((2,), (2, 2), (2, 3), (0, 2)):
        for small in ((1,), (), (2,), (2, 1), (1, 2), (3,)):
            if is_possible((small, (("expand", shape),))):
                yield from ((shape, small, way) for way in ("setitem", "copy_", "add_", "mul_"))


@rule("WRT-20", "the operand of a write is broadcast", smaller)
def broadcast(on: Adapter, case: tuple[Shape, Shape, str]) -> None:
    """It is broadcast to the shape of the destination (TEN-9)."""
    shape, small, way = case
    twin, operand = new(on, shape), new(on, small, first=5)
    write(on, way, twin.array, operand.array)
    pairs = zip(twin.view.values(), operand.view.expand(shape).values(), strict=True)
    twin.view.write([written(way, *pair) for pair in pairs])
    see(on, twin, "the array after the write")


@rule("WRT-21", "a write to an empty view changes nothing", [
    (shape, way) for shape in ((2,), (2, 2)) for way in WRITES
])  # fmt: skip
def write_nothing(on: Adapter, case: tuple[Shape, str]) -> None:
    """The write is allowed, and the base keeps its values."""
    shape, way = case
    base = new(on, shape)
    [empty] = step(on, base, "narrow", 0, 1, 0)
    operand = new(on, empty.view.shape)
    write(on, way, empty.array, operand.array)
    see(on, base, "the base after the write to an empty view")


@rule("WRT-22", "a 0-d array can be written", [
    (way, steps) for way in WRITES[:5] for steps in ((), (("select", 0, 0),))
])  # fmt: skip
def write_point(on: Adapter, case: tuple[str, tuple[Step, ...]]) -> None:
    """A 0-d array, also a view of one element, is written in place like any other."""
    way, steps = case
    base, [twin] = chain(on, ((2,) if steps else (), steps))
    operand = new(on, (), first=5)
    write(on, way, twin.array, operand.array)
    twin.view.update(lambda value: written(way, value, 5))
    see(on, base, "the base after the write")


def assignments() -> Iterator[tuple[Shape, object, str]]:
    """Keys that fit a shape, with a number and with an array to assign."""
    keys = (0, ...), (slice(1, None), ...), ..., (..., 0), (slice(None), slice(1, None), ...)
    for shape in ((2,), (2, 2), (2, 3)):
        for key in keys:
            if is_possible((shape, (("getitem", key),))):
                yield from ((shape, key, kind) for kind in ("number", "array"))


@rule("WRT-23", "assignment by a basic index is a write through the view", assignments)
def assign(on: Adapter, case: tuple[Shape, object, str]) -> None:
    """`a[key] = value` has the effect of a write through `a[key]`."""
    shape, key, kind = case
    base = new(on, shape)
    target = base.view.getitem(key)
    operand = new(on, target.shape, first=5)
    on.setitem(base.array, key, operand.array if kind == "array" else 5)
    target.write(operand.view.values() if kind == "array" else [5] * len(target.values()))
    see(on, base, "the array after the assignment")


@rule("WRT-24", "views outlive their base", [
    case for case in layouts(SHAPES[1:]) if case[1] and 0 not in case[0]
])  # fmt: skip
def survives(on: Adapter, case: Chain) -> None:
    """Memory lives as long as any view of it, and can still be written."""
    shape, steps = case
    base = dense(list(range(math.prod(shape))), shape)
    [view] = model_views(base, steps)
    twin = Modeled(on.orphan(base.to_list(), "int64", steps), view)
    gc.collect(0)
    others = [new(on, shape, first=50) for _ in range(4)]
    see(on, twin, f"the view, with {len(others)} other arrays made since")
    fill(on, twin, 7)
    expect(
        on.to_list(twin.array), nested([7] * len(twin.view.values()), twin.view.shape), "the view"
    )
