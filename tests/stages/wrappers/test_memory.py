"""Parts of results lie as apart as in eager: each result is written, then all are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import (
    MaskedTensor,
    QuantizedTensor,
    SemiStructuredSparseTensor,
    TwoTensor,
)

Make = Callable[[], Any]


def numbers() -> Any:
    return al.tensor([[4.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 8.0]])


def sharded(placement: Any) -> Make:
    return lambda: ShardedTensor.from_dense(numbers(), Mesh(2), placement)


def quantized() -> Any:
    return QuantizedTensor.quantize(numbers(), al.tensor(0.5))


def masked() -> Any:
    return MaskedTensor(numbers(), numbers() > 0.5)


MADE: dict[str, Make] = {
    "pair": lambda: TwoTensor(numbers(), numbers() * 10),
    "masked": masked,
    "quantized": quantized,
    "sparse": lambda: SemiStructuredSparseTensor.from_dense(numbers()),
    "shard 0": sharded(Shard(0)),
    "shard 1": sharded(Shard(1)),
    "replicate": sharded(Replicate()),
    "partial": sharded(Partial()),
    "pair of pairs": lambda: TwoTensor(*[TwoTensor(numbers(), numbers() * 2) for _ in range(2)]),
    "pair of quantized": lambda: TwoTensor(quantized(), quantized()),
}

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "equal": lambda x: (x * 2.0, x * 2.0),
    "copies": lambda x: (x.clone(), x.clone()),
    "filled": lambda x: (x.clone().fill_(4.0), x.clone().fill_(4.0)),
    "detached": lambda x: (x.clone().detach(), x.clone()),
    "parts of equal ones": lambda x: (x.clone()[0], x.clone()[0]),
    "one": lambda x: (x.clone().fill_(4.0),),
    "a base and its row": lambda x: (lambda b: (b, b[0]))(x.clone().fill_(4.0)),
    "itself": lambda x: (x, x.clone()),
}


def leaves(tensor: Any) -> list[Any]:
    """The dense tensors that it is made of, at any depth."""
    if not is_wrapper(tensor):
        return [tensor]
    return [leaf for part in inner_tensors(tensor).values() for leaf in leaves(part)]


def world(function: Callable[[Any], Any], make: Make) -> list[Any]:
    """What all tensors hold when each dense part of each result has been written, one by one."""
    x = make()
    tensors = [x, *function(x)]
    found = []
    for result in tensors[1:]:
        for leaf in leaves(result):
            if leaf.dtype.is_differentiable:
                leaf.add_(1.0)
            found.append([each.tolist() for t in tensors for each in leaves(t)])
    return found


@pytest.mark.rules("SUB-13", "PART-15")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", MADE)
def test_equal_values_are_memories_of_their_own(kind: str, name: str, backend: str) -> None:
    function, make = FUNCTIONS[name], MADE[kind]
    assert world(function, make) == world(al.compile(function, backend=backend), make)


@pytest.mark.rules("SUB-13")
def test_a_mask_and_data_of_equal_values_are_two() -> None:
    made = al.compile(lambda x: MaskedTensor(x > 1.0, x > 1.0))(al.arange(4.0))
    made.fill_(False)
    assert made.mask.tolist() == [False, False, True, True]


@pytest.mark.rules("SUB-13", "SAV-2")
def test_a_result_that_is_saved_is_no_other_result() -> None:
    """What is written is the other one, which no gradient reads."""
    x = TwoTensor(al.zeros(2), al.zeros(2), requires_grad=True)
    y, z = al.compile(lambda x: (x.exp(), x.exp()))(x)
    with al.no_grad():
        z.mul_(3.0)
    y.backward(al.ones_like(y.detach()))
    assert x.grad is not None
    assert x.grad.a.tolist() == [1.0, 1.0]


@pytest.mark.rules("SUB-15", "FUN-31")
@pytest.mark.parametrize("kind", ["pair", "quantized", "shard 0", "masked"])
def test_a_write_in_a_backward_counts_for_the_wrapper(kind: str) -> None:
    """Twice where its gradient arrives, and not where another result's does."""

    def function(x: Any, b: Any) -> Any:
        y = x * 2.0
        y.register_hook(lambda grad: (b.add_(1.0), b.mul_(2.0), None)[2])
        return y, x * 3.0

    def counts(called: Callable[..., Any]) -> list[int]:
        found = []
        for place in (0, 1):
            x, b = numbers().requires_grad_(), MADE[kind]()
            called(x, b)[place].sum().backward()
            found += [b.version, *[leaf.version for leaf in leaves(b)]]
        return found

    assert counts(function) == counts(al.compile(function))
