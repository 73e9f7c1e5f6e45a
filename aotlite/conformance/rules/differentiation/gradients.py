"""Gradients: saved values, what is collected where, and functions with gradients of their own."""

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
"""Name -> of an array, a result and the value that its gradient has to read."""

HIDDEN_WAYS = ("detach", "view of detach", "no_grad", "view under no_grad")


@rule(
    "TEN-12a",
    "a saved value that was written is noticed",
    tuple(itertools.product(SAVING, HIDDEN_WAYS)),
)
def saved_written(on: Adapter, case: tuple[str, str]) -> None:
    """A gradient that has to read what was written since raises; it is never silently wrong."""
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
    """A leaf, what the gradient reads, and the result."""
    x = leaf(on, (2,))
    y, saved = SAVING[op](on, on.mul(x, 1.0))
    return x, saved, y


@rule("TEN-12b", "a second backward is refused, or adds the same", SIZES)
def second_backward(on: Adapter, case: int) -> None:
    """A backward through what the first one has freed is never silently something else."""
    x = leaf(on, (case,))
    y = on.mul(x, x)
    on.backward(y, ones(on, case))
    once = [2.0 * each for each in numbers((case,))]
    error = attempt(on.backward, y, ones(on, case))
    twice = once if error else [2.0 * each for each in once]
    see(on, on.grad(x), twice, "the gradient after the second backward")


@rule("SAV-5", "a graph that is kept can be used again", SIZES)
def kept_graph(on: Adapter, case: int) -> None:
    """Backwards that keep the graph add their gradients up."""
    x = leaf(on, (case,))
    y = on.mul(x, x)
    on.backward_kept(y, ones(on, case))
    on.backward(y, ones(on, case))
    see(on, on.grad(x), [4.0 * each for each in numbers((case,))], "the gradient")


@rule("TEN-13", "a saved result is freed with its last name", ("exp", "view"))
def freed(on: Adapter, case: str) -> None:
    """What an op saves of its own result makes no cycle that waits for the garbage collector."""
    library = library_of(on)  # a recorder would keep what it has seen
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


# --- what is collected


@rule("TEN-27", "a leaf's hook runs once, with the sum", SIZES)
def hook_once(on: Adapter, case: int) -> None:
    """A leaf that is used twice collects once, when both gradients are there."""
    x = leaf(on, (case,))
    arrived: list[Array] = []
    on.on_gradient(x, arrived.append)
    y = on.add(on.mul(x, 2.0), on.mul(x, 3.0))
    on.backward(y, ones(on, case))
    expect([on.to_list(each) for each in arrived], [[5.0] * case], "what the hook was called with")


@rule("TEN-28a", "no gradient is not a gradient of zeros", SIZES)
def none_stays(on: Adapter, case: int) -> None:
    """A leaf that does not lead to the result has collected nothing; one that does, zeros too."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    on.backward(on.mul(x, 0.0), ones(on, case))
    see(on, on.grad(other), None, "the gradient of the other leaf")
    see(on, on.grad(x), [0.0] * case, "the gradient of the leaf that counts for nothing")


@rule("TEN-29a", "gradients add up", SIZES)
def accumulated(on: Adapter, case: int) -> None:
    """A second backward adds to what a leaf has collected."""
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
"""Ops whose gradient is the one that arrives, in another shape at most."""


@rule("TEN-29b", "what is collected is not the caller's memory", tuple(PASSING))
def own_memory(on: Adapter, case: str) -> None:
    """Writing the gradient that was given to `backward` changes no gradient that was collected."""
    x = leaf(on, (2,))
    y = PASSING[case](on, x)
    given = on.from_list([[1.0], [1.0]] if case == "transpose" else [1.0, 1.0], "float64")
    on.backward(y, given)
    see(on, on.grad(x), [1.0, 1.0], "the gradient")
    on.fill_(given, 9.0)
    see(on, on.grad(x), [1.0, 1.0], "the gradient after a write of the one that was given")


@rule("TEN-29c", "no two leaves collect in one memory", tuple(PASSING))
def separate_memory(on: Adapter, case: str) -> None:
    """A second backward through one leaf changes no other leaf's gradient."""
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
    """A backward that returns what was saved: right where `g` is one."""
    return ctx.saved_tensors[0], None


