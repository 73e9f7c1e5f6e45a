"""Positions as declarations compute with them are what arithmetic on every point gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aotlite.backends.loops.interpreter.program_interpreter import run_step
from aotlite.backends.loops.lowering.axis_index import AxisIndex
from aotlite.backends.loops.program import Kernel, Store
from aotlite.ir import dtypes
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Affine, Scalar, load

EXTENTS = (3, 4)
FORMS = [
    AxisIndex(EXTENTS, coefficients, start)
    for coefficients in itertools.product((-2, -1, 0, 1, 3), repeat=2)
    for start in (-4, -1, 0, 2, 5)
]
POINTS = list(itertools.product(*map(range, EXTENTS)))


def at(form, point):
    """The position there: of an index by its definition, of a scalar by the interpreter."""
    if type(form) is AxisIndex:
        pairs = zip(form.coefficients, point, strict=True)
        return form.start + sum(c * x for c, x in pairs)
    assert type(form) is Scalar
    memory = {0: np.zeros(12, form.dtype.numpy)}
    run_step(Kernel("k", EXTENTS, 2, (Store(0, Affine((4, 1)), form),)), memory)
    return memory[0][4 * point[0] + point[1]].item()


def values(form):
    return [at(form, point) for point in POINTS]


def test_sums_and_products_are_those_of_each_point():
    for a, b in zip(FORMS, FORMS[::-1], strict=True):
        expected = [(2 * x + y - 3, 4 - x) for x, y in zip(values(a), values(b), strict=True)]
        assert expected == list(zip(values(2 * a + b - 3), values(4 - a), strict=True))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("n", [-3, 0, 2, 7])
def test_comparisons_hold_where_they_do_at_each_point(n):
    for form in FORMS:
        own = values(form)
        claims = (form < n, form <= n, form > n, form >= n, form.equals(n))
        expected = [(x < n, x <= n, x > n, x >= n, x == n) for x in own]
        assert expected == list(zip(*map(values, claims), strict=True)), f"{form} and {n}"


def test_what_the_extents_decide_is_decided():
    i = AxisIndex(EXTENTS, (1, 0))
    for claim in (i < 3, i >= 0, (i + 5).equals(5 + i), (i - 3) < 0):
        assert ("const", (True,)) == (claim.op, claim.args)
    for claim in (i < 0, i > 2, i.equals(3), (2 * i).equals(1)):
        assert ("const", (False,)) == (claim.op, claim.args)


def test_a_comparison_of_one_axis_is_a_bound_of_it():
    i, j = AxisIndex(EXTENTS, (1, 0)), AxisIndex(EXTENTS, (0, 1))
    assert ("(i1 < 2)", "(i1 >= 2)", "(i0 == 1)") == (
        str(2 * j - 3 < 1),
        str(5 - 2 * j <= 2),
        str((3 * i).equals(3)),
    )
    assert "((i0 + (i1 * -1)) < 0)" == str(i < j)


@pytest.mark.parametrize("divisor", [1, 2, 3, 5])
def test_quotients_and_remainders_are_those_of_each_point(divisor):
    for form in FORMS:
        own = values(form)
        if min(own) < 0:
            continue
        quotient, rest = (values(each) for each in (form // divisor, form % divisor))
        expected = [divmod(x, divisor) for x in own]
        assert expected == list(zip(quotient, rest, strict=True)), f"{form} by {divisor}"


def test_positions_that_may_be_negative_are_not_divided():
    with pytest.raises(GraphError, match="is divided and may be negative, expected from 0 on"):
        (AxisIndex(EXTENTS, (1, 0)) - 1) // 2


def test_a_position_and_a_scalar_are_a_scalar():
    i, x = AxisIndex(EXTENTS, (1, 0)), load(0, Affine((0, 1)), dtypes.int32)
    assert "(i0 + cast<i64>(b0[i1]))" == str(i + x)
    assert "(i0 - cast<i64>(b0[i1]))" == str(i - x)
