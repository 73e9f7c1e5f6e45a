"""Scalar expressions promote as NumPy does; what rows say of functions is what NumPy computes."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest

from aotlite.ir import scalar
from aotlite.ir.dtypes import DType, bool_, complex64, float32, float64, int32, int64, uint8
from aotlite.ir.errors import ArgumentError
from aotlite.ir.scalar import FUNCTIONS, is_zero, with_zeros
from aotlite.ir.scalar.evaluation import by_numpy, evaluate
from aotlite.ir.scalar.expression import const, number

X = scalar.parameter(0, float32)
Y = scalar.parameter(1, float32)
N = scalar.parameter(0, int32)
B = scalar.parameter(0, bool_)


@pytest.mark.rules("OPS-27")
@pytest.mark.parametrize("a", [bool_, uint8, int32, float32, float64, complex64], ids=str)
@pytest.mark.parametrize("b", [bool_, uint8, int32, float32, float64, complex64], ids=str)
@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.truediv])
def test_operators_promote_as_numpy_does(a: DType, b: DType, op: Any) -> None:
    arrays = np.ones(2, a.numpy), np.ones(2, b.numpy)
    root = op(scalar.parameter(0, a), scalar.parameter(1, b))
    expected = op(*arrays)
    assert expected.dtype == root.dtype.numpy
    found = evaluate(root, arrays, by_numpy)
    assert (expected.dtype, expected.tolist()) == (found.dtype, found.tolist())


@pytest.mark.rules("OPS-27")
@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (X * 2, float32),
        (X * 0.5, float32),
        (N * 2, int32),
        (N * 0.5, float64),
        (B * 2, int64),
        (X * 1j, complex64),
        (N / 2, float64),
        (scalar.exp(N), float64),
        (scalar.exp(X), float32),
        (scalar.where(X > 0, 1, 0), float32),
        (scalar.where(N > 0, 1, 0.5), float64),
        (scalar.where(scalar.logical_not(scalar.isnan(X)), 1, 0), float32),
        (scalar.where(X > 0, N, 0), int32),
        (scalar.abs_(scalar.parameter(0, complex64)), float32),
        (scalar.isnan(N), bool_),
    ],
    ids=str,
)
def test_a_number_takes_the_dtype_of_the_scalar_beside_it(made: Any, dtype: DType) -> None:
    assert made.dtype is dtype


@pytest.mark.rules("OPS-27")
def test_numbers_alone_are_numbers() -> None:
    assert (1.0, True, 2.0) == (scalar.exp(0), scalar.lt(1, 2), scalar.maximum(1.0, 2.0))
    assert X is scalar.where(scalar.lt(1, 2), X, Y)


@pytest.mark.rules("OPS-27")
@pytest.mark.parametrize("value", [256, -1, 0.5])
def test_a_number_that_a_dtype_does_not_hold_is_refused(value: float) -> None:
    with pytest.raises(OverflowError, match=f"{value} as uint8, expected a number that the dtype"):
        number(value, uint8)


def test_a_name_has_one_function_and_calls_have_its_operands() -> None:
    with pytest.raises(ArgumentError, match="the function 'exp' is declared twice, expected once"):
        scalar.function("exp", np.exp)
    with pytest.raises(ArgumentError, match=r"scalar\.exp: 2 operands, expected 1"):
        scalar.exp(X, X)
    with pytest.raises(AttributeError, match="there is no function 'expp'"):
        scalar.expp  # noqa: B018


# -------------------------------------------------------------------------------------------- rows
UNARY = [row for row in FUNCTIONS.values() if row.operands == 1]


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize(
    "row", [row for row in UNARY if row.at_zero is not None], ids=lambda r: r.name
)
def test_value_at_zero_is_numpys(row: scalar.FunctionRow) -> None:
    assert row.at_zero == float(row.numpy(np.zeros(1))[0])


@pytest.mark.parametrize("row", [row for row in UNARY if row.at_zero is None], ids=lambda r: r.name)
def test_row_without_a_value_at_zero_has_no_number_there(row: scalar.FunctionRow) -> None:
    kind = int if row.name == "invert" else float
    with np.errstate(all="ignore"):
        found = row.numpy(np.zeros(1, kind))[0]
    known = ("acos", "acosh")  # pi / 2, and none
    assert found.dtype == bool or not math.isfinite(found) or row.name in (*known, "invert")


@pytest.mark.rules("DBL-1")
@pytest.mark.parametrize("row", [row for row in UNARY if row.linear], ids=lambda r: r.name)
def test_linear_row_is_linear(row: scalar.FunctionRow) -> None:
    a, b = np.array([1 + 2j, -3.0]), np.array([0.5, 4 - 1j])
    assert (row.numpy(a + 2 * b) == row.numpy(a) + 2 * row.numpy(b)).all()


# ------------------------------------------------------------------------------------------- zeros
@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize(
    ("root", "left"),
    [
        (X * Y, None),
        (X * math.inf, None),
        (X / Y, None),
        (Y / X, "(x1 / 0.0)"),
        (X + Y, "x1"),
        (Y - X, "x1"),
        (X - Y, "(0.0 - x1)"),
        (scalar.sin(X), None),
        (scalar.cos(X), "cos(0.0)"),
        (scalar.where(Y > 0, X, 0), None),
        (scalar.where(Y > 0, X, Y), "where((x1 > 0.0), 0.0, x1)"),
        (scalar.cast(X, float64), None),
    ],
    ids=str,
)
def test_what_zeros_leave(root: scalar.Scalar, left: str | None) -> None:
    found = with_zeros(root, {X})
    assert is_zero(found) if left is None else left == str(found)


def test_zero_is_a_number() -> None:
    assert is_zero(const(-0.0, float32))
    assert not is_zero(X) and not is_zero(const(1, float32))
