"""Gradients of sharded tensors, compiled and eager: of one class, placement and value (SHD-13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import TwoTensor

MESH = Mesh(2)
PLACEMENTS = [
    Replicate(),
    Shard(0),
    *[Partial(op) for op in ("sum", "avg", "min", "max", "product")],
]


def sharded(placement: Any, *numbers: float) -> ShardedTensor:
    """A leaf that requires grad."""
    made = ShardedTensor.from_dense(al.tensor(list(numbers)), MESH, placement)
    made.requires_grad_()
    return made


def shown(grad: Any) -> Any:
    """Of a gradient all that can be told: class, placement, and what each rank holds."""
    if not isinstance(grad, ShardedTensor):
        return None if grad is None else (type(grad), grad.tolist())
    return type(grad), grad.placement, [part.tolist() for part in grad.parts]


def gradients(function: Callable[..., Any], make: Callable[[], Any], weight: Any = None) -> Any:
    """Those of the arguments, of a call and a backward."""
    args = make()
    result = function(*args)
    result.backward(al.ones_like(result).detach() if weight is None else weight(result))
    return [shown(each.grad) for each in args]


@pytest.mark.rules("PART-11", "SHD-11")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_a_dense_tensor_is_multiplied_in_place_by_a_sharded_one(
    placement: Any, partition: str
) -> None:
    """The reduction gives each rank its result: the forward reads one, the backward all."""

    def scale(dense: Any, by: Any) -> Any:
        return (dense * 1).mul_(by)

    def make() -> Any:
        return al.tensor([1.0, 2.0]).requires_grad_(), sharded(placement, 2.0, 3.0)

    compiled = al.compile(scale, backend="reference", partition=partition)
    assert gradients(scale, make) == gradients(compiled, make)


# ------------------------------------------------------------------- the form of gradients (SHD-15)
def matrix(placement: Any) -> ShardedTensor:
    """A leaf of two rows that requires grad."""
    dense = al.tensor([[2.0, 3.0], [5.0, 7.0]])
    return ShardedTensor.from_dense(dense, MESH, placement).requires_grad_()  # type: ignore[return-value]


def _in_form(placement: Any) -> Callable[[Any], Any]:
    """Ones like a result, placed so; dense for None."""

    def made(result: Any) -> Any:
        ones = al.ones(*result.shape)
        if placement is None or not isinstance(result, ShardedTensor):
            return ones
        fits = not isinstance(placement, Shard) or ones.ndim > placement.dim
        return ShardedTensor.from_dense(ones, MESH, placement if fits else Replicate())

    return made


TANGENTS = [None, Replicate(), Shard(0), Shard(1), Partial()]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mul": lambda x: x * 2,
    "square": lambda x: x * x,
    "add": lambda x: x + 1,
    "sum": lambda x: x.sum(0),
    "row": lambda x: x[0] * 1,
    "turned": lambda x: x.t(),
    "cumsum": lambda x: x.cumsum(0),
    "matmul": lambda x: x @ x,
    "write": lambda x: (x * 1).mul_(3),
    "whole": lambda x: x.full_tensor(),
    "moved": lambda x: x.redistribute(Shard(1)),
    "onto a dense": lambda x: al.ones(2, 2).mul_(x),
}


@pytest.mark.rules("SHD-15", "SHD-13", "TAN-5")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("tangent", TANGENTS, ids=str)
@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1), Partial()], ids=str)
def test_the_placement_of_a_gradient_is_not_that_of_what_arrives(
    placement: Any, tangent: Any
) -> None:
    """It is its tensor's, compiled and eager, whatever the backward is given."""
    for name, function in FUNCTIONS.items():
        make, weight = (lambda: [matrix(placement)]), _in_form(tangent)
        found = gradients(al.compile(function, backend="reference"), make, weight)
        assert gradients(function, make, weight) == found, name
        wanted = Replicate() if isinstance(placement, Partial) else placement
        assert wanted == found[0][1], name


@pytest.mark.rules("SHD-15", "TAN-8")
@pytest.mark.parametrize("first", [True, False])
def test_the_placement_of_a_gradient_is_not_that_of_a_sum_with_an_absent_one(first: bool) -> None:
    """Of a sum by rows and one by columns, gradients are sharded and not."""

    def sums(x: Any, w: Any) -> Any:
        return (x * w).sum(0), (x * w).sum(1), w * 2

    def seen(function: Any) -> Any:
        x, w = matrix(Shard(0)), al.ones(2, 2).requires_grad_()
        result = function(x, w)[0 if first else 1]
        result.backward(al.ones_like(result))
        return shown(x.grad), shown(w.grad)

    assert seen(sums) == seen(al.compile(sums, backend="reference"))


