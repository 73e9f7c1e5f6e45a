"""Gradients in the functional form: the results of `vjp` (functional libraries too)."""

from __future__ import annotations

from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.dual_numbers import DualModel
from aotlite.conformance.models.model_arrays import Chain
from aotlite.conformance.models.scenarios import VIEWS, flat, leaf, numbers, see, viewed, weights
from aotlite.conformance.rules import rule
from aotlite.conformance.rules.differentiation.gradients import SIZES, ones
from aotlite.conformance.witnesses.functions import defined

OVERLAPPING: tuple[Chain, ...] = (
    ((1,), (("expand", (2,)),)),
    ((2,), (("expand", (2, 2)),)),
    ((3,), (("unfold", 0, 2, 1),)),
    ((3,), (("as_strided", (2, 2), (1, 1), 0),)),
    ((1, 2), (("expand", (2, 2)), ("transpose", 0, 1))),
)


@rule("AUT-1", "the gradient of a view goes to its elements of the base", VIEWS)
def view_gradient(on: Adapter, case: Chain) -> None:
    """Elements of the base that the view shows get their gradient, the others zero."""
    _view_gradient(on, case)


@rule("AUT-2", "the gradient of an element that a view shows twice is a sum", OVERLAPPING)
def overlapping_gradient(on: Adapter, case: Chain) -> None:
    """An element that a view shows several times gets the sum of the gradients."""
    _view_gradient(on, case)


def _view_gradient(on: Adapter, case: Chain) -> None:
    shape, steps = case
    a = on.from_list(numbers(shape), "float64")
    function, made = defined(on, lambda on, a: viewed(on, a, steps), [a])
    model = DualModel()
    like = leaf(model, shape)
    view = viewed(model, like, steps)
    given = weights(model.to_list(view))
    (found,) = on.vjp(function, [a], on.from_list(given, "float64"))
    see(on, made, model.to_list(view), "the view")
    see(on, found, model.slopes(view, list(flat(given)), like), "the gradient")


@rule("AUT-3", "an index given twice gets both gradients", ([0], [0, 0], [1, 0, 1]))
def picked_gradient(on: Adapter, case: list[int]) -> None:
    """The gradient of `a[[0, 0]]` adds both gradients to `a[0]`."""
    a = on.from_list([1.0, 2.0], "float64")
    function, _ = defined(on, lambda on, a: on.pick(a, case), [a])
    given = [2.0**index for index in range(len(case))]
    (found,) = on.vjp(function, [a], on.from_list(given, "float64"))
    expected = [sum(g for g, place in zip(given, case, strict=True) if place == i) for i in (0, 1)]
    see(on, found, expected, "the gradient")


@rule("AUT-4", "the gradient of overwritten elements is zero", (1, 2))
def update_gradient(on: Adapter, case: int) -> None:
    """A functional update passes the gradient of the updated elements to the value alone."""
    value: Any = 9.0
    a, b = on.from_list(numbers((case,)), "float64"), on.from_list(value, "float64")
    function, _ = defined(on, lambda on, a, b: on.set_at(a, 0, b), [a, b])
    given = [2.0, 4.0][:case]
    found, of_value = on.vjp(function, [a, b], on.from_list(given, "float64"))
    see(on, found, [0.0, *given[1:]], "the gradient of the array")
    see(on, of_value, 2.0, "the gradient of the value")


@rule("AUT-5", "vjp changes no argument, and can be repeated", SIZES)
def pure_gradient(on: Adapter, case: int) -> None:
    """Arguments and cotangent keep their values; a second call returns the same gradients."""
    a, b = (on.from_list(numbers((case,), first), "float64") for first in (1.0, 5.0))
    given = ones(on, case)
    function, _ = defined(on, lambda on, a, b: on.mul(a, b), [a, b])
    for _ in range(2):
        of_a, of_b = on.vjp(function, [a, b], given)
        see(on, of_a, numbers((case,), 5.0), "the gradient of the first argument")
        see(on, of_b, numbers((case,)), "the gradient of the second argument")
    see(on, a, numbers((case,)), "the first argument")
    see(on, given, [1.0] * case, "the cotangent")


@rule("AUT-6", "a detached alias stops gradients", SIZES)
def detach_stops(on: Adapter, case: int) -> None:
    """The gradient of `a * detach(a)` is that of the first factor alone."""
    a = on.from_list(numbers((case,)), "float64")
    function, _ = defined(on, lambda on, a: on.mul(a, on.detach(a)), [a])
    (found,) = on.vjp(function, [a], ones(on, case))
    see(on, found, numbers((case,)), "the gradient")


@rule("AUT-7", "one array given as two arguments has two gradients", SIZES)
def two_arguments(on: Adapter, case: int) -> None:
    """Each argument has its own gradient, also where both are one array."""
    a = on.from_list(numbers((case,)), "float64")
    function, _ = defined(on, lambda on, a, b: on.add(on.mul(a, 2.0), on.mul(b, 3.0)), [a, a])
    of_a, of_b = on.vjp(function, [a, a], ones(on, case))
    see(on, of_a, [2.0] * case, "the gradient of the first argument")
    see(on, of_b, [3.0] * case, "the gradient of the second argument")


@rule("AUT-9", "each gradient of a call has its own memory", SIZES[:2], choice=True)
def own_gradients(on: Adapter, case: int) -> None:
    """A write of one gradient changes neither another gradient nor the cotangent."""
    a, b = (on.from_list(numbers((case,), first), "float64") for first in (1.0, 5.0))
    function, _ = defined(on, lambda on, a, b: on.add(a, b), [a, b])
    given = ones(on, case)
    of_a, of_b = on.vjp(function, [a, b], given)
    on.fill_(of_a, 9.0)
    see(on, of_b, [1.0] * case, "the other gradient after the write")
    see(on, given, [1.0] * case, "the cotangent after the write")
