"""The laws of wrappers hold for right ones, and each rejects the wrong one that is meant for it."""

import pytest

import aotlite as al
from aotlite.testing import laws
from aotlite.testing.laws.wrapper_functions import WrapperFunction
from aotlite.testing.laws.wrappers import WRAPPER_LAWS
from tests.laws.helpers.own_wrappers import WRONG, Boxed, Shy, Tagged, nested


def unwrap(wrapper):
    return wrapper.unwrap()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("make", [Boxed, Tagged, nested], ids=lambda make: make.__name__)
def test_right_wrappers_obey_every_law(make):
    found = laws.check_subclass(make, unwrap)
    assert tuple(law.name for law in WRAPPER_LAWS) == found.laws
    assert found.cases > 60
    assert () == found.refused


def test_a_wrapper_may_refuse_what_it_cannot_do():
    found = laws.check_subclass(Shy, unwrap)
    assert {"x.t()", "x.t() @ x", "x[0]", "x.view(-1)"} < set(found.refused)
    assert "it refuses 7 more" in str(found)


@pytest.mark.thinned(7)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_wrapper_is_rejected_by_the_law_that_is_meant_for_it(wrong):
    with pytest.raises(laws.LawError) as caught:
        laws.check_subclass(wrong, unwrap)
    assert WRONG[wrong] == caught.value.law
    assert f": wrapper '{wrong.__name__}'" in str(caught.value)


def test_every_law_of_wrappers_has_a_wrong_one():
    assert {law.name for law in WRAPPER_LAWS} == set(WRONG.values())


def test_gradients_are_asked_for_only_where_they_are_kept():
    for detaching in [wrong for wrong, law in WRONG.items() if law == "W11"]:
        assert "W11" not in laws.check_subclass(detaching, unwrap, gradients=False).laws


def test_a_wrapper_may_refuse_a_dtype():
    def make(tensor):
        if tensor.dtype is not al.float32:
            raise al.UnsupportedError("boxed: it is float64, expected float32")
        return Boxed(tensor)

    found = laws.check_subclass(make, unwrap)
    assert () == found.refused
    assert laws.check_subclass(Boxed, unwrap).cases > found.cases > 60


def test_an_own_function_is_tried_too():
    twice = WrapperFunction("twice", lambda x: x + x)
    alone = laws.check_subclass(Boxed, unwrap, []).cases
    assert 6 == laws.check_subclass(Boxed, unwrap, [twice]).cases - alone
    three_times = WrapperFunction("differs", lambda x: x * (3.0 if isinstance(x, Boxed) else 2.0))
    with pytest.raises(laws.LawError, match="^W5 .*: wrapper 'Boxed', differs of f32") as caught:
        laws.check_subclass(Boxed, unwrap, [three_times])
    assert "differs" == caught.value.case


@pytest.mark.parametrize("given", [lambda x: x, WrapperFunction("f", abs, "nonsense")])
def test_what_is_no_function_of_wrappers_is_refused(given):
    with pytest.raises(al.ArgumentError, match="^laws: a function is .*, expected a WrapperFunc"):
        laws.check_subclass(Boxed, unwrap, [given])


def test_a_wrapper_that_can_do_nothing_is_not_said_to_obey():
    class Mute(Boxed):
        def call(self, name, *args):
            raise al.UnsupportedError(f"{name} of a Mute")

    with pytest.raises(al.ArgumentError) as caught:
        laws.check_subclass(Mute, unwrap)
    assert "laws: wrapper 'Mute' refuses all of 19 functions, expected it to take one" == str(
        caught.value
    )