@pytest.mark.rules("SHD-15", "TAN-8")
def test_a_dense_tensor_among_sharded_ones_has_dense_gradients() -> None:
    """Whichever of its results send any."""

    def both(x: Any, w: Any) -> Any:
        half = w * 0.5
        return half.sin(), half * x

    for index in (0, 1):
        found = []
        for function in (both, al.compile(both, backend="reference")):
            x, w = matrix(Shard(0)), al.ones(2, 2).requires_grad_()
            result = function(x, w)[index]
            result.backward(al.ones_like(result))
            found.append((shown(x.grad), shown(w.grad)))
        assert found[0] == found[1]
        assert al.Tensor is found[0][1][0]


@pytest.mark.rules("SHD-15")
def test_the_gradient_of_a_view_that_is_asked_for_has_its_placement() -> None:
    found = []
    for function in (lambda x: x.cumsum(1) * x, al.compile(lambda x: x.cumsum(1) * x)):
        turned = (matrix(Shard(0)) * 1).t()
        result = function(turned)
        found.append(shown(al.autograd.grad(result, turned, al.ones_like(result).detach())[0]))
    assert found[0] == found[1]
    assert Shard(1) == found[0][1]


@pytest.mark.rules("SHD-15", "SUB-9")
def test_the_parts_of_a_gradient_have_the_placement_of_the_parts() -> None:
    """Of a pair of sharded tensors."""
    found = []
    for function in (lambda x: x.sum(0), al.compile(lambda x: x.sum(0), backend="reference")):
        parts = [ShardedTensor.from_dense(al.ones(2, 2), MESH, p) for p in (Shard(0), Partial())]
        pair = TwoTensor(*parts, requires_grad=True)
        result = function(pair)
        result.backward(al.ones_like(result).detach())
        grad: Any = pair.grad
        found.append((shown(grad.a), shown(grad.b)))
    assert found[0] == found[1]
    assert [Shard(0), Replicate()] == [each[1] for each in found[0]]


@pytest.mark.rules("SHD-15", "TAN-5")
def test_a_dense_gradient_reaches_a_sharded_result_of_a_compiled_call() -> None:
    """By an op between the result and the loss, not as what the backward is given."""
    found = []
    for function in (lambda x: x * x, al.compile(lambda x: x * x, backend="reference")):
        x = matrix(Shard(0))
        (al.ones(2, 2) * 3).mul_(function(x)).sum().backward()
        found.append(shown(x.grad))
    assert found[0] == found[1]
    assert (ShardedTensor, Shard(0), [[[12.0, 18.0]], [[30.0, 42.0]]]) == found[0]


@pytest.mark.rules("TEN-29", "SUB-7")
def test_parts_of_a_gradient_lie_as_those_of_the_leaf() -> None:
    """Whichever formula gave them: strides are the same, compiled and eager."""
    for function in (lambda x: x.t() * x, al.compile(lambda x: x.t() * x, backend="reference")):
        for placement in (Shard(0), Shard(1), Partial(), Replicate()):
            x = matrix(placement)
            result = function(x)
            result.backward(_in_form(Shard(0))(result).t())
            grad: Any = x.grad
            assert [part.stride() for part in x.parts] == [part.stride() for part in grad.parts]


@pytest.mark.rules("TAN-5")
def test_a_sharded_tensor_is_in_no_form_of_another_class() -> None:
    """Its class is asked while a sum of gradients of two classes is recorded."""
    x = matrix(Shard(0))
    assert x.__coerce_same_metadata_as_tangent__(None, TwoTensor) is None


@pytest.mark.rules("SHD-15")
def test_a_view_taken_before_a_write_changes_no_form() -> None:
    """The history of what was written is then that of its base."""

    def write(x: Any, w: Any) -> Any:
        _ = x[::2]
        x.add_(w)
        return x

    for placement in (Shard(0), Replicate()):
        found = []
        for function in (write, al.compile(write, backend="reference")):
            pair = TwoTensor(al.ones(4), al.ones(4))
            x = ShardedTensor.from_dense(pair, MESH, placement).requires_grad_()
            result = function(x * 1, al.ones(4))
            result.backward(al.ones_like(result).detach())
            grad: Any = x.grad
            found.append([type(x.grad), grad.placement, repr(grad)])
        assert found[0] == found[1]
        assert [ShardedTensor, placement] == found[0][:2]
