"""Compiled functions of sharded tensors: graphs hold parts and collectives, and mean the same."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import aotlite as al
from aotlite import nn
from aotlite.backends.native.compiler import toolchain
from aotlite.ir.errors import AotliteError
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor, distribute_module
from aotlite.subclasses import QuantizedTensor
from aotlite.testing.sharding import PoisonedMesh
from tests.sharding.test_training import (
    COLUMNS,
    PLANS,
    TRANSFORMER,
    adamw,
    drawn,
    momentum,
    network,
    sgd,
)
from tests.sharding.test_training import whole as value_of
from tests.sharding.test_views import numbers, programs, run, whole

MESH = PoisonedMesh(4)


@pytest.fixture(params=["reference", "loops", "cpu"])
def backend(request: Any) -> str:
    if request.param == "cpu" and toolchain.find_compiler() is None:
        pytest.skip("no C compiler works here")
    return str(request.param)


def loss(layers: Any, images: Any) -> Any:
    return layers(images).square().sum()


def update(optimizer: Any) -> None:
    optimizer.step()


def train(layers: Any, images: Any, optimizer: Any, **options: Any) -> list[Any]:
    """Losses, gradients and weights of two steps: a compiled loss, and a compiled update."""
    compiled_loss = al.compile(loss, **options) if options else loss
    compiled_update = al.compile(update, **options) if options else update
    made, seen = optimizer(layers.parameters()), []
    for _ in range(2):
        result = compiled_loss(layers, images)
        result.backward()
        seen += [value_of(result), *(value_of(p.grad) for p in layers.parameters())]
        compiled_update(made)
        made.zero_grad()
    return seen + [value_of(p) for p in layers.parameters()]


@pytest.mark.parametrize("plan", PLANS, ids=["replicated", "columns", "rows"])
@pytest.mark.parametrize("optimizer", [sgd, momentum])
def test_a_compiled_step_over_four_ranks_is_the_dense_step(
    plan: Any, optimizer: Any, backend: str
) -> None:
    """Bit for bit: sums are exact here."""
    data = drawn((4, 8), 5)
    expected = train(network(), data, optimizer)
    sharded = ShardedTensor.from_dense(data, MESH, Shard(0))
    layers = distribute_module(network(), MESH, plan)
    for a, b in zip(expected, train(layers, sharded, optimizer, backend=backend), strict=True):
        assert np.array_equal(a, b)


def test_a_compiled_step_of_adamw_is_the_eager_one(backend: str) -> None:
    data = ShardedTensor.from_dense(drawn((4, 8), 5), MESH, Shard(0))
    expected = train(distribute_module(network(), MESH, COLUMNS), data, adamw)
    found = train(distribute_module(network(), MESH, COLUMNS), data, adamw, backend=backend)
    for a, b in zip(expected, found, strict=True):
        # Kernels may round sums of products once where eager rounds twice.
        assert np.allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_compiled_step_with_quantized_weights_is_the_eager_one(backend: str) -> None:
    layers = network()
    for layer in (layers[0], layers[2]):
        scale = al.tensor(0.25, dtype=al.float64)
        layer.weight = nn.Parameter(QuantizedTensor.quantize(layer.weight.detach(), scale))
    data = drawn((4, 8), 5)
    expected = train(copy.deepcopy(layers), data, sgd)
    found = train(distribute_module(layers, MESH, COLUMNS), data, sgd, backend=backend)
    assert isinstance(layers[0].weight.to_local(1), QuantizedTensor)
    for a, b in zip(expected, found, strict=True):
        assert np.array_equal(a, b)


def test_a_compiled_transformer_block_is_differentiated_over_four_ranks() -> None:
    al.manual_seed(0)
    options: Any = {"dropout": 0.0, "batch_first": True, "dtype": al.float64}
    dense: Any = nn.TransformerEncoderLayer(8, 4, 16, **options)
    data = al.randn(4, 3, 8, dtype=al.float64)
    sharded = distribute_module(copy.deepcopy(dense), MESH, TRANSFORMER)
    compiled = al.compile(loss, backend="reference")
    seen = []
    for function, layers in ((loss, dense), (compiled, sharded)):
        result = function(layers, data)
        result.backward()
        seen.append([value_of(result), *(value_of(p.grad) for p in layers.parameters())])
    for a, b in zip(*seen, strict=True):
        # Of float64, sums of products one behind the other, in another order.
        assert np.allclose(a, b, rtol=1e-10, atol=1e-11)


# ---------------------------------------------------------------------------------- moving inside
def moves(x: Any, dense: Any) -> Any:
    """Distributes, redistributes and gathers."""
    y = ShardedTensor.from_dense(dense * 2, MESH, Shard(1))
    z = (x @ y).redistribute(Shard(0)).relu().redistribute(Replicate())
    return z.full_tensor() * dense, z


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1), Partial()], ids=str)
def test_functions_that_move_parts_compile(placement: Any, backend: str) -> None:
    """SHD-13."""
    found: list[Any] = []
    given: list[Any] = []
    for function in (moves, al.compile(moves, backend=backend)):
        x = ShardedTensor.from_dense(drawn((4, 4), 0), MESH, placement).requires_grad_()
        dense = drawn((4, 4), 1).requires_grad_()
        product, z = function(x, dense)
        (product.sum() + z.full_tensor().square().sum()).backward()
        assert type(product) is type(dense)
        found.append([value_of(each) for each in (product, z, x.grad, dense.grad)])
        given.append((z.placement, x.grad.placement))  # type: ignore[union-attr]
    assert given[0] == given[1]
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)


def test_the_graph_holds_parts_and_collectives_with_their_waits() -> None:
    """COL-6: what is left of a column- and a row-parallel layer is one collective."""
    mesh = Mesh(2)
    graphs: dict[str, Any] = {}
    first = ShardedTensor.from_dense(drawn((4, 6), 0), mesh, Shard(1))
    second = ShardedTensor.from_dense(drawn((6, 4), 1), mesh, Shard(0))

    def function(x: Any, first: Any, second: Any) -> Any:
        return ((x @ first).relu() @ second).redistribute(Replicate()).full_tensor()

    al.compile(function, observer=graphs.__setitem__)(drawn((2, 4), 2), first, second)
    names = [node.target.name for node in graphs["7 simplify"].calls]
    collectives = [name for name in names if name in ("all_gather", "all_reduce", "wait")]
    assert collectives == ["all_reduce", "wait"]
    assert names.count("matmul") == 4


def test_another_placement_is_another_entry() -> None:
    """SUB-21: the spec is guarded."""
    compiled: Any = al.compile(lambda x: x * 2)
    dense = drawn((4, 4), 0)
    for placement in (Shard(0), Shard(1), Replicate(), Shard(0)):
        x = ShardedTensor.from_dense(dense, MESH, placement)
        assert compiled(x).placement == placement
    assert len(compiled.entries) == 3


# -------------------------------------------------------------------------------- random programs
@given(programs())
@settings(max_examples=40)
@example((1, (Replicate(), Replicate()), [("step", 0, (0, 2)), ("clone", 2, 0)]))
@example((2, (Shard(0), Replicate()), [("narrow", 0, (0, 1)), ("mul_", 2, 0), ("add", 0, 1)]))
def test_compiled_programs_of_views_and_writes_mean_the_same(program: Any) -> None:
    """Or are refused before anything is written; never silently otherwise."""
    ranks, placements, steps = program
    mesh = PoisonedMesh(ranks)

    def function(first: Any, second: Any) -> Any:
        pool = [first, second]
        if any(run(pool, steps)):
            raise Refused
        return pool[2:]

    def arguments() -> list[Any]:
        pairs = zip((numbers(0), numbers(1)), placements, strict=True)
        return [ShardedTensor.from_dense(each, mesh, p) for each, p in pairs]

    expected, given = arguments(), arguments()
    try:
        results = function(*expected)
    except Refused:
        return
    before = [whole(each) for each in given]
    try:
        found = al.compile(function, backend="reference")(*given)
    except AotliteError:
        for a, b in zip(before, given, strict=True):
            assert np.array_equal(a, whole(b))
        return
    for a, b in zip([*expected, *results], [*given, *found], strict=True):
        assert np.array_equal(whole(a), whole(b))
        assert a.placement == b.placement


class Refused(Exception):
    """A program that eager refuses."""


@pytest.mark.rules("TAN-6", "SUB-9")
@pytest.mark.parametrize("placement", [Shard(0), Replicate()])
def test_parts_say_in_which_form_they_want_gradients(placement):
    """A sharded tensor of quantized ones as a compiled result: gradients are dense."""

    def make():
        dense = al.arange(8.0).view(4, 2)
        quantized = QuantizedTensor.from_dense(dense)
        return ShardedTensor.from_dense(quantized, Mesh(2), placement).requires_grad_()

    def gradient(function):
        x = make()
        loss = (function(x) * 2).sum()
        loss.backward(al.ones_like(loss))
        return x.grad.full_tensor().tolist()

    assert gradient(al.compile(lambda x: x.clone())) == gradient(lambda x: x.clone())
