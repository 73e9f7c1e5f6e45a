"""Training over four virtual ranks: the same steps, to the last bit, as on one.

The first weight is sharded by its outputs, the second by its inputs. So the value between the
layers is never gathered. Numbers are small fractions, whose sums are exact in any order.
"""

from typing import Any

import aotlite as al
from aotlite import nn
from aotlite.sharding import CommDebugMode, Mesh, Shard, ShardedTensor, distribute_module
from aotlite.subclasses import QuantizedTensor

PLAN = {"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1)}


def network(*, quantized: bool) -> Any:
    al.manual_seed(0)
    layers: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    scale = al.tensor(0.25, dtype=al.float64)
    for layer in (layers[0], layers[2]):
        weight: Any = al.randint(-1, 2, layer.weight.shape).double()
        weight = QuantizedTensor.quantize(weight, scale) if quantized else weight
        layer.weight = nn.Parameter(weight)
        layer.bias = nn.Parameter(al.randint(-1, 2, layer.bias.shape).double())
    return layers


def loss_of(layers: Any, images: al.Tensor) -> Any:
    return layers(images).square().sum()


def train(layers: Any, images: al.Tensor, function: Any = loss_of) -> list[Any]:
    optimizer = al.optim.SGD(layers.parameters(), lr=2.0**-4)
    seen = []
    for _ in range(2):
        (loss := function(layers, images)).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss)
    seen += layers.parameters()
    whole = [x.full_tensor() if isinstance(x, ShardedTensor) else x for x in seen]
    return [(x + 0).tolist() for x in whole]


def main() -> None:
    images = al.randint(-1, 2, (4, 8)).double()
    for bits in (64, 8):
        one, eager, compiled = (network(quantized=bits == 8) for _ in range(3))
        expected = train(one, images)
        with CommDebugMode() as comm:
            found = train(distribute_module(eager, Mesh(4), PLAN), images)
        again = train(distribute_module(compiled, Mesh(4), PLAN), images, al.compile(loss_of))
        print(f"weights of {bits} bits: losses {found[:2]}, {comm.get_comm_counts()}")
        print("  equal to one rank's:", expected == found, "- compiled:", expected == again)


if __name__ == "__main__":
    main()
