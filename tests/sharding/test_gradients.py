"""Gradients of sharded tensors, compiled and eager: of one class, placement and value (SHD-13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor

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