def saved_view(ctx: Any, g: Array) -> tuple[Array, None]:
    """A backward that returns a view of what was saved."""
    return ctx.saved_tensors[0].view(-1), None


@rule("TEN-29d", "nor in the memory of an operand", ("mul", "saved", "view of saved"))
def operand_memory(on: Adapter, case: str) -> None:
    """Writing a gradient that was collected changes nothing that the function has read."""
    x, w = leaf(on, (2,)), on.from_list([3.0, 4.0], "float64")
    if case == "mul":
        y = on.mul(x, w)
    else:
        y = on.call(on.custom(times, saved_itself if case == "saved" else saved_view), [x, w])
    on.backward(y, ones(on))
    see(on, on.grad(x), [3.0, 4.0], "the gradient")
    on.fill_(on.grad(x), 0.0)
    see(on, w, [3.0, 4.0], "the operand after a write of the gradient")


@rule("TEN-29e", "a backward adds in place", SIZES)
def adds_in_place(on: Adapter, case: int) -> None:
    """Who holds the gradient object of a leaf sees what later backwards add."""
    x = leaf(on, (case,))
    on.backward(on.mul(x, 2.0), ones(on, case))
    held = on.grad(x)
    on.backward(on.mul(x, 3.0), ones(on, case))
    see(on, held, [5.0] * case, "the gradient that was held")
    expect(on.grad(x) is held, True, "whether it is still the leaf's gradient")


@rule("TEN-29f", "a backward that is recorded adds out of place", SIZES)
def adds_outside(on: Adapter, case: int) -> None:
    """A backward whose gradients have histories leaves the gradient object that was there alone."""
    x = leaf(on, (case,))
    on.backward(on.mul(x, 2.0), ones(on, case))
    held = on.grad(x)
    on.backward_recorded(on.mul(x, x), ones(on, case))
    see(on, held, [2.0] * case, "the gradient that was held")
    see(on, on.grad(x), [2.0 * each + 2.0 for each in numbers((case,))], "the gradient")


@rule("TEN-40", "a retained gradient is that of the value now", SIZES)
def retained(on: Adapter, case: int) -> None:
    """After a write, the gradient that an array retains is that of its new value."""
    x = leaf(on, (case,))
    b = on.mul(x, 2.0)
    on.retain_grad(b)
    on.mul_(b, 3.0)
    on.backward(b, ones(on, case))
    see(on, on.grad(b), [1.0] * case, "the retained gradient")
    see(on, on.grad(x), [6.0] * case, "the gradient of the leaf")


# --- functions with a gradient of their own


def copied(ctx: Any, a: Array) -> Array:
    """Forward of a custom function: a copy."""
    return a.clone()


def tenfold(ctx: Any, g: Array) -> Array:
    """A backward that can be told from the true one."""
    return g * 10.0


@rule("TEN-30a", "a custom function's gradient is used", VIEWS)
def custom_used(on: Adapter, case: Chain) -> None:
    """The function's own backward counts, whatever is written to its result afterwards."""
    x = leaf(on, case[0])
    y = on.call(on.custom(copied, tenfold), [x])
    on.mul_(viewed(on, y, case[1]), 1.0)
    values = numbers(case[0])
    on.backward(y, on.from_list(weights(values), "float64"))
    found = list(flat(on.to_list(on.grad(x))))
    expect(found, [10.0 * each for each in flat(weights(values))], "the gradient, flat")


def sum_of_two(ctx: Any, a: Array, b: Array) -> Array:
    """Forward of a custom function of two arguments."""
    return a + 3.0 * b


def one_gradient(ctx: Any, g: Array) -> Array:
    """A backward that returns too few."""
    return g


def two_gradients(ctx: Any, g: Array) -> tuple[Array, Array]:
    """The right backward of `sum_of_two`."""
    return g, g * 3.0


