"""Gradients: saved values, accumulation in leaves, and custom functions."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.model_arrays import Chain
from aotlite.conformance.models.scenarios import VIEWS, flat, leaf, numbers, see, viewed, weights
from aotlite.conformance.rules import attempt, expect, rule
from aotlite.conformance.witnesses.functions import library_of

SIZES = (1, 2, 0)


def ones(on: Adapter, size: int = 2) -> Array:
    """A gradient of ones."""
    return on.from_list([1.0] * size, "float64")


# --- values that a gradient reads

SAVING: dict[str, Callable[..., tuple[Array, Array]]] = {
    "square": lambda on, b: (on.mul(b, b), b),
    "operand": lambda on, b: (on.mul(b, w := on.clone(on.detach(b))), w),
    "exp": lambda on, b: (y := on.exp(b), y),
    "sin": lambda on, b: (on.sin(b), b),
    "matmul": lambda on, b: (on.view(on.matmul(b, on.clone(b)), (1,)), b),
}
"""Name -> function from an array to a result and the value that its gradient reads."""

HIDDEN_WAYS = ("detach", "view of detach", "no_grad", "view under no_grad")


@rule(
    "TEN-12a",
    "a saved value that was written is noticed",
    tuple(itertools.product(SAVING, HIDDEN_WAYS)),
)
def saved_written(on: Adapter, case: tuple[str, str]) -> None:
    """A backward that reads a value written since raises; it is never silently wrong."""
    op, way = case
    x, saved, y = _saved(on, op)
    size = len(on.to_list(y))
    clean, _, like = _saved(on, op)
    on.backward(like, ones(on, size))
    if "no_grad" in way:
        with on.no_grad():
            on.mul_(on.view(saved, (2, 1)) if "view" in way else saved, 3.0)
    else:
        alias = on.detach(saved)
        on.mul_(on.view(alias, (2, 1)) if "view" in way else alias, 3.0)
    error = attempt(on.backward, y, ones(on, size))
    if error is None:
        see(on, on.grad(x), on.to_list(on.grad(clean)), "the gradient that was not refused")


def _saved(on: Adapter, op: str) -> tuple[Array, Array, Array]:
    """Returns a leaf, the value that the gradient reads, and the result."""
    x = leaf(on, (2,))
    y, saved = SAVING[op](on, on.mul(x, 1.0))
    return x, saved, y


@rule("TEN-12b", "a second backward is refused, or adds the same gradient", SIZES)
def second_backward(on: Adapter, case: int) -> None:
    """A backward through a freed graph is never silently wrong."""
    x = leaf(on, (case,))
    y = on.mul(x, x)
    on.backward(y, ones(on, case))
    once = [2.0 * each for each in numbers((case,))]
    error = attempt(on.backward, y, ones(on, case))
    twice = once if error else [2.0 * each for each in once]
    see(on, on.grad(x), twice, "the gradient after the second backward")


@rule("SAV-5", "a retained graph can be used again", SIZES)
def kept_graph(on: Adapter, case: int) -> None:
    """Two backwards through a retained graph add up."""
    x = leaf(on, (case,))
    y = on.mul(x, x)
    on.backward_kept(y, ones(on, case))
    on.backward(y, ones(on, case))
    see(on, on.grad(x), [4.0 * each for each in numbers((case,))], "the gradient")


@rule("TEN-13", "a saved result is freed with its last reference", ("exp", "view"))
def freed(on: Adapter, case: str) -> None:
    """An op that saves its own result makes no reference cycle."""
    library = library_of(on)  # a recorder would keep the arrays alive
    x = leaf(on, (2,))
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        y = library.exp(x) if case == "exp" else library.view(library.exp(x), (2, 1))
        reference = weakref.ref(y)
        del y
        expect(reference() is None, True, f"whether {case}(x) is gone")
    finally:
        if was_enabled:
            gc.enable()


# --- accumulation in leaves


@rule("TEN-27", "a leaf's hook runs once, with the sum", SIZES)
def hook_once(on: Adapter, case: int) -> None:
    """The hook of a leaf that is used twice runs once, with the sum of both gradients."""
    x = leaf(on, (case,))
    arrived: list[Array] = []
    on.on_gradient(x, arrived.append)
    y = on.add(on.mul(x, 2.0), on.mul(x, 3.0))
    on.backward(y, ones(on, case))
    expect([on.to_list(each) for each in arrived], [[5.0] * case], "the arguments of the hook")


@rule("TEN-28a", "no gradient is not a gradient of zeros", SIZES)
def none_stays(on: Adapter, case: int) -> None:
    """The gradient of a leaf off the graph is None, that of a leaf multiplied by 0 zeros."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    on.backward(on.mul(x, 0.0), ones(on, case))
    see(on, on.grad(other), None, "the gradient of the other leaf")
    see(on, on.grad(x), [0.0] * case, "the gradient of the leaf multiplied by 0")


