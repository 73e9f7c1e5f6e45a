"""View ops have the right values and share memory with their base (TEN-2)."""

from __future__ import annotations

from functools import partial

import attrs

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import NoView, Shape
from aotlite.conformance.models.model_arrays import (
    Chain,
    Modeled,
    chain,
    demand_writes,
    fill,
    poke,
    see,
)
from aotlite.conformance.rules import Rule, expect, maybe, refuses, rule
from aotlite.conformance.rules.cases import layouts, views


def check_shares(on: Adapter, case: Chain, dtype: str = "int64") -> None:
    """The view has the right values and shows later writes to its base."""
    demand_writes(on)
    base, made = chain(on, case, dtype)
    for view in made:
        see(on, view, "the view")
    follow(on, base, made)


def follow(on: Adapter, base: Modeled, made: list[Modeled]) -> None:
    """Writes the base and expects the views to show it, and `shares_memory` to be true."""
    fill(on, base, 100)
    for view in made:
        see(on, view, "the view after the write to its base")
        said = maybe(on.shares_memory, base.array, view.array)
        if said is not None and view.view.addresses():
            expect(said, True, "the result of shares_memory")


def shares(id: str, name: str, title: str, *arguments: tuple[object, ...]) -> Rule:
    """Returns the rule that an op returns views, for all layouts and these arguments."""
    return rule(id, title, partial(views, name, arguments))(check_shares)


SHAPES_TO: tuple[Shape, ...] = ((1,), (2,), (), (1, 1), (2, 1), (1, 2), (3, 2), (6,), (2, 3, 1))
GROWN: tuple[Shape, ...] = ((1,), (2,), (3,), (1, 2), (2, 2), (2, 3), (3, 2), (0,), (2, 0))
KEYS: tuple[object, ...] = (
    ..., (slice(1, None), ...), (slice(None, None, 2), ...), (slice(-1, None), ...), (None, ...),
    (0, ...), (..., 0), (-1, slice(None), ...), (slice(None), 1, ...), (None, ..., None),
    (slice(1, None), slice(None, -1), ...), (slice(0, 0), ...), (0, slice(None), -1, ...),
)  # fmt: skip

narrow = shares("TEN-2a", "narrow", "narrow is a view", (0, 0, 1), (0, 1, 1), (0, 0, 0), (1, 0, 1))
select = shares("TEN-2b", "select", "select is a view", (0, 0), (0, -1), (1, 1))
STEPPED = ((0, 0, 1, 2), (0, 0, 2, 2), (0, 0, 3, 2), (1, 1, 3, 2))
stepped = shares("TEN-2c", "slice", "a slice with a step is a view", *STEPPED)
transpose = shares("TEN-2d", "transpose", "transpose is a view", (0, 1), (1, 2))
permute = shares("TEN-2e", "permute", "permute is a view", ((0,),), ((1, 0),), ((2, 0, 1),))
expand = shares("TEN-2f", "expand", "expand is a view", *((shape,) for shape in GROWN))
squeeze = shares("TEN-2g", "squeeze", "squeeze is a view", (0,), (1,))
unsqueeze = shares("TEN-2h", "unsqueeze", "unsqueeze is a view", (0,), (1,), (2,))
diagonal = shares("TEN-2i", "diagonal", "diagonal is a view", ())
unfold = shares("TEN-2j", "unfold", "unfold is a view", (0, 1, 1), (0, 2, 1), (1, 2, 1), (0, 2, 2))
split = shares("TEN-2k", "split", "the parts of split are views", (1, 0), (2, 0), (1, 1))
view = shares("TEN-2m", "view", "view is a view", *((shape,) for shape in SHAPES_TO))
flip = attrs.evolve(shares("TEN-2n", "flip", "flip is a view", (0,), (1,)), choice=True)
getitem = shares("TEN-2o", "getitem", "a basic index is a view", *((key,) for key in KEYS))


@rule("TEN-2l", "the parts of unbind are views", lambda: [
    case for case in views("unbind", [(0,), (1,)]) if len(case[0]) > 1
])  # fmt: skip
def unbind(on: Adapter, case: Chain) -> None:
    """The parts of an array of two or more dimensions show later writes to it."""
    check_shares(on, case)


@rule("TEN-2p", "an index of integers alone is a view",
    [((1,), (0,)), ((2, 2), (1, 0)), ((), ())], choice=True)  # fmt: skip
