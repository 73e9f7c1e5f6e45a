"""PYX-10, PYX-15: gradients where arguments, results and memory are views of one another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import load, program
from tests.programs.gradients_of_gradients import derivative_differences
from tests.python_export.comparison import module_of
from tests.python_export.second_order import derivatives_by_file


def scaled(x: al.Tensor, y: al.Tensor, w: al.Tensor) -> Any:
    x.mul_(w)
    return y * 3, x[1:], y


def arguments() -> tuple[al.Tensor, list[al.Tensor]]:
    leaf = al.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    base = leaf * 1
    return leaf, [base[:3], base[1:], al.tensor([5.0, 6.0, 7.0], requires_grad=True)]


def compiled_text(function: Any, args: Any) -> str:
    compiled: Any = al.compile(function)
    return str(compiled.to_python(args=tuple(args)))


def loaded_text(function: Any, args: Any) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "saved.aotlite"
        program(function, *args).save(path)
        return str(load(path).to_python())


TEXTS: dict[str, Callable[..., str]] = {
    "compiled": compiled_text,
    "program": lambda function, args: program(function, *args).to_python(),
    "loaded": loaded_text,
}


@pytest.mark.rules("PYX-10", "SYN-2")
@pytest.mark.parametrize("way", TEXTS)
def test_the_gradient_of_a_base_has_the_name_of_its_first_view(way: str) -> None:
    _, given = arguments()
    file = module_of(TEXTS[way](scaled, given))
    array, w = np.arange(1.0, 5.0, dtype=np.float32), np.array([5, 6, 7], np.float32)
    _, pullback = file.scaled_with_backward(array[:3], array[1:], w)
    assert array.tolist() == [5.0, 12.0, 21.0, 4.0]
    two, three = np.full(2, 10, np.float32), np.full(3, 100, np.float32)
    found = pullback(d_output_0=three / 100, d_output_1=two, d_output_2=three)

    leaf, given = arguments()
    cotangents = [al.ones(3), al.full((2,), 10.0), al.full((3,), 100.0)]
    al.autograd.backward(list(scaled(*given)), cotangents)
    assert leaf.grad is not None and given[2].grad is not None
    assert found["x._base"].tolist() == leaf.grad.tolist() == [0.0, 678.0, 791.0, 103.0]
    assert found["w"].tolist() == given[2].grad.tolist() == [0.0, 226.0, 339.0]


@pytest.mark.rules("PYX-10")
def test_each_view_takes_a_cotangent_of_its_new_value() -> None:
    _, given = arguments()
    file = module_of(TEXTS["compiled"](scaled, given))
    array, w = np.arange(1.0, 5.0, dtype=np.float32), np.array([5, 6, 7], np.float32)
    _, pullback = file.scaled_with_backward(array[:3], array[1:], w)
    ones = np.ones(3, np.float32)
    found = pullback(d_updated_primals_0=ones, d_updated_primals_1=ones)
    assert found["x._base"].tolist() == [5.0, 12.0, 14.0, 1.0]
    assert pullback()["x._base"].tolist() == [0.0] * 4


@pytest.mark.rules("PYX-10")
def test_the_gradient_of_a_base_that_is_an_argument_is_its_own() -> None:
    def write(x: al.Tensor, whole: al.Tensor) -> al.Tensor:
        before = whole * 2
        x.mul_(3)
        return before + whole

    base = al.ones(4, requires_grad=True) * 1
    x = base[:3]
    file = module_of(al.compile(write).to_python(args=(x, base)))
    array = np.ones(4, np.float32)
    _, pullback = file.write_with_backward(array[:3], array)
    found = pullback(d_output_0=np.ones(4, np.float32))
    assert {name: each.tolist() for name, each in found.items()} == {"whole": [5.0, 5.0, 5.0, 3.0]}


@pytest.mark.rules("PYX-10", "PYX-15")
def test_results_that_are_views_alone_have_gradients() -> None:
    def views(x: al.Tensor) -> Any:
        return x[0], x.expand(2, 2, 3), x

    x = al.ones(2, 3, requires_grad=True)
    file = module_of(program(views, x, order=2).to_python())
    ones = np.ones((2, 3), np.float32)
    _, pullback = file.views_with_backward(ones)
    expanded = np.stack([ones, ones * 2])
    assert pullback(ones[0], expanded, ones)["x"].tolist() == [[5.0] * 3, [4.0] * 3]
    _, pullback = file.views_of_order_2(ones)
    _, again = pullback(ones[0])
    second = again(d_x=np.arange(6, dtype=np.float32).reshape(2, 3))
    assert second["d_output_0"].tolist() == [0.0, 1.0, 2.0]
    assert second["d_output_1"].tolist() == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]] * 2


@pytest.mark.rules("PYX-10", "TEN-21")
def test_a_view_without_a_history_passes_no_gradient_on() -> None:
    def some(x: al.Tensor) -> Any:
        x.mul_(2)
        with al.no_grad():
            view = x[:2]
        return view, view[:1], x * 1

    x = al.ones(3, requires_grad=True) * 1
    file = module_of(al.compile(some).to_python(args=(x,)))
    result, pullback = file.some_with_backward(np.ones(3, np.float32))
    names = pullback.__code__.co_varnames[: pullback.__code__.co_argcount]
    given = {f"d_output_{k}": np.ones_like(each) for k, each in enumerate(result)}
    given = {name: each for name, each in given.items() if name in names}
    assert pullback(**given)["x"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.rules("PYX-10")
def test_the_gradient_of_an_expanded_argument_has_an_element_for_each() -> None:
    x = al.ones(1, requires_grad=True).expand(3)
    file = module_of(al.compile(lambda x: (x * 2, x[1:])).to_python(args=(x,)))
    array = np.broadcast_to(np.ones(1, np.float32), (3,))
    _, pullback = file._lambda__with_backward(array)
    found = pullback(np.arange(3, dtype=np.float32), np.array([10.0, 20.0], np.float32))
    assert found["x"].tolist() == [0.0, 12.0, 24.0]


@pytest.mark.rules("PYX-9", "FUN-11")
def test_a_gradient_that_leads_to_a_base_without_a_family_is_refused() -> None:
    x = (al.ones(4, requires_grad=True) * 1)[:2]
    with pytest.raises(al.UnsupportedError, match="whose gradient leads to x._base, expected") as e:
        al.compile(lambda x: x.as_strided((2,), (1,), 0)).to_python(args=(x,))
    assert "to_python(backward=False)" in e.value.__notes__[0]


@pytest.mark.rules("PYX-8", "PYX-15")
def test_gradient_of_a_number_is_an_array_where_two_parts_are_added() -> None:
    """NumPy's sum of two arrays without dimensions is no array."""
    x = al.tensor(1.5, requires_grad=True)
    file = module_of(al.compile(lambda x: (x, x.sin())).to_python(args=(x,)))
    _, pullback = file._lambda__with_backward(np.array(1.5, np.float32))
    one = np.array(1.0, np.float32)
    (found,) = pullback(one, one).values()
    assert isinstance(found, np.ndarray) and np.isclose(found, 1 + np.cos(1.5))


