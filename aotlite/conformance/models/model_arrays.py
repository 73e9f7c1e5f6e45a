"""Pairs of a library's array and the model's view: rules make, write and compare them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.memory_model import NoView, Shape, View, dense, nested
from aotlite.conformance.rules import expect
from aotlite.conformance.unsupported import Absent

Step: TypeAlias = tuple[Any, ...]
"""A method's name and its arguments after the array: ("narrow", 0, 1, 2)."""
Chain: TypeAlias = tuple[Shape, tuple[Step, ...]]
"""The shape of a base, and the view steps from it."""


@attrs.frozen(eq=False)
class Modeled:
    """An array and its view in the model."""

    array: Array
    view: View

    def values(self) -> Any:
        """The values that the array should have."""
        return self.view.to_list()


def new(on: Adapter, shape: Shape, dtype: str = "int64", first: int = 0, rise: int = 1) -> Modeled:
    """A new array of the numbers `first`, `first + rise`, ..., and its model."""
    values: list[Any] = [first + rise * place for place in range(math.prod(shape))]
    if dtype == "bool":
        values = [value % 2 == 1 for value in values]
    array = on.from_list(nested(values, shape), dtype) if values else on.zeros(shape, dtype)
    return Modeled(array, dense(values, shape))


def step(on: Adapter, twin: Modeled, name: str, *arguments: object) -> list[Modeled]:
    """Returns one or more views of a pair.

    *Err* `NoView` if the model has none; the library is not called then.
    """
    made = getattr(twin.view, name)(*arguments)
    if not made:
        raise NoView
    arrays = getattr(on, name)(twin.array, *arguments)
    if isinstance(made, View):
        return [Modeled(arrays, made)]
    expect(len(arrays), len(made), f"the number of results of {name}")
    return [Modeled(array, view) for array, view in zip(arrays, made, strict=True)]


def chain(
    on: Adapter, case: Chain, dtype: str = "int64", rise: int = 1
) -> tuple[Modeled, list[Modeled]]:
    """Returns the base and the results of the last step.

    Each step is applied to the first result of the step before.
    """
    shape, steps = case
    base = new(on, shape, dtype, rise=rise)
    twins = [base]
    for name, *arguments in steps:
        twins = step(on, twins[0], name, *arguments)
    return base, twins


def is_possible(case: Chain) -> bool:
    """Whether the model can run the chain, and the last step has a result."""
    shape, steps = case
    try:
        return bool(model_views(dense([0] * math.prod(shape), shape), steps))
    except NoView:
        return False


def model_views(base: View, steps: Sequence[Step]) -> list[View]:
    """Returns the results of the last step in the model. Raises `NoView`."""
    views = [base]
    for name, *arguments in steps:
        made = getattr(views[0], name)(*arguments) if views else []
        views = [made] if isinstance(made, View) else made
    return views


def see(on: Adapter, twin: Modeled, what: str) -> None:
    """Compares an array with its model."""
    expect(on.to_list(twin.array), twin.values(), what)


def demand_writes(on: Adapter) -> None:
    """Raises `Absent` for a library with immutable arrays. Rules call it before any work."""
    if on.immutable:
        raise Absent("writes in place")


def fill(on: Adapter, twin: Modeled, number: object) -> None:
    """Writes one number to all elements of an array and of its model."""
    overwrite(on, twin.array, number)
    twin.view.update(lambda _: number)


def overwrite(on: Adapter, array: Array, number: Any) -> None:
    """Writes one number to all elements of an array, by `setitem` or else `fill_`."""
    try:
        on.setitem(array, ..., number)
    except Absent:
        try:
            on.fill_(array, number)
        except Absent:
            raise Absent("writes in place") from None


def poke(on: Adapter, twin: Modeled, number: complex, last: bool = False) -> None:
    """Writes the first or the last element of an array and of its model; nothing if it is empty.

    Writes all elements if the library lacks `setitem`.
    """
    shape = twin.view.shape
    if 0 in shape:
        overwrite(on, twin.array, number)
        return
    index = tuple(size - 1 if last else 0 for size in shape)
    try:
        on.setitem(twin.array, index, number)
    except Absent:
        return fill(on, twin, number)
    twin.view.memory[twin.view.addresses()[-1 if last else 0]] = number
