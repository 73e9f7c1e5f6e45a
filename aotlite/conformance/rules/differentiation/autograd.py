"""Histories: what writes in place do to gradients, and what is refused (TEN-4, TEN-14 to TEN-24).

Most rules are stories told twice, on the library and on the model of duals.
"""

from __future__ import annotations

import itertools
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.model_arrays import Chain
from aotlite.conformance.models.random_writes import Program, drawn, enact, smaller
from aotlite.conformance.models.scenarios import (
    VIEWS,
    WRITES,
    agree,
    leaf,
    numbers,
    shape_of,
    viewed,
    written,
)
from aotlite.conformance.rules import attempt, expect, rule

NUMBER_WRITES = tuple(write for write in WRITES if write[1] != "w")
SIZES = (1, 2, 0)


def refused(on: Adapter, write: tuple[str, object], target: Array, what: str) -> None:
    """Expects a write to be refused, and the array to keep its values."""
    before = on.to_list(target)
    name, operand = write
    error = attempt(getattr(on, name), target, operand)
    expect(error is not None, True, f"whether {what} is refused")
    expect(on.to_list(target), before, "the array after the refused write")


# --- detached aliases


@rule("TEN-4a", "detach shares memory", VIEWS)
def detach_shares(on: Adapter, case: Chain) -> None:
    """A write through a detached alias is seen in the array, and the other way round."""
    shape, steps = case
    base = on.from_list(numbers(shape), "float64")
    view = viewed(on, base, steps)
    alias = on.detach(view)
    on.fill_(alias, 7.0)
    expect(on.to_list(view), on.to_list(alias), "the array after a write of the alias")
    on.fill_(base, 8.0)
    expect(on.to_list(alias), on.to_list(view), "the alias after a write of the base")


@rule("TEN-4b", "detach cuts the history", SIZES)
def detach_cuts(on: Adapter, case: int) -> None:
    """No gradient goes through a detached alias, and it is a leaf that requires none."""
    x = leaf(on, (case,))
    alias = on.detach(on.mul(x, 1.0))
    expect(on.requires_grad(alias), False, "whether the alias requires a gradient")
    expect(on.is_leaf(alias), True, "whether the alias is a leaf")
    agree(on, lambda on: _times_detached(on, case))


def _times_detached(on: Adapter, size: int) -> tuple[Array, list[Array]]:
    x = leaf(on, (size,))
    return on.mul(x, on.detach(x)), [x]


@rule("TEN-4c", "a write through detach changes values, not gradients", VIEWS)
def write_through_detach(on: Adapter, case: Chain) -> None:
    """After a write through a detached alias the array has the new values and its old history."""
    agree(on, _write_detached, case)


