"""DYN-2: an assumption has the user's line that asked, in the backward and in later stages, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import OPS
from aotlite.ir.symbols.assumption import Assumption
from aotlite.nn import functional as F

Function = Callable[[Any], Any]


def assumed(function: Function, *shape: int) -> list[Assumption]:
    """What is assumed of a call whose argument and result are no leaf and no scalar."""
    compiled = al.compile(function, dynamic=True, backend="reference")
    result = compiled(al.rand(*shape).requires_grad_() * 1)
    result.backward(al.ones(*result.shape))
    return [guard for region in compiled.regions() for guard in region.guards]


def of_pooling(x: Any) -> Any:
    y = x.exp()
    z = F.max_pool2d(y, 2)  # here
    return z.sum()


def of_spread(x: Any) -> Any:
    y = x * 2
    z = y.std(0, correction=2)  # here
    return z.exp()


def of_a_norm(x: Any) -> Any:
    y = x * 2
    z = F.layer_norm(y, (3,))  # here
    return z.exp()


class Asking(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 if grad.shape[0] > 3 else grad  # here


def of_a_formula_of_the_users(x: Any) -> Any:
    return Asking.apply(x.exp()) * 3


def of_a_hook(x: Any) -> Any:
    y = x.exp()
    y.register_hook(lambda grad: grad * 2 if grad.shape[0] > 3 else grad)  # here
    return y * 3


def of_a_backward_inside(x: Any) -> Any:
    y = x.clone()
    z = y.std(0, correction=2)  # here
    (grad,) = al.autograd.grad(z.exp().sum(), y)
    return grad * x


def of_random_numbers(x: Any) -> Any:
    al.manual_seed(0)
    state = al.get_rng_state()
    al.set_rng_state((state[0], 2**63 - 64))
    return x * al.rand(x.shape[0])  # here


@pytest.mark.rules("DYN-2", "JNT-8")
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (of_pooling, (5, 3, 4, 4)),
        (of_spread, (5, 3)),
        (of_a_norm, (5, 3)),
        (of_a_formula_of_the_users, (5, 3)),
        (of_a_hook, (5, 3)),
        (of_a_backward_inside, (5, 3)),
        (of_random_numbers, (5,)),
    ],
)
def test_an_assumption_of_the_backward_has_the_line_of_the_forward(
    function: Function, shape: tuple[int, ...]
) -> None:
    found = assumed(function, *shape)
    assert found
    assert all("# here" in repr(each) for each in found)


@pytest.mark.rules("DYN-2", "FUN-26")
def test_what_a_pass_asks_of_a_node_has_the_line_of_the_node() -> None:
    compiled = al.compile(lambda x: x.exp(), dynamic=True, backend="reference")  # here
    compiled(al.rand(5, 3))
    graph = compiled.entries[0].partition.forward
    (exp,) = graph.calls
    meta: Any = exp.meta
    table = meta.shape[0].table
    table.closed = False
    build = Builder(source=exp)
    given = build.placeholder(meta).node
    build.emit(OPS["view"], (given, (meta.shape[1], meta.shape[0])))
    build.emit(OPS["select"], (given, 0, 3))
    assert table.log
    assert all("# here" in repr(each) for each in table.log)


@pytest.mark.rules("DYN-25", "RNG-4")
@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + al.rand(x.shape[0]),
        lambda x: x + al.randn(x.shape[0], dtype=al.float64) + al.rand(x.shape[0]),
        lambda x: x * x.bernoulli(0.5),
        lambda x: al.randint(0, 9, x.shape) * al.rand_like(x),
    ],
)
def test_random_numbers_assume_nothing(draw: Function) -> None:
    compiled = al.compile(draw, dynamic=True, backend="reference")
    for n in (5, 1, 0, 4, 9):
        outcomes = []
        for function in (draw, compiled):
            al.manual_seed(3)
            found = function(al.zeros(n) + 0.5)
            outcomes.append((found.tolist(), al.get_rng_state()))
        assert outcomes[0] == outcomes[1]
    (region,) = compiled.regions()
    assert not region.guards


@pytest.mark.rules("DYN-25", "RNG-4")
def test_a_seed_in_the_function_assumes_nothing_but_near_the_end_of_its_stream() -> None:
    def seeded(x: Any) -> Any:
        al.manual_seed(3)
        return x + al.rand(x.shape[0])

    compiled = al.compile(seeded, dynamic=True, backend="reference")
    for n in (5, 0, 1, 9):
        assert compiled(al.zeros(n)).tolist() == seeded(al.zeros(n)).tolist()
    (region,) = compiled.regions()
    assert not region.guards
    ending = al.compile(of_random_numbers, dynamic=True, backend="reference")
    for n in (5, 56):
        assert ending(al.ones(n)).tolist() == of_random_numbers(al.ones(n)).tolist()
    for function in (of_random_numbers, ending):
        with pytest.raises(al.RngError, match="expected to stay below"):
            function(al.ones(64))
