"""What `detach` gives and a compiled function returns: no view, in memory that others see."""

from itertools import permutations

import pytest

import aotlite as al
from aotlite.testing import assert_same_effects
from tests.end_to_end.helpers.cases import Call
from tests.end_to_end.helpers.worlds import world_of
from tests.end_to_end.test_bad_aliasing import compare_worlds, leaf, numbers
from tests.helpers.programs import Ref, Step

DETACHED = {
    "alone": lambda x: (x.detach(),),
    "a part": lambda x: (x[1:].detach(), x * 2),
    "with its view": lambda x: (lambda d: (d, d[1:]))(x.detach()),
    "two views of it": lambda x: (lambda d: (d[:2], d[1:]))(x.detach()),
    "twice the same": lambda x: (lambda d: (d, d))(x.detach()),
    "two": lambda x: (x.detach(), x.detach()[:2]),
    "and written": lambda x: (x.detach().mul_(2), x * 2),
}


@pytest.mark.rules("RT-6", "TEN-4")
@pytest.mark.parametrize("body", DETACHED)
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_detached_results_lie_in_the_memory_and_belong_to_each_other(body, history, target):
    """A later write is seen by all, and bases are what they are in eager."""

    def setup():
        return [leaf(1, 2, 3, 4) * 1 if history else numbers(1, 2, 3, 4)]

    compiled = al.compile(DETACHED[body])
    for _ in range(2):
        its = world_of(DETACHED[body], setup(), Call((0,)))
        write = Step("mul_", (Ref(min(target, len(its.objects) - 1)), 2), grad=False)
        compare_worlds(DETACHED[body], compiled, setup, Call((0,), after=(write,)))


@pytest.mark.rules("RT-6", "META-13")
def test_a_view_of_a_detached_result_has_it_for_its_base():
    d, part = al.compile(DETACHED["with its view"])(numbers(1, 2, 3))
    assert part.base is d
    one, other = al.compile(DETACHED["two views of it"])(numbers(1, 2, 3))
    assert one.base is other.base is not None


ORDERS = list(permutations("lvwx"))


@pytest.mark.rules("META-8", "TEN-23", "GEN-11")
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("writes", [False, True])
def test_views_of_a_leaf_made_inside_follow_it_in_whatever_order_they_are_returned(count, writes):
    """The leaf among them, and maybe the memory that it was made of."""
    for order in {order[:count] for order in ORDERS if "l" in order[:count]}:

        def f(x, order=order):
            leaf = x.detach().requires_grad_()
            view = leaf[1:]
            made = {"l": leaf, "v": view, "w": view[:1], "x": x}
            if writes:
                x.mul_(2)
            return [made[name] for name in order]

        assert_same_effects(f, al.compile(f), lambda: al.arange(4.0))


@pytest.mark.rules("TEN-25", "GEN-2")
def test_an_argument_grows_only_from_its_first_element():
    """Its memory would begin elsewhere afterwards."""

    def f(x):
        with al.no_grad():
            x.as_strided_((2,), (1,), 1)
            x.resize_((6,))

    x = al.ones(4)
    with pytest.raises(al.UnsupportedError, match="beyond the elements of an input"):
        al.compile(f)(x)
    assert ((4,), 0, 0) == (x.shape, x.storage_offset(), x.version)
