"""Copies: `clone`, `copy=`, `astype`, `deepcopy`, pickles."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.error_source import demand_theirs
from aotlite.conformance.models.memory_model import NoView, Shape
from aotlite.conformance.models.model_arrays import (
    Chain,
    Modeled,
    chain,
    demand_writes,
    new,
    overwrite,
    poke,
    see,
    step,
)
from aotlite.conformance.rules import Rule, attempt, expect, refuses, rule
from aotlite.conformance.rules.cases import layouts
from aotlite.conformance.rules.memory.views import follow
from aotlite.conformance.unsupported import Absent


def check_copies(on: Adapter, case: Chain, make: Callable[[Adapter, Array], Array]) -> None:
    """Checks that a copy has the values, and that neither array shows later writes to the other."""
    demand_writes(on)
    base, [twin] = chain(on, case)
    before = twin.values()
    made = make(on, twin.array)
    expect(on.to_list(made), before, "the copy")
    poke(on, twin, 100)
    poke(on, twin, 200, last=True)
    expect(on.to_list(made), before, "the copy after the write to the original")
    attempt(overwrite, on, made, 300)
    see(on, base, "the original's base after the write to the copy")


def deeply_copied(on: Adapter, arrays: list[Array]) -> Any:
    """Returns a deep copy of a list of arrays. Raises `Absent` if the arrays do not support it."""
    try:
        return on.deepcopy(arrays)
    except TypeError as error:
        demand_theirs(error)
        raise Absent("deepcopy") from error


def through_pickle(on: Adapter, arrays: list[Array]) -> Any:
    """Returns a list of arrays, pickled and loaded. Raises `Absent` if they cannot be pickled."""
    try:
        return on.pickled(arrays)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        demand_theirs(error)
        raise Absent("pickles") from error


def copies(id: str, title: str, claim: str, make: Callable[[Adapter, Array], Array]) -> Rule:
    """Returns the rule that `make` copies an array of any layout."""

    def check(on: Adapter, case: Chain) -> None:
        check_copies(on, case, make)

    check.__doc__ = claim
    return rule(id, title, lambda: layouts())(check)


clone = copies(
    "COP-1", "clone copies", "A clone is new memory.", lambda on, a: on.clone(a)
)  # fmt: skip
asarray_true = copies(
    "COP-2",
    "asarray(copy=True) copies",
    "A conversion with `copy=True` copies, even where it has nothing to convert.",
    lambda on, a: on.asarray(a, True),
)
astype_true = copies(
    "COP-3",
    "astype(copy=True) copies",
    "A conversion to the array's own dtype copies with `copy=True`.",
    lambda on, a: on.astype(a, "int64", True),
)
astype_other = copies(
    "COP-4",
    "astype of another dtype copies, also with copy=False",
    "Another dtype needs new memory: writes to the original do not show.",
    lambda on, a: on.astype(a, "float64", False),
)
deepcopy = copies(
    "COP-5",
    "deepcopy copies",
    "Python's `deepcopy` of an array or a view returns new memory.",
    lambda on, a: deeply_copied(on, [a])[0],
)
pickled = copies(
    "COP-6",
    "a pickle copies",
    "A loaded pickle of an array or a view is new memory.",
    lambda on, a: through_pickle(on, [a])[0],
)


@rule("COP-7", "asarray(copy=False) shares memory", lambda: layouts())
def asarray_false(on: Adapter, case: Chain) -> None:
    """A conversion with `copy=False` returns the array itself, or a view."""
    _, [twin] = chain(on, case)
    made = on.asarray(twin.array, False)
    follow(on, twin, [Modeled(made, twin.view)])


@rule("COP-8", "asarray(copy=None) shares memory", lambda: layouts(), choice=True)
def asarray_none(on: Adapter, case: Chain) -> None:
    """A conversion with `copy=None` does not copy if it has nothing to convert."""
    _, [twin] = chain(on, case)
    made = on.asarray(twin.array, None)
    follow(on, twin, [Modeled(made, twin.view)])


@rule("COP-9", "astype(copy=False) of the same dtype shares memory", lambda: layouts())
def astype_false(on: Adapter, case: Chain) -> None:
    """A conversion to the array's own dtype returns the array itself, or a view."""
    _, [twin] = chain(on, case)
    made = on.astype(twin.array, "int64", False)
    follow(on, twin, [Modeled(made, twin.view)])


