"""Solving addresses, by enumeration of all points."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from aotlite.backends.loops.analysis.affine import (
    Bounds,
    Forms,
    Split,
    as_scalar,
    composed,
    form_of,
    is_injective,
    range_of,
    reach,
    solve,
    whole,
)
from aotlite.backends.loops.passes.fusion.align_kernels import common_parts
from aotlite.ir.dtypes import int64
from aotlite.ir.scalar.expression import Affine, axis, const, load, make, where


def at(form: Affine, point: Sequence[int]) -> int:
    """The value of a form."""
    return form.start + sum([c * i for c, i in zip(form.coefficients, point, strict=True)])


def points(bounds: Bounds) -> Iterator[tuple[int, ...]]:
    """All points within bounds."""
    return itertools.product(*[range(low, high + 1) for low, high in bounds])


def stored(rng: random.Random) -> tuple[Affine, tuple[int, ...]]:
    """What a kernel stores: dense or with gaps, its axes in any order."""
    extents = [rng.choice((1, 2, 3, 4)) for _ in range(rng.randrange(4))]
    order = rng.sample(range(len(extents)), len(extents))
    strides, size = [0] * len(extents), 1
    for k in order:
        strides[k] = size
        size *= extents[k] + (rng.random() < 0.2)
    return Affine(tuple(strides), rng.randrange(3)), tuple(extents)


def is_solved(
    address: Affine, bounds: Bounds, target: Affine, forms: Forms, n: Sequence[int]
) -> bool:
    """Whether the forms lead every point to an axis position that stores what it loads."""
    for point in points(bounds):
        found = [at(form, point) for form in forms]
        inside = all(0 <= p < extent for p, extent in zip(found, n, strict=True))
        if not inside or at(target, found) != at(address, point):
            return False
    return True


def test_a_solution_is_right_at_every_point_and_found_where_there_is_one() -> None:
    rng = random.Random(0)
    solved = 0
    for _ in range(3000):
        target, extents = stored(rng)
        count = rng.randrange(4)
        bounds = tuple(
            [(low := rng.choice((0, 0, 1)), low + rng.randrange(3)) for _ in range(count)]
        )
        forms = tuple(
            [
                Affine(
                    tuple([rng.choice((0, 0, 1, 1, -1, 2)) for _ in range(count)]),
                    rng.randrange(-2, 4),
                )
                for _ in extents
            ]
        )
        if not all(
            0 <= reach(f, bounds)[0] and reach(f, bounds)[1] < n
            for f, n in zip(forms, extents, strict=True)
        ):
            continue
        address = composed(target, forms, count)
        found = solve(address, bounds, target, extents)
        assert isinstance(found, tuple), (target, extents, bounds, forms)
        assert is_solved(address, bounds, target, found, extents)
        solved += 1
    assert solved > 500


def test_whatever_is_solved_is_right() -> None:
    """Addresses that were not made to be solved: of reshapes, windows, diagonals."""
    rng = random.Random(1)
    solved = split = 0
    for _ in range(4000):
        target, extents = stored(rng)
        count = rng.randrange(1, 4)
        address = Affine(tuple([rng.randrange(-2, 7) for _ in range(count)]), rng.randrange(8))
        bounds = whole([rng.choice((1, 2, 4, 6)) for _ in range(count)])
        found = solve(address, bounds, target, extents)
        if isinstance(found, Split):
            split += 1
            assert (bounds[found.axis][1] + 1) % found.inner == 0
        elif found is not None:
            solved += 1
            assert is_solved(address, bounds, target, found, extents)
    assert solved > 100
    assert split > 100


@pytest.mark.parametrize(
    ("loading", "storing", "expected"),
    [
        # A flattened load of a matrix is split, (6, 4) of (2, 3, 4) too, (2, 3) of (3, 2) never.
        (((12,), (1,)), ((3, 4), (4, 1)), Split(0, 4)),
        (((6, 4), (4, 1)), ((2, 3, 4), (12, 4, 1)), Split(0, 3)),
        (((2, 3), (3, 1)), ((3, 2), (2, 1)), None),
        (((3,), (5,)), ((3, 4), (4, 1)), (Affine((1,)), Affine((1,)))),
        (((3, 4), (0, 1)), ((4,), (1,)), (Affine((0, 1)),)),
    ],
)
def test_reshapes_diagonals_and_broadcasts(
    loading: tuple, storing: tuple, expected: object
) -> None:
    (extents, steps), (stored_extents, stored_steps) = loading, storing
    found = solve(Affine(steps), whole(extents), Affine(stored_steps), stored_extents)
    assert expected == found


def test_a_position_that_is_read_needs_a_range() -> None:
    position = load(7, Affine((1,)), int64)
    inside = where(make("and", position >= 0, position < 4), position, const(0, int64))
    assert range_of(inside) == (0, 3)
    for value, expected in (
        (inside, (Affine((1,)), Affine((0,), 0, ((inside, 1),)))),
        (position, None),
    ):
        address = Affine((4,), 0, ((value, 1),))
        assert expected == solve(address, whole((3,)), Affine((4, 1)), (3, 4))
    too_wide = where(make("and", position >= 0, position < 5), position, const(0, int64))
    address = Affine((4,), 0, ((too_wide, 1),))
    assert solve(address, whole((3,)), Affine((4, 1)), (3, 4)) is None


def test_forms_are_expressions_and_back() -> None:
    form = Affine((2, 0, -1), 5)
    assert form == form_of(as_scalar(form), 3)
    assert form_of(axis(0) * axis(1), 2) is None


def test_a_form_whose_terms_wrap_around_is_none() -> None:
    """Positions times 2^64 are 0 in int64: a comparison of forms would say otherwise."""
    far = axis(0)
    for _ in range(4):
        far = far * (1 << 16)
    assert form_of(far, 1) is None
    assert form_of(axis(0) * (1 << 30), 1) == Affine((1 << 30,))


def test_the_form_of_a_shared_sum_is_found_once() -> None:
    """As a tree it has 2^60 leaves."""
    value = axis(0)
    for _ in range(60):
        value = value + value - value
    assert form_of(value, 2) == Affine((1, 0))


def test_addresses_certainly_differ_only_if_they_do() -> None:
    rng = random.Random(2)
    for _ in range(500):
        extents = [rng.randrange(1, 4) for _ in range(3)]
        steps = [rng.randrange(-3, 9) for _ in range(3)]
        addresses = [at(Affine(tuple(steps)), point) for point in points(whole(extents))]
        if is_injective(steps, extents):
            assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((24,), (4, 6), ([[4, 6]], [[4], [6]])),
        ((2, 12), (8, 3), ([[2], [4, 3]], [[2, 4], [3]])),
        ((2, 3), (3, 2), None),
        ((4,), (2,), None),
    ],
)
def test_common_parts_of_axes(first: tuple, second: tuple, expected: object) -> None:
    assert expected == common_parts(first, second)
