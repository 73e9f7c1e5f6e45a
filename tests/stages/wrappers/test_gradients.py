"""Which gradients of wrappers are none, and which are zeros (TAN-8)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import SubclassError
from aotlite.sharding import Mesh, Replicate, Shard, ShardedTensor
from aotlite.subclasses import MaskedTensor, TwoTensor


def both(function: Callable[..., Any], make: Callable[[], Any], *, index: int = 0) -> list[Any]:
    """The gradients of what `make` gives, eager and compiled, after a backward of a result."""
    found = []
    for each in (function, al.compile(function, backend="reference")):
        leaves, args = make()
        results = each(*args)
        result = results[index] if isinstance(results, tuple) else results
        result.backward(al.ones_like(result).detach())
        found.append([None if x.grad is None else x.grad.a.tolist() for x in leaves])
    return found


@pytest.mark.rules("TAN-8")
def test_zeros_that_a_write_leaves_of_a_gradient_are_one() -> None:
    """What arrives at an empty view is summed with what its base gets, which does not arrive."""

    def overwritten(empty: Any, other: Any) -> Any:
        other.add_(other)
        total = other.sum()
        total[...] = 5
        return total * 2

    def make() -> Any:
        x = TwoTensor(al.ones(2), al.ones(2), requires_grad=True)
        base = x * 1
        return [x], [base.narrow(0, 0, 0).view(0, 1) for _ in range(2)]

    eager, compiled = both(overwritten, make)
    assert eager == compiled
    assert [[0.0, 0.0]] == compiled


def seen(grad: Any) -> Any:
    """The class of a gradient, and of its parts, with numbers."""
    if not isinstance(grad, TwoTensor):
        return None if grad is None else (type(grad), grad.tolist())
    return TwoTensor, seen(grad.a), seen(grad.b)


def choices(count: int) -> list[tuple[int, ...]]:
    return [each for n in range(1, count + 1) for each in combinations(range(count), n)]


class Kept(al.autograd.Function):
    """Its gradient of no gradient is none; it reads what it kept as it is by then (FUN-31)."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.kept = x
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 + ctx.kept


def hooked(x: Any) -> Any:
    y = x * 1
    y.register_hook(lambda grad: grad * 2 + 1)
    return y


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "at a leaf": lambda w, pair: (w.sin(), w * pair),
    "before other ops": lambda w, pair: [h := w * 2, (h.sin(), h * pair, pair * 3)][1],
    "twice": lambda w, pair: [h := w * 2, (h * pair, h.cos(), w * 3)][1],
    "with a hook between": lambda w, pair: (hooked(w).sin(), w * pair),
    "with a region between": lambda w, pair: (al.checkpoint(lambda z: z * z, w), w * pair),
    "with Functions between": lambda w, pair: [
        h := Kept.apply(w),
        (h.sin(), Kept.apply(h * pair), Kept.apply(pair) * 3),
    ][1],
    "with memory that is read": lambda w, pair: [
        h := w * 2,
        (Kept.apply(h), Kept.apply(h) * pair, h),
    ][1],
    "behind a write": lambda w, pair: [pair.add_(w), (w.cumsum(0), pair * 2)][1],
}


@pytest.mark.rules("TAN-8", "SUB-11")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_of_the_class_of_those_that_arrive(name: str) -> None:
    """A dense tensor among pairs has a dense gradient where no pair's arrives."""
    function = FUNCTIONS[name]
    compiled = al.compile(function, backend="reference")
    count = len(function(*_dense_and_pair()[1]))
    for choice in choices(count):
        found = []
        for each in (function, compiled):
            leaves, args = _dense_and_pair()
            results = each(*args)
            chosen = [results[k] for k in choice]
            al.autograd.backward(chosen, [al.ones_like(r).detach() for r in chosen])
            found.append([seen(leaf.grad) for leaf in leaves])
        assert found[0] == found[1], choice


def _dense_and_pair() -> tuple[list[Any], list[Any]]:
    w = al.tensor([1.0, 2.0]).requires_grad_()
    pair = TwoTensor(al.tensor([3.0, 4.0]), al.tensor([5.0, 6.0]), requires_grad=True)
    return [w, pair], [w, pair * 1]


@pytest.mark.rules("SUB-10")
def test_a_class_with_other_gradients_is_not_hidden_in_a_result() -> None:
    """Masked by sharded: eager and compiled refuse it, where gradients are asked for."""
    masked = MaskedTensor(al.ones(2), al.tensor([True, False]))
    x = ShardedTensor.from_dense(al.ones(2), Mesh(2), Shard(0))
    for function in (lambda x, masked: masked - x, al.compile(lambda x, masked: masked - x)):
        assert isinstance(function(x, masked).rank_0, MaskedTensor)
        with pytest.raises(SubclassError, match="sub: the result is a ShardedTensor with a Masked"):
            function(x.detach().requires_grad_(), masked)


