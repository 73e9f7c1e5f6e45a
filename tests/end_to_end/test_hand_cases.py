"""Hand-written functions whose compiled form leaves eager's world: what random programs lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import aotlite as al
from tests.end_to_end.helpers.cases import Call
from tests.end_to_end.helpers.worlds import differences, world_of
from tests.helpers.programs import Ref, Step


@attrs.frozen
class Hand:
    """A function, and what makes its inputs and the leaves behind them, anew for each call."""

    function: Callable[..., Any]
    make: Callable[[], list[Any]]
    call: Call


HANDS: dict[str, Hand] = {}
_LEAVES: list[Any] = []
"""The leaves behind values with histories, collected while inputs are made."""


def leaf(*shape: int) -> Any:
    return (al.arange(_count(shape), dtype=al.float64) - 2).view(shape).clone().requires_grad_()


def value(*shape: int) -> Any:
    """A tensor with a history."""
    _LEAVES.append(leaf(*shape))
    return _LEAVES[-1].mul(1)


def plain(*shape: int) -> Any:
    return leaf(*shape).detach()


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def hand(make: Callable[[], list[Any]], *, after: Any = (), **call: Any) -> Callable[[Any], Any]:
    """Registers a function under its own name; all that `make` makes is passed, if not `inputs`.

    `after`: (grad mode, op, number, arguments); numbers count what is made, then the results.
    """

    def made() -> list[Any]:
        _LEAVES.clear()
        given = make()
        return [*given, *_LEAVES]

    def register(function: Any) -> Any:
        count, given = len(made()), len(make())
        steps = []
        for grad, op, at, *args in after:
            target = Ref(at if at < given else at - given + count)
            steps.append(Step(op, (target, *args), grad))
        inputs = call.pop("inputs", tuple(range(given)))
        name = function.__name__.replace("_", " ")
        HANDS[name] = Hand(function, made, Call(inputs, after=tuple(steps), **call))
        return function

    return register


# ------------------------------------------------------------------------------------ grad mode
@hand(lambda: [leaf(3)], grad=False)
def enable_grad_inside_no_grad(x: Any) -> Any:
    with al.enable_grad():
        y = x * x
    return y, x * 2


@hand(lambda: [leaf(3)])
def grad_mode_is_left_off(x: Any) -> Any:
    y = x * x
    al.set_grad_enabled(False)
    return y, x + 1


@hand(lambda: [leaf(3)], grad=False)
def grad_mode_is_left_on(x: Any) -> Any:
    al.set_grad_enabled(True)
    return (x + 1,)


@hand(lambda: [value(3)])
def a_write_under_no_grad_and_one_with_grad(x: Any) -> Any:
    with al.no_grad():
        x.mul_(3)
    x.mul_(2)
    return (x * 1,)


@hand(lambda: [leaf(3), value(3)])
def a_no_grad_result_of_no_use(x: Any, y: Any) -> Any:
    with al.no_grad():
        z = x * y
    return z, y * z


# --------------------------------------------------------------------------- saved values, timing
@hand(lambda: [leaf(3)], after=[(False, "mul_", 1, 2)])
def exp_saves_its_result(x: Any) -> Any:
    return (x.exp(),)


@hand(lambda: [leaf(3)], after=[(False, "mul_", 1, 2)])
def sin_saves_its_operand(x: Any) -> Any:
    return (x.sin(),)


@hand(lambda: [leaf(3)], after=[(False, "mul_", 0, 2)])
def a_leaf_written_between_call_and_backward(x: Any) -> Any:
    return (x.sin(),)


@hand(lambda: [value(3), leaf(3)], after=[(True, "mul_", 0, 2)])
def an_operand_of_add_may_be_written(x: Any, y: Any) -> Any:
    return (x + y,)


@hand(lambda: [value(3)], after=[(True, "mul_", 1, 2), (True, "add_", 1, 1)])
def a_result_view_of_an_input_written_by_the_user(x: Any) -> Any:
    return x.view(3, 1), x * x


@hand(lambda: [leaf(3)])
def a_value_saved_and_then_written(x: Any) -> Any:
    y = x.sin()
    z = y * y
    y.zero_()
    return z, y, x * 2


@hand(lambda: [leaf(3)], backward="alone")
def only_the_backwards_that_reach_it_raise(x: Any) -> Any:
    y = x.sin()
    z = y * y
    y.zero_()
    return z, y, x * 2


@hand(lambda: [leaf(3), leaf(3)], backward="alone")
def an_infinite_gradient_stays_out_of_other_results(x: Any, y: Any) -> Any:
    zero = x * 0
    return zero.log(), y * 2 + zero


@hand(lambda: [leaf(3), leaf(3)], backward="alone")
def inputs_that_a_result_does_not_use_get_none(x: Any, y: Any) -> Any:
    return x.sin(), y.sin(), x * y


@hand(lambda: [leaf(3), value(3)], backward="alone")
def overwritten_values_get_zeros(x: Any, y: Any) -> Any:
    z = y * 1
    z.copy_(x)
    w = y * 1
    w.zero_()
    return z, w


# ------------------------------------------------------------------------------------- aliasing
@hand(lambda: [value(2, 3)], after=[(True, "mul_", 2, 3)])
def two_views_of_an_intermediate(x: Any) -> Any:
    y = x * 2
    return y.view(-1), y.t()


@hand(lambda: [plain(2, 3)], after=[(True, "mul_", 1, 3)])
def two_views_of_an_intermediate_without_history(x: Any) -> Any:
    y = x * 2
    return y.view(-1), y.t()


@hand(lambda: [value(2, 3)], after=[(True, "mul_", 3, 3)])
def a_value_and_its_view(x: Any) -> Any:
    y = x * 2
    return y, y.t()


@hand(lambda: [value(4)], after=[(False, "mul_", 3, 3)])
def a_value_and_its_detached_alias(x: Any) -> Any:
    y = x * 2
    return y, y.detach()


@hand(lambda: [value(4)], after=[(False, "mul_", 1, 3)])
def equal_computations_are_two_results(x: Any) -> Any:
    return x * 2, x * 2, (x * 2).exp()


@hand(lambda: [value(4)])
def a_result_twice(x: Any) -> Any:
    y = x * 2
    v = y.view(2, 2)
    return y, v, y, v, x, x


@hand(lambda: [value(4)], after=[(True, "mul_", 2, 3)])
def parts_of_an_input(x: Any) -> Any:
    return tuple(x.unbind(0))


@hand(lambda: [value(4)], after=[(True, "mul_", 2, 3)])
def parts_of_an_intermediate(x: Any) -> Any:
    return tuple((x * 2).split(2))


@hand(lambda: [value(4)], after=[(False, "mul_", 2, 3)], backward="each")
def parts_of_an_intermediate_written_under_no_grad(x: Any) -> Any:
    return tuple((x * 2).split(2))


@hand(lambda: [value(2, 2)])
def nested_views_written_in_both_orders(x: Any) -> Any:
    outer = x[0]
    inner = outer[1:]
    inner.mul_(2)
    outer.add_(1)
    inner.mul_(3)
    return x * x, outer * 2, inner * 1


@hand(lambda: [leaf(4)])
def an_intermediate_written_through_many_views(x: Any) -> Any:
    y = x * 2
    y.view(2, 2).t()[1].mul_(x[:2])
    y[1:3].add_(y[:2].clone())
    return (y * y,)


@hand(lambda: [leaf(4)])
def a_write_through_detach_of_a_leaf(x: Any) -> Any:
    x.detach().mul_(2)
    return (x * x,)


@hand(lambda: [leaf(4)])
def a_write_through_detach_of_an_intermediate(x: Any) -> Any:
    y = x * 2
    y.detach().mul_(3)
    return y, y * 5


@hand(lambda: [plain(4), leaf(4)])
def an_input_that_becomes_differentiable(x: Any, w: Any) -> Any:
    x.mul_(w)
    return (x.sum(),)


@hand(lambda: [plain(4), leaf(2)])
def an_input_that_becomes_differentiable_through_a_view(x: Any, w: Any) -> Any:
    v = x[:2]
    v.mul_(w)
    return v, x[1:]


@hand(lambda: [value(2, 3)], after=[(True, "mul_", 0, 2)])
def t_and_data(x: Any) -> Any:
    x.t_()
    x.mul_(2)
    return x[0], x.view(-1) if x.is_contiguous() else x * 2


@hand(lambda: [value(2, 3)])
def a_view_before_t(x: Any) -> Any:
    v = x.view(-1)
    x.t_()
    x.mul_(3)
    return v, x.sum((0,), False)


@hand(lambda: [value(4)], inputs=(0, 0))
def the_same_input_twice_and_written(x: Any, y: Any) -> Any:
    x.mul_(2)
    return x + y, y is x


@hand(lambda: [leaf(4)], inputs=(0, 0))
def the_same_leaf_twice(x: Any, y: Any) -> Any:
    return (x * y,)


@hand(lambda: (lambda b: [b, b[:2], b[2:]])(value(4)), inputs=(1, 2))
def disjoint_halves_of_one_tensor(x: Any, y: Any) -> Any:
    x.mul_(2)
    return x + y, y * y


@hand(lambda: (lambda b: [b, b[:3], b[1:]])(value(4)), inputs=(0, 1, 2), backward="each")
def overlapping_inputs_that_nobody_writes(x: Any, y: Any, z: Any) -> Any:
    return x.sin(), y * z, z.view(3, 1)


@hand(lambda: [al.arange(4), leaf(4)])
def integers_among_inputs_and_results(i: Any, x: Any) -> Any:
    i.add_(1)
    return i, i * 2, x * i, i.view(2, 2), 3, None, "text"


@hand(lambda: [value(3)])
def nothing_is_returned(x: Any) -> Any:
    x.mul_(2)
    return ()


@hand(lambda: [plain(3)])
def only_numbers_are_returned(x: Any) -> Any:
    return x.ndim, x.shape[0], True, 2.5, x.requires_grad


# --------------------------------------------------------------------------------- other ops
@hand(lambda: [leaf(3, 3), leaf(3)])
def a_small_network(w: Any, x: Any) -> Any:
    hidden = (w @ x).tanh()
    return (hidden.softmax(0).log() * x).sum(), hidden


@hand(lambda: [leaf(6)])
def concatenations_and_choices(x: Any) -> Any:
    y = al.cat([x[:2], x[3:] * 2, x[:1]])
    z = al.where(x > 0, x, x * 0.1)
    return y, z, al.stack([x, z]).amax((0,))


@hand(lambda: [leaf(6)])
def indexing_by_tensors(x: Any) -> Any:
    index = al.tensor([0, 2, 2])
    return x[index], x.index_select(0, index) * 2


@hand(lambda: [leaf(4)])
def constants_are_written_without_being_shared(x: Any) -> Any:
    c = al.tensor([1.0, 2.0, 3.0, 4.0], dtype=al.float64)
    c.mul_(x)
    return (c,)


@hand(lambda: [plain(4)])
def constants_are_fresh_in_each_call(x: Any) -> Any:
    c = al.zeros(4, dtype=al.float64)
    c.add_(x)
    return (c,)


@hand(lambda: [leaf(3)])
def a_leaf_made_inside(x: Any) -> Any:
    y = al.ones(3, dtype=al.float64).requires_grad_()
    return y, x * 2


@hand(lambda: [leaf(3)])
def a_gradient_asked_for_inside(x: Any) -> Any:
    y = (x * x * x).sum()
    (g,) = al.autograd.grad(y, [x])
    assert g is not None
    return (g * 1,)


@hand(lambda: [leaf(3)])
def a_gradient_asked_for_inside_is_differentiated(x: Any) -> Any:
    y = (x * x * x).sum()
    (g,) = al.autograd.grad(y, [x], create_graph=True)
    return (g,)


@hand(lambda: [leaf(3)])
def random_numbers(x: Any) -> Any:
    noise = al.rand(3, dtype=al.float64)
    mask = al.rand(3, dtype=al.float64) > 0.5
    return x * noise, x.masked_fill(mask, 0), noise


@hand(lambda: [leaf(2, 2)])
def a_result_with_transposed_strides(x: Any) -> Any:
    return x.t() * 2, (x * 2).t(), x.sum((0,)).expand(3, 2)


@hand(lambda: [value(1, 3, 1)])
def squeezes(x: Any) -> Any:
    x.squeeze_(0)
    y = x * 2
    y.squeeze_(1)
    y.mul_(x.squeeze(1))
    return y, x


@pytest.mark.rules("GEN-1", "GEN-11")
@pytest.mark.parametrize("name", HANDS)
def test_a_function_leaves_the_world_that_eager_leaves(name: str) -> None:
    """Twice each: the second call reuses the entry of the first."""
    tried = HANDS[name]
    compiled = al.compile(tried.function, verify=2)
    for _ in range(2):
        worlds = []
        for function in (compiled, tried.function):
            al.manual_seed(7)
            mode = al.is_grad_enabled()
            try:
                worlds.append(world_of(function, tried.make(), tried.call))
            finally:
                al.set_grad_enabled(mode)
        mine, its = worlds
        assert its.error is None
        assert [] == differences(mine, its)
    assert len(compiled.entries) == 1


@pytest.mark.rules("DUP-5")
def test_an_argument_also_reached_through_the_closure_is_guarded() -> None:
    """The entry of a call in which both were one tensor is not used where they are two."""
    held = [al.ones(2)]

    def function(x: Any) -> Any:
        return x + held[0] * 2

    compiled = al.compile(function)
    assert [3.0, 3.0] == compiled(held[0]).tolist()
    assert [5.0, 5.0] == compiled(al.ones(2) * 3).tolist()
    held[0] = al.zeros(2)
    assert [3.0, 3.0] == compiled(al.ones(2) * 3).tolist()


def test_a_tensor_at_two_places_of_the_closure_is_guarded_at_both() -> None:
    first = second = al.ones(2)

    def function(x: Any) -> Any:
        return x + first + second * 10

    compiled = al.compile(function)
    assert [11.0, 11.0] == compiled(al.zeros(2)).tolist()
    second = al.ones(2) * 2
    assert [21.0, 21.0] == compiled(al.zeros(2)).tolist()
    first = al.ones(2) * 3
    assert [23.0, 23.0] == compiled(al.zeros(2)).tolist()


@pytest.mark.rules("GRD-1")
def test_a_view_under_no_grad_and_a_view_of_it_do_not_share_an_entry() -> None:
    """Results of the one have a gradient that goes nowhere; the other has a node for it."""
    x = leaf(1) * 1
    with al.no_grad():
        bare = x.expand(3)
    compiled = al.compile(lambda x: x.relu())
    compiled(bare.transpose(0, 0)).backward(al.ones(3, dtype=al.float64))
    compiled(bare).backward(al.ones(3, dtype=al.float64))
    assert 2 == len(compiled.entries)
