"""Gradients of in-place writes, and the writes that are refused (TEN-4, TEN-14 to TEN-25).

Most rules run one program on the library and on a model of dual numbers, and compare.
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
    """Expects that a write is refused and that the array keeps its values."""
    before = on.to_list(target)
    name, operand = write
    error = attempt(getattr(on, name), target, operand)
    expect(error is not None, True, f"whether {what} is refused")
    expect(on.to_list(target), before, "the array after the refused write")


# --- detached aliases


@rule("TEN-4a", "detach shares memory", VIEWS)
def detach_shares(on: Adapter, case: Chain) -> None:
    """A write through a detached alias shows in the array, and the reverse."""
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
    """A detached alias is a leaf that requires no gradient, and passes none on."""
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
    """After a write through a detached alias the array has new values and its old history."""
    agree(on, _write_detached, case)


def _write_detached(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    on.mul_(viewed(on, on.detach(b), case[1]), 5.0)
    return b, [x]


@rule("TEN-5a", "a hidden alias shares memory, and its writes are not noticed", SIZES)
def hidden_write(on: Adapter, case: int) -> None:
    """A write through a hidden alias changes saved values too, without an error."""
    x = leaf(on, (case,))
    b = on.mul(x, 1.0)
    y = on.mul(b, b)
    on.mul_(on.hidden_alias(b), 3.0)
    expect(on.to_list(b), [3.0 * each for each in numbers((case,))], "the array")
    on.backward(y, on.from_list([1.0] * case, "float64"))
    gradient = [6.0 * each for each in numbers((case,))]
    expect(on.to_list(on.grad(x)), gradient, "the gradient, with the new values")


# --- leaves


@rule("TEN-14a", "only floats can be leaves", ("int64", "int32", "bool"))
def integers_refused(on: Adapter, case: str) -> None:
    """Integers and booleans cannot require a gradient."""
    a = on.from_list([True] if case == "bool" else [1], case)
    error = attempt(on.requires_grad_, a, True)
    expect(error is not None, True, "whether a gradient of integers is refused")


@rule(
    "TEN-14b", "an array without history is a leaf", ("new", "leaf", "view of new", "sum", "view")
)
def leaves(on: Adapter, case: str) -> None:
    """An array that requires no gradient is a leaf; a result that requires one is not."""
    x = on.from_list([1.0, 2.0], "float64") if "new" in case else leaf(on, (2,))
    made = {"sum": lambda: on.add(x, 1.0), "leaf": lambda: x, "new": lambda: x}
    array = made.get(case, lambda: on.view(x, (2, 1)))()
    expect(on.is_leaf(array), case in ("new", "leaf", "view of new"), "whether it is a leaf")
    expect(on.requires_grad(array), "new" not in case, "whether it requires a gradient")


@rule("TEN-14c", "a history cannot be switched off", SIZES)
def history_stays(on: Adapter, case: int) -> None:
    """`requires_grad_(False)` of an array that is no leaf is refused; `detach` is the way."""
    y = on.mul(leaf(on, (case,)), 2.0)
    error = attempt(on.requires_grad_, y, False)
    expect(error is not None, True, "whether it is refused")
    expect(on.requires_grad(y), True, "whether the array still requires a gradient")


@rule("TEN-15a", "writing a leaf is refused", tuple(itertools.product(SIZES, NUMBER_WRITES)))
def leaf_write(on: Adapter, case: tuple[int, tuple[str, object]]) -> None:
    """A leaf that requires a gradient cannot be written while gradients are recorded."""
    size, write = case
    refused(on, write, leaf(on, (size,)), "a write of a leaf")


@rule("TEN-15b", "writing a view of a leaf is refused", VIEWS[1:])
def leaf_view_write(on: Adapter, case: Chain) -> None:
    """A view of a leaf that requires a gradient cannot be written either."""
    x = leaf(on, case[0])
    view = viewed(on, x, case[1])
    refused(on, ("mul_", 2.0), view, "a write of a view of a leaf")
    expect(on.to_list(x), numbers(case[0]), "the leaf")


@rule("TEN-15c", "a leaf can be written under no_grad", VIEWS)
def leaf_write_no_grad(on: Adapter, case: Chain) -> None:
    """The leaf stays a leaf, and later gradients use its new values."""
    agree(on, _leaf_written, case)


def _leaf_written(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    with on.no_grad():
        on.mul_(viewed(on, x, case[1]), 3.0)
    return on.mul(x, x), [x]


# --- writes of arrays with a history


@rule("TEN-16a", "a write keeps the object and extends its history", WRITES)
def write_renews(on: Adapter, case: tuple[str, object]) -> None:
    """A write returns the array itself; gradients go to its old value and the operand."""
    for size in SIZES:
        agree(on, _written_whole, size, case)


def _written_whole(on: Adapter, size: int, write: tuple[str, object]) -> tuple[Array, list[Array]]:
    x, w = leaf(on, (size,)), leaf(on, (size,), 10.0)
    b = on.mul(x, 2.0)
    result = written(on, b, write, w)
    expect(result is b, True, "whether the result is the array that was written")
    return b, [x, w]


@rule("TEN-16b", "a write of an operand with a history gives the array a history", SIZES)
def write_begins(on: Adapter, case: int) -> None:
    """An array requires a gradient after an operand that requires one is written to it."""
    agree(on, _becomes, case)


def _becomes(on: Adapter, size: int) -> tuple[Array, list[Array]]:
    w = leaf(on, (size,))
    b = on.from_list(numbers((size,), 5.0), "float64")
    on.mul_(b, w)
    return b, [w]


@rule(
    "TEN-17a", "a write of a view is part of its base's gradient",
    tuple(itertools.product(VIEWS, WRITES)),
)  # fmt: skip
def view_write(on: Adapter, case: tuple[Chain, tuple[str, object]]) -> None:
    """The gradient of a base includes the writes through its views."""
    agree(on, _written_view, *case)


def _written_view(on: Adapter, case: Chain, write: tuple[str, object]) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[0]), leaf(on, shape_of(case), 10.0)
    b = on.mul(x, 2.0)
    written(on, viewed(on, b, case[1]), write, w)
    return b, [x, w]


@rule("TEN-17b", "a write of a view gives its base a history", VIEWS)
def view_write_begins(on: Adapter, case: Chain) -> None:
    """A base requires a gradient after an operand that requires one is written to its view."""
    agree(on, _view_becomes, case)


def _view_becomes(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    w = leaf(on, shape_of(case), 10.0)
    b = on.from_list(numbers(case[0]), "float64")
    on.mul_(viewed(on, b, case[1]), w)
    return b, [w]


@rule("TEN-18a", "a write of a base is part of its views' gradients", VIEWS)
def base_write(on: Adapter, case: Chain) -> None:
    """A view made before a write of its base has the new values and the new history."""
    agree(on, _written_base, case)


def _written_base(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    view = viewed(on, b, case[1])
    on.mul_(b, 3.0)
    return view, [x]


@rule("TEN-18b", "a write of a view is part of overlapping views' gradients", VIEWS)
def sibling_write(on: Adapter, case: Chain) -> None:
    """A view of the same base that overlaps the written view has the new values and history."""
    agree(on, _written_sibling, case)


def _written_sibling(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[0]), leaf(on, case[0], 10.0)
    b = on.mul(x, 2.0)
    view = viewed(on, b, case[1])
    on.mul_(on.view(b, case[0]), w)
    return view, [x, w]


# --- views that cannot be written


def _parts(on: Adapter, case: tuple[str, int]) -> tuple[Array, Array, Array]:
    """Returns a leaf, a base computed from it, and the first part of the base."""
    method, size = case
    x = leaf(on, (size,))
    b = on.mul(x, 1.0)
    parts = on.split(b, 1, 0) if method == "split" else on.unbind(b, 0)
    return x, b, parts[0]


PARTS = (("split", 1), ("unbind", 1), ("split", 2), ("unbind", 2))


@rule("TEN-19a", "one of several views of one op cannot be written", PARTS)
def part_write(on: Adapter, case: tuple[str, int]) -> None:
    """A write of a part that `split` or `unbind` returned is refused, and changes nothing."""
    _, b, part = _parts(on, case)
    refused(on, ("mul_", 2.0), part, "a write of one of several views")
    expect(on.to_list(b), numbers((case[1],)), "the base")


@rule("TEN-19b", "a view of one of several views cannot be written", PARTS)
def part_view_write(on: Adapter, case: tuple[str, int]) -> None:
    """A write of a view of a part is refused like a write of the part."""
    _, b, part = _parts(on, case)
    refused(on, ("mul_", 2.0), on.view(part, (1, 1)), "a write of a view of one of several views")
    expect(on.to_list(b), numbers((case[1],)), "the base")


@rule("TEN-19c", "without gradients, one of several views can be written", PARTS)
def plain_part_write(on: Adapter, case: tuple[str, int]) -> None:
    """A part of an array that requires no gradient can be written like any other view."""
    method, size = case
    b = on.from_list(numbers((size,)), "float64")
    part = (on.split(b, 1, 0) if method == "split" else on.unbind(b, 0))[0]
    on.mul_(part, 5.0)
    expect(on.to_list(b), [5.0, *numbers((size,))[1:]], "the base")


@rule("TEN-19d", "a view made under no_grad cannot be written outside", VIEWS[1:])
def no_grad_view_write(on: Adapter, case: Chain) -> None:
    """Such a view of an array with a history can be written under no_grad only."""
    b = on.mul(leaf(on, case[0]), 1.0)
    with on.no_grad():
        view = viewed(on, b, case[1])
    refused(on, ("mul_", 2.0), view, "a write of a view made under no_grad")
    with on.no_grad():
        on.fill_(view, 9.0)
    expect(on.to_list(view), _filled(on.to_list(view), 9.0), "the view after a write under no_grad")


def _filled(values: object, number: float) -> Any:
    return [_filled(each, number) for each in values] if isinstance(values, list) else number


@rule("TEN-20", "after a write of the base, one of several views: refused or right", PARTS)
def part_after_write(on: Adapter, case: tuple[str, int]) -> None:
    """The base can be written; a backward through a part is then refused, or right."""
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


@rule("TEN-21a", "no result has a history under no_grad", SIZES)
def no_grad_result(on: Adapter, case: int) -> None:
    """A result computed under no_grad is a leaf that requires no gradient."""
    x = leaf(on, (case,))
    with on.no_grad():
        y = on.mul(x, 2.0)
    expect(on.requires_grad(y), False, "whether the result requires a gradient")
    expect(on.is_leaf(y), True, "whether the result is a leaf")


@rule("TEN-21b", "a write under no_grad changes values, not gradients", VIEWS)
def no_grad_write(on: Adapter, case: Chain) -> None:
    """An array written under no_grad keeps its history."""
    agree(on, _no_grad_written, case)


def _no_grad_written(on: Adapter, case: Chain) -> tuple[Array, list[Array]]:
    x = leaf(on, case[0])
    b = on.mul(x, 2.0)
    with on.no_grad():
        on.mul_(viewed(on, b, case[1]), 5.0)
    return b, [x]


@rule("TEN-22a", "an inference array cannot be saved", SIZES)
def inference_saved(on: Adapter, case: int) -> None:
    """An op or its backward refuses an inference array that the gradient reads."""
    with on.inference_mode():
        i = on.from_list(numbers((case,)), "float64")
    x = leaf(on, (case,))
    ones = on.from_list([1.0] * case, "float64")
    error = attempt(lambda: on.backward(on.mul(x, i), ones))
    expect(error is not None, True, "whether saving it is refused")


@rule("TEN-22b", "an inference array cannot be written outside inference mode", SIZES)
def inference_written(on: Adapter, case: int) -> None:
    """It can be written in inference mode."""
    with on.inference_mode():
        i = on.from_list(numbers((case,)), "float64")
        on.mul_(i, 2.0)
    expect(on.to_list(i), [2.0 * each for each in numbers((case,))], "the array")
    refused(on, ("mul_", 2.0), i, "a write outside of inference mode")


# --- objects


@rule("TEN-23a", "a view cannot be detached in place", VIEWS[1:])
def view_detached(on: Adapter, case: Chain) -> None:
    """`detach_` of a view is refused, as writes of its base would still give it a history."""
    view = viewed(on, on.mul(leaf(on, case[0]), 1.0), case[1])
    expect(attempt(on.detach_, view) is not None, True, "whether it is refused")


@rule("TEN-23b", "a view can be a leaf", VIEWS[1:])
def view_leaf(on: Adapter, case: Chain) -> None:
    """A view of a base can require a gradient where the base does not; they share memory."""
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
    """`transpose_` and `unsqueeze_` refuse a leaf that requires a gradient."""
    x = leaf(on, (1, 2))
    error = attempt(getattr(on, case[0]), x, *case[1:])
    expect(error is not None, True, "whether it is refused")
    expect(on.to_list(x), [[1.0, 2.0]], "the leaf")


@rule("TEN-24b", "a change of geometry is part of the gradient", GEOMETRY)
def geometry_history(on: Adapter, case: tuple[Any, ...]) -> None:
    """The gradient reaches the leaf in the old geometry; older views keep their geometry."""
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


@rule("TEN-25a", "an array that requires a gradient is not resized", ("leaf", "computed"))
def resized(on: Adapter, case: str) -> None:
    """`resize_` refuses an array that requires a gradient, under no_grad too."""
    x = leaf(on, (2,))
    a = x if case == "leaf" else on.mul(x, 1.0)
    with on.no_grad():
        error = attempt(on.resize_, a, (3,))
    expect(error is not None, True, "whether it is refused")
    expect(on.to_list(a), [1.0, 2.0], "the array")


# --- random programs


@rule("TEN-17z", "random views and writes have the right gradients", drawn, smaller=smaller)
def drawn_writes(on: Adapter, case: Program) -> None:
    """Any sequence of views and of writes through them has the gradients of the model."""
    agree(on, _drawn_story, case)


def _drawn_story(on: Adapter, case: Program) -> tuple[Array, list[Array]]:
    x, w = leaf(on, case[:1]), leaf(on, case[:1], 10.0)
    return enact(on, case, on.mul(x, 1.0), w), [x, w]
