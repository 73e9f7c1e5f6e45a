"""A refusal that users' Python catches is raised all the same; what eager raises may be caught."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.subclasses import TwoTensor
from tests.helpers.own_ops import taken_out
from tests.rules.helpers.caught_programs import (
    ASKS,
    CATCHES,
    HOOKS,
    MODULE,
    OUTSIDE,
    PLACES,
    RAISED,
    THREAD,
    Asking,
)

pytestmark = pytest.mark.rules("CAP-13")


def called(f: Any, x: Any) -> Any:
    """What a call and its backward give."""
    y = f(x)
    if y.requires_grad:
        y.sum().backward()
    return y.tolist(), None if x.grad is None else x.grad.tolist()


def leaf() -> Any:
    return al.tensor([1.0, 3.0], requires_grad=True)


def check_refused(f: Any, x: Any | None = None) -> al.UnsupportedError:
    """The error of a compiled call, which has left everything as it was."""
    x = leaf() if x is None else x
    before = x.tolist(), x._version, al.get_rng_state()
    compiled = al.compile(f, backend="reference")
    with pytest.raises(al.UnsupportedError) as caught:
        compiled(x)
    assert before == (x.tolist(), x._version, al.get_rng_state())
    assert x.grad is None and OUTSIDE.grad is None
    assert not compiled.entries
    return caught.value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("catch", CATCHES)
def test_a_refusal_that_is_caught_is_raised(place, catch):
    attempt = CATCHES[catch]
    f = PLACES[place](lambda x: attempt(ASKS["item"], x))
    if place != "compiled":  # which refuses by itself
        assert called(f, leaf())
    error = check_refused(f)
    if place in HOOKS:
        assert str(error).startswith("capture: the hook")
        return
    assert str(error).startswith("capture: item() of a tensor")
    assert any('caught_programs.py", line' in note for note in error.__notes__)
    assert 1 == sum("(CAP-13)" in note for note in error.__notes__)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("catch", ["except", "another error"])
def test_every_question_is_refused_though_it_is_caught(ask, catch):
    def f(x):
        return x * CATCHES[catch](ASKS[ask], x)

    called(f, leaf())
    OUTSIDE.grad = None
    MODULE.__dict__.pop("count", None)
    error = check_refused(f)
    assert any('caught_programs.py", line' in note for note in error.__notes__)
    assert "count" not in MODULE.__dict__


def test_the_first_of_several_refusals_is_raised():
    def f(x):
        for ask in (lambda: x.sum().item(), lambda: x.data_ptr()):
            with contextlib.suppress(Exception):
                ask()
        return x.tolist()

    error = check_refused(f)
    assert "item()" in str(error)
    assert "tolist()" in str(error.__context__)


def test_what_the_function_raised_instead_is_the_context():
    def f(x):
        try:
            return x.sum().item()
        except al.UnsupportedError as error:
            raise ValueError("mine") from error

    error = check_refused(f)
    assert "mine" == str(error.__context__)
    assert error.__cause__ is None


def test_a_refusal_that_is_passed_on_is_raised_as_it_is():
    def f(x):
        try:
            return x.sum().item()
        except al.UnsupportedError:
            x.sum()
            raise

    error = check_refused(f)
    assert not any("CAP-13" in note for note in error.__notes__)


def test_an_interrupt_is_no_answer_to_a_refusal():
    def f(x):
        try:
            return x.sum().item()
        except al.UnsupportedError:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        al.compile(f)(leaf())
    assert [2.0, 6.0] == al.compile(lambda x: x * 2)(leaf()).tolist()


def test_a_refusal_in_a_thread_is_raised():
    f = THREAD(lambda x: CATCHES["except"](ASKS["item"], x))
    assert ([2.0, 6.0], [2.0, 2.0]) == called(f, leaf())
    check_refused(f)


def test_writes_before_a_refusal_that_is_caught_have_not_happened():
    def f(x):
        x.mul_(2)
        al.rand(2)
        with contextlib.suppress(Exception):
            x.tolist()
        return x.add_(1)

    check_refused(f, al.ones(2))


def test_a_hook_that_catches_is_called_as_in_eager():
    """One that catches may do more than compute (HOOK-2)."""

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * CATCHES["except"](ASKS["item"], grad))
        return (y * y).sum()

    assert called(f, leaf()) == called(al.compile(f, backend="reference"), leaf())


def test_the_next_call_is_none_the_worse():
    """What one call caught is no matter of another's."""
    compiled = al.compile(lambda x, flag: x * (_try(x) if flag else 2.0), backend="reference")
    for flag in (False, True, False, True):
        if flag:
            with pytest.raises(al.UnsupportedError):
                compiled(leaf(), flag)
        else:
            assert ([2.0, 6.0], [2.0, 2.0]) == called(lambda x: compiled(x, False), leaf())


