"""Searches, quantiles and sets: what is refused, and what depends on data in a capture."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)

STEPS = al.tensor([1.0, 3.0, 5.0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: al.searchsorted(al.ones(3, 2), x),
            ShapeError,
            "searchsorted: shapes are (3, 2) and (2, 3), expected a sequence of 1 dimension, or "
            "the same sizes before the last",
        ),
        (
            lambda x: al.searchsorted(al.ones(2, 2), 1.0),
            ShapeError,
            "searchsorted: shapes are (2, 2) and (), expected a sequence of 1 dimension, or the "
            "same sizes before the last",
        ),
        (
            lambda x: al.searchsorted(STEPS, x, side="middle"),
            ArgumentError,
            "searchsorted: argument 'side' is 'middle', expected 'left' or 'right'",
        ),
        (
            lambda x: al.searchsorted(STEPS, x, side="left", right=True),
            ArgumentError,
            "searchsorted: argument 'side' is 'left' and 'right' is True, expected one side",
        ),
        (
            lambda x: al.searchsorted(STEPS.bool(), x.bool()),
            DTypeError,
            "searchsorted: dtype is bool, expected one of real numbers",
        ),
        (
            lambda x: al.searchsorted(STEPS, x, sorter=al.tensor([0, 1])),
            ShapeError,
            "searchsorted: the sorter has shape (2,), expected (3,), the sequence's",
        ),
        (
            lambda x: al.searchsorted(STEPS, x, sorter=STEPS),
            DTypeError,
            "searchsorted: the sorter has dtype float32, expected int64",
        ),
        (
            lambda x: al.searchsorted(STEPS, x, sorter=al.tensor([0, 1, 5])),
            IndexOutOfRangeError,
            "searchsorted: an index is 5, expected 0 <= index < 3, the size of the dimension",
        ),
        (
            lambda x: al.bucketize(x, al.ones(2, 2)),
            ShapeError,
            "bucketize: the boundaries have shape (2, 2), expected 1 dimension",
        ),
        (
            lambda x: x.quantile(1.5),
            ArgumentError,
            "quantile: argument 'q' is 1.5, expected 0 <= q <= 1",
        ),
        (
            lambda x: x.quantile(al.ones(2, 2)),
            ShapeError,
            "quantile: argument 'q' has shape (2, 2), expected at most 1 dimension",
        ),
        (
            lambda x: x.quantile(al.ones(2).double()),
            DTypeError,
            "quantile: argument 'q' has dtype float64, expected float32",
        ),
        (
            lambda x: x.long().quantile(0.5),
            DTypeError,
            "quantile: dtype is int64, expected float32 or float64",
        ),
        (
            lambda x: x.narrow(0, 0, 0).nanquantile(0.5),
            ShapeError,
            "nanquantile: the operand has shape (0, 3), expected no empty one",
        ),
        (
            lambda x: x.quantile(0.5, 2),
            IndexOutOfRangeError,
            "quantile: dimension is 2, expected -2 to 1",
        ),
        (
            lambda x: x.quantile(0.5, interpolation="cubic"),
            ArgumentError,
            "quantile: argument 'interpolation' is 'cubic', expected one of linear, lower, higher, "
            "midpoint, nearest",
        ),
        (
            lambda x: x.to(al.complex64).unique(),
            DTypeError,
            "unique: dtype is complex64, expected a real one: complex has no order",
        ),
        (
            lambda x: al.tensor(1.0).unique(dim=0),
            IndexOutOfRangeError,
            "unique: dimension is 0, expected none: self is 0-d",
        ),
        (
            lambda x: x.narrow(0, 0, 0).unique_consecutive(dim=1),
            ShapeError,
            "unique_consecutive: self has shape (0, 3), expected no size 0 beside dimension 1",
        ),
        (
            lambda x: x.bincount(),
            DTypeError,
            "bincount: dtype is float32, expected one of integers",
        ),
        (
            lambda x: x.long().bincount(),
            ShapeError,
            "bincount: self has shape (2, 3), expected 1 dimension",
        ),
        (
            lambda x: al.tensor([1, -2]).bincount(),
            IndexOutOfRangeError,
            "bincount: an element is -2, expected at least 0",
        ),
        (
            lambda x: al.tensor([1, 2]).bincount(minlength=-1),
            ShapeError,
            "bincount: argument 'minlength' is -1, expected at least 0",
        ),
        (
            lambda x: al.tensor([1, 2]).bincount(STEPS),
            ShapeError,
            "bincount: argument 'weights' has shape (3,), expected (2,)",
        ),
        (
            lambda x: al.tensor([1, 2]).bincount(al.ones(2, dtype=al.complex64)),
            DTypeError,
            "bincount: argument 'weights' has dtype complex64, expected a real one",
        ),
        (lambda x: x.histc(0), ShapeError, "histc: argument 'bins' is 0, expected at least 1"),
        (lambda x: x.long().histc(), DTypeError, "histc: dtype is int64, expected a floating one"),
        (
            lambda x: x.histc(3, 2.0, 1.0),
            ArgumentError,
            "histc: argument 'max' is 1.0, expected at least 2.0, the least",
        ),
        (
            lambda x: (x / 0).histc(3),
            ArgumentError,
            "histc: the range is inf to inf, expected a finite one",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(call, error, message):
    with pytest.raises(error) as caught:
        call(al.ones(2, 3))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["unique", "unique_consecutive", "bincount"])
def test_what_depends_on_data_is_captured_once(name):
    compiled = al.compile(lambda x: getattr(x, name)())
    for values in ([1, 2, 2], [0, 0, 0], [3, 1, 0]):
        x = al.tensor(values)
        assert getattr(x, name)().tolist() == compiled(x).tolist()
    assert 1 == len(compiled.entries)


def test_each_nan_is_one_of_its_own():
    found = al.tensor([np.nan, 1.0, np.nan]).unique(return_counts=True)
    assert [1, 1, 1] == found[1].tolist() and 1.0 == found[0][0].item()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sets_of_sixteen_bit_floats(dtype):
    x = al.tensor([[2.0, 1.0], [2.0, 1.0], [0.5, 3.0]]).to(getattr(al, dtype))
    assert [0.5, 1.0, 2.0, 3.0] == x.unique().tolist()
    assert [[0.5, 3.0], [2.0, 1.0]] == x.unique(dim=0).tolist()
    assert [0, 2] == al.searchsorted(x[2], al.tensor([0.25, 4.0])).tolist()


@pytest.mark.parametrize(("value", "dtype"), [(2**63 - 1, "int64"), (2**64 - 1, "uint64")])
def test_no_element_of_bincount_has_a_place_that_overflows(value, dtype):
    """NumPy counts the places as `value + 1` in 64 bits, and would write where it has none."""
    with pytest.raises(IndexOutOfRangeError) as caught:
        al.tensor([1, value], dtype=getattr(al, dtype)).bincount()
    assert str(caught.value) == (
        f"bincount: an element is {value}, expected under 9223372036854775807"
    )