@rule("TEN-30b", "a wrong number of gradients is refused", SIZES)
def wrong_number(on: Adapter, case: int) -> None:
    """A backward that returns fewer gradients than the function has arguments is refused."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    y = on.call(on.custom(sum_of_two, one_gradient), [x, other])
    error = attempt(on.backward, y, ones(on, case))
    expect(error is not None, True, "whether it is refused")


@rule("TEN-30c", "what a custom function saves is checked", HIDDEN_WAYS[::2])
def custom_saved(on: Adapter, case: str) -> None:
    """A value that a custom function has saved, written before the backward, is an error."""
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


@rule("TEN-30d", "what a custom function writes has its gradient", SIZES)
def custom_dirty(on: Adapter, case: int) -> None:
    """An argument that the function has written and marked is its result, with its backward."""
    x = leaf(on, (case,))
    b = on.mul(x, 1.0)
    result = on.call(on.custom(doubled_in_place, tenfold), [b])
    expect(result is b, True, "whether the result is the argument")
    see(on, b, [2.0 * each for each in numbers((case,))], "the argument")
    on.backward(b, ones(on, case))
    see(on, on.grad(x), [10.0] * case, "the gradient")


@rule("TEN-31a", "one array in two slots gets both gradients", SIZES)
def two_slots(on: Adapter, case: int) -> None:
    """A leaf that is given to a custom function twice collects the sum."""
    x = leaf(on, (case,))
    y = on.call(on.custom(sum_of_two, two_gradients), [x, x])
    on.backward(y, ones(on, case))
    see(on, on.grad(x), [4.0] * case, "the gradient")


def cube(ctx: Any, a: Array) -> Array:
    """Forward of a custom function that saves what lies between argument and result."""
    square = a * a
    ctx.save_for_backward(square)
    return square * a


def thrice_square(ctx: Any, g: Array) -> Array:
    """The right first derivative, of which the second cannot be known."""
    return ctx.saved_tensors[0] * g * 3.0


@rule("TEN-31b", "second derivatives of saved inner values are refused, or right", (1, 2))
def saved_inner(on: Adapter, case: int) -> None:
    """What a custom function saves has no history; a gradient through it is not silently zero."""
    x = leaf(on, (case,))
    y = on.mul(x, on.call(on.custom(cube, thrice_square), [x]))  # x ** 4
    slope = on.gradient_of(y, x, ones(on, case))
    error = attempt(on.backward, slope, ones(on, case))
    if error is None:
        right = [12.0 * each**2 for each in numbers((case,))]
        see(on, on.grad(x), right, "the second derivative that was not refused")


def doubled_gradient(ctx: Any, g: Array) -> Array:
    """A backward that writes the gradient that it gets."""
    return g.mul_(2.0)


@rule("TEN-31c", "a backward that writes its gradient is refused, or harms no other", SIZES[:2])
def gradient_written(on: Adapter, case: int) -> None:
    """What one backward does to the gradient it gets, no other branch sees, nor the caller."""
    x, other = leaf(on, (case,)), leaf(on, (case,))
    y = on.add(on.call(on.custom(copied, doubled_gradient), [on.mul(x, 1.0)]), on.mul(other, 1.0))
    given = ones(on, case)
    error = attempt(on.backward, y, given)
    if error is None:
        see(on, given, [1.0] * case, "the gradient that was given")
        see(on, on.grad(other), [1.0] * case, "the gradient of the other branch")


# --- second derivatives


@rule("DBL-1", "second derivatives know writes through views", (1, 2, 3))
def second_order(on: Adapter, case: int) -> None:
    """x * x, of which a view was multiplied by x: third powers there, squares elsewhere."""
    x = leaf(on, (case,))
    b = on.mul(x, x)
    on.mul_(on.narrow(b, 0, 0, 1), on.narrow(x, 0, 0, 1))
    slope = on.gradient_of(b, x, ones(on, case))
    first, *rest = numbers((case,))
    see(on, slope, [3.0 * first**2, *(2.0 * each for each in rest)], "the first derivative")
    on.backward(slope, ones(on, case))
    see(on, on.grad(x), [6.0 * first, *(2.0 for _ in rest)], "the second derivative")
