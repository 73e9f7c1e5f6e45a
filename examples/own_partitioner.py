"""A partitioner of your own: it saves no value that is cheap to recompute.

A partitioner is a function from the joint graph to a `Partition`. It chooses the forward values to
save, with a reason for each. `cut` makes the two graphs.
"""

import aotlite as al
from aotlite.inspect import explain_partition, saved_bytes
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import Gradient
from aotlite.ir.op import Cost, Op
from aotlite.partition import Partition, cut

CHEAP = (Cost.POINTWISE, Cost.VIEW, Cost.FACTORY)


def cost_of(node: Node) -> Cost:
    """The cost class of a node. One of several results has that of the op that computed them."""
    op: Op = node.args[0].target if node.target.name == "getitem" else node.target
    return op.cost


def recompute_what_is_cheap(graph: Graph) -> Partition:
    """Saves the values from which chains of cheap ops start: inputs, products, sums."""
    saved = {}
    needed = {value for _, value in graph.outputs_with(Gradient) if value is not None}
    for node in reversed(graph.nodes):
        if node not in needed or node.op == "get_attr":
            continue
        if node.op == "placeholder" and node.phase is Phase.FORWARD:
            saved[node] = "it is an input"
        elif node.phase is Phase.BACKWARD or cost_of(node) in CHEAP:
            needed.update(node.inputs())
        else:
            saved[node] = f"a {cost_of(node).value} is expensive to recompute"
    return cut(graph, saved)


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    hidden = (x @ w).tanh()
    return ((hidden.exp() + 1).log() * hidden.sigmoid()).sum()


def main() -> None:
    grads = []
    for partition in ("default", recompute_what_is_cheap):
        compiled = al.compile(loss, partition=partition)
        al.manual_seed(0)
        x, w = al.rand(64, 32), al.ones(32, 16).requires_grad_()
        compiled(x, w).backward()
        grads.append(str(w.grad))
        name = "default partitioner" if partition == "default" else "own partitioner"
        print(f"{name}: {saved_bytes(compiled.partition)} bytes saved")
    print(explain_partition(compiled.partition))
    print("equal gradients:", grads[0] == grads[1])


if __name__ == "__main__":
    main()
