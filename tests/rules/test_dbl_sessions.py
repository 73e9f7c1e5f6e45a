"""DBL-3: functions that use `.grad`s, while others put other tensors there between the calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

import aotlite as al
from tests.rules.helpers.gradient_sessions import Session, alike, sessions

TO_THE_OTHER: Any = ("give", (0, 1, 0))
TOGETHER, APART = ("one", "one"), ("new", "new")


def leaf(*values: float) -> Any:
    return al.tensor(list(values), dtype=al.float64, requires_grad=True)


@pytest.mark.rules("DBL-3", "CAP-4")
def test_a_gradient_is_given_on_also_where_both_leaves_had_one_in_the_first_call() -> None:
    """Nothing was written then, and nothing was at later calls."""

    def function(a: Any, b: Any) -> None:
        b.grad = a.grad

    for called in (function, al.compile(function)):
        a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
        a.grad = b.grad = al.ones(2, dtype=al.float64)
        called(a, b)
        a.grad, b.grad = al.full((2,), 7.0).double(), al.full((2,), 9.0).double()
        called(a, b)
        assert b.grad is a.grad
        assert [7.0, 7.0] == b.grad.tolist()


@pytest.mark.rules("DBL-3", "GRD-1")
def test_a_gradient_that_is_replaced_without_a_look_is_no_input() -> None:
    """One entry serves with and without it, in whichever order they come."""

    def function(w: Any) -> None:
        w.grad = None
        (w * w).sum().backward()

    compiled = al.compile(function)
    w = leaf(1.0, 2.0)
    for before in (al.ones(2, dtype=al.float64), None, al.zeros(2, dtype=al.float64)):
        w.grad = before
        compiled(w)
        assert [2.0, 4.0] == w.grad.tolist()
    assert 1 == len(compiled.entries)
    assert 1 == len(compiled.forward_graph.placeholders)


@pytest.mark.rules("CAP-4", "GRD-1")
@pytest.mark.parametrize("first", [True, False])
def test_that_there_is_a_gradient_is_guarded_where_nothing_else_is_asked(first: bool) -> None:
    """That there is none always was."""

    def function(w: Any, x: Any) -> Any:
        return x + (1.0 if w.grad is None else 2.0)

    compiled = al.compile(function)
    w, x = leaf(1.0), al.zeros(1)
    for has in (first, not first, first):
        w.grad = al.ones(1, dtype=al.float64) if has else None
        assert [2.0 if has else 1.0] == compiled(w, x).tolist()
    assert 2 == len(compiled.entries)


def _check(session: Session) -> None:
    eager, compiled = session.play(lambda function: function), session.play(al.compile)
    if not (compiled and compiled[-1] == "UnsupportedError"):
        assert alike(eager, compiled)
    else:  # the calls before are as in eager
        assert alike(eager[: len(compiled) - 1], compiled[:-1])


@pytest.mark.draws(long=600)
@pytest.mark.rules("DBL-3", "CAP-4", "TEN-29")
@settings(max_examples=50)
@given(sessions)
@example(Session(2, (TO_THE_OTHER,), (), (TOGETHER, APART)))
@example(Session(2, (("put", (0, 0, 0)), TO_THE_OTHER), (), (APART, TOGETHER, APART)))
@example(Session(1, (("look", (0, 0, 0)),), (1,), (("new",), ("none",))))
@example(Session(2, (("compute", (0, 0, 0)), ("backward", (0, 0, 0))), (), (APART, TOGETHER)))
def test_uses_of_gradients_are_eagers_whatever_lies_there(session: Session) -> None:
    """Values, layouts, identities, counts of writes, after each call."""
    _check(session)


@pytest.mark.long
@pytest.mark.rules("DBL-3", "CAP-4", "TEN-29")
@settings(max_examples=5000, suppress_health_check=list(HealthCheck))
@given(sessions)
def test_many_uses_of_gradients_are_eagers(session: Session) -> None:
    _check(session)
