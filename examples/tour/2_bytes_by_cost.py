"""Tour 2, exercise: the bytes of all results of a graph, by the cost class of the op."""

from collections import Counter
from typing import Any

import numpy as np

import aotlite as al
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import Interpreter


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    x[0].mul_(2.0)
    hidden = x @ w
    hidden[:, 1].relu_()
    return (hidden * hidden).sum()


class BytesByCost(Interpreter):
    """Runs a graph and adds up the bytes of the results of its calls."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.bytes: Counter[str] = Counter()

    def run_node(self, node: Node) -> Any:
        if node.op == "call" and isinstance(node.meta, TensorMeta):
            self.bytes[node.target.cost.value] += node.meta.numel * node.meta.dtype.itemsize
        return super().run_node(node)


def main() -> None:
    x, w = al.ones(4, 3), al.ones(3, 2).requires_grad_()
    forward = al.inspect.stages_of(al.compile(loss, backend="reference"), x, w)["forward"]
    counting = BytesByCost(forward)
    counting.run(np.ones((4, 3), np.float32), np.ones((3, 2), np.float32))
    for cost, count in counting.bytes.most_common():
        print(f"{cost}: {count} bytes")


if __name__ == "__main__":
    main()
