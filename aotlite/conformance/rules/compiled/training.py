"""Compiled functions with gradients: histories and gradients are those of the plain call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.call_effects import (
    Body,
    CallInputs,
    Make,
    compare,
    gradients,
    histories,
    identity,
    program,
    values,
)
from aotlite.conformance.models.compiled_functions import (
    Programs,
    computed,
    doubled,
    doubled_and_read,
    inner_base_write,
    inner_write,
    one,
    only_leaf,
    overlapping_with_history,
    plain_and_leaf,
    read_and_doubled,
    same,
    tail,
    through,
    two,
    two_leaves,
    two_tails,
    view_with_history,
)
from aotlite.conformance.models.random_writes import Program, enact, few, smaller
from aotlite.conformance.models.scenarios import leaf, see
from aotlite.conformance.rules import attempt, expect, rule
from aotlite.conformance.rules.differentiation.gradients import copied, doubled_in_place, tenfold
from aotlite.conformance.witnesses.functions import defined


@same("RT-2", "gradients go through written arguments", values, histories, gradients)
def written() -> Programs:
    """Gradients of leaves through arguments that a compiled function wrote are right."""
    return {
        "not written": program(lambda on, a: on.mul(a, a), only_leaf),
        "written": program(doubled, computed),
        "by a leaf": program(lambda on, a, b: on.mul_(a, b), plain_and_leaf),
        "through a view": program(through(lambda on, a: on.narrow(a, 0, 0, 1)), computed),
        "a view": program(doubled, view_with_history),
        "overlapping": program(doubled_and_read, overlapping_with_history),
        "both overlapping": program(read_and_doubled, overlapping_with_history),
        "inside": program(inner_write, computed),
        "the base inside": program(inner_base_write, computed),
        "two views": program(two_tails, computed),
        "a view of the argument": program(tail, computed),
    }


def _no_grad_write(on: Adapter, a: Array) -> object:
    with on.no_grad():
        on.mul_(a, 3.0)
    return on.mul(a, a)


def _detached_write(on: Adapter, a: Array) -> object:
    on.mul_(on.detach(a), 3.0)
    return on.mul(a, a)


@same("FUN-20", "a write without history adds none", values, histories, gradients)
def written_without() -> Programs:
    """A write under no_grad or through `detach` does not change the array's history."""
    return {
        "under no_grad": program(_no_grad_write, computed),
        "a leaf under no_grad": program(_no_grad_write, only_leaf),
        "through detach": program(_detached_write, computed),
        "a leaf through detach": program(_detached_write, only_leaf),
    }


@same(
    "GRD-1b",
    "a second call with other leaves is right",
    values,
    histories,
    gradients,
)
def other_histories() -> Programs:
    """Each argument of one compiled function may require a gradient in one call only."""
    return {
        "none, then a leaf": program(lambda on, a: on.mul(a, a), one(2), only_leaf, computed),
        "a leaf, then none": program(lambda on, a: on.mul(a, a), only_leaf, one(2)),
        "the other of two": program(
            lambda on, a, b: on.mul(a, b),
            plain_and_leaf,
            lambda on: (
                given := plain_and_leaf(on),
                CallInputs(given.arguments[::-1], [], given.leaves),
            )[1],
            two,
            two_leaves,
        ),
        "written by one": program(lambda on, a, b: on.mul_(a, b), two, plain_and_leaf),
    }


@same(
    "FUN-15",
    "an array and its detached alias are two results",
    values,
    identity,
    histories,
    gradients,
)
def detached() -> Programs:
    """Each result has a history exactly if the plain result has one."""
    return {
        "both": program(lambda on, a: (y := on.mul(a, 2.0), on.detach(y)), only_leaf),
        "detached first": program(lambda on, a: (on.detach(y := on.mul(a, 2.0)), y), only_leaf),
        "of the argument": program(lambda on, a: on.detach(a), only_leaf),
    }


@same("FUN-36", "a change of requires_grad reaches the caller", values, histories)
def flags() -> Programs:
    """`requires_grad_` and `detach_` of an argument hold after the call."""
    return {
        "made a leaf": program(
            lambda on, a: (on.requires_grad_(a, True), on.mul(a, 2.0))[1], one(2)
        ),
        "detached": program(lambda on, a: (on.detach_(a), on.mul(a, 2.0))[1], computed),
    }


@rule("TAN-8", "a leaf off the graph of the loss has no gradient", ("first", "second"))
def one_result_used(on: Adapter, case: str) -> None:
    """If one of two results is used, leaves that lead to the other alone have no gradient."""
    leaves = [leaf(on, (2,)), leaf(on, (2,), 10.0)]
    function, _ = defined(on, lambda on, a, b: (on.mul(a, 2.0), on.mul(b, 3.0)), leaves)
    results = on.call(on.compile(function), leaves)
    used = 0 if case == "first" else 1
    on.backward(results[used], on.from_list([1.0, 1.0], "float64"))
    see(on, on.grad(leaves[1 - used]), None, "the gradient of the leaf that leads to the other")
    see(on, on.grad(leaves[used]), [2.0 + used] * 2, "the gradient of the leaf")


@rule("META-12", "each of several views of one op has its own backward", ("split", "unbind"))
def parts(on: Adapter, case: str) -> None:
    """The parts that `split` or `unbind` returned can be differentiated one after the other."""
    x = leaf(on, (2,))
    b = on.mul(x, 2.0)

    def body(on: Adapter, a: Array) -> Any:
        return on.split(a, 1, 0) if case == "split" else on.unbind(a, 0)

    function, _ = defined(on, body, [b])
    first, second = on.call(on.compile(function), [b])
    ones: Any = [1.0] if case == "split" else 1.0
    given = on.from_list(ones, "float64")
    on.backward_kept(first, given)
    on.backward(second, given)
    expect(on.to_list(on.grad(x)), [2.0, 2.0], "the gradient")