def integers(on: Adapter, case: tuple[Shape, tuple[int, ...]]) -> None:
    """`a[1]` of a one-dimensional `a` is a 0-d array that shows later writes to `a`."""
    shape, key = case
    check_shares(on, (shape, (("getitem", key),)))


@rule("TEN-2q", "as_strided is a view", [
    ((1,), (1,), 0), ((2,), (1,), 1), ((2, 2), (1, 1), 0), ((2, 2), (2, 1), 0), ((3,), (0,), 1),
    ((), (), 2), ((0,), (1,), 0), ((2, 2), (1, 2), 1),
])  # fmt: skip
def strided(on: Adapter, case: tuple[Shape, Shape, int]) -> None:
    """Any geometry inside the memory of an array shows later writes to the array."""
    check_shares(on, ((5,), (("as_strided", *case),)))


@rule("TEN-2r", "reshape is a view where strides allow it", partial(views, "reshape", [
    (shape,) for shape in SHAPES_TO
]))  # fmt: skip
def reshape(on: Adapter, case: Chain) -> None:
    """`reshape` returns a view wherever strides can express the new shape."""
    check_shares(on, case)


@rule("TEN-2s", "flatten is a view where strides allow it", partial(views, "flatten", [()]))
def flatten(on: Adapter, case: Chain) -> None:
    """`flatten` returns a view wherever one stride can express the result."""
    check_shares(on, case)


def inexpressible() -> list[Chain]:
    """Layouts that no stride can express as one dimension."""
    return [
        ((2, 2), (("transpose", 0, 1),)),
        ((2, 2), (("narrow", 1, 0, 1), ("expand", (2, 2)))),
        ((2, 3), (("transpose", 0, 1),)),
        ((3, 3), (("narrow", 1, 0, 2),)),
    ]


@rule("TEN-2t", "view refuses shapes that strides cannot express", inexpressible)
def view_refuses(on: Adapter, case: Chain) -> None:
    """`view` never copies: it raises where no strides express the new shape."""
    _, [twin] = chain(on, case)
    expect(refuses(on.view, twin.array, (len(twin.view.values()),)), True, "whether view refused")


@rule("TEN-2u", "reshape copies where strides do not allow a view", inexpressible)
def reshape_copies(on: Adapter, case: Chain) -> None:
    """`reshape` then returns a copy with the right values, in which later writes do not show."""
    base, [twin] = chain(on, case)
    try:
        twin.view.flatten()
    except NoView:
        flat = twin.view.values()
        made = on.reshape(twin.array, (len(flat),))
        expect(on.to_list(made), flat, "the reshaped copy")
        poke(on, base, 100)
        expect(on.to_list(made), flat, "the reshaped copy after the write")


@rule("TEN-2v", "contiguous of a dense array shares memory", lambda: layouts())
def contiguous(on: Adapter, case: Chain) -> None:
    """`contiguous` does not copy a dense array."""
    base, [twin] = chain(on, (case[0], ()))
    made = on.contiguous(twin.array)
    follow(on, base, [Modeled(made, base.view)])


@rule("TEN-2w", "contiguous of another layout copies", inexpressible)
def contiguous_copies(on: Adapter, case: Chain) -> None:
    """`contiguous` of an array that is not dense returns a copy with the right values."""
    base, [twin] = chain(on, case)
    before = twin.values()
    made = on.contiguous(twin.array)
    expect(on.to_list(made), before, "the copy")
    poke(on, base, 100)
    expect(on.to_list(made), before, "the copy after the write")


@rule("TEN-2x", "real and imag are views", [
    ((shape, ((part,),)), dtype) for dtype in ("complex128", "complex64")
    for shape in ((1,), (2,), (), (2, 2)) for part in ("real", "imag")
])  # fmt: skip
def parts(on: Adapter, case: tuple[Chain, str]) -> None:
    """The real and imaginary parts of an array show later writes to it."""
    (shape, ((part,),)), dtype = case
    base, [twin] = chain(on, (shape, ()), dtype)
    made = on.real(twin.array) if part == "real" else on.imag(twin.array)
    poke(on, base, 7j if part == "imag" else 7)
    expected = on.to_list(made)
    first = expected
    while isinstance(first, list):
        first = first[0]
    expect(first, 7, f"the {part} part after the write")