@rule("TEN-29a", "gradients accumulate", SIZES)
def accumulated(on: Adapter, case: int) -> None:
    """A second backward adds to the gradient of a leaf."""
    x = leaf(on, (case,))
    on.backward(on.mul(x, 2.0), ones(on, case))
    on.backward(on.mul(x, 3.0), ones(on, case))
    see(on, on.grad(x), [5.0] * case, "the gradient")


PASSING: dict[str, Callable[..., Array]] = {
    "mul": lambda on, a: on.mul(a, 1.0),
    "add": lambda on, a: on.add(a, 1.0),
    "clone": lambda on, a: on.clone(a),
    "view": lambda on, a: on.view(a, (2,)),
    "transpose": lambda on, a: on.transpose(on.unsqueeze(a, 0), 0, 1),
    "concat": lambda on, a: on.concat([a], 0),
}
"""Ops whose backward returns its gradient, reshaped at most."""


@rule("TEN-29b", "a leaf's gradient is not the caller's memory", tuple(PASSING))
def own_memory(on: Adapter, case: str) -> None:
    """A write of the gradient passed to `backward` changes no leaf's gradient."""
    x = leaf(on, (2,))
    y = PASSING[case](on, x)
    given = on.from_list([[1.0], [1.0]] if case == "transpose" else [1.0, 1.0], "float64")
    on.backward(y, given)
    see(on, on.grad(x), [1.0, 1.0], "the gradient")
    on.fill_(given, 9.0)
    see(on, on.grad(x), [1.0, 1.0], "the gradient after a write of the passed one")


@rule("TEN-29c", "no two leaves share the memory of their gradients", tuple(PASSING))
def separate_memory(on: Adapter, case: str) -> None:
    """A second backward to one leaf does not change the gradient of another."""
    x, other = leaf(on, (2,)), leaf(on, (2,))
    y = on.add(PASSING[case](on, x), PASSING[case](on, other))
    on.backward(y, on.from_list([[1.0], [1.0]] if case == "transpose" else [1.0, 1.0], "float64"))
    on.backward(on.mul(x, 1.0), ones(on))
    see(on, on.grad(x), [2.0, 2.0], "the gradient of the leaf that was used twice")
    see(on, on.grad(other), [1.0, 1.0], "the gradient of the other leaf")


def times(ctx: Any, a: Array, w: Array) -> Array:
    """Forward of a custom function: `a * w`."""
    ctx.save_for_backward(w)
    return a * w


def saved_itself(ctx: Any, g: Array) -> tuple[Array, None]:
    """A backward that returns the saved array: right where `g` is one."""
    return ctx.saved_tensors[0], None


def saved_view(ctx: Any, g: Array) -> tuple[Array, None]:
    """A backward that returns a view of the saved array."""
    return ctx.saved_tensors[0].view(-1), None


