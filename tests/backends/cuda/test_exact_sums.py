"""Sums of floats as whole numbers: no order changes them, and none is less exact than one in order.

The reference is a sum of fractions, rounded once.
"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.passes.exact_sums import ExactSum
from aotlite.backends.cuda.passes.unordered_scatter import with_unordered
from aotlite.backends.loops.program import Kernel, LoopProgram, Store
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Affine, load
from tests.backends.cpu.helpers.chosen_kernels import program
from tests.backends.cpu.helpers.printing import interpreted, same_bits
from tests.backends.cuda.helpers.anywhere import Built
from tests.backends.cuda.helpers.cuda_cases import Cases
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.test_unordered import TARGET

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
EXTREMES = {
    "float16": (2.0**-24, 2.0**15),
    "bfloat16": (2.0**-133, 2.0**127),
    "float32": (2.0**-149, 2.0**127),
    "float64": (2.0**-1074, 2.0**1023),
}
"""The smallest number above zero, and about the largest."""
PLACES, POINTS = 5, 400


def added(dtype: DType, points: int = POINTS, count: int = PLACES) -> LoopProgram:
    """What is added to the elements of an input, which is copied first."""
    place = load(1, Affine((1,)), dtypes.int64)
    store = Store(2, Affine((0,), 0, ((place, 1),)), load(0, Affine((1,)), dtype), combine="sum")
    inputs = {0: (dtype, points), 1: (dtypes.int64, points), 3: (dtype, count)}
    made = program(((points,), 0, 0), [store], inputs, {2: (dtype, count)})
    copy = Kernel("copied", (count,), 1, (Store(2, Affine((1,)), load(3, Affine((1,)), dtype)),))
    made = with_unordered(made, TARGET)
    assert len(made.steps) == 4
    return LoopProgram(made.name, made.buffers, (copy, *made.steps), made.inputs, made.outputs)


def drawn(draw: random.Random, dtype: DType) -> tuple[Any, Any, Any]:
    """Values of very different sizes, positions, and what is there before."""
    low, high = {2: (-14, 10), 4: (-126, 100), 8: (-1000, 1000)}[dtype.itemsize]
    around = draw.randint(low, high)
    spread = draw.choice((0, 3, 30, 300))

    def number() -> float:
        exponent = min(max(around + draw.randint(-spread, spread), low - 20), high)
        return math.ldexp(draw.uniform(-1, 1), exponent) * draw.choice((0, 1, 1, 1, 1, 1))

    values = np.array([number() for _ in range(POINTS)]).astype(dtype.numpy)
    # One address has no value, one has few.
    places = np.array([draw.choice((0, 1, 1, 3, 3, 3)) for _ in range(POINTS)])
    places[draw.randrange(POINTS)] = 4
    old = np.array([number() for _ in range(PLACES)]).astype(dtype.numpy)
    return values, places, old


def sums(values: Any, places: Any, old: Any) -> list[Fraction]:
    """Exactly."""
    found = [Fraction(float(each)) for each in old]
    for value, place in zip(values, places, strict=True):
        found[place] += Fraction(float(value))
    return found


def check_drawn(seeds: range) -> None:
    """Against the exact sum: half a unit, and what the largest value leaves no room for."""
    for seed, dtype in itertools.product(seeds, FLOATS):
        draw = random.Random(f"{seed} {dtype.name}")
        values, places, old = drawn(draw, dtype)
        result = interpreted(added(dtype), [values, places, old])[2]
        exact = sums(values, places, old)
        exact_sum = ExactSum(dtype, POINTS)
        room = exact_sum.room * exact_sum.parts
        most = [Fraction(0)] * PLACES
        for value, place in zip(values, places, strict=True):
            most[place] = max(most[place], abs(Fraction(float(value))))
        for place in range(PLACES):
            slack = POINTS * most[place] * 2 / 2**room
            # float64 is rounded when sums become one, and when that is added to what was there.
            slack += max(abs(exact[place]), abs(Fraction(float(old[place])))) * 3 / 2**53
            half = Fraction(_unit(float(abs(exact[place]) + slack), dtype)) / 2
            assert abs(Fraction(float(result[place])) - exact[place]) <= half + slack, (seed, dtype)


def _unit(number: float, dtype: DType) -> float:
    """The distance of a number of a dtype to the next one."""
    near = np.array(number).astype(dtype.numpy)
    with np.errstate(over="ignore"):
        return float(np.spacing(near)) if dtype.name != "bfloat16" else _unit_of_bfloat16(number)


def _unit_of_bfloat16(number: float) -> float:
    return math.ldexp(1.0, max(math.frexp(number)[1], -125) - 8)


def test_sums_are_exact_but_for_their_last_rounding() -> None:
    check_drawn(range(25))


@pytest.mark.long
def test_thousands_of_sums_are_exact_but_for_their_last_rounding() -> None:
    check_drawn(range(25, 1000))


def test_infinities_nans_and_signs_of_zeros_are_those_of_a_sum_in_order() -> None:
    numbers = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, -1.5]
    cases = np.array([*itertools.product(numbers, repeat=3)])
    values, old = cases[:, :2].reshape(-1), cases[:, 2]
    places = np.arange(len(values)) // 2
    for dtype in FLOATS:
        given = values.astype(dtype.numpy), places, old.astype(dtype.numpy)
        found = interpreted(added(dtype, len(values), len(old)), given)[2]
        expected = given[2].copy()
        with np.errstate(invalid="ignore"):
            np.add.at(expected, places, given[0])
        assert same_bits(expected, found), dtype


def test_the_largest_and_the_smallest_numbers_are_added() -> None:
    for dtype in FLOATS:
        least, most = EXTREMES[dtype.name]
        for number in (least, most / 512):
            values = np.full(POINTS, number).astype(dtype.numpy)
            places = np.arange(POINTS) % PLACES
            before = np.zeros(PLACES, dtype.numpy)
            found = interpreted(added(dtype), [values, places, before])[2]
            exact = float(Fraction(float(values[0])) * (POINTS // PLACES))
            assert same_bits(np.full(PLACES, exact).astype(dtype.numpy), found), (dtype, number)


def test_points_in_another_order_leave_the_same_bits() -> None:
    for dtype in FLOATS:
        draw = random.Random(dtype.name)
        values, places, old = drawn(draw, dtype)
        order, each = draw.sample(range(POINTS), POINTS), added(dtype)
        first = interpreted(each, [values, places, old])[2]
        assert same_bits(first, interpreted(each, [values[order], places[order], old])[2])


@needs_compiler
def test_threads_in_any_order_leave_the_same_bits(tmp_path: Path) -> None:
    found: Cases = {}
    for dtype in FLOATS:
        draw = random.Random(7)
        values, places, old = drawn(draw, dtype)
        found[f"{dtype.name}_numbers"] = added(dtype), [values, places, old]
        values = values.copy()
        values[::50] = [draw.choice((math.inf, -math.inf, math.nan)) for _ in values[::50]]
        found[f"{dtype.name}_specials"] = added(dtype), [values, places, old]
    assert [] == Built(found, tmp_path).differences()
