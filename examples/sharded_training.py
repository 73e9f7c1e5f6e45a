"""Training over four virtual ranks: the same steps, to the last bit, as on one.

The first layer's weight is cut by its outputs and the second's by its inputs, so that what lies
between the layers is never whole. Then again with weights of 8 bits. Numbers are small fractions:
sums are exact in any order.
"""

from typing import Any

import aotlite as al
from aotlite import nn
from aotlite.sharding import CommDebugMode, Mesh, Shard, ShardedTensor, distribute_module
from aotlite.subclasses import QuantizedTensor

PLAN = {"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1)}


def network(*, quantised: bool) -> Any:
    al.manual_seed(0)
    layers: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in (layers[0], layers[2]):
        weight: Any = al.randint(-1, 2, layer.weight.shape).double()
        if quantised:
            weight = QuantizedTensor.quantize(weight, al.tensor(0.25, dtype=al.float64))
        layer.weight = nn.Parameter(weight)
        layer.bias = nn.Parameter(al.randint(-1, 2, layer.bias.shape).double())
    return layers


def whole(value: Any) -> Any:
    value = value.full_tensor() if isinstance(value, ShardedTensor) else value
    return value + 0  # dense, if it was not


def train(layers: Any, images: al.Tensor) -> list[Any]:
    """The losses of two steps, and then the weights."""
    optimizer = al.optim.SGD(layers.parameters(), lr=2.0**-4)
    seen = []
    for _ in range(2):
        (loss := layers(images).square().sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(whole(loss).item())
    return seen + [whole(p).tolist() for p in layers.parameters()]


def main() -> None:
    images = al.randint(-1, 2, (4, 8)).double()
    for quantised in (False, True):
        expected = train(network(quantised=quantised), images)
        sharded = distribute_module(network(quantised=quantised), Mesh(4), PLAN)
        with CommDebugMode() as comm:
            found = train(sharded, images)
        print("weights of 8 bits:" if quantised else "weights of 64 bits:", comm.get_comm_counts())
        print("  losses", found[:2], "- equal to one rank's, and weights:", expected == found)


if __name__ == "__main__":
    main()