@rule("SAV-2", "a write of a saved argument is noticed", ("argument", "result", "view"))
def saved_written(on: Adapter, case: str) -> None:
    """A backward after a write of a saved value raises, or is right."""
    x, w = leaf(on, (2,)), on.from_list([3.0, 4.0], "float64")
    if case == "result":
        function, _ = defined(on, lambda on, a, b: on.exp(a), [x, w])
    elif case == "view":
        function, _ = defined(on, lambda on, a, b: on.mul(a, on.view(b, (2,))), [x, w])
    else:
        function, _ = defined(on, lambda on, a, b: on.mul(a, b), [x, w])
    y = on.call(on.compile(function), [x, w])
    right = on.to_list(y) if case == "result" else [3.0, 4.0]
    on.mul_(on.detach(y) if case == "result" else w, 5.0)
    error = attempt(on.backward, y, on.from_list([1.0, 1.0], "float64"))
    if error is None:
        expect(on.to_list(on.grad(x)), right, "the gradient that was not refused")


@rule("SAV-5b", "a retained compiled graph can be used again", (1, 2))
def kept(on: Adapter, case: int) -> None:
    """Two backwards through one compiled call add up."""
    x = leaf(on, (case,))
    function, _ = defined(on, lambda on, a: on.mul(a, 3.0), [x])
    y = on.call(on.compile(function), [x])
    given = on.from_list([1.0] * case, "float64")
    on.backward_kept(y, given)
    on.backward(y, given)
    expect(on.to_list(on.grad(x)), [6.0] * case, "the gradient")


@rule("DBL-1b", "second derivatives of compiled functions: refused or right", (1, 2))
def second_order(on: Adapter, case: int) -> None:
    """The second derivative of a compiled `x ** 3` is `6 * x`, or refused."""
    x = leaf(on, (case,))
    function, _ = defined(on, lambda on, a: on.mul(on.mul(a, a), a), [x])
    y = on.call(on.compile(function), [x])
    found: list[Any] = []

    def derive() -> None:
        given = on.from_list([1.0] * case, "float64")
        on.backward(on.gradient_of(y, x, given), given)
        found.append(on.to_list(on.grad(x)))

    if attempt(derive) is None:
        expect(found, [[6.0, 12.0][:case]], "the second derivative that was not refused")


@rule("AUT-8", "the vjp of a compiled function is that of the plain function", (1, 2, 0))
def functional(on: Adapter, case: int) -> None:
    """`vjp` returns the gradients of the plain function."""
    a, b = (on.from_list([first + i for i in range(case)], "float64") for first in (1.0, 10.0))
    function, _ = defined(on, lambda on, a, b: on.mul(on.mul(a, a), b), [a, b])
    given = on.from_list([1.0] * case, "float64")
    found = on.vjp(on.compile(function), [a, b], given)
    plain = on.vjp(function, [a, b], given)
    expect([*map(on.to_list, found)], [*map(on.to_list, plain)], "the gradients")


@rule("CMP-12", "random programs have the gradients of the plain call", few, smaller=smaller)
def drawn(on: Adapter, case: Program) -> None:
    """Any sequence of views and of writes through them has the gradients of the plain call."""

    def make(on: Adapter) -> CallInputs:
        x, w = leaf(on, case[:1]), leaf(on, case[:1], 10.0)
        return CallInputs([on.mul(x, 1.0), w], leaves=[x, w])

    facets = (values, histories, gradients)
    compare(on, program(lambda on, a, b: enact(on, case, a, b), make), facets)


# --- custom functions, compiled


def as_it_is(ctx: object, a: Array) -> Array:
    """Forward of a custom function: a view."""
    return a.view(a.shape)


def _custom(on: Adapter, forward: Callable[..., object], body: Body, make: Make) -> None:
    """Compares a program that calls a custom function with the backward `tenfold`."""
    function = on.custom(forward, tenfold)
    facets = (values, gradients, histories, identity)
    compare(on, program(lambda on, a: body(on, a, function), make), facets)


CUSTOM: dict[str, Body] = {
    "returned": lambda on, a, f: on.call(f, [a]),
    "used": lambda on, a, f: on.mul(on.call(f, [a]), 3.0),
    "viewed": lambda on, a, f: on.narrow(on.call(f, [a]), 0, 1, 1),
}


@rule(
    "FUN-38", "an argument that a custom function writes has its gradient, compiled", tuple(CUSTOM)
)
def custom_dirty(on: Adapter, case: str) -> None:
    """The compiled call keeps the backward of a custom function that writes its argument."""
    _custom(on, doubled_in_place, CUSTOM[case], computed)


@rule("META-8", "a view that a custom function returns has its gradient, compiled", tuple(CUSTOM))
def custom_view(on: Adapter, case: str) -> None:
    """The compiled call keeps the backward of a custom function that returns a view."""
    _custom(on, as_it_is, CUSTOM[case], computed)


@rule("TEN-31d", "a custom function's gradient is used, compiled", tuple(CUSTOM))
def custom_used(on: Adapter, case: str) -> None:
    """The compiled call keeps the backward of a custom function that returns a new array."""
    _custom(on, copied, CUSTOM[case], only_leaf)
