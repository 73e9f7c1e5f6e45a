"""Gradients of masked tensors have their masks, eager and compiled alike (SUB-24)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import aotlite as al
from aotlite.sharding import Mesh, Shard, ShardedTensor
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor
from tests.stages.wrappers.test_gradients import choices

KEEP = [True, False, True, True]


class Doubled(al.autograd.Function):
    """Its gradient has one more everywhere, which zeros for a gradient that is absent would not."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 + 1


class Product(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return grad * y, grad * x


class Both(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        return first * 2 + second * 3


class Tripled(al.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3 + 1


def masked(keep: list[bool] = KEEP, inside: Callable[[Any], Any] = lambda x: x) -> Any:
    return MaskedTensor(inside(al.arange(4.0)), al.tensor(keep))


def hooked(x: Any) -> Any:
    y = x * 1
    y.register_hook(lambda grad: grad * 2 + 1)
    return y


def written(y: Any) -> Any:
    y[1:].mul_(2)
    return y


def told(grad: Any) -> Any:
    """The class of a gradient, that of its data, and what it holds."""
    if isinstance(grad, MaskedTensor):
        return "masked", type(grad.data), grad.mask.tolist(), told(grad.filled(0.0))
    if isinstance(grad, ShardedTensor):
        return grad.placement, told(grad.full_tensor())
    if isinstance(grad, TwoTensor):
        return "pair", grad.a.tolist(), grad.b.tolist()
    return None if grad is None else grad.tolist()


INSIDE: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "pair": lambda x: TwoTensor(x, -x),
    "quantized": lambda x: QuantizedTensor.quantize(x, al.tensor(0.5)),
    "sharded": lambda x: ShardedTensor.from_dense(x, Mesh(2), Shard(0)),
    "sharded pair": lambda x: ShardedTensor.from_dense(TwoTensor(x, -x), Mesh(2), Shard(0)),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "a Function": Doubled.apply,
    "two results of one Function": Both.apply,
    "two results of one Function, the second": lambda x: Both.apply(x)[1],
    "a Function that writes": lambda x: Tripled.apply(x * 1),
    "a view, and a Function": lambda x: Doubled.apply(x[1:]),
    "a Function beside an op": lambda x: [y := x * 2, (y, Doubled.apply(y))][1],
    "a Function of a view, beside an op": lambda x: [y := x * 2, (y, Doubled.apply(y[1:]))][1],
    "a Function of what is written": lambda x: [y := written(x * 2), (y, Doubled.apply(y))][1],
    "a checkpoint": lambda x: [y := x * 2, (y, al.checkpoint(lambda z: z * z, y))][1],
    "a hook": lambda x: [y := x * 2, (y, hooked(y))][1],
    "a hook on a result": lambda x: [y := hooked(x), (y.sum(), y * 3)][1],
    "all": lambda x: (hooked(x), al.checkpoint(lambda z: Doubled.apply(z) * z, x), x * 2),
}


def leaves_in_turn() -> list[Any]:
    """Each function of each class, of a leaf or of a view in turn; the others with -m long."""
    return [
        (*case, is_leaf)
        if (number + is_leaf) % 2
        else pytest.param(*case, is_leaf, marks=pytest.mark.long)
        for number, case in enumerate(product(FUNCTIONS, INSIDE))
        for is_leaf in (True, False)
    ]


def results_of(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.rules("SUB-24", "TAN-8")
@pytest.mark.thinned(5)
@pytest.mark.parametrize(("name", "inside", "is_leaf"), leaves_in_turn())
def test_gradients_of_masked_tensors_have_their_mask(name: str, inside: str, is_leaf: bool) -> None:
    """Of every choice of results; users' Python on the way is run once for all of them."""
    function = FUNCTIONS[name]
    compiled = al.compile(function, backend="reference")
    shown = masked(inside=INSIDE[inside]).requires_grad_()
    for choice in choices(len(results_of(function(shown)))):
        found = []
        for each in (function, compiled):
            x = masked(inside=INSIDE[inside]).requires_grad_()
            y = x if is_leaf else x.view_as(x)
            results = [results_of(each(y))[k] for k in choice]
            ones = [al.ones_like(r.detach()) * (k + 1) for k, r in enumerate(results)]
            asked = al.autograd.grad(results, y, ones, retain_graph=True)
            al.autograd.backward(results, ones)
            assert told(asked[0]) == told(x.grad)
            found.append(told(x.grad))
        assert found[0] == found[1], choice
        assert found[0][2] == KEEP


@pytest.mark.rules("SUB-24")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_has_the_mask_of_what_it_is_of(compiled: bool) -> None:
    """Not that of the other factor, nor of the product; a dense factor's is dense."""
    function = al.compile(Product.apply, backend="reference") if compiled else Product.apply
    x = masked().requires_grad_()
    y = MaskedTensor(al.ones(4), al.tensor([True, True, False, True])).requires_grad_()
    out = function(x, y)
    out.backward(al.ones_like(out.detach()))
    assert x.grad.tolist() == [1.0, None, 0.0, 1.0]
    assert y.grad.tolist() == [0.0, 0.0, None, 3.0]  # type: ignore[union-attr]
    dense = al.ones(4).requires_grad_()
    out = function(x, dense)
    out.backward(al.ones_like(out.detach()))
    assert type(dense.grad) is al.Tensor
    assert dense.grad.tolist() == [0.0, 0.0, 2.0, 3.0]


@pytest.mark.rules("SUB-24")
@pytest.mark.parametrize("compiled", [False, True])
def test_what_one_gradient_leaves_out_is_no_hole_in_a_sum(compiled: bool) -> None:
    """Of a view and of its base: each is brought to the mask before they are summed."""
    keep = MaskedTensor(al.ones(2), al.tensor([True, False]))

    def function(x: Any) -> Any:
        y = x.view(2, 2)
        return Product.apply(y[0], keep), y * 1

    function = al.compile(function, backend="reference") if compiled else function
    x = masked([True] * 4).requires_grad_()
    results = function(x)
    al.autograd.backward(results, [al.ones_like(r.detach()) for r in results])
    assert x.grad.tolist() == [2.0, 1.0, 1.0, 1.0]


@pytest.mark.rules("SUB-24", "TEN-39")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "function", [lambda x: x * 2, lambda x: x[1:], lambda x: x.mul_(2), lambda x: x.add_(x)[1:]]
)
def test_hooks_of_results_see_masked_gradients(function: Any, compiled: bool) -> None:
    seen: list[Any] = []
    x = masked().requires_grad_()
    out = (al.compile(function, backend="reference") if compiled else function)(x * 1)
    out.register_hook(lambda grad: seen.append(told(grad)))
    other = MaskedTensor(al.ones(*out.shape), al.tensor(KEEP[::-1][: out.shape[0]]))
    Product.apply(out, other).sum().backward(MaskedTensor(al.tensor(1.0), al.tensor(True)))
    masks = out.mask.tolist(), other.mask.tolist()
    assert seen[0][2] == masks[0]
    assert seen[0][3] == [float(a and b) for a, b in zip(*masks, strict=True)]


@pytest.mark.rules("TAN-8", "FUN-31")
def test_what_users_code_makes_of_no_gradient_is_none() -> None:
    """A Function gives one more than its gradient: not where none arrives, through wrappers too."""

    def function(x: Any, y: Any) -> Any:
        return Product.apply(x, y), Doubled.apply(Product.apply(x, y) * 1)

    for kind in (masked, lambda: ShardedTensor.from_dense(al.arange(4.0), Mesh(2), Shard(0))):
        for choice in choices(2):
            found = []
            for each in (function, al.compile(function, backend="reference")):
                x, y = kind().requires_grad_(), al.ones(4).requires_grad_()
                results = [each(x, y)[k] for k in choice]
                al.autograd.backward(results, [al.ones_like(r.detach()) for r in results])
                found.append((told(x.grad), told(y.grad)))
            assert found[0] == found[1]
