"""The public checks: what they accept, what they find, and what they say. Rules: GEN-2, GEN-11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.testing import Difference, Inputs, ProgramError, assert_same_effects, check_program
from aotlite.testing.compiled import differences_of, kind_of
from tests.testing.helpers.examples import program


def halves(x: Any) -> dict[str, Any]:
    """A function of a user's: it writes, gives views, and a structure."""
    x.mul_(2)
    return {"first": x[:2], "rest": [x[2:], None, 3]}


def grown() -> Inputs:
    leaf = al.ones(4, requires_grad=True)
    return Inputs((leaf * 1,), also=(leaf,))


def found(*args: Any, **options: Any) -> str:
    """The text of the difference that a check raises."""
    with pytest.raises(Difference) as raised:
        assert_same_effects(*args, **options)
    return str(raised.value)


@pytest.mark.rules("GEN-11")
@pytest.mark.parametrize("after", [{}, {"grad": False}, {"write": (0, "mul_")}])
def test_a_compiled_function_has_the_same_effects(after: dict[str, Any]) -> None:
    assert_same_effects(halves, al.compile(halves), grown, **after)
    assert_same_effects(halves, al.compile(halves), lambda: al.ones(5), **after)


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another structure": (lambda x: list(halves(x).values()), "plain: "),
    "values": (lambda x: halves(x.add_(1)), "values of input 0 after the call: "),
    "a copy": (lambda x: {**halves(x), "first": x[:2].clone()}, "storage of result 0 after the"),
    "no gradient": (lambda x: halves(x.detach()), "requires_grad of result 0 after the call: "),
    "an error": (lambda x: halves(x.view(3)), "error: ShapeError("),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str) -> None:
    wrong, text = MISTAKES[name]
    told = found(halves, wrong, grown)
    assert told.startswith("assert_same_effects: compiled differs from eager, expected the same")
    assert text in told


def test_a_mistake_that_only_a_later_write_shows_is_found() -> None:
    def returns_other_values(x: Any) -> Any:
        return x.neg(), x.clone()

    def shares_results(x: Any) -> Any:
        return x.neg(), x.detach()

    assert "result 1 after the write" in found(
        returns_other_values, shares_results, lambda: al.ones(2), write=(1, "mul_")
    )


def test_tensors_that_are_looked_at_too_have_gradients_compared() -> None:
    def squares(x: Any) -> Any:
        return x * x

    def forgets(x: Any) -> Any:
        return x.detach() * x

    leaf_too = found(squares, forgets, grown)
    assert "gradient of input 1: ([" in leaf_too
    assert "gradient" not in found(squares, lambda x: forgets(x) + 1, lambda: grown().args)


def test_arguments_are_checked() -> None:
    with pytest.raises(
        ArgumentError, match="^assert_same_effects: an argument is 'gard', expected"
    ):
        assert_same_effects(halves, halves, grown, gard=False)


PLAIN = {"setup": [["make", [0, [2], "float64", False]]], "args": ["$0"]}
DOUBLED = program([["mul_", ["$0", 2]]], ["$1"], PLAIN)


def test_a_program_that_differs_is_carried_with_what_finds_it_again() -> None:
    def wrong(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return lambda x: [function(x)[0].clone()]

    whole = program([["mul_", ["$0", 2]], ["neg", ["$0"]]], ["$1"], PLAIN, PLAIN)
    with pytest.raises(ProgramError) as raised:
        check_program(whole, compile=wrong, verify=2)
    error = raised.value
    assert isinstance(error, Difference)
    assert whole is error.program
    assert {"compile", "verify"} == set(error.options)
    small = error.smallest()
    assert small is not None
    assert () == small.body
    assert kind_of(error.found) == kind_of(differences_of(small, compile=wrong))


def test_a_refused_program_is_no_difference_and_a_half_done_one_is() -> None:
    def refusing(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            if options.get("late"):
                function(x)
            raise UnsupportedError("f: no")

        return run

    check_program(DOUBLED, compile=refusing)
    with pytest.raises(Difference, match="touched: "):
        check_program(DOUBLED, compile=refusing, late=True)
    with pytest.raises(Difference, match="error: UnsupportedError"):
        assert_same_effects(halves, refusing(halves), lambda: al.ones(3))


def test_what_is_not_deterministic_is_named():
    numbers = iter(range(9))
    with pytest.raises(Difference, match="nondeterministic: eager, or inputs\\(\\), does not give"):
        assert_same_effects(lambda x: x + next(numbers), lambda x: x, lambda: al.zeros(2))
    with pytest.raises(Difference) as raised:
        assert_same_effects(lambda x: x + 1, lambda x: x + 2, lambda: al.zeros(2))
    assert "nondeterministic" not in str(raised.value)


def test_plain_numbers_are_compared_to_the_bit():
    assert_same_effects(lambda x: float("nan"), lambda x: float("nan"), lambda: al.zeros(1))
    with pytest.raises(Difference, match="'-0.0'"):
        assert_same_effects(lambda x: 0.0, lambda x: -0.0, lambda: al.zeros(1))


VECTOR = {"setup": [["make", [0, [3], "float64", False]]], "args": ["$0"]}


def test_a_program_that_cannot_run_does_not_pass():
    for step, expected in (
        (["nope", ["$0"]], "a step is 'nope', expected an op that aotlite has"),
        (["neg", ["$1"]], r"a name is '\$1', expected one of the 1 values before it"),
    ):
        with pytest.raises(ArgumentError, match=f"check_program: {expected}"):
            check_program(program([step], [], VECTOR))
