"""Overlap is exact and quick for any geometry of up to six dimensions, against brute force.

The geometries are drawn where answers are hard: windows that interleave, dimensions that nest or
do not, strides that share factors but for one, and spans of which brute force could see no part.
"""

import random
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aotlite.ir.geometry import overlap
from aotlite.ir.geometry.box_equation import _outward, is_solvable
from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps, overlaps_bytes

PATIENCE = 2.0
"""Seconds of the processor for the hardest question: it takes some hundredths when nobody else
uses the machine, and before there were lattices it took hours."""


# ----------------------------------------------------------------------------------- brute force
def addresses(shape, stride, offset=0):
    found = np.array(offset)
    for size, step in zip(shape, stride, strict=True):
        found = np.add.outer(found, np.arange(size) * step)
    return found.ravel()


def bytes_of(geometry, itemsize):
    return np.add.outer(addresses(*geometry) * itemsize, np.arange(itemsize)).ravel()


def share(a, b):
    return bool(np.isin(addresses(*a), addresses(*b)).any())


def repeats(shape, stride):
    found = addresses(shape, stride)
    return np.unique(found).size < found.size


# ---------------------------------------------------------------------------------------- drawing
def scattered(rng, *, rank, size, largest):
    """Sizes and strides that have nothing to do with one another."""
    shape = tuple(rng.randint(1, size) for _ in range(rank))
    return shape, tuple(rng.randint(0, largest) for _ in range(rank)), rng.randint(0, largest)


def nested(rng, *, rank, size, largest):
    """Each stride about the span of the dimensions within, as those of slices of arrays are."""
    dims, step = [], rng.randint(1, 3)
    for _ in range(rank):
        count = rng.randint(1, size)
        dims.append((count, step))
        step = step * count + rng.choice((0, 0, 1, -1, step))
        step = max(step, 1)
    rng.shuffle(dims)
    shape, stride = zip(*dims, strict=True) if dims else ((), ())
    return tuple(shape), tuple(stride), rng.randint(0, largest)


def geometry_of(rng, *, rank):
    draw = rng.choice((scattered, nested))
    size = {0: 9, 1: 9, 2: 6, 3: 4, 4: 3}.get(rank, 2)
    return draw(rng, rank=rank, size=size, largest=rng.choice((4, 12, 40, 200)))


def compare_pairs(seed, count):
    """How often the answer is False, and True: that of brute force, both ways and moved."""
    rng = random.Random(seed)
    answers = [0, 0]
    for _ in range(count):
        a, b = (geometry_of(rng, rank=rng.randint(0, 6)) for _ in range(2))
        expected = share(a, b)
        shift = rng.randint(0, 10**9)
        moved = [(shape, stride, offset + shift) for shape, stride, offset in (a, b)]
        found = {overlaps(a, b), overlaps(b, a), overlaps(*moved)}
        assert found == {expected}, (a, b)
        answers[expected] += 1
    return answers


def compare_bytes(seed, count):
    rng = random.Random(seed)
    answers = [0, 0]
    for _ in range(count):
        (a, i), (b, j) = (
            (geometry_of(rng, rank=rng.randint(0, 3)), rng.choice((1, 2, 4, 8))) for _ in range(2)
        )
        expected = bool(np.isin(bytes_of(a, i), bytes_of(b, j)).any())
        assert {overlaps_bytes(a, i, b, j), overlaps_bytes(b, j, a, i)} == {expected}, (a, i, b, j)
        answers[expected] += 1
    return answers


def compare_alone(seed, count):
    rng = random.Random(seed)
    answers = [0, 0]
    for _ in range(count):
        shape, stride, _ = geometry_of(rng, rank=rng.randint(1, 6))
        expected = repeats(shape, stride)
        assert expected == has_internal_overlap(shape, stride), (shape, stride)
        answers[expected] += 1
    return answers


def compare_at_once(seed, count):
    """What lattices answer, which else are asked only where a search is long."""
    before = overlap._QUICK
    overlap._QUICK = 1
    try:
        return [*compare_pairs(seed, count), *compare_alone(seed, count)]
    finally:
        overlap._QUICK = before


@pytest.mark.rules("ALI-5", "ALI-2", "ALI-3", "ALI-4")
def test_random_pairs_answer_as_brute_force():
    """Symmetric, and the same wherever in memory the pair lies."""
    assert min(compare_pairs(1, 3000)) > 500


@pytest.mark.rules("ALI-5")
def test_random_pairs_of_other_dtypes_answer_as_brute_force_over_bytes():
    assert min(compare_bytes(2, 1500)) > 200


@pytest.mark.rules("TEN-8")
def test_random_geometries_repeat_an_address_where_brute_force_finds_one():
    assert min(compare_alone(3, 2000)) > 300


