"""Programs with wrappers that compiled functions once got wrong, against eager."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor
from tests.stages.wrapped_cases import Case, dense, nested, two
from tests.stages.wrapped_worlds import check_like_eager

CASES: dict[str, Case] = {}


def case(make: Any) -> Any:
    def add(function: Any) -> Any:
        CASES[function.__name__] = function, make
        return function

    return add


@pytest.mark.rules("SUB-4", "SUB-11", "SUB-12")
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_programs_that_once_went_wrong_leave_eagers_world(backend: str) -> None:
    for function, make in CASES.values():
        check_like_eager(function, make, backends=(backend,))


# ------------------------------------------------------------------------------ gradients' layouts
@case(lambda: (two(grad=True),))
def a_sum(x: Any) -> Any:
    """Its gradient is expanded."""
    return x.sum()


@case(lambda: (nested(2, 3, grad=True),))
def sums_of_nested_ones(x: Any) -> Any:
    return x.sum(), x.t().mean(0)


@case(lambda: (two(2, 2, grad=True), two(2, 3, grad=True)))
def a_concatenation(x: Any, y: Any) -> Any:
    """Gradients are windows with gaps."""
    return al.cat([x, y], 1).sum(), al.cat([x, y], 1) * 2


@case(lambda: (two(grad=True),))
def an_expanded_result(x: Any) -> Any:
    """Its gradient is expected contiguous (TAN-2)."""
    return (x * 2).expand(3, 6)


# ---------------------------------------------------------------------------- parts with histories
@case(lambda: (TwoTensor(dense().requires_grad_(), dense(start=2.0)),))
def a_leaf_that_is_a_part(x: Any) -> Any:
    return x.a * 2


@case(lambda: (TwoTensor(dense().requires_grad_() * 2, dense(start=2.0).requires_grad_() * 3),))
def parts_with_histories(x: Any) -> Any:
    new = TwoTensor(x.a * 2, x.b * 3)
    return x.b * x.a, new, new.a * 2


@case(lambda: (TwoTensor(dense().requires_grad_(), dense(start=2.0), requires_grad=True),))
def a_wrapper_and_its_part_with_histories(x: Any) -> Any:
    """The gradient of a part is not the part of a gradient."""
    return x.a * 2, x * 3


@case(lambda: (TwoTensor(dense().requires_grad_() * 2, dense(start=2.0)),))
def a_part_written_with_its_history(x: Any) -> Any:
    x.a.mul_(2)
    return x.a * 1


@case(lambda: (dense().requires_grad_(), dense(), two(grad=True)))
def a_new_wrapper_of_parts_with_histories(a: Any, b: Any, x: Any) -> Any:
    new = TwoTensor(a * 2, b * a)
    return new * x, new.a * 2, x * 1, new


# -------------------------------------------------------------------------------------- geometries
@case(lambda: (two(grad=True),))
def views_of_new_wrappers(x: Any) -> Any:
    """Where a view begins is the wrapper's affair as well as its parts'."""
    return TwoTensor(x.b, x.a)[1:], (x * 2).as_strided((2, 2), (1, 2), 1)
