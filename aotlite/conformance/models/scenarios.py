"""Scenarios that run on a library and on the model of dual numbers: both must agree.

A scenario is a function of an adapter that makes leaves, computes, and returns a result and the
leaves. It contains no call that a library may refuse; rules of their own test those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.dual_numbers import DualModel
from aotlite.conformance.models.memory_model import dense, nested
from aotlite.conformance.models.model_arrays import Chain, Step
from aotlite.conformance.rules import expect

Scenario: TypeAlias = Callable[..., tuple[Array, Sequence[Array]]]
"""scenario(on, *case) -> (result, leaves)."""

VIEWS: tuple[Chain, ...] = (
    ((1,), ()),
    ((1,), (("view", (1,)),)),
    ((2,), (("select", 0, 1),)),
    ((2,), (("narrow", 0, 1, 1),)),
    ((2,), (("unsqueeze", 0),)),
    ((3,), (("slice", 0, 0, 3, 2),)),
    ((0,), (("view", (0,)),)),
    ((1, 2), (("transpose", 0, 1),)),
    ((2, 2), (("select", 1, 0),)),
    ((2, 2), (("diagonal",),)),
    ((2, 2), (("view", (4,)),)),
    ((2, 3), (("transpose", 0, 1), ("select", 0, 1))),
    ((2, 3), (("narrow", 1, 1, 2), ("select", 0, 1))),
    ((4,), (("as_strided", (2,), (2,), 1),)),
    ((4,), (("slice", 0, 1, 4, 1), ("slice", 0, 0, 3, 2))),
    ((5,), (("unfold", 0, 2, 3),)),
)
"""Bases and views of them, none of which overlaps itself."""

WRITES: tuple[tuple[str, object], ...] = (
    ("mul_", 3.0), ("add_", 1.0), ("fill_", 5.0), ("mul_", "w"), ("add_", "w"), ("copy_", "w"),
)  # fmt: skip
"""Writes in place: the method, and a number or another leaf."""


def numbers(shape: Sequence[int], first: float = 1.0) -> Any:
    """Nested lists of consecutive numbers."""
    count = math.prod(shape)
    return nested([first + index for index in range(count)], tuple(shape)) if count else []


def leaf(on: Adapter, shape: Sequence[int], first: float = 1.0) -> Array:
    """A new leaf of consecutive numbers that requires a gradient."""
    x = on.from_list(numbers(shape, first), "float64")
    on.requires_grad_(x, True)
    return x


def viewed(on: Adapter, base: Array, steps: Sequence[Step]) -> Array:
    """The view at the end of a chain of view ops."""
    for name, *arguments in steps:
        base = getattr(on, name)(base, *arguments)
    return base


def shape_of(case: Chain) -> tuple[int, ...]:
    """The shape of the last view of a chain."""
    shape, steps = case
    view = dense([0] * math.prod(shape), shape)
    for name, *arguments in steps:
        view = getattr(view, name)(*arguments)
    return view.shape


def written(on: Adapter, view: Array, write: tuple[str, object], w: Array | None) -> Array:
    """The result of one of `WRITES`, the operand of which may be the leaf `w`."""
    name, operand = write
    return getattr(on, name)(view, w if operand == "w" else operand)


def weights(values: object) -> Any:
    """The nested lists of 1, 2, 4 and so on in the shape of `values`."""
    power = iter(range(10**6))

    def weigh(each: object) -> object:
        return [weigh(one) for one in each] if isinstance(each, list) else 2.0 ** next(power)

    return weigh(values)


def flat(values: Any) -> Iterator[float]:
    """The numbers of nested lists in order."""
    if not isinstance(values, list):
        yield values
        return
    for each in values:
        yield from flat(each)


def see(on: Adapter, a: Array | None, expected: object, what: str) -> None:
    """Compares an array, or None, with values."""
    expect(None if a is None else on.to_list(a), expected, what)


def agree(on: Adapter, story: Scenario, *case: object) -> None:
    """Compares a scenario's values and gradients with the model's."""
    result, leaves = story(on, *case)
    model = DualModel()
    expected, model_leaves = story(model, *case)
    values = model.to_list(expected)
    expect(on.to_list(result), values, "the result")
    on.backward(result, on.from_list(weights(values), "float64"))
    for x, like in zip(leaves, model_leaves, strict=True):
        wanted = model.slopes(expected, list(flat(weights(values))), like)
        see_gradient(on, x, wanted)


def see_gradient(on: Adapter, x: Array, wanted: object) -> None:
    """Compares the gradient of a leaf; None counts as zeros."""
    found = on.grad(x)
    if found is None:
        expect(any(flat(wanted)), False, "whether a gradient of None should not be zero")
    else:
        expect(on.to_list(found), wanted, "the gradient")