@rule(
    "TEN-29d",
    "a leaf's gradient is not the memory of an operand",
    ("mul", "saved", "view of saved"),
)
def operand_memory(on: Adapter, case: str) -> None:
    """A write of a leaf's gradient changes no operand of the function."""
    x, w = leaf(on, (2,)), on.from_list([3.0, 4.0], "float64")
    if case == "mul":
        y = on.mul(x, w)
    else:
        y = on.call(on.custom(times, saved_itself if case == "saved" else saved_view), [x, w])
    on.backward(y, ones(on))
    see(on, on.grad(x), [3.0, 4.0], "the gradient")
    on.fill_(on.grad(x), 0.0)
    see(on, w, [3.0, 4.0], "the operand after a write of the gradient")


@rule("TEN-29e", "a backward accumulates in place", SIZES)
def adds_in_place(on: Adapter, case: int) -> None:
    """Later backwards add to the same gradient object of a leaf."""
    x = leaf(on, (case,))
    on.backward(on.mul(x, 2.0), ones(on, case))
    held = on.grad(x)
    on.backward(on.mul(x, 3.0), ones(on, case))
    see(on, held, [5.0] * case, "the old gradient object")
    expect(on.grad(x) is held, True, "whether it is still the leaf's gradient")


@rule("TEN-29f", "a recorded backward accumulates out of place", SIZES)
def adds_outside(on: Adapter, case: int) -> None:
    """A backward with `create_graph` does not write the old gradient object of a leaf."""
    x = leaf(on, (case,))
    on.backward(on.mul(x, 2.0), ones(on, case))
    held = on.grad(x)
    on.backward_recorded(on.mul(x, x), ones(on, case))
    see(on, held, [2.0] * case, "the old gradient object")
    see(on, on.grad(x), [2.0 * each + 2.0 for each in numbers((case,))], "the gradient")


@rule("TEN-40", "a retained gradient is that of the present value", SIZES)
def retained(on: Adapter, case: int) -> None:
    """After a write, an array retains the gradient of its new value."""
    x = leaf(on, (case,))
    b = on.mul(x, 2.0)
    on.retain_grad(b)
    on.mul_(b, 3.0)
    on.backward(b, ones(on, case))
    see(on, on.grad(b), [1.0] * case, "the retained gradient")
    see(on, on.grad(x), [6.0] * case, "the gradient of the leaf")


# --- custom functions


def copied(ctx: object, a: Array) -> Array:
    """Forward of a custom function: a copy."""
    return a.clone()


def tenfold(ctx: object, g: Array) -> Array:
    """A backward that is wrong on purpose, so that a check sees that it ran."""
    return g * 10.0


@rule("TEN-30a", "a custom function's gradient is used", VIEWS)
def custom_used(on: Adapter, case: Chain) -> None:
    """The function's own backward runs, also after a write of its result."""
    x = leaf(on, case[0])
    y = on.call(on.custom(copied, tenfold), [x])
    on.mul_(viewed(on, y, case[1]), 1.0)
    values = numbers(case[0])
    on.backward(y, on.from_list(weights(values), "float64"))
    found = list(flat(on.to_list(on.grad(x))))
    expect(found, [10.0 * each for each in flat(weights(values))], "the gradient, flat")


def sum_of_two(ctx: object, a: Array, b: Array) -> Array:
    """Forward of a custom function of two arguments."""
    return a + 3.0 * b


def one_gradient(ctx: object, g: Array) -> Array:
    """A backward that returns one gradient too few."""
    return g


def two_gradients(ctx: object, g: Array) -> tuple[Array, Array]:
    """The right backward of `sum_of_two`."""
    return g, g * 3.0


