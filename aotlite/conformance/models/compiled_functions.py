"""The programs of the rules about compiled functions: their arguments and bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.call_effects import CallInputs, EffectProgram, Facet, Make, compare
from aotlite.conformance.models.scenarios import leaf, numbers
from aotlite.conformance.rules import Rule, rule

Programs: TypeAlias = dict[str, EffectProgram]


def same(id: str, title: str, *facets: Facet) -> Callable[[Callable[[], Programs]], Rule]:
    """Returns a decorator that makes a rule of a function that returns programs.

    The rule: plain and compiled calls of the programs agree in these facets. Its claim is the
    docstring of the function.
    """

    def declare(programs: Callable[[], Programs]) -> Rule:
        def check(on: Adapter, case: str) -> None:
            compare(on, programs()[case], facets)

        check.__doc__, check.__module__ = programs.__doc__, programs.__module__
        return rule(id, title, tuple(programs()))(check)

    return declare


# --- arguments of programs


def new(on: Adapter, shape: Sequence[int] = (2,), first: float = 1.0) -> Array:
    """A new array."""
    return on.from_list(numbers(shape, first), "float64")


def one(*shape: int) -> Make:
    """One new array of a shape."""
    return lambda on: CallInputs([new(on, shape)])


def two(on: Adapter) -> CallInputs:
    """Two arrays that share no memory."""
    return CallInputs([new(on), new(on, (2,), 10.0)])


def twice(on: Adapter) -> CallInputs:
    """One array as two arguments."""
    a = new(on)
    return CallInputs([a, a])


def overlapping(on: Adapter) -> CallInputs:
    """Two views that share one element, and the base."""
    base = new(on, (3,))
    return CallInputs([on.narrow(base, 0, 0, 2), on.narrow(base, 0, 1, 2)], [base])


def apart(on: Adapter) -> CallInputs:
    """Two views of one base that share no element."""
    base = new(on, (4,))
    return CallInputs([on.narrow(base, 0, 0, 2), on.narrow(base, 0, 2, 2)], [base])


def interleaved(on: Adapter) -> CallInputs:
    """Two interleaved views of one base, which share no element."""
    base = new(on, (4,))
    return CallInputs([on.slice(base, 0, 0, 4, 2), on.slice(base, 0, 1, 4, 2)], [base])


def base_and_view(on: Adapter) -> CallInputs:
    """A base and a view of all of it."""
    base = new(on)
    return CallInputs([base, on.view(base, (2,))])


def part(on: Adapter) -> CallInputs:
    """A view; the base and another view of it are observed."""
    base = new(on, (4,))
    return CallInputs([on.narrow(base, 0, 1, 2)], [base, on.narrow(base, 0, 0, 2)])


def computed(on: Adapter) -> CallInputs:
    """An array with a history."""
    x = leaf(on, (2,))
    return CallInputs([on.mul(x, 1.0)], leaves=[x])


def only_leaf(on: Adapter) -> CallInputs:
    """A leaf."""
    x = leaf(on, (2,))
    return CallInputs([x], leaves=[x])


def plain_and_leaf(on: Adapter) -> CallInputs:
    """An array without history, and a leaf."""
    w = leaf(on, (2,), 10.0)
    return CallInputs([new(on), w], leaves=[w])


def two_leaves(on: Adapter) -> CallInputs:
    """Two leaves."""
    x, w = leaf(on, (2,)), leaf(on, (2,), 10.0)
    return CallInputs([x, w], leaves=[x, w])


def view_with_history(on: Adapter) -> CallInputs:
    """A view of an array with a history, which is observed too."""
    x = leaf(on, (3,))
    base = on.mul(x, 1.0)
    return CallInputs([on.narrow(base, 0, 0, 2)], [base], [x])


def overlapping_with_history(on: Adapter) -> CallInputs:
    """Two overlapping views of an array with a history."""
    x = leaf(on, (3,))
    base = on.mul(x, 1.0)
    return CallInputs([on.narrow(base, 0, 0, 2), on.narrow(base, 0, 1, 2)], [base], [x])


# --- bodies of programs


def itself(on: Adapter, *arrays: Array) -> object:
    return arrays


def doubled(on: Adapter, a: Array, *others: Array) -> Any:
    on.mul_(a, 2.0)
    return (a, *others)


def doubled_and_read(on: Adapter, a: Array, b: Array) -> object:
    on.mul_(a, 2.0)
    return on.add(b, 1.0)


def read_and_doubled(on: Adapter, a: Array, b: Array) -> object:
    before = on.add(b, 1.0)
    on.mul_(b, 2.0)
    on.add_(a, before)
    return before


def tail(on: Adapter, a: Array) -> object:
    return on.narrow(a, 0, 1, 1)


def new_and_tail(on: Adapter, a: Array) -> object:
    y = on.mul(a, 2.0)
    return y, on.narrow(y, 0, 1, 1)


def two_tails(on: Adapter, a: Array) -> object:
    y = on.mul(a, 2.0)
    return on.narrow(y, 0, 1, 1), on.view(y, (2, 1))


def new_twice(on: Adapter, a: Array) -> object:
    y = on.mul(a, 2.0)
    return y, y


def tail_twice(on: Adapter, a: Array) -> object:
    view = on.narrow(a, 0, 1, 1)
    return view, view


def new_tail_twice(on: Adapter, a: Array) -> object:
    view = on.narrow(on.mul(a, 2.0), 0, 1, 1)
    return view, view


def through(view: Callable[[Adapter, Array], Array]) -> Callable[..., object]:
    """Returns a body that doubles a view of its argument, and returns the argument plus one."""

    def body(on: Adapter, a: Array) -> Any:
        on.mul_(view(on, a), 2.0)
        return on.add(a, 1.0)

    return body


def inner_write(on: Adapter, a: Array) -> object:
    y = on.mul(a, 2.0)
    on.mul_(on.narrow(y, 0, 0, 1), 5.0)
    return y


def inner_base_write(on: Adapter, a: Array) -> object:
    y = on.mul(a, 2.0)
    view = on.narrow(y, 0, 0, 1)
    on.mul_(y, 5.0)
    return view