BODIES: dict[str, Callable[..., Any]] = {
    "one written": lambda x, y: (x.mul_(y.clone()).clone(), y.sin(), x),
    "both written": lambda x, y: (x.mul_(x.clone()), y.mul_(x.exp()), y[1:] * 1),
    "read before": lambda x, y: ((y.clone() ** 3), x.mul_(y.clone()).exp(), y),
    "views alone": lambda x, y: (x[1:], y, y.reshape(3, 1).expand(3, 2)),
}


@pytest.mark.rules("PYX-15", "SYN-2")
@pytest.mark.parametrize("with_base", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_second_derivatives_of_views_of_one_base_are_eagers(name: str, with_base: bool) -> None:
    def body(x: Any, y: Any, *rest: Any) -> Any:
        return (*BODIES[name](x, y), *[each * 2 for each in rest])

    def setup(with_base: bool) -> tuple[list[Any], list[Any]]:
        leaf = al.tensor([0.5, -1.0, 0.25, 2.0], requires_grad=True)
        base = leaf * leaf
        args = [base[:3], base[1:]]
        return [leaf, base, *args], [*args, base] if with_base else args

    found_by = derivatives_by_file
    found = derivative_differences(partial(setup, with_base), body, body, 1e-4, found_by)
    assert found == []  # None where eager raises
