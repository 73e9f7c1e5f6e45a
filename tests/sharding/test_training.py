"""Modules with sharded parameters train as dense ones: exactly where arithmetic is exact."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import ArgumentError
from aotlite.sharding import Replicate, Shard, ShardedTensor, distribute_module
from aotlite.subclasses import QuantizedTensor, TwoTensor
from aotlite.testing.sharding import PoisonedMesh

MESH = PoisonedMesh(4)
COLUMNS = {"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1)}
"""The first layer by outputs, the second by inputs."""
ROWS = {"0.weight": Shard(1), "2.weight": Shard(0), "2.bias": Shard(0)}
PLANS: list[dict[str, Any]] = [{}, COLUMNS, ROWS]


def drawn(shape: Any, seed: int) -> al.Tensor:
    """-1, 0 and 1 as float64: sums of what comes of them are exact for two steps."""
    numbers = np.random.default_rng(seed).integers(-1, 2, tuple(shape))
    return al.from_numpy(numbers.astype(np.float64))


def network(seed: int = 0) -> Any:
    layers: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for k, layer in enumerate((layers[0], layers[2])):
        layer.weight = nn.Parameter(drawn(layer.weight.shape, seed + k))
        layer.bias = nn.Parameter(drawn(layer.bias.shape, seed + 10 + k))
    return layers


def whole(value: Any) -> Any:
    value = value.full_tensor() if isinstance(value, ShardedTensor) else value
    value = value.decode() if isinstance(value, QuantizedTensor) else value
    return value.detach().numpy()


def train(layers: Any, images: Any, make_optimizer: Any, steps: int = 2) -> list[Any]:
    optimizer = make_optimizer(layers.parameters())
    seen = []
    for _ in range(steps):
        loss = layers(images).square().sum()
        loss.backward()
        seen += [whole(loss), *(whole(p.grad) for p in layers.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    return seen + [whole(p) for p in layers.parameters()]


def sgd(parameters: Any) -> Any:
    return al.optim.SGD(parameters, lr=2.0**-4)


def momentum(parameters: Any) -> Any:
    return al.optim.SGD(parameters, lr=2.0**-4, momentum=0.5, nesterov=True, weight_decay=0.25)


def adamw(parameters: Any) -> Any:
    return al.optim.AdamW(parameters, lr=2.0**-4, amsgrad=True)


@pytest.mark.parametrize("plan", PLANS, ids=["replicated", "columns", "rows"])
@pytest.mark.parametrize("images", [None, Replicate(), Shard(0), Shard(1)], ids=str)
def test_a_step_over_four_ranks_is_the_dense_step_bit_for_bit(plan: Any, images: Any) -> None:
    """SHD-7 to SHD-11, SHD-13: sums are exact here, so their order does not matter."""
    data = drawn((4, 8), 5)
    expected = train(network(), data, sgd)
    given = data if images is None else ShardedTensor.from_dense(data, MESH, images)
    found = train(distribute_module(network(), MESH, plan), given, sgd)
    for a, b in zip(expected, found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("plan", PLANS, ids=["replicated", "columns", "rows"])
@pytest.mark.parametrize("optimizer", [momentum, adamw])
def test_optimizers_step_on_shards(plan: Any, optimizer: Any) -> None:
    data = drawn((4, 8), 5)
    expected = train(network(), data, optimizer, 3)
    sharded = ShardedTensor.from_dense(data, MESH, Shard(0))
    found = train(distribute_module(network(), MESH, plan), sharded, optimizer, 3)
    for a, b in zip(expected, found, strict=True):
        # Sums over ranks are rounded in another order, and a step divides by their roots.
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_quantized_weights_train_over_four_ranks_as_on_one() -> None:
    """Sharded of quantized: each rank's part is quantized, and an update rounds it."""

    def quantized() -> Any:
        layers = network()
        for layer in (layers[0], layers[2]):
            scale = al.tensor(0.25, dtype=al.float64)
            layer.weight = nn.Parameter(QuantizedTensor.quantize(layer.weight.detach(), scale))
        return layers

    data = drawn((4, 8), 5)
    expected = train(quantized(), data, sgd)
    sharded = distribute_module(quantized(), MESH, COLUMNS)
    assert isinstance(sharded[0].weight.to_local(3), QuantizedTensor)
    found = train(sharded, data, sgd)
    assert isinstance(sharded[0].weight.to_local(3), QuantizedTensor)
    for a, b in zip(expected, found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("outer", ["sharded of pairs", "pair of sharded"])
def test_pairs_train_over_ranks_as_their_parts(outer: str) -> None:
    """SUB-9: nested either way, a pair of networks trains at once."""
    data = drawn((4, 8), 5)
    networks = [network(0), network(7)]
    expected = [train(copy.deepcopy(each), data, sgd) for each in networks]
    paired = network()
    for path in ("0.weight", "0.bias", "2.weight", "2.bias"):
        layer, name = path.split(".")
        parts = [getattr(each[int(layer)], name).detach() for each in networks]
        placement = COLUMNS.get(path, Replicate())
        if outer == "pair of sharded":
            parts = [ShardedTensor.from_dense(part, MESH, placement) for part in parts]
        value: Any = TwoTensor(*parts)
        if outer == "sharded of pairs":
            value = ShardedTensor.from_dense(value, MESH, placement)
        setattr(paired[int(layer)], name, nn.Parameter(value))

    def both(value: Any) -> list[Any]:
        value = value.full_tensor() if isinstance(value, ShardedTensor) else value
        return [whole(value.a), whole(value.b)]

    optimizer, seen = sgd(paired.parameters()), []
    for _ in range(2):
        loss = paired(data).square().sum()
        loss.backward()
        seen += [both(loss), *(both(p.grad) for p in paired.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    seen += [both(p) for p in paired.parameters()]
    for k, one in enumerate(expected):
        for a, pair in zip(one, seen, strict=True):
            assert a.tobytes() == pair[k].tobytes()


TRANSFORMER = {
    "self_attn.in_proj_weight": Shard(0),
    "self_attn.in_proj_bias": Shard(0),
    "self_attn.out_proj.weight": Shard(1),
    "linear1.weight": Shard(0),
    "linear1.bias": Shard(0),
    "linear2.weight": Shard(1),
}


@pytest.mark.parametrize("batch", [None, Shard(0)], ids=str)
def test_a_transformer_block_trains_over_four_ranks(batch: Any) -> None:
    al.manual_seed(0)
    options: Any = {"dropout": 0.0, "batch_first": True, "dtype": al.float64}
    dense: Any = nn.TransformerEncoderLayer(8, 4, 16, **options)
    sharded = distribute_module(copy.deepcopy(dense), MESH, TRANSFORMER)
    data = al.randn(4, 3, 8, dtype=al.float64)
    given = data if batch is None else ShardedTensor.from_dense(data, MESH, batch)
    expected = train(dense, data, momentum)
    found = train(sharded, given, momentum)
    for a, b in zip(expected, found, strict=True):
        # Of float64, sums of products one behind the other, in another order.
        assert np.allclose(a, b, rtol=1e-10, atol=1e-11)


class Images(nn.Module):
    """Convolutions, a batch norm, pooling, dropout, a layer norm."""

    def __init__(self) -> None:
        options: Any = {"dtype": al.float64}
        self.first = nn.Conv2d(2, 4, 3, padding=1, **options)
        self.norm = nn.BatchNorm2d(4, **options)
        self.second = nn.Conv2d(4, 4, 3, **options)
        self.last = nn.Linear(36, 6, **options)
        self.scale = nn.LayerNorm(6, **options)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.scale(self.drop(self.last(self.second(x).relu().flatten(1))))


CHANNELS = {
    "first.weight": Shard(0),
    "first.bias": Shard(0),
    "norm.weight": Shard(0),
    "second.weight": Shard(1),
    "last.weight": Shard(1),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("plan", [{}, CHANNELS], ids=["replicated", "channels"])
@pytest.mark.parametrize("batch", [None, Shard(0)], ids=str)
def test_a_network_of_images_is_differentiated_over_ranks(
    batch: Any, plan: Any, compiled: bool
) -> None:
    """SHD-12 for dropout, SHD-11 for running statistics."""

    def loss(network: Any, images: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(network(images), labels)

    mesh = PoisonedMesh(2)
    al.manual_seed(0)
    dense = Images()
    images, labels = al.randn(4, 2, 10, 10, dtype=al.float64), al.tensor([0, 3, 2, 5])
    networks = [dense, distribute_module(copy.deepcopy(dense), mesh, plan)]
    seen: list[Any] = []
    for network in networks:
        given = [images, labels]
        if network is not dense and batch is not None:
            given = [ShardedTensor.from_dense(each, mesh, batch) for each in given]
        function = al.compile(loss) if compiled and network is not dense else loss
        al.manual_seed(5)
        result = function(network, *given)
        result.backward()
        values = [p.grad for p in network.parameters()] + list(network.buffers())
        seen.append([whole(each) for each in (result, *values)] + [al.rand(1).numpy()])
    for a, b in zip(*seen, strict=True):
        assert np.allclose(a, b, rtol=1e-10, atol=1e-11)


# -------------------------------------------------------------------------------------- modules
def test_a_sharded_parameter_is_one_of_its_module() -> None:
    layers = distribute_module(network(), MESH, COLUMNS)
    assert [name for name, _ in layers.named_parameters()] == list(network().state_dict())
    weight = layers[0].weight
    assert isinstance(weight, nn.Parameter)
    assert isinstance(weight, ShardedTensor)
    assert weight.requires_grad
    twin = copy.deepcopy(layers)
    assert isinstance(twin[0].weight, nn.Parameter)
    twin[0].weight.detach().zero_()
    assert whole(weight).any()
    frozen = nn.Parameter(weight, requires_grad=False)
    assert not frozen.requires_grad
    buffer = nn.Buffer(weight.detach(), persistent=False)
    assert isinstance(buffer, nn.Buffer)
    assert not isinstance(buffer, nn.Parameter)


def test_states_are_saved_and_loaded_across_placements() -> None:
    layers = distribute_module(network(), MESH, COLUMNS)
    dense, other = network(3), distribute_module(network(3), MESH, ROWS)
    other.load_state_dict(layers.state_dict())
    dense.load_state_dict({n: v.full_tensor() for n, v in layers.state_dict().items()})
    for a, b, c in zip(dense.parameters(), other.parameters(), network().parameters(), strict=True):
        assert whole(a).tobytes() == whole(b).tobytes() == whole(c).tobytes()
    assert other[0].weight.placement == Shard(1)


def test_tied_parameters_stay_tied_and_names_are_checked() -> None:
    layers: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    layers[1].weight = layers[0].weight
    distribute_module(layers, MESH, {"1.weight": Shard(0)})
    first: Any = layers[0].weight
    assert layers[1].weight is first
    assert first.placement == Shard(0)
    with pytest.raises(ArgumentError, match="'2.weight' is no parameter or buffer of Sequential"):
        distribute_module(layers, MESH, {"2.weight": Shard(0)})
