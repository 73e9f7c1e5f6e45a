"""Rows: a name gives the kernel, the scalar expression, the in-place form, the other names."""

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir import scalar
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES, composite
from aotlite.ir.ops.pointwise_rows import unary

X = scalar.parameter(0, al.float64)


@pytest.fixture
def tables():
    """The tables of ops and composites, as they were when the test ends."""
    before = dict(OPS), dict(COMPOSITES)
    yield
    for table, entries in zip((OPS, COMPOSITES), before, strict=True):
        table.clear()
        table.update(entries)


def test_a_row_gives_kernel_expression_in_place_form_and_other_names(tables):
    del OPS["cos"], OPS["cos_"]
    row = unary("cos", vjp=lambda grad, self: -grad * self.sin(), aliases="cosine")
    assert str(row.scalar(X)) == "cos(x0)"
    x = al.tensor([0.0, 1.0], dtype=al.float64)
    np.testing.assert_array_equal(np.cos([0.0, 1.0]), call("cos", x).numpy())
    np.testing.assert_array_equal(np.cos([0.0, 1.0]), COMPOSITES["cosine_"](x).numpy())
    assert str(COMPOSITES["cosine"].schema) == "cosine(Tensor self) -> Tensor"


def test_one_function_is_kernel_and_expression(tables):
    def bent(f, a):
        return f.where(f.greater(a, 0), f.abs(a), 2.0)

    row = unary("bent_of_a_test", vjp=None, element=bent)
    assert str(row.scalar(X)) == "where((x0 > 0.0), abs(x0), 2.0)"
    found = call("bent_of_a_test", al.tensor([-3.0, 4.0]))
    np.testing.assert_array_equal([2.0, 4.0], found.numpy())


def test_a_composite_declares_its_in_place_form(tables):
    @composite("fourth_of_a_test(Tensor self) -> Tensor", inplace=True, aliases="biquadrate")
    def fourth(self, end=""):
        """self ** 4."""
        return self._do("pow" + end, 4)

    x = al.tensor([2.0])
    assert COMPOSITES["biquadrate_"](x) is x
    assert x.item() == 16.0
    made = COMPOSITES["fourth_of_a_test_"]
    assert str(made.schema) == "fourth_of_a_test_(Tensor(a!) self) -> Tensor(a!)"
    assert made.function.__doc__ == "`fourth_of_a_test` in place."


def test_other_names_say_of_what():
    assert COMPOSITES["less"].another_name_of == "lt"
    assert COMPOSITES["subtract_"].another_name_of == "sub_"
    assert al.less.__doc__.startswith("Another name of `lt`.")