@pytest.mark.rules("ALI-5", "TEN-8")
def test_what_is_answered_without_a_search_is_brute_forces_answer():
    assert min(compare_at_once(4, 300)) > 30


@pytest.mark.long
@pytest.mark.rules("ALI-5", "TEN-8")
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_random_pairs_answer_as_brute_force(seed):
    compare_pairs(seed, 10_000)
    compare_bytes(seed, 5_000)
    compare_alone(seed, 5_000)


# ------------------------------------------------------------------------------------ adversaries
def timed(a, b):
    """The answer, which comes in time."""
    start = time.process_time()
    found = overlaps(a, b)
    assert time.process_time() - start < PATIENCE, (a, b)
    return found


def meeting(rng, size, largest, rank=6):
    """Two geometries with an element in common, wherever that is."""
    pair = []
    for _ in range(2):
        shape = tuple(rng.randint(2, size) for _ in range(rank))
        stride = tuple(rng.randint(1, largest) for _ in range(rank))
        here = sum(rng.randrange(n) * step for n, step in zip(shape, stride, strict=True))
        pair.append((shape, stride, here))
    end = max(pair[0][2], pair[1][2])
    return [(shape, stride, end - here) for shape, stride, here in pair]


def missing(rng, size, largest, rank=6):
    """Two that have none: each place is near a multiple of a number, the distance is not.

    No two strides have a factor in common, so that divisors do not tell.
    """
    modulus = rng.randint(30 * size, 60 * size)
    pair = []
    for _ in range(2):
        shape = tuple(rng.randint(2, size) for _ in range(rank))
        stride = tuple(modulus * rng.randint(1, largest) + rng.choice((0, 1)) for _ in range(rank))
        pair.append((shape, stride))
    reach = sum((n - 1) * step for n, step in zip(*pair[0], strict=True))
    distance = rng.randint(0, max(1, reach // modulus - 1)) * modulus + modulus // 2
    return [(*pair[0], 0), (*pair[1], distance)]


@pytest.mark.rules("ALI-5")
@pytest.mark.parametrize("size", [3, 10, 100, 10**6])
@pytest.mark.parametrize("digits", [3, 6, 9, 15])
def test_rank_six_never_gives_up_whatever_the_strides(size, digits, monkeypatch):
    """No work limit is met: with a limit of one step everything would overlap."""
    monkeypatch.setattr(overlap, "_WORK_LIMIT", 1)
    rng = random.Random(size * digits)
    for _ in range(4):
        assert timed(*meeting(rng, size, 10**digits))
        assert not timed(*missing(rng, size, 10**digits))


@pytest.mark.rules("ALI-5")
@pytest.mark.parametrize("digits", [4, 5, 6, 12])
def test_rank_six_equals_brute_force_where_a_search_would_be_long(digits):
    rng = random.Random(digits)
    for _ in range(6):
        a, b = (
            (
                tuple(rng.randint(3, 4) for _ in range(6)),
                tuple(rng.randint(1, 10**digits) for _ in range(6)),
                rng.randint(0, 10**digits),
            )
            for _ in range(2)
        )
        assert share(a, b) == timed(a, b)


def compare_adversaries(seed, count):
    """Pairs of rank 6 of any size, made to meet or to miss each other."""
    rng = random.Random(seed)
    for _ in range(count):
        size, largest = rng.choice((3, 10, 100, 10**6)), 10 ** rng.choice((3, 6, 9, 15))
        rank = rng.randint(2, 6)
        assert timed(*meeting(rng, size, largest, rank))
        assert not timed(*missing(rng, size, largest, rank))


@pytest.mark.rules("ALI-5")
def test_adversaries_of_any_rank_are_answered():
    compare_adversaries(5, 20)


@pytest.mark.rules("ALI-5")
@pytest.mark.parametrize("digits", [3, 6, 9])
def test_rank_six_never_gives_up_for_two_dtypes(digits, monkeypatch):
    """The bytes of an element are one dimension more."""
    monkeypatch.setattr(overlap, "_WORK_LIMIT", 1)
    rng = random.Random(digits)
    for size in (3, 10, 100):
        for (a, b), met in (
            (meeting(rng, size, 10**digits), True),
            (missing(rng, size, 10**digits), False),
        ):
            shape, stride, offset = b
            in_bytes = shape, tuple(8 * step for step in stride), 8 * offset + 7
            assert overlaps_bytes(a, 8, in_bytes, 1) == met


@pytest.mark.rules("TEN-8")
@pytest.mark.parametrize("digits", [3, 5, 7, 12])
def test_internal_overlap_of_rank_six_is_found_in_time(digits):
    rng = random.Random(digits)
    for _ in range(6):
        shape = tuple(rng.randint(3, 6) for _ in range(6))
        stride = tuple(rng.randint(1, 10**digits) for _ in range(6))
        start = time.process_time()
        found = has_internal_overlap(shape, stride)
        assert time.process_time() - start < 6 * PATIENCE
        assert repeats(shape, stride) == found


@pytest.mark.rules("ALI-5")
def test_beyond_rank_six_a_search_that_is_long_answers_overlap():
    """Seven dimensions without a common element, but for the work that it takes to see that."""
    a, b = missing(random.Random(7), 50, 10**9, rank=7)
    assert timed(a, b)
    (shape, stride, _), (other_shape, other_stride, distance) = a, b
    assert not timed((shape[1:], stride[1:], 0), (other_shape[1:], other_stride[1:], distance))


# ------------------------------------------------------------------------------------ the equation
TERMS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5)), min_size=1, max_size=5)