@rule("TEN-30b", "a wrong number of gradients is refused", SIZES)
def wrong_number(on: Adapter, case: int) -> None:
    """A backward that returns fewer gradients than the function has arguments is refused."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    y = on.call(on.custom(sum_of_two, one_gradient), [x, other])
    error = attempt(on.backward, y, ones(on, case))
    expect(error is not None, True, "whether it is refused")


@rule("TEN-30c", "a write of a value that a custom function saved is noticed", HIDDEN_WAYS[::2])
def custom_saved(on: Adapter, case: str) -> None:
    """A backward that reads a saved value written since raises, or is right."""
    x, w = leaf(on, (2,)), on.from_list([3.0, 4.0], "float64")
    y = on.call(on.custom(times, saved_itself), [x, w])
    on.fill_(on.detach(w) if case == "detach" else w, 9.0)
    error = attempt(on.backward, y, ones(on))
    if error is None:
        see(on, on.grad(x), [3.0, 4.0], "the gradient that was not refused")


def doubled_in_place(ctx: Any, a: Array) -> Array:
    """Forward of a custom function that writes its argument."""
    a.mul_(2.0)
    ctx.mark_dirty(a)
    return a


@rule("TEN-30d", "an argument that a custom function writes has its gradient", SIZES)
def custom_dirty(on: Adapter, case: int) -> None:
    """An argument that the function writes and marks dirty has the function's backward."""
    x = leaf(on, (case,))
    b = on.mul(x, 1.0)
    result = on.call(on.custom(doubled_in_place, tenfold), [b])
    expect(result is b, True, "whether the result is the argument")
    see(on, b, [2.0 * each for each in numbers((case,))], "the argument")
    on.backward(b, ones(on, case))
    see(on, on.grad(x), [10.0] * case, "the gradient")


@rule("TEN-31a", "one array given as two arguments gets both gradients", SIZES)
def two_slots(on: Adapter, case: int) -> None:
    """A leaf that is both arguments of a custom function accumulates both gradients."""
    x = leaf(on, (case,))
    y = on.call(on.custom(sum_of_two, two_gradients), [x, x])
    on.backward(y, ones(on, case))
    see(on, on.grad(x), [4.0] * case, "the gradient")


def cube(ctx: Any, a: Array) -> Array:
    """Forward of a custom function that saves an intermediate value."""
    square = a * a
    ctx.save_for_backward(square)
    return square * a


def thrice_square(ctx: Any, g: Array) -> Array:
    """The right first derivative; a second one would need the history of the saved value."""
    return ctx.saved_tensors[0] * g * 3.0


@rule("TEN-31b", "second derivatives through saved intermediate values: refused or right", (1, 2))
def saved_inner(on: Adapter, case: int) -> None:
    """A saved value without history is not silently a constant to a second derivative."""
    x = leaf(on, (case,))
    y = on.mul(x, on.call(on.custom(cube, thrice_square), [x]))  # x ** 4
    slope = on.gradient_of(y, x, ones(on, case))
    error = attempt(on.backward, slope, ones(on, case))
    if error is None:
        right = [12.0 * each**2 for each in numbers((case,))]
        see(on, on.grad(x), right, "the second derivative that was not refused")


def doubled_gradient(ctx: object, g: Array) -> Array:
    """A backward that writes its gradient argument."""
    return g.mul_(2.0)


@rule("TEN-31c", "a backward that writes its gradient argument: refused or right", SIZES[:2])
def gradient_written(on: Adapter, case: int) -> None:
    """The write changes neither the caller's gradient nor that of another branch."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    y = on.add(on.call(on.custom(copied, doubled_gradient), [on.mul(x, 1.0)]), on.mul(other, 1.0))
    given = ones(on, case)
    error = attempt(on.backward, y, given)
    if error is None:
        see(on, given, [1.0] * case, "the gradient passed to backward")
        see(on, on.grad(other), [1.0] * case, "the gradient of the other branch")


# --- second derivatives


@rule("DBL-1", "second derivatives include writes through views", (1, 2, 3))
def second_order(on: Adapter, case: int) -> None:
    """A view of `x * x` is multiplied by `x`: the value is `x ** 3` there, `x ** 2` elsewhere."""
    x = leaf(on, (case,))
    b = on.mul(x, x)
    on.mul_(on.narrow(b, 0, 0, 1), on.narrow(x, 0, 0, 1))
    slope = on.gradient_of(b, x, ones(on, case))
    first, *rest = numbers((case,))
    see(on, slope, [3.0 * first**2, *(2.0 * each for each in rest)], "the first derivative")
    on.backward(slope, ones(on, case))
    see(on, on.grad(x), [6.0 * first, *(2.0 for _ in rest)], "the second derivative")