def _write_detached(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    on.mul_(viewed(on, on.detach(b), case[1]), 5.0)
    return b, [x]


@rule("TEN-5a", "a hidden alias shares memory and is not noticed", SIZES)
def hidden_write(on: Adapter, case: int) -> None:
    """A write through a hidden alias changes values; saved ones too, without an error."""
    x = leaf(on, (case,))
    b = on.mul(x, 1.0)
    y = on.mul(b, b)
    on.mul_(on.hidden_alias(b), 3.0)
    expect(on.to_list(b), [3.0 * each for each in numbers((case,))], "the array")
    on.backward(y, on.from_list([1.0] * case, "float64"))
    gradient = [6.0 * each for each in numbers((case,))]
    expect(on.to_list(on.grad(x)), gradient, "the gradient, of the values that are there now")


# --- leaves


@rule("TEN-14a", "only floats can be leaves", ("int64", "int32", "bool"))
def integers_refused(on: Adapter, case: str) -> None:
    """Integers and truth values cannot require a gradient."""
    a = on.from_list([True] if case == "bool" else [1], case)
    error = attempt(on.requires_grad_, a, True)
    expect(error is not None, True, "whether a gradient of integers is refused")


@rule("TEN-14b", "a leaf is what has no history", ("new", "leaf", "view of new", "sum", "view"))
def leaves(on: Adapter, case: str) -> None:
    """What is new and what requires no gradient are leaves; what a leaf leads to is not."""
    x = on.from_list([1.0, 2.0], "float64") if "new" in case else leaf(on, (2,))
    made = {"sum": lambda: on.add(x, 1.0), "leaf": lambda: x, "new": lambda: x}
    array = made.get(case, lambda: on.view(x, (2, 1)))()
    expect(on.is_leaf(array), case in ("new", "leaf", "view of new"), "whether it is a leaf")
    expect(on.requires_grad(array), "new" not in case, "whether it requires a gradient")


@rule("TEN-14c", "a history cannot be switched off", SIZES)
def history_stays(on: Adapter, case: int) -> None:
    """What is not a leaf cannot stop requiring a gradient; `detach` is the way."""
    y = on.mul(leaf(on, (case,)), 2.0)
    error = attempt(on.requires_grad_, y, False)
    expect(error is not None, True, "whether it is refused")
    expect(on.requires_grad(y), True, "whether the array still requires a gradient")


@rule("TEN-15a", "writing a leaf is refused", tuple(itertools.product(SIZES, NUMBER_WRITES)))
def leaf_write(on: Adapter, case: tuple[int, tuple[str, object]]) -> None:
    """A leaf that requires a gradient cannot be written while histories are kept."""
    size, write = case
    refused(on, write, leaf(on, (size,)), "a write of a leaf")


@rule("TEN-15b", "writing a view of a leaf is refused", VIEWS[1:])
def leaf_view_write(on: Adapter, case: Chain) -> None:
    """No view of a leaf that requires a gradient can be written either."""
    x = leaf(on, case[0])
    view = viewed(on, x, case[1])
    refused(on, ("mul_", 2.0), view, "a write of a view of a leaf")
    expect(on.to_list(x), numbers(case[0]), "the leaf")


@rule("TEN-15c", "a leaf can be written without histories", VIEWS)
def leaf_write_no_grad(on: Adapter, case: Chain) -> None:
    """Under no_grad a leaf takes new values, stays a leaf, and later gradients are of those."""
    agree(on, _leaf_written, case)


def _leaf_written(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    with on.no_grad():
        on.mul_(viewed(on, x, case[1]), 3.0)
    return on.mul(x, x), [x]


# --- writes of what has a history


@rule("TEN-16a", "a write keeps the object and renews its history", WRITES)
def write_renews(on: Adapter, case: tuple[str, object]) -> None:
    """The result of a write is the array itself; its gradient is that of old value and write."""
    for size in SIZES:
        agree(on, _written_whole, size, case)


def _written_whole(on: Adapter, size: int, write: tuple[str, object]) -> tuple[Array, list[Array]]:
    x, w = leaf(on, (size,)), leaf(on, (size,), 10.0)
    b = on.mul(x, 2.0)
    result = written(on, b, write, w)
    expect(result is b, True, "whether the result is the array that was written")
    return b, [x, w]


@rule("TEN-16b", "what is written with a history has one", SIZES)
def write_begins(on: Adapter, case: int) -> None:
    """An array that required no gradient does so after a write of something that does."""
    agree(on, _becomes, case)


def _becomes(on: Adapter, size: int) -> tuple[Array, list[Array]]:
    w = leaf(on, (size,))
    b = on.from_list(numbers((size,), 5.0), "float64")
    on.mul_(b, w)
    return b, [w]


@rule(
    "TEN-17a", "a write of a view is in its base's gradient",
    tuple(itertools.product(VIEWS, WRITES)),
)  # fmt: skip
def view_write(on: Adapter, case: tuple[Chain, tuple[str, object]]) -> None:
    """The gradient of a base knows what was written through a view of it."""
    agree(on, _written_view, *case)


def _written_view(on: Adapter, case: Chain, write: tuple[str, object]) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[0]), leaf(on, shape_of(case), 10.0)
    b = on.mul(x, 2.0)
    written(on, viewed(on, b, case[1]), write, w)
    return b, [x, w]


@rule("TEN-17b", "a write of a view gives its base a history", VIEWS)
def view_write_begins(on: Adapter, case: Chain) -> None:
    """A base that required no gradient does so after such a write of a view of it."""
    agree(on, _view_becomes, case)


def _view_becomes(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    w = leaf(on, shape_of(case), 10.0)
    b = on.from_list(numbers(case[0]), "float64")
    on.mul_(viewed(on, b, case[1]), w)
    return b, [w]


@rule("TEN-18a", "a write of a base is in its views' gradients", VIEWS)
def base_write(on: Adapter, case: Chain) -> None:
    """A view taken before a write of its base has the new values and the new history."""
    agree(on, _written_base, case)


def _written_base(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    view = viewed(on, b, case[1])
    on.mul_(b, 3.0)
    return view, [x]


@rule("TEN-18b", "a write of a view is in its siblings' gradients", VIEWS)
def sibling_write(on: Adapter, case: Chain) -> None:
    """So has a view that overlaps the one that was written."""
    agree(on, _written_sibling, case)


def _written_sibling(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[0]), leaf(on, case[0], 10.0)
    b = on.mul(x, 2.0)
    view = viewed(on, b, case[1])
    on.mul_(on.view(b, case[0]), w)
    return view, [x, w]


# --- views that cannot be written


def _parts(on: Adapter, case: tuple[str, int]) -> tuple[Array, Array, Array]:
    """A leaf, a base computed from it, and the first part of the base."""
    method, size = case
    x = leaf(on, (size,))
    b = on.mul(x, 1.0)
    parts = on.split(b, 1, 0) if method == "split" else on.unbind(b, 0)
    return x, b, parts[0]


PARTS = (("split", 1), ("unbind", 1), ("split", 2), ("unbind", 2))


@rule("TEN-19a", "one of several views cannot be written", PARTS)
def part_write(on: Adapter, case: tuple[str, int]) -> None:
    """A write of one of the views that one op gave is refused, and changes nothing."""
    _, b, part = _parts(on, case)
    refused(on, ("mul_", 2.0), part, "a write of one of several views")
    expect(on.to_list(b), numbers((case[1],)), "the base")


@rule("TEN-19b", "nor can a view of it", PARTS)
def part_view_write(on: Adapter, case: tuple[str, int]) -> None:
    """A view of such a part is refused a write like the part."""
    _, b, part = _parts(on, case)
    refused(on, ("mul_", 2.0), on.view(part, (1, 1)), "a write of a view of one of several views")
    expect(on.to_list(b), numbers((case[1],)), "the base")


@rule("TEN-19c", "without gradients it can be written", PARTS)
def plain_part_write(on: Adapter, case: tuple[str, int]) -> None:
    """Where no gradient is required, a write of one of several views is like any other."""
    method, size = case
    b = on.from_list(numbers((size,)), "float64")
    part = (on.split(b, 1, 0) if method == "split" else on.unbind(b, 0))[0]
    on.mul_(part, 5.0)
    expect(on.to_list(b), [5.0, *numbers((size,))[1:]], "the base")


@rule("TEN-19d", "a view made without histories cannot be written with them", VIEWS[1:])
def no_grad_view_write(on: Adapter, case: Chain) -> None:
    """A view that was made under no_grad of what has a history: a write outside is refused."""
    b = on.mul(leaf(on, case[0]), 1.0)
    with on.no_grad():
        view = viewed(on, b, case[1])
    refused(on, ("mul_", 2.0), view, "a write of a view made under no_grad")
    with on.no_grad():
        on.fill_(view, 9.0)
    expect(on.to_list(view), _filled(on.to_list(view), 9.0), "the view after a write under no_grad")


def _filled(values: Any, number: float) -> Any:
    return [_filled(each, number) for each in values] if isinstance(values, list) else number


@rule("TEN-20", "after a write of the base, one of several views has no gradient", PARTS)
def part_after_write(on: Adapter, case: tuple[str, int]) -> None:
    """The base can be written; a gradient through the part is refused then, or right."""
    x, b, part = _parts(on, case)
    on.mul_(b, 3.0)
    values = on.to_list(part)
    expect(values, _filled(values, 3.0), "the part")
    ones = on.from_list(_filled(values, 1.0), "float64")
    error = attempt(lambda: on.backward(on.mul(part, 1.0), ones))
    if error is None:
        expected = [3.0] + [0.0] * (case[1] - 1)
        expect(on.to_list(on.grad(x)), expected, "the gradient that was not refused")


# --- modes


@rule("TEN-21a", "nothing gets a history under no_grad", SIZES)
def no_grad_result(on: Adapter, case: int) -> None:
    """What is computed under no_grad requires no gradient."""
    x = leaf(on, (case,))
    with on.no_grad():
        y = on.mul(x, 2.0)
    expect(on.requires_grad(y), False, "whether the result requires a gradient")
    expect(on.is_leaf(y), True, "whether the result is a leaf")


@rule("TEN-21b", "a write under no_grad changes values, not gradients", VIEWS)
def no_grad_write(on: Adapter, case: Chain) -> None:
    """What is written under no_grad keeps the history that it had."""
    agree(on, _no_grad_written, case)


def _no_grad_written(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    with on.no_grad():
        on.mul_(viewed(on, b, case[1]), 5.0)
    return b, [x]


@rule("TEN-22a", "an inference array cannot be saved", SIZES)
def inference_saved(on: Adapter, case: int) -> None:
    """What was made in inference mode is refused where a gradient would have to read it."""
    with on.inference_mode():
        i = on.from_list(numbers((case,)), "float64")
    x = leaf(on, (case,))
    ones = on.from_list([1.0] * case, "float64")
    error = attempt(lambda: on.backward(on.mul(x, i), ones))
    expect(error is not None, True, "whether saving it is refused")


@rule("TEN-22b", "an inference array cannot be written outside", SIZES)
def inference_written(on: Adapter, case: int) -> None:
    """Outside of inference mode it cannot be written, inside it can."""
    with on.inference_mode():
        i = on.from_list(numbers((case,)), "float64")
        on.mul_(i, 2.0)
    expect(on.to_list(i), [2.0 * each for each in numbers((case,))], "the array")
    refused(on, ("mul_", 2.0), i, "a write outside of inference mode")


# --- objects


@rule("TEN-23a", "a view cannot be detached in place", VIEWS[1:])
def view_detached(on: Adapter, case: Chain) -> None:
    """`detach_` of a view is refused: its base would still lead to it."""
    view = viewed(on, on.mul(leaf(on, case[0]), 1.0), case[1])
    expect(attempt(on.detach_, view) is not None, True, "whether it is refused")


@rule("TEN-23b", "a view can be a leaf of its own", VIEWS[1:])
def view_leaf(on: Adapter, case: Chain) -> None:
    """A view of what requires no gradient can become a leaf; the base does not, and both share."""
    base = on.from_list(numbers(case[0]), "float64")
    view = viewed(on, base, case[1])
    on.requires_grad_(view, True)
    expect(on.requires_grad(base), False, "whether the base requires a gradient")
    on.fill_(base, 6.0)
    expect(on.to_list(view), _filled(on.to_list(view), 6.0), "the leaf after a write of the base")
    ones = on.from_list(_filled(on.to_list(view), 1.0), "float64")
    on.backward(on.mul(view, 2.0), ones)
    expect(on.to_list(on.grad(view)), _filled(on.to_list(view), 2.0), "the gradient of the leaf")


GEOMETRY = (("transpose_", 0, 1), ("unsqueeze_", 0))


@rule("TEN-24a", "the geometry of a leaf cannot be changed", GEOMETRY)
def leaf_geometry(on: Adapter, case: tuple[Any, ...]) -> None:
    """A leaf that requires a gradient keeps its shape while histories are kept."""
    x = leaf(on, (1, 2))
    error = attempt(getattr(on, case[0]), x, *case[1:])
    expect(error is not None, True, "whether it is refused")
    expect(on.to_list(x), [[1.0, 2.0]], "the leaf")


@rule("TEN-24b", "a change of geometry is in the gradient", GEOMETRY)
def geometry_history(on: Adapter, case: tuple[Any, ...]) -> None:
    """After a change of geometry the gradient goes back in the old one; older views keep theirs."""
    name, *arguments = case
    x = leaf(on, (2, 2))
    b = on.mul(x, 1.0)
    row = on.select(b, 0, 0)
    getattr(on, name)(b, *arguments)
    on.mul_(row, 3.0)
    values = [[1.0, 2.0], [3.0, 4.0]]
    gradient = on.from_list([values] if name == "unsqueeze_" else values, "float64")
    on.backward(b, gradient)
    expected = [[3.0, 9.0], [2.0, 4.0]] if name == "transpose_" else [[3.0, 6.0], [3.0, 4.0]]
    expect(on.to_list(on.grad(x)), expected, "the gradient")


@rule("TEN-25a", "what requires a gradient is not resized", ("leaf", "computed"))
def resized(on: Adapter, case: str) -> None:
    """`resize_` is refused where it would take elements from a history, under no_grad too."""
    x = leaf(on, (2,))
    a = x if case == "leaf" else on.mul(x, 1.0)
    with on.no_grad():
        error = attempt(on.resize_, a, (3,))
    expect(error is not None, True, "whether it is refused")
    expect(on.to_list(a), [1.0, 2.0], "the array")


# --- drawn


@rule("TEN-17z", "drawn views and writes have right gradients", drawn, smaller=smaller)
def drawn_writes(on: Adapter, case: Program) -> None:
    """Any sequence of views, and of writes through any of them, has the gradients of the model."""
    agree(on, _drawn_story, case)


def _drawn_story(on: Adapter, case: Program) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[:1]), leaf(on, case[:1], 10.0)
    return enact(on, case, on.mul(x, 1.0), w), [x, w]