@pytest.mark.rules("ALI-5")
@settings(max_examples=300)
@given(TERMS, st.integers(-5, 300))
@example([(6, 5), (10, 5), (15, 5)], 29)
@example([(1, 1)], 1)
@example([(7, 1), (7, 1)], 7)
def test_the_equation_has_a_solution_where_brute_force_finds_one(terms, target):
    sums = {
        sum(x * stride for x, (stride, _) in zip(xs, terms, strict=True))
        for xs in product(*(range(count + 1) for _, count in terms))
    }
    assert (target in sums) == is_solvable(terms, target)


@pytest.mark.rules("ALI-5")
def test_the_equation_is_solved_near_its_corners_too():
    """Close to what the terms reach least and most the box is cut to a simplex."""
    rng = random.Random(0)
    for _ in range(60):
        terms = [(rng.randint(10, 60), rng.randint(2, 4)) for _ in range(6)]
        sums = {0}
        for stride, count in terms:
            sums = {s + x * stride for s in sums for x in range(count + 1)}
        reach = max(sums)
        for target in (*range(60, 130, 7), *range(reach - 130, reach - 60, 7)):
            assert (target in sums) == is_solvable(terms, target)


@pytest.mark.rules("ALI-5")
def test_the_equation_is_solved_for_numbers_of_any_size():
    """What is made of a solution has one, beyond what a float can count, too."""
    rng = random.Random(0)
    for _ in range(100):
        largest, count = 10 ** rng.choice((6, 18, 30)), 10 ** rng.choice((2, 6, 9))
        terms = [(rng.randint(1, largest), rng.randint(1, count)) for _ in range(rng.randint(3, 6))]
        target = sum(stride * rng.randint(0, most) for stride, most in terms)
        assert is_solvable(terms, target), (terms, target)


@pytest.mark.rules("ALI-5")
def test_the_equation_is_solved_at_the_ends_of_its_bounds_for_numbers_of_any_size():
    """There rounding would cut solutions off, were directions longer than need be."""
    rng = random.Random(1)
    for _ in range(400):
        largest, count = 10 ** rng.choice((9, 18, 60, 100)), rng.choice((1, 3, 10, 10**6))
        terms = [(rng.randint(1, largest), rng.randint(1, count)) for _ in range(rng.randint(4, 6))]
        target = sum(s * rng.choice((0, most, rng.randint(0, most))) for s, most in terms)
        assert is_solvable(terms, target), (terms, target)


@pytest.mark.rules("ALI-5")
def test_a_search_visits_each_step_of_a_range():
    for low, high, middle in product(range(-3, 4), repeat=3):
        found = list(_outward(low, high, middle))
        assert len(set(found)) == len(found)
        assert set(range(low, high + 1)).issubset(found), (low, high, middle)


@pytest.mark.rules("ALI-5", "TEN-8")
def test_beyond_rank_six_a_search_that_is_short_is_exact():
    """A window of seven dimensions and the same one moved; and whether it meets itself."""
    rng = random.Random(2)
    found = []
    for _ in range(150):
        shape = tuple(rng.randint(2, 3) for _ in range(7))
        stride = nested(rng, rank=7, size=3, largest=9)[1]
        twice = tuple(2 * step for step in stride)
        a, b = (shape, twice, 0), (shape, twice, rng.randint(1, 60))
        assert share(a, b) == overlaps(a, b), (a, b)
        assert repeats(shape, stride) == has_internal_overlap(shape, stride), (shape, stride)
        found += [share(a, b), repeats(shape, stride)]
    assert 30 < sum(found) < len(found) - 30


@pytest.mark.rules("ALI-5")
def test_of_one_dtype_bytes_overlap_where_elements_do_beyond_rank_six_too():
    """Also where the work is limited: the answer is one and the same."""
    a, b = missing(random.Random(7), 50, 10**9, rank=7)
    for itemsize in (1, 2, 8):
        assert overlaps(a, b) == overlaps_bytes(a, itemsize, b, itemsize)
