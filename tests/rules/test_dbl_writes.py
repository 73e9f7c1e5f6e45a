"""DBL-2: derivatives of functions that write their arguments by what they compute from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import aotlite as al
from tests.rules.helpers.towers import ORDERS, close, gradients, numbers
from tests.rules.helpers.written_programs import (
    Program,
    agrees,
    drawn,
    drawn_larger,
    function_of,
    story,
)

REFUSED = (al.UnsupportedError, al.AliasError)
BOTH = (False, False)
ALL = (-1, -1, -1)
BY_A_WRITE: dict[str, Program] = {
    # What the tape reads of a written argument is found otherwise where other values are results.
    "a row that no write meets": Program(
        ("computed", "leaf"), BOTH, (("unseen part", 1, 0), ("row", 1, 0)), (("all", 2),), ALL
    ),
    "a column behind a row": Program(
        ("computed", "computed"),
        BOTH,
        (("copy a row", 1, 0), ("write a column", 0, 1)),
        (("all", 1),),
        ALL,
    ),
    "one memory": Program(
        ("leaf", "twin turned"),
        BOTH,
        (("unseen part", 1, 1), ("where", 0, 1), ("sin", 2, 0)),
        (("all", 3),),
        ALL,
    ),
    # What stage 7 leaves out of the first backward is part of the second one.
    "a row that leads to nothing": Program(
        ("plain", "computed"),
        BOTH,
        (("copy a row", 0, 1), ("write a part", 0, 1)),
        (("all", 0),),
        ALL,
    ),
    "what is saved turned": Program(
        ("computed", "computed"),
        BOTH,
        (("fill", 0, 1), ("product", 0, 1), ("relu", 2, 1)),
        (("all", 3),),
        ALL,
    ),
    # What is saved is zeros, and has a history all the same.
    "a row that was cleared, repeated": Program(
        ("tall",),
        (False,),
        (("halves", 0, 0), ("clear a row", 1, 1), ("spread rows", 1, 1)),
        (("all", 1), ("all", 2)),
        (4, 8, -1),
        others=(4, 2, -1),
    ),
    # Of one memory that is written through both, one is saved, and the other read.
    "a product with itself turned": Program(
        ("part", "twin turned"), BOTH, (("copy a row", 1, 1), ("product", 0, 1)), (("all", 2),), ALL
    ),
    # A saved value lies otherwise than the input that it is.
    "a copy in another layout": Program(
        ("part", "computed"), BOTH, (("copy all", 1, 0), ("mul", 1, 0)), (("all", 2),), ALL
    ),
    # The first gradient does not reach the argument, what it saved does.
    "a twin": Program(("computed", "twin"), BOTH, (("sin in place", 1, 0),), (("all", 0),), ALL),
    "a turned twin": Program(
        ("computed", "leaf", "twin turned"), (False,) * 3, (("write", 2, 1),), (("all", 1),), ALL
    ),
    # Gradients that arrive in one role at several orders, or by several ways, are of several sizes.
    "a value that is repeated": Program(
        ("leaf",), (False,), (("repeat", 0, 0), ("copy first rows", 1, 0)), (("all", 1),), ALL
    ),
    "a larger value": Program(
        ("leaf", "tall"), BOTH, (("add to last rows", 1, 0),), (("all", 1),), ALL
    ),
    "the results one by one": Program(
        ("computed", "tall"),
        BOTH,
        (("copy first rows", 1, 1), ("copy first rows", 0, 0)),
        (("all", 1), ("all", 1)),
        ALL,
        others=(8, -1, -1),
    ),
}


@pytest.mark.rules("DBL-2", "SIM-3")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", BY_A_WRITE)
def test_derivatives_of_a_function_that_writes_are_eagers(name: str, backend: str) -> None:
    program = BY_A_WRITE[name]
    function = function_of(program)
    expected = story(program, function)
    assert len(expected[3]) == ORDERS
    assert agrees(program, expected, story(program, al.compile(function, backend=backend)))


@pytest.mark.rules("DBL-1", "HOOK-4")
def test_gradients_of_several_sizes_that_have_no_derivatives_say_so() -> None:
    """That of a view, and that of what it is a part of, which is not passed."""
    steps = (("retain", 1, 1), ("write", 1, 2))
    program = Program(("part", "twin"), BOTH, steps, (("all", 2),), ALL)
    found = story(program, al.compile(function_of(program), backend="reference"))
    assert _is_refused(found)


def check_programs(
    seeds: range, draw: Callable[..., Program] = drawn, **facts: bool
) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        program = draw(Random(seed), **facts)
        function = function_of(program)
        try:
            expected = story(program, function)
        except (*REFUSED, al.ShapeError, al.DTypeError):
            seen["refused in eager"] += 1
            continue
        try:
            found = story(program, al.compile(function, backend="reference"))
        except REFUSED:
            seen["refused"] += 1
            continue
        seen["derived"] += len(expected) > 3 and len(expected[3]) == ORDERS
        if _is_refused(found):
            seen["DBL-1"] += 1
            continue
        assert agrees(program, expected, found), f"{seed}: {program}\n{expected}\n{found}"
        seen["equal"] += 1
    return seen


def _is_refused(found: list[Any]) -> bool:
    orders = [each[-1] for each in found if each and type(each) is list]
    return any(type(last) is tuple and last[1:] == ("DBL-1",) for last in orders)


@pytest.mark.rules("DBL-2", "META-2", "SAV-2")
def test_derivatives_of_random_functions_that_write_are_eagers() -> None:
    """Values, layouts, versions, aliases and identities of all that is seen, before and after."""
    seen = check_programs(range(690, 722))
    assert seen["refused"] + seen["DBL-1"] == 0
    assert seen["derived"] >= 5, seen


@pytest.mark.rules("DBL-2", "HOOK-3")
def test_derivatives_of_random_functions_that_write_and_have_hooks_are_eagers() -> None:
    """Of two dtypes, too; what a hook forbids is refused (DBL-1)."""
    seen = check_programs(range(1000, 1030), hooks=True, narrow=True)
    assert seen["DBL-1"] + seen["refused"] <= 9, seen
    assert seen["derived"] >= 3, seen


@pytest.mark.rules("DBL-2")
def test_derivatives_of_random_functions_of_values_of_several_sizes_are_eagers() -> None:
    """Repeated, spread and joined values of which parts are written, derived in two ways."""
    seen = check_programs(range(230, 248), drawn_larger)
    assert seen["refused"] + seen["DBL-1"] == 0
    assert seen["derived"] >= 7, seen


@pytest.mark.long
@pytest.mark.rules("DBL-2")
def test_derivatives_of_many_random_functions_of_values_of_several_sizes_are_eagers() -> None:
    seen = check_programs(range(10_000, 14_000), drawn_larger)
    print(dict(seen))
    assert seen["derived"] >= 2000


@pytest.mark.long
@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("facts", [{}, {"hooks": True, "narrow": True}], ids=["plain", "hooks"])
def test_derivatives_of_many_random_functions_that_write_are_eagers(facts: Any) -> None:
    seen = check_programs(range(10_000, 14_000), **facts)
    print(dict(seen))
    assert seen["derived"] >= 1000


@pytest.mark.rules("DBL-2", "PART-38")
def test_a_gradient_that_is_computed_in_the_forward_has_derivatives() -> None:
    """It is a product with zeros, and none of what arrives: the cut may save it whole."""
    steps = (("sin in place", 0, 0), ("clear", 0, 1))
    program = Program(("computed", "computed"), BOTH, steps, (("all", 0),), ALL)
    function = function_of(program)
    compiled = al.compile(function, backend="reference", partition="min_cut")
    assert agrees(program, story(program, function), story(program, compiled))


# ------------------------------------------------------- inputs that only later orders reach
class Weighted(al.autograd.Function):
    """Has no gradient for its second operand, and multiplies by it in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(weight)
        return x * weight.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (weight,) = ctx.saved_tensors
        return grad * weight, None


