"""Geometry: shapes, strides and addresses of views (TEN-1), and its changes in place."""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import Chain, Modeled, chain, new, poke, see, step
from aotlite.conformance.rules import expect, refuses, rule
from aotlite.conformance.rules.cases import layouts, views
from aotlite.conformance.rules.memory.views import check_shares

SIZE = 8
"""Bytes of an element: the arrays here hold int64."""


def many_views() -> Iterator[Chain]:
    """A few views of each kind, in every layout."""
    yield from layouts()
    yield from views("select", [(0, 0), (1, 1)])
    yield from views("narrow", [(0, 1, 1), (1, 0, 1)])
    yield from views("transpose", [(0, 1)])
    yield from views("expand", [((3, 2),), ((2, 3),)])
    yield from views("unsqueeze", [(0,), (1,)])
    yield from views("squeeze", [(0,), (1,)])
    yield from views("diagonal", [()])
    yield from views("unfold", [(0, 2, 1)])
    yield from views("split", [(1, 0), (2, 1)])


@rule("TEN-1a", "views have the right shape", many_views)
def shapes(on: Adapter, case: Chain) -> None:
    """The shape of a view depends on its base's shape and the arguments alone."""
    for twin in chain(on, case)[1]:
        expect(tuple(on.shape(twin.array)), twin.view.shape, "the shape")


@rule("TEN-1b", "views have the right strides", many_views)
def strides(on: Adapter, case: Chain) -> None:
    """A view's strides follow from its base's in each dimension of two or more elements."""
    for twin in chain(on, case)[1]:
        got = tuple(on.strides(twin.array))
        expect(steps(twin, got), steps(twin, twin.view.strides), "the strides")


def steps(twin: Modeled, strides: tuple[int, ...]) -> dict[int, int]:
    """Dimension -> stride, for the dimensions whose stride affects an address."""
    shape = twin.view.shape
    return {dim: strides[dim] for dim, size in enumerate(shape) if size > 1 and 0 not in shape}


@rule("TEN-1c", "views have the right offset", many_views)
def addresses(on: Adapter, case: Chain) -> None:
    """The address of a view's first element is its base's address plus the offset in bytes."""
    base, made = chain(on, case)
    start = on.data_pointer(base.array)
    for twin in made:
        if twin.view.addresses():
            got = on.data_pointer(twin.array) - start
            expect(got, twin.view.offset * SIZE, "the distance from the base in bytes")


@rule("TEN-1d", "a new array is dense in row-major order", lambda: [
    (1,), (2,), (2, 2), (2, 3), (1, 2, 3)
])  # fmt: skip
def dense(on: Adapter, case: Shape) -> None:
    """An array made from values has contiguous strides."""
    twin = new(on, case)
    got = tuple(on.strides(twin.array))
    expect(steps(twin, got), steps(twin, twin.view.strides), "the strides")


@rule("TEN-1e", "geometry past the end of memory is refused", [
    ((1,), (2,), (1,), 0), ((1,), (1,), (1,), 1), ((2,), (2,), (2,), 0), ((4,), (2, 2), (2, 2), 0),
])  # fmt: skip
def past_the_end(on: Adapter, case: tuple[Shape, Shape, Shape, int]) -> None:
    """`as_strided` refuses geometry past the end of its memory. (No case reads there.)"""
    shape, *geometry = case
    twin = new(on, shape)
    expect(refuses(on.as_strided, twin.array, *geometry), True, "whether as_strided refused")


BACKWARDS: tuple[tuple[object, ...], ...] = (
    (slice(None, None, -1),),
    (slice(None, None, -2),),
    ((slice(None), slice(None, None, -1)),),
)


def backward_indices() -> Iterator[Chain]:
    """Indices with negative steps, in every layout."""
    yield from views("getitem", BACKWARDS)


@rule("TEN-1f", "an index with a negative step is a view", backward_indices, choice=True)
def backwards(on: Adapter, case: Chain) -> None:
    """`a[::-1]` is in reverse order, and shows later writes to `a`."""
    check_shares(on, case)


@rule("TEN-24c", "an in-place change of geometry changes one object only", [
    (shape, name, arguments)
    for shape in ((1, 2), (2, 2), (2, 3), (0, 2))
    for name, arguments in (("transpose_", (0, 1)), ("unsqueeze_", (0,)), ("unsqueeze_", (1,)))
])  # fmt: skip
def geometry_in_place(on: Adapter, case: tuple[Shape, str, tuple[int, ...]]) -> None:
    """`transpose_` and `unsqueeze_` of a view keep its base's shape and values, and its memory."""
    shape, name, arguments = case
    base = new(on, shape)
    [twin] = step(on, base, "narrow", 0, 0, shape[0])
    getattr(on, name)(twin.array, *arguments)
    changed = Modeled(twin.array, getattr(twin.view, name.removesuffix("_"))(*arguments))
    see(on, changed, "the view of another geometry")
    expect(tuple(on.shape(base.array)), shape, "the base's shape")
    poke(on, changed, 100, last=True)
    see(on, base, "the base after a write through the view")
