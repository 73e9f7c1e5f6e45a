"""A library's array and the model's view of it together: rules make, write and compare them."""

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
"""A base's shape, and the steps from it."""


@attrs.frozen(eq=False)
class Modelled:
    """An array and its view in the model."""

    array: Array
    view: View

    def values(self) -> Any:
        """The values that the array should have."""
        return self.view.to_list()


def new(on: Adapter, shape: Shape, dtype: str = "int64", first: int = 0, rise: int = 1) -> Modelled:
    """A new array of numbers from `first` on, and its model."""
    values: list[Any] = [first + rise * place for place in range(math.prod(shape))]
    if dtype == "bool":
        values = [value % 2 == 1 for value in values]
    array = on.from_list(nested(values, shape), dtype) if values else on.zeros(shape, dtype)
    return Modelled(array, dense(values, shape))


def step(on: Adapter, twin: Modelled, name: str, *arguments: Any) -> list[Modelled]:
    """One or more views of a twin. *Err* `NoView`: the model has none, nothing is asked then."""
    made = getattr(twin.view, name)(*arguments)
    if not made:
        raise NoView
    arrays = getattr(on, name)(twin.array, *arguments)
    if isinstance(made, View):
        return [Modelled(arrays, made)]
    expect(len(arrays), len(made), f"the number of results of {name}")
    return [Modelled(array, view) for array, view in zip(arrays, made, strict=True)]


def chain(
    on: Adapter, case: Chain, dtype: str = "int64", rise: int = 1
) -> tuple[Modelled, list[Modelled]]:
    """The base, and what the last step makes; steps before go on from their first result."""
    shape, steps = case
    base = new(on, shape, dtype, rise=rise)
    twins = [base]
    for name, *arguments in steps:
        twins = step(on, twins[0], name, *arguments)
    return base, twins


def is_possible(case: Chain) -> bool:
    """Whether the model can make the chain, and it ends in something."""
    shape, steps = case
    try:
        return bool(model_views(dense([0] * math.prod(shape), shape), steps))
    except NoView:
        return False


def model_views(base: View, steps: Sequence[Step]) -> list[View]:
    """What the last step makes in the model. *Err* `NoView`."""
    views = [base]
    for name, *arguments in steps:
        made = getattr(views[0], name)(*arguments) if views else []
        views = [made] if isinstance(made, View) else made
    return views


def see(on: Adapter, twin: Modelled, what: str) -> None:
    """Compares an array with its model."""
    expect(on.to_list(twin.array), twin.values(), what)


def demand_writes(on: Adapter) -> None:
    """Raises `Absent` for a library whose arrays cannot be written, before any work is done."""
    if on.immutable:
        raise Absent("writes in place")


def fill(on: Adapter, twin: Modelled, number: Any) -> None:
    """Writes one number into all of an array by whatever means there are, and into the model."""
    overwrite(on, twin.array, number)
    twin.view.update(lambda _: number)


def overwrite(on: Adapter, array: Array, number: Any) -> None:
    """Writes one number into all of an array by whatever means there are."""
    try:
        on.setitem(array, ..., number)
    except Absent:
        try:
            on.fill_(array, number)
        except Absent:
            raise Absent("writes in place") from None


def poke(on: Adapter, twin: Modelled, number: complex, last: bool = False) -> None:
    """Writes the first or the last element of an array, and of the model; nothing if empty.

    All elements where the library writes no single ones.
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
