"""Copies and pickles of wrappers: as of plain tensors, part by part."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ProtocolError
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import (
    MaskedTensor,
    QuantizedTensor,
    SemiStructuredSparseTensor,
    TwoTensor,
    flatten,
    inner_tensors,
    leaves_of,
)
from tests.stages.wrappers.helpers.classes import One, Tagged


def numbers(start: float = 0.0) -> Any:
    return al.arange(8.0).view(2, 4) + start


def pair(start: float = 0.0) -> Any:
    return TwoTensor(numbers(start), numbers(start + 10))


def sharded(placement: Any) -> Any:
    return ShardedTensor.from_dense(numbers(), Mesh(2), placement)


MAKERS: dict[str, Any] = {
    "two": pair,
    "transposed": lambda: pair().t(),
    "nested": lambda: TwoTensor(pair(), pair(5.0)),
    "masked": lambda: MaskedTensor(numbers(), numbers() > 2),
    "quantized": lambda: QuantizedTensor(numbers().to(al.int8), al.tensor(0.5)),
    "sparse": lambda: SemiStructuredSparseTensor.from_dense(numbers(), prune=True),
    "sharded": lambda: sharded(Shard(1)),
    "replicated": lambda: sharded(Replicate()),
    "partial": lambda: sharded(Partial()),
    "window": lambda: sharded(Shard(0))[1],
    "sharded pairs": lambda: ShardedTensor([pair(), pair(3.0)], Mesh(2), Shard(0)),
    "tagged": lambda: Tagged(numbers(), ("a", 1.5, [2])),
}

WAYS: dict[str, Any] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda x, protocol=protocol: pickle.loads(pickle.dumps(x, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)  # slots need 2, in plain tensors too
    },
}
SHARES = {"copy"}


def told(x: Any) -> Any:
    """All that tells a wrapper from others, but the memory."""
    dense = [(part.meta, part.tolist()) for part in leaves_of(x.detach())]
    names, spec = flatten(x)
    state = x.meta, x.storage_offset(), x.requires_grad, x.is_leaf, x.version
    return type(x), names, spec, state, dense


@pytest.mark.rules("SUB-1", "SUB-9")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("grad", [False, True])
def test_a_twin_is_what_the_wrapper_is(way: str, make: Any, *, grad: bool) -> None:
    """Class, spec, geometry, parts, and whether it is a leaf that requires grad."""
    x = make().detach()
    if grad:
        x.requires_grad_()
    twin = WAYS[way](x)
    assert told(twin) == told(x)
    for mine, its in zip(leaves_of(x), leaves_of(twin), strict=True):
        assert (mine.storage is its.storage) is (way in SHARES)
    assert (twin.storage is x.storage) is (way in SHARES)


def plain_of(x: Any) -> Any:
    return x.detach().a if isinstance(x, TwoTensor) else x


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [numbers, pair], ids=["plain", "wrapper"])
def test_tensors_that_share_memory_have_twins_that_do(way: str, make: Any) -> None:
    """The same of plain tensors and of wrappers: a write to one is seen by the other."""
    x = make()
    twin, view, again = WAYS[way]((x, x[1:], x))
    assert again is twin
    if way not in SHARES:
        twin.fill_(9)
        assert plain_of(view).tolist() == [[9.0] * 4]
        assert (view.version, plain_of(x).tolist()[1]) == (1, [4.0, 5.0, 6.0, 7.0])


@pytest.mark.parametrize("way", [way for way in WAYS if way not in SHARES])
def test_parts_that_are_one_stay_one(way: str) -> None:
    """A part that two wrappers share, that is there itself, or that a wrapper has twice."""
    shared = numbers()
    one, other, part, both = WAYS[way](
        (TwoTensor(shared, numbers(1)), TwoTensor(numbers(2), shared), shared, One(shared))
    )
    assert one.a is other.b is part is both.inner
    twice = WAYS[way](TwoTensor(shared, shared))
    assert twice.a is twice.b


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_goes_where_that_of_a_plain_tensor_goes(way: str) -> None:
    """The twin has it."""
    for make in (numbers, pair):
        x = make().requires_grad_()
        (x * 2).backward(make())
        twin = WAYS[way](x)
        assert repr(twin.grad) == repr(x.grad)
        assert (twin.grad is x.grad) == (way == "copy")
        if way == "deepcopy":  # a parameter's starts without
            kept: Any = al.nn.Parameter(x)
            (kept * 2).backward(make())
            assert WAYS[way](kept).grad is None
        (twin * 2).backward(make())
        assert twin.grad is not None


@pytest.mark.parametrize("way", WAYS)
def test_attributes_that_are_no_parts_go_along(way: str) -> None:
    x: Any = al.nn.Parameter(pair())
    twin: Any = WAYS[way](x)
    assert isinstance(twin, al.nn.Parameter)
    assert type(twin).__name__ == "TwoTensor"
    x.note = {"of": "mine"}
    if way != "deepcopy":  # which is of what the class is rebuilt from
        assert WAYS[way](x).note == {"of": "mine"}


def test_a_result_with_history_is_copied_and_not_deeply() -> None:
    """As plain tensors: the copy has the history."""
    x = pair().requires_grad_()
    twin = copy.copy(x * 3)
    twin.backward(pair())
    assert x.grad is not None
    with pytest.raises(al.AutogradError, match="^deepcopy: the tensor is not a leaf"):
        copy.deepcopy(x * 3)


def test_a_copy_is_captured() -> None:
    def function(x: Any) -> Any:
        return copy.copy(x).mul_(2), x

    for make in (numbers, pair):
        x, y = make(), make()
        found, expected = al.compile(function)(x), function(y)
        assert repr(found) == repr(expected)


@pytest.mark.rules("SUB-1")
@pytest.mark.parametrize("way", WAYS)
def test_a_class_that_is_not_rebuilt_is_named(way: str) -> None:
    """SUB-1: where it is taken apart, or put together."""
    x = pair()
    x.b = None
    with pytest.raises(ProtocolError, match="TwoTensor: it names attribute 'b', which is None"):
        WAYS[way](x)


FRESH = """
import pickle, sys
x = pickle.load(sys.stdin.buffer)
y = x * 2
print(type(y).__name__, y.full_tensor().tolist(), type((x * x).sum()).__name__)
"""


def test_a_pickle_is_loaded_where_no_wrapper_was_made() -> None:
    """Ops look for wrappers from then on."""
    found = subprocess.run(
        [sys.executable, "-c", FRESH], input=pickle.dumps(sharded(Shard(0))), capture_output=True
    )
    expected = (numbers() * 2).tolist()
    assert found.stdout.decode() == f"ShardedTensor {expected} ShardedTensor\n", found.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_module_with_wrappers_has_a_twin(way: str) -> None:
    module: Any = al.nn.Linear(4, 2)
    module.weight = al.nn.Parameter(TwoTensor(numbers(), numbers()))
    twin = WAYS[way](module)
    assert inner_tensors(twin.weight)["a"].tolist() == numbers().tolist()
    assert [name for name, _ in twin.named_parameters()] == ["weight", "bias"]
