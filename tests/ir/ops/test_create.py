"""Factories and copies: sizes and strides that make no tensor are refused."""

from __future__ import annotations

import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ShapeError


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("restride", ((-1,),), "restride: argument 'stride' is .-1,., expected 1 strides, none"),
        ("restride", ((1, 1),), "restride: argument 'stride' is .1, 1., expected 1 strides"),
        ("strided_accumulate", ((-1,), (1,), 0), "strided_accumulate: size is .-1,., expected no"),
    ],
)
def test_geometry_that_no_tensor_has_is_refused(name, args, message):
    with pytest.raises(ShapeError, match=message):
        call(name, al.ones(3), *args)


def test_a_negative_count_is_refused():
    with pytest.raises(ShapeError, match="arange_of: argument 'count' is -1, expected at least 0"):
        call("arange_of", -1, 0, 1)