RESHAPED: tuple[tuple[Chain, Shape], ...] = (
    (((1,), ()), (1,)), (((2,), ()), (2, 1)), (((2, 2), ()), (4,)), (((0, 2), ()), (0,)),
    (((2, 2), (("transpose", 0, 1),)), (4,)), (((3, 3), (("narrow", 1, 0, 2),)), (6,)),
    (((2,), (("unsqueeze", 0), ("expand", (2, 2)))), (4,)),
)  # fmt: skip


@rule("COP-10", "reshape(copy=True) copies", RESHAPED)
def reshape_true(on: Adapter, case: tuple[Chain, Shape]) -> None:
    """A reshape with `copy=True` copies, even where strides allow a view."""
    layout, shape = case
    base, [twin] = chain(on, layout)
    made = on.reshape_copy(twin.array, shape, True)
    before = on.to_list(made)
    poke(on, base, 100)
    expect(on.to_list(made), before, "the copy after the write")


@rule("COP-11", "reshape(copy=False) shares memory or refuses", RESHAPED)
def reshape_false(on: Adapter, case: tuple[Chain, Shape]) -> None:
    """A reshape with `copy=False` returns a view, and raises where strides do not allow one."""
    layout, shape = case
    base, [twin] = chain(on, layout)
    try:
        view = twin.view.view(shape)
    except NoView:
        refused = refuses(on.reshape_copy, twin.array, shape, False)
        expect(refused, True, "whether the reshape refused")
    else:
        made = on.reshape_copy(twin.array, shape, False)
        follow(on, base, [Modeled(made, view)])


@rule("COP-12", "a copy of an expanded array has memory for each element", [
    (way, shape) for shape in ((2,), (2, 2)) for way in ("clone", "asarray")
])  # fmt: skip
def copy_expanded(on: Adapter, case: tuple[str, Shape]) -> None:
    """A write to one element of the copy changes no other element."""
    way, shape = case
    _, [twin] = chain(on, ((1,), (("expand", shape),)))
    makers: dict[str, Callable[[Array], Array]] = {
        "clone": on.clone,
        "asarray": lambda a: on.asarray(a, True),
    }
    made = makers[way](twin.array)
    copy = new(on, shape)
    fresh = Modeled(made, copy.view.as_strided(shape, copy.view.strides, 0))
    fresh.view.update(lambda _: 0)
    if attempt(poke, on, fresh, 100) is None:
        see(on, fresh, "the copy after a write to one element")


def aliases() -> Iterator[tuple[Shape, object]]:
    """An array and a view of it."""
    for shape in ((1,), (2,), (2, 2)):
        yield shape, ("narrow", 0, 0, 1)
        yield shape, ("view", shape)


def keeps_aliasing(on: Adapter, case: tuple[Shape, Any], copy: Callable[[Any], Any]) -> None:
    """Checks that an array and its view, copied together, share memory again."""
    shape, made = case
    base = new(on, shape)
    [view] = step(on, base, *made)
    first, second = copy([base.array, view.array])
    original = base.view.to_list()
    poke(on, Modeled(first, base.view), 100)
    see(on, Modeled(second, view.view), "the copied view after a write to the copied base")
    expect(on.to_list(base.array), original, "the original")


@rule("COP-13", "deepcopy keeps aliasing inside one copy", aliases, choice=True)
def deepcopy_aliases(on: Adapter, case: tuple[Shape, object]) -> None:
    """`deepcopy([a, a[:1]])` returns two arrays that share memory."""
    keeps_aliasing(on, case, partial(deeply_copied, on))


@rule("COP-14", "a pickle keeps aliasing inside one dump", aliases, choice=True)
def pickle_aliases(on: Adapter, case: tuple[Shape, object]) -> None:
    """`[a, a[:1]]`, pickled and loaded, are two arrays that share memory."""
    keeps_aliasing(on, case, partial(through_pickle, on))


@rule("COP-15", "deepcopy of one array given twice returns one array twice", [(1,), (2, 2)])
def deepcopy_identity(on: Adapter, case: Shape) -> None:
    """`deepcopy([a, a])` returns a list of one new array, twice."""
    twin = new(on, case)
    first, second = deeply_copied(on, [twin.array, twin.array])
    expect(first is second, True, "whether both are one object")
    expect(first is twin.array, False, "whether it is the original")
