"""Overlap is exact: equal to the intersection of address sets, whatever the geometry (ALI-5)."""

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aotlite.ir.geometry import overlap
from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps, overlaps_bytes

STRIDES = (0, 1, 1, 2, 3, 4, 5, 6, 7, 10, 12, 30)


def addresses(geometry):
    shape, stride, offset = geometry
    indices = itertools.product(*map(range, shape))
    return [offset + sum(i * s for i, s in zip(index, stride, strict=True)) for index in indices]


def byte_addresses(geometry, itemsize):
    return {
        address * itemsize + byte for address in addresses(geometry) for byte in range(itemsize)
    }


def share(a, b):
    """Brute force: whether the address sets intersect."""
    return not set(addresses(a)).isdisjoint(addresses(b))


@st.composite
def geometries(draw):
    dims = draw(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(STRIDES)), max_size=3))
    shape, stride = zip(*dims, strict=True) if dims else ((), ())
    return tuple(shape), tuple(stride), draw(st.integers(0, 40))


def row_blocks(seed, count):
    """Pairs of blocks of rows of one buffer, the left one first: (row stride, x, y)."""
    rng = random.Random(seed)
    for _ in range(count):
        row = rng.randint(1, 12)
        blocks = sorted(
            (rng.randint(0, 40), rng.randint(1, 4), rng.randint(1, row)) for _ in range(2)
        )
        x, y = (((rows, cols), (row, 1), offset) for offset, rows, cols in blocks)
        yield row, x, y


def closed_form(row, x, y, *, as_published):
    """ALI-4's answer for row blocks; as published it forgets the rows that y starts in."""
    (rows_x, cols_x), _, offset_x = x
    (_, cols_y), _, offset_y = y
    distance = offset_y - offset_x
    if distance < cols_x:
        return True
    if distance >= row * (rows_x - 1) + cols_x:
        return False
    column = distance % row
    starts_in_x = column < cols_x and not as_published
    return starts_in_x or column + cols_y > row


exhaustive = settings(max_examples=500, derandomize=True)


@pytest.mark.rules("ALI-5", "ALI-2")
@exhaustive
@given(geometries(), geometries())
@example(((5,), (2,), 0), ((5,), (2,), 1))
@example(((4, 5), (10, 1), 0), ((3, 3), (10, 1), 11))
@example(((2, 2), (6, 4), 0), ((2, 2), (5, 3), 1))
def test_overlaps_equals_the_intersection_of_address_sets(a, b):
    assert share(a, b) == overlaps(a, b)


@pytest.mark.rules("TEN-8")
@exhaustive
@given(geometries())
@example(((2, 2), (1, 1), 0))
@example(((3, 2), (2, 3), 0))
@example(((4, 2), (2, 3), 0))
@example(
    ((2, 3, 2), (8, 5, 2), 0)
)  # 8 + 2 = 2 * 5: the dimensions below the outer differ both ways
def test_internal_overlap_says_that_an_address_occurs_twice(geometry):
    found = addresses(geometry)
    assert (len(set(found)) < len(found)) == has_internal_overlap(*geometry[:2])


@pytest.mark.rules("ALI-5")
@settings(max_examples=300, derandomize=True)
@given(geometries(), st.sampled_from((1, 2, 4, 8)), geometries(), st.sampled_from((1, 2, 4, 16)))
@example(((2,), (1,), 0), 4, ((4,), (1,), 4), 1)
def test_overlaps_bytes_equals_the_intersection_of_byte_sets(a, itemsize_a, b, itemsize_b):
    expected = not byte_addresses(a, itemsize_a).isdisjoint(byte_addresses(b, itemsize_b))
    assert expected == overlaps_bytes(a, itemsize_a, b, itemsize_b)


@pytest.mark.rules("ALI-5")
@settings(max_examples=300, derandomize=True)
@given(geometries(), geometries(), st.integers(0, 1000))
def test_overlaps_is_symmetric_and_sees_only_the_distance_of_offsets(a, b, shift):
    shifted = [(shape, stride, offset + shift) for shape, stride, offset in (a, b)]
    assert overlaps(a, b) == overlaps(b, a) == overlaps(*shifted)