@pytest.mark.rules("SUB-10")
def test_nor_in_a_result_of_a_function_of_users() -> None:
    """What a gradient of the parts would be, nobody says; without history it is no matter."""

    def distribute(x: Any) -> Any:
        return ShardedTensor.from_dense(x, Mesh(2), Shard(0))

    masked = MaskedTensor(al.ones(2), al.tensor([True, False]))
    for function in (distribute, al.compile(distribute)):
        assert isinstance(function(masked).rank_0, MaskedTensor)
        with pytest.raises(SubclassError, match="FromDense: the result is a ShardedTensor with a"):
            function(masked.detach().requires_grad_())


@pytest.mark.rules("TAN-5", "SHD-15")
def test_a_masked_gradient_of_a_sharded_tensor_is_sharded() -> None:
    """A write to a masked tensor gives it; what is left out is zero."""
    found = []

    def write(masked: Any, x: Any) -> Any:
        masked[0] = x[0]
        return masked

    for function in (write, al.compile(write, backend="reference")):
        x = ShardedTensor.from_dense(al.ones(2, 2), Mesh(2), Shard(0)).requires_grad_()
        result = function(MaskedTensor(al.zeros(2, 2), al.tensor([[True, False]] * 2)), x)
        result.backward(al.ones(2, 2))
        grad: Any = x.grad
        found.append((grad.placement, grad.full_tensor().tolist()))
    assert found[0] == found[1] == (Shard(0), [[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.rules("TAN-8", "SUB-11")
def test_functions_of_ours_in_a_backward_are_formulas() -> None:
    """Each choice of results is recorded beside them, too: they do nothing that is done once."""

    def whole(x: Any, pair: Any) -> Any:
        pair.add_(x)
        return x.full_tensor(), pair

    def masked(w: Any, mask: Any) -> Any:
        mask.mul_(w)
        return w.relu(), mask

    pair: Any = lambda: TwoTensor(al.ones(2), al.ones(2))
    sharded = lambda x: ShardedTensor.from_dense(x, Mesh(2), Shard(0)).requires_grad_()
    hidden = lambda: MaskedTensor(pair(), al.tensor([True, False]))
    makes = {
        whole: lambda: (sharded(al.ones(2)), pair()),
        masked: lambda: (al.ones(2).requires_grad_(), hidden()),
    }
    for function, make in makes.items():
        found = []
        for each in (function, al.compile(function, backend="reference")):
            args: Any = make()
            result = each(*args)[0]
            result.backward(al.ones_like(result).detach())
            found.append((type(args[0].grad), repr(args[0].grad)))
        assert found[0] == found[1]
        assert not isinstance(args[0].grad, TwoTensor)


@pytest.mark.rules("TAN-6", "SUB-9")
def test_the_form_of_a_pairs_gradients_may_lie_otherwise_than_the_pair() -> None:
    """Of a view across ranks and a copy on each, the one is gathered."""

    def row(pair: Any) -> Any:
        return (pair + pair)[0]

    found = []
    for function in (row, al.compile(row, backend="reference")):
        places = (Shard(1), Replicate())
        parts = [ShardedTensor.from_dense(al.ones(2, 2), Mesh(2), place) for place in places]
        pair: Any = TwoTensor(*parts, requires_grad=True)
        result = function(pair.t())
        result.backward(al.ones_like(result).detach())
        found.append([each.full_tensor().tolist() for each in (pair.grad.a, pair.grad.b)])
    assert found[0] == found[1] == [[[2.0, 0.0], [2.0, 0.0]]] * 2


@pytest.mark.rules("TAN-5", "JNT-3")
def test_a_wrapper_that_depends_on_no_input_takes_gradients() -> None:
    """They lead to a leaf that the function makes."""
    for function in (_of_a_new_leaf, al.compile(_of_a_new_leaf, backend="reference")):
        result = function(TwoTensor(al.ones(2), al.ones(2)))
        assert result.requires_grad
        result.backward(al.ones_like(result).detach())


def _of_a_new_leaf(pair: Any) -> Any:
    return pair.detach().requires_grad_() * 2


@pytest.mark.rules("TAN-5", "SUB-9")
def test_a_masked_gradient_becomes_one_in_the_placement_of_its_data() -> None:
    """A gradient of a masked tensor of sharded data is expected as its data's class wants it."""
    x = ShardedTensor.from_dense(al.ones(4, 2), Mesh(2), Shard(0))
    gathered = MaskedTensor(x.redistribute(Replicate()), al.tensor([[True, False]] * 4))
    formed: Any = gathered.__coerce_same_metadata_as_tangent__((Mesh(2), Shard(0)), ShardedTensor)
    assert (Shard(0), [[1.0, 0.0]] * 4) == (formed.placement, formed.full_tensor().tolist())
