"""Powers of a number in float64 are within 2 units of the power, and special values are NumPy's."""

from __future__ import annotations

import math
from decimal import Context, Decimal

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.interpreter.program_interpreter import evaluate
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.program import Extern
from aotlite.ir.dtypes import float64
from aotlite.ir.scalar.expression import parameter
from aotlite.ir.scalar.functions.bodies.number_bases import power_of_number

DIGITS = Context(prec=60)
BASES = [0.9, 0.999, 1.5, 2.0, 10.0, math.e, 1e300, 1e-300, 1 + 2**-52, 1 - 2**-53]


def power(base, exponents):
    with np.errstate(all="ignore"):
        return evaluate(power_of_number(base, parameter(0, float64)), [np.asarray(exponents)])


@pytest.mark.parametrize("base", BASES)
def test_powers_of_a_number_are_within_two_units(base):
    most = 1000 / abs(math.log2(base))
    exponents = np.concatenate(
        [np.random.default_rng(0).uniform(-most, most, 50), np.arange(min(most, 20.0))]
    )
    for exponent, got in zip(exponents, power(base, exponents), strict=True):
        exact = DIGITS.power(Decimal(base), Decimal(float(exponent)))
        unit = Decimal(float(np.spacing(float(exact))))
        assert abs(Decimal(float(got)) - exact) <= 2 * unit, (base, exponent)


@pytest.mark.parametrize("base", [*BASES, 1.0])
def test_special_exponents_give_what_numpy_gives(base):
    exponents = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e308, -1e308])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.power(base, exponents), power(base, exponents))


@pytest.mark.parametrize("base", [0.0, -2.0, math.inf, math.nan])
def test_other_bases_are_left_to_the_library(base):
    assert None is power_of_number(base, parameter(0, float64))


def test_bias_corrections_have_loops():
    graph = al.capture(lambda count: 1 - 0.999**count)(al.zeros((), dtype=al.float64))
    assert not any(type(step) is Extern for step in lower(graph).steps)