def _try(x):
    return CATCHES["except"](ASKS["item"], x)


# -------------------------------------------------------------------------------- on demand, later
def second(f: Any, x: Any) -> Any:
    """The gradient, and its gradient."""
    grad: Any = al.autograd.grad(f(x), x, create_graph=True)[0]
    twice: Any = al.autograd.grad((grad * grad).sum(), x)[0]
    return grad.tolist(), twice.tolist()


class Late(al.autograd.Function):
    """Asks in the backward where that is differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        factor = 2.0
        if al.is_grad_enabled():
            factor = CATCHES["except"](ASKS["item"], grad)
        return grad * x * factor


def test_a_refusal_in_a_derivative_that_is_recorded_later_is_raised():
    def f(x):
        return Late.apply(x).sum()

    compiled = al.compile(f, backend="reference")
    assert ([2.0, 6.0], [8.0, 24.0]) == second(f, leaf())
    for _ in range(2):  # the recorder is the same
        with pytest.raises(al.UnsupportedError, match="item"):
            second(compiled, leaf())
    assert called(f, leaf()) == called(compiled, leaf())


def test_a_tensor_that_was_kept_and_asked_later_is_no_matter_of_the_derivative():
    kept = []

    def f(x):
        kept.append(x * 2)
        return (x * x * x).sum()

    compiled = al.compile(f, backend="reference")
    y = compiled(leaf())
    assert y.requires_grad
    with pytest.raises(al.UnsupportedError):
        kept[0].tolist()
    kept.clear()
    assert second(lambda x: (x * x * x).sum(), leaf()) == second(compiled, leaf())


class Flat(TwoTensor):
    """A pair that asks its parts for values where it is taken apart."""

    def __tensor_flatten__(self):
        CATCHES["except"](ASKS["item"], self.a)
        return ["a", "b"], None


def test_a_refusal_where_a_wrapper_is_taken_apart_is_raised():
    called(lambda x: Flat(x * 1, x * 2).b, leaf())
    check_refused(lambda x: Flat(x * 1, x * 2))


def test_a_tensor_of_the_capture_in_another_capture_is_a_refusal_of_both():
    outside = al.ones(2)

    def f(x):
        held = (each for each in [x])  # no search finds it there
        with contextlib.suppress(al.UnsupportedError):
            return x * len(al.capture(lambda y: y * next(held))(outside).calls)
        return x

    called(f, leaf())
    assert "another capture" in str(check_refused(f))


# ------------------------------------------------------------------------ what aotlite itself asks
class Shown:
    """An object that says what its tensor holds."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __repr__(self) -> str:
        return f"Shown({self.x.sum().item()})"


class Wrong(TwoTensor):
    """A pair that gives something else than a tensor."""

    @classmethod
    def __tensor_dispatch__(cls, func, types, args, kwargs):
        return Shown(args[0].a)


def test_the_text_of_an_error_is_no_question_of_the_function():
    def f(x):
        try:
            Wrong(x * 1, x * 2).sin()
        except al.SubclassError as error:
            return x * (2.0 if "Shown" in str(error) else 3.0)

    assert called(f, leaf()) == called(al.compile(f, backend="reference"), leaf())


