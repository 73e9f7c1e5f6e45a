"""PYX-15: pullbacks of pullbacks in the files of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.export import program
from tests.programs.gradients_of_gradients import derivative_differences
from tests.python_export.comparison import module_of
from tests.python_export.second_order import derivatives_by_file

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda x, w: x * w,
    "sin": lambda x, w: x.sin(),
    "cube": lambda x, w: x**3,
    "matmul": lambda x, w: x @ w,
    "flip": lambda x, w: x.flip(0) + w,
    "view": lambda x, w: x.t(),
    "write": lambda x, w: x.clone().mul_(w),
    "softmax": lambda x, w: x.softmax(1),
}
RESULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda y, x, w: y.exp(),
    "view": lambda y, x, w: (y[0], y * 2),
    "two views": lambda y, x, w: (y.t(), y[1:]),
    "view of argument": lambda y, x, w: (y.sum(), x[:, 1]),
    "argument": lambda y, x, w: (y.cos(), w),
    "sums": lambda y, x, w: (y.sum(), (y * y).mean(0), 3),
}


@pytest.mark.rules("PYX-15")
@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.sampled_from(sorted(RESULTS)),
)
def test_second_derivatives_are_eagers(steps: list[str], results: str) -> None:
    def body(x: Any, w: Any) -> Any:
        y = x
        for step in steps:
            y = STEPS[step](y, w)
        found = RESULTS[results](y, x, w)
        return found if isinstance(found, tuple) else (found,)

    def setup() -> tuple[list[Any], list[Any]]:
        args = [
            al.tensor([[0.5, -1.0], [0.25, 2.0]], requires_grad=True),
            al.tensor([[1.0, 0.5], [-0.5, 0.75]], requires_grad=True),
        ]
        return args, args

    found = derivative_differences(setup, body, body, 1e-4, derivatives_by_file)
    assert found == []


@pytest.mark.rules("PYX-15", "PYX-10")
def test_gradients_of_cotangents_are_those_of_a_bilinear_form() -> None:
    def scaled(x: al.Tensor, w: al.Tensor) -> Any:
        return x * w, w[1:]

    w = al.tensor([2.0, 3.0], requires_grad=True)
    file = module_of(program(scaled, al.tensor([5.0, 7.0]), w, order=2).to_python())
    x, ones = np.array([5.0, 7.0], np.float32), np.ones(2, np.float32)
    _, pullback = file.scaled_of_order_2(x, np.array([2.0, 3.0], np.float32))
    gradients, again = pullback(ones, ones[1:])
    assert gradients["w"].tolist() == [5.0, 8.0]
    second = again(d_w=ones)
    assert {name: value.tolist() for name, value in second.items()} == {
        "d_output_0": [5.0, 7.0],
        "d_output_1": [1.0],
    }


@pytest.mark.rules("PYX-15")
def test_third_derivatives_and_what_has_none() -> None:
    def power(x: al.Tensor) -> al.Tensor:
        return (x**4).sum()

    x = al.tensor([1.0, 2.0], requires_grad=True)
    file = module_of(program(power, x, order=3).to_python())
    one, ones = np.float32(1), np.ones(2, np.float32)
    _, pullback = file.power_of_order_3(np.array([1.0, 2.0], np.float32))
    _, pullback = pullback(one)
    _, pullback = pullback(d_x=ones)
    assert pullback(d_x=ones)["x"].tolist() == [24.0, 48.0]
    text = program(power, x).to_python()
    assert "_of_order_" not in text


@pytest.mark.rules("PYX-15")
def test_what_no_file_of_that_order_holds_is_refused() -> None:
    x = al.ones(2, requires_grad=True)
    views = program(lambda x: (x.exp().sum(), x[1:]), x, order=3)
    with pytest.raises(al.UnsupportedError, match="expected results of their own for") as caught:
        views.to_python()
    assert "order=2" in caught.value.__notes__[0]
    named = program(lambda d_output_0: (d_output_0**3).sum(), x, order=2)
    with pytest.raises(al.UnsupportedError, match="an argument and a cotangent are both named"):
        named.to_python()