@pytest.mark.rules("ALI-2")
@settings(max_examples=100, derandomize=True)
@given(geometries())
def test_tensor_overlaps_itself_unless_it_is_empty(geometry):
    assert (0 not in geometry[0]) == overlaps(geometry, geometry)


@pytest.mark.rules("ALI-4", "ALI-3")
def test_closed_form_for_row_blocks_agrees():
    for row, x, y in row_blocks(seed=0, count=3000):
        assert closed_form(row, x, y, as_published=False) == overlaps(x, y), (x, y)


def test_published_closed_form_is_refuted_by_the_same_blocks():
    """Shows that the blocks can tell a wrong formula: it misses overlaps and invents none."""
    wrong = [
        (x, y)
        for row, x, y in row_blocks(seed=0, count=3000)
        if closed_form(row, x, y, as_published=True) != overlaps(x, y)
    ]
    assert len(wrong) > 100
    assert all(overlaps(x, y) for x, y in wrong)


@pytest.mark.rules("ALI-5")
def test_overlaps_equals_the_intersection_on_thousands_of_random_pairs():
    """Many of these pairs interleave without touching, so that no test of bounds could tell."""
    rng = random.Random(1)
    interleaved = 0
    for _ in range(5000):
        a, b = (random_geometry(rng, rank=rng.randint(1, 3), largest=12) for _ in range(2))
        meet = max(addresses(a)) >= b[2] and max(addresses(b)) >= a[2]
        assert share(a, b) == overlaps(a, b), (a, b)
        interleaved += meet and not share(a, b)
    assert interleaved > 250


def test_internal_overlap_equals_brute_force_on_thousands_of_random_geometries():
    rng = random.Random(2)
    overlapping = 0
    for _ in range(3000):
        shape, stride, _ = geometry = random_geometry(rng, rank=rng.randint(2, 4), largest=40)
        found = addresses(geometry)
        assert (len(set(found)) < len(found)) == has_internal_overlap(shape, stride), geometry
        overlapping += has_internal_overlap(shape, stride)
    assert 500 < overlapping < 2500


def random_geometry(rng, *, rank, largest):
    shape = tuple(rng.randint(2, 4) for _ in range(rank))
    return shape, tuple(rng.randint(1, largest) for _ in range(rank)), rng.randint(0, largest)


@pytest.mark.rules("ALI-5")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("rank", [4, 5, 6])
def test_overlaps_is_exact_up_to_rank_six_without_a_work_limit(rank, monkeypatch):
    """A limit of one step would answer True at once, and half of these pairs are disjoint."""
    monkeypatch.setattr(overlap, "_WORK_LIMIT", 1)
    rng = random.Random(rank)
    answers = []
    for _ in range(40):
        a, b = (random_geometry(rng, rank=rank, largest=9**rank) for _ in range(2))
        assert share(a, b) == overlaps(a, b)
        answers.append(overlaps(a, b))
    assert not all(answers)


@pytest.mark.rules("ALI-5")
def test_work_limit_above_rank_six_answers_overlap(monkeypatch):
    rng = random.Random(7)
    hard = [
        [((2,) * 7, tuple(rng.randint(10**6, 10**7) for _ in range(7)), i) for i in range(2)]
        for _ in range(5)
    ]
    assert not any(overlaps(a, b) for a, b in hard)
    monkeypatch.setattr(overlap, "_WORK_LIMIT", 1)
    assert all(overlaps(a, b) for a, b in hard)
    assert has_internal_overlap((2,) * 8, (16, 15, 14, 13, 12, 11, 10, 9))


@pytest.mark.rules("ALI-3", "ALI-5")
def test_high_rank_and_huge_sizes_need_no_walk_along_a_dimension():
    """Nested dimensions merge, and congruences skip what cannot match: else this would not end."""
    deep = (2,) * 60, tuple(2**k for k in reversed(range(60))), 0
    strided = (10**9,), (6,), 0
    assert not has_internal_overlap(*deep[:2])
    assert overlaps(deep, ((1,), (1,), 2**60 - 1))
    assert not overlaps(deep, ((1,), (1,), 2**60))
    assert not overlaps(strided, ((10**9,), (9,), 1))
    assert overlaps(strided, ((10**9,), (9,), 3))