def watched(x: Any, weight: Any) -> Any:
    y = x * 2
    y.register_hook(lambda grad: grad * weight)
    return y * y


@pytest.mark.rules("DBL-2", "JNT-3")
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("function", [Weighted.apply, watched])
def test_an_input_that_the_first_gradient_does_not_reach_is_reached_by_the_second(
    function: Callable[..., Any], leaves: bool
) -> None:
    def found(called: Callable[..., Any]) -> Any:
        x, weight = numbers(3), numbers(3, seed=1)
        result = called(*((x, weight) if leaves else (x * 1, weight * 1)))
        first = gradients(result.sum(), [x, weight], create_graph=True, allow_unused=True)
        second = gradients((first[0].sin()).sum(), [x, weight], allow_unused=True)
        return [None if each is None else each.tolist() for each in (*first, *second)]

    eager = found(function)
    assert eager[1] is None
    assert eager[3] is not None
    assert close(eager, found(al.compile(function)))


# ----------------------------------------------------------------------- what windows show
@pytest.mark.rules("DBL-2")
def test_two_memories_with_one_value_are_not_taken_for_one() -> None:
    """`as_strided` goes by how a value lies: a copy may lie otherwise."""

    def function(x: Any) -> Any:
        turned = x.t()
        a = turned.contiguous().as_strided((3,), (1,), 0)
        b = turned.as_strided((3,), (1,), 0)
        return a.exp().sin() * b.exp().cos()

    def found(called: Callable[..., Any]) -> Any:
        x = numbers(3, 3)
        result = called(x * 1)
        first = gradients(result.sum(), [x], create_graph=True)
        second = gradients(first[0].sin().sum(), [x], create_graph=True)
        return [each.tolist() for each in (result, *first, *second)]

    eager = found(function)
    for backend in ("reference", "auto"):
        assert close(eager, found(al.compile(function, backend=backend)))


@pytest.mark.rules("DBL-2", "SIM-4")
def test_many_writes_in_a_row_have_derivatives() -> None:
    """More of them than the rules on windows look back."""

    def function(x: Any, weight: Any) -> Any:
        for k in range(100):
            x[k % 50].mul_(weight[k % 3])
        return x[0] * x.sum()

    def found(called: Callable[..., Any]) -> Any:
        x, weight = numbers(50), numbers(3, seed=1)
        first = gradients(called(x * 1, weight), [x, weight], create_graph=True)
        second = gradients(sum(each.sin().sum() for each in first), [x, weight])
        return [each.tolist() for each in (*first, *second)]

    assert close(found(function), found(al.compile(function)))
