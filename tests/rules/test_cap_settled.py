"""CAP-16: a state that settles in the first call is no reason to refuse; one that does not is.

Programs that are compared with eager ones, call for call; what the second run may not do; and drawn
programs that put a function of the state into the state, of which some settle at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers import settled_programs
from tests.rules.test_cap_programs import NAMES, made, snippets

pytestmark = pytest.mark.rules("CAP-16")

SETTLED = snippets(settled_programs.SETTLED)
UNSETTLED = snippets(settled_programs.UNSETTLED)


@pytest.fixture(autouse=True)
def names(monkeypatch):
    monkeypatch.setitem(NAMES, "np", np)
    monkeypatch.setitem(NAMES, "tempfile", tempfile)


def shown(function: Callable[[Any], Any], value: list[float]) -> object:
    """A result with the order of its keys, or the error of the user's program."""
    try:
        found = function(al.tensor(value))
    except ValueError as error:
        return str(error)
    keys = list(found) if isinstance(found, dict) else []
    found = found if isinstance(found, tuple) else found.values() if keys else [found]
    return keys, [each.tolist() if isinstance(each, al.Tensor) else each for each in found]


def outcome(make: Callable[[], Callable[[Any], Any]]) -> str:
    """How calls compiled compare with eager ones: "refused" or "equal"."""
    eager, compiled = make(), al.compile(make(), backend="reference")
    for value in ([1.0], [2.0], [3.0, 4.0], [5.0]):
        expected = shown(eager, value)
        try:
            assert expected == shown(compiled, value)
        except al.UnsupportedError:
            return "refused"
    return "equal"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETTLED)
def test_a_state_that_settles_in_the_first_call_is_no_reason_to_refuse(name):
    assert "equal" == outcome(lambda: made(SETTLED[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNSETTLED)
def test_a_state_of_which_the_second_call_is_another_one_is_refused(name):
    assert "refused" == outcome(lambda: made(UNSETTLED[name]))


class Flag:
    is_set = False
    calls = 0


def test_what_nobody_reads_happens_once():
    flag, log = Flag(), []

    def f(x):
        flag.calls += 1
        log.append(x.shape[0])
        flag.is_set = flag.is_set or True
        return x * 2

    assert [2.0] == al.compile(f)(al.ones(1)).tolist()
    assert (1, [1], True) == (flag.calls, log, flag.is_set)


def test_a_refusal_leaves_everything_as_it_was():
    flag, log, table = Flag(), [], {}

    def f(x):
        log.append(1)
        table["size"] = x.shape[0]
        scale = 2 if flag.is_set else table["size"]
        flag.is_set = True
        return x * scale

    with pytest.raises(al.UnsupportedError, match="a read of table"):
        al.compile(f)(al.ones(1))
    assert ([], {}, {}) == (log, table, vars(flag))


def test_who_sets_it_back_gets_a_capture_of_that_state():
    """The guards compare what the second run has found."""
    flags = {"warned": False}

    def f(x):
        if not flags["warned"]:
            flags["warned"] = True
        return x * 2

    compiled = al.compile(f)
    for _ in range(2):
        assert [2.0] == compiled(al.ones(1)).tolist()
        assert 1 == len(compiled.entries) or not flags["warned"]
    flags["warned"] = False
    compiled(al.ones(1))
    assert flags["warned"]


def test_a_second_run_prints_nothing(capsys):
    flag = Flag()

    def f(x):
        if not flag.is_set:
            print("once")
            flag.is_set = True
        return x * 2

    compiled = al.compile(f)
    compiled(al.ones(1)), compiled(al.ones(1))
    assert "once\n" == capsys.readouterr().out


def test_what_would_be_printed_twice_is_refused(capsys):
    flag = Flag()

    def f(x):
        try:
            print("each call")
        except BaseException:
            flag.calls = 5
        flag.is_set = flag.is_set or True
        return x * 2

    with pytest.raises(al.UnsupportedError, match="a read of flag.is_set"):
        al.compile(f)(al.ones(1))
    assert ("each call\n", {}) == (capsys.readouterr().out, vars(flag))


def test_the_order_of_keys_of_a_result_counts():
    flag = Flag()

    def f(x):
        made = {"a": x, "b": x * 2} if flag.is_set else {"b": x * 2, "a": x}
        flag.is_set = True
        return made

    with pytest.raises(al.UnsupportedError, match="a read of flag.is_set"):
        al.compile(f)(al.ones(1))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 3), st.integers(0, 3))
@pytest.mark.draws(long=5000)
def test_a_drawn_machine_is_refused_or_right(after, start, scales):
    """The state is one of four, and `after` the one that a call puts in its place."""

    def make() -> Callable[[Any], Any]:
        state, count = {"now": start, "last": start}, [0]

        def f(x):
            state["last"] = state["now"]
            state["now"] = after[state["now"]]
            count[0] += 1
            return x * (state["now"] % (scales + 1))

        return f

    found = outcome(make)
    if after[after[start]] == after[start] == start:
        assert "equal" == found


class Scaled(al.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


def hooked(x: Any, scale: float) -> Any:
    y = x * 1
    y.register_hook(lambda grad: grad * scale)
    return y * 1


@pytest.mark.parametrize("way", [Scaled.apply, hooked])
def test_another_backward_is_another_program(way):
    """Of two runs with one graph, the first has another backward."""
    flag = Flag()

    def f(x):
        y = way(x, 2.0 if flag.is_set else 3.0)
        flag.is_set = True
        return y

    with pytest.raises(al.UnsupportedError, match="a read of flag.is_set"):
        al.compile(f)(al.ones(1, requires_grad=True))