class Speced(TwoTensor):
    """A pair with a tensor in its spec, which no compiled function takes."""

    def __tensor_flatten__(self):
        return ["a", "b"], al.ones(1)


def test_a_spec_that_cannot_be_compared_is_told_of_as_such():
    pair = Speced(al.ones(2), al.ones(2))
    with pytest.raises(al.SubclassError, match="spec"):
        al.compile(lambda x: x * pair.sin().a)(leaf())


def _drawn(grad: Any) -> Any:
    try:
        return grad * al.rand(2)
    except:  # noqa: E722
        return grad


FORMULAS: dict[str, Any] = {
    "asks": lambda grad: grad * CATCHES["except"](ASKS["item"], grad),
    "draws": _drawn,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_compiled_tape_leaves_a_formula_that_catches_to_the_engine(name):
    """Two nodes of one form, of an op of one's own: the engine runs them on tensors (CAG-4)."""

    def f(x):
        op = getattr(al, f"asking_{name}")
        return op(op(x.sin())).sum()

    def backward(x):
        al.manual_seed(0)
        return called(f, x), al.get_rng_state()

    with taken_out():
        al.register_op(
            f"asking_{name}(Tensor x) -> Tensor",
            kernel=lambda xp, x: x * 2,
            scalar=lambda x: x * 2,
            vjp={"x": FORMULAS[name]},
        )
        expected = backward(leaf())
        for _ in range(2):
            with al.compiled_autograd.enable("reference"):
                assert expected == backward(leaf())
        if name == "asks":
            check_refused(f)


# --------------------------------------------------------------------------- what eager raises, too
@pytest.mark.parametrize("ask", RAISED)
@pytest.mark.parametrize("place", [place for place in PLACES if place not in HOOKS])
def test_what_eager_raises_may_be_caught(place, ask):
    """These need no values: a capture raises them as eager does."""
    f = PLACES[place](lambda x: CATCHES["except"](RAISED[ask], x))
    if place != "dispatch":  # its parts have no history
        with pytest.raises((al.AotliteError, TypeError)):
            RAISED[ask](leaf())
    expected = called(f, leaf())
    assert expected == called(al.compile(f, backend="reference"), leaf())


# ------------------------------------------------------------------------------------- in all ways
STEPS = st.tuples(
    st.sampled_from([place for place in PLACES if place != "compiled"]),
    st.sampled_from([*CATCHES][:7]),
    st.sampled_from([*ASKS, *RAISED, *RAISED]),
)


def outcome(f: Any) -> Any:
    """What a call and its backward give, or the class of what they raise."""
    try:
        return called(f, leaf())
    except Exception as error:
        return type(error)
    finally:
        OUTSIDE.grad = None
        MODULE.__dict__.pop("count", None)
        Asking.forget()


def program(steps: Any, note: Any = None) -> Any:
    """A function that asks at each step; in eager `note` is told of each step that does."""

    def attempt(number: int, catch: str, ask: str) -> Any:
        asks = {**ASKS, **RAISED}[ask]
        question = asks if note is None else lambda x: note(number) or asks(x)
        return lambda x: CATCHES[catch](question, x)

    def f(x: Any) -> Any:
        for number, (place, catch, ask) in enumerate(steps):
            x = PLACES[place](attempt(number, catch, ask))(x * 1)
        return x

    return f


@settings(deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3))
def test_a_program_that_catches_is_refused_or_eagers(steps):
    """Refused if a hook caught anything, or if anything was asked that a capture does not know;
    eager's otherwise.
    """
    asked: list[int] = []
    expected = outcome(program(steps, asked.append))
    f = program(steps)
    if any(ask in ASKS or place in HOOKS for place, _, ask in [steps[k] for k in asked]):
        check_refused(f)
    else:
        assert expected == outcome(al.compile(f, backend="reference"))
