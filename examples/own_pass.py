"""A pass of your own: doublings become additions, in the forward and in the backward.

A pass is a function from a graph to a graph. This one is a `Transformer`: it rebuilds the graph
call by call, and a call that it does not handle stays as it is.
"""

from typing import Any

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.op import Op
from aotlite.ir.run.transform import Transformer


class AddInsteadOfDoubling(Transformer):
    """x * 2 becomes x + x."""

    def call(self, target: Op, args: tuple[Any, ...]) -> Any:
        if target.name == "mul" and type(args[1]) in (int, float) and args[1] == 2:
            return args[0] + args[0]
        return super().call(target, args)


def add_instead_of_doubling(graph: Graph) -> Graph:
    """The graph with every doubling replaced."""
    return AddInsteadOfDoubling(graph).transform()


def loss(x: al.Tensor) -> al.Tensor:
    return (x.tanh() * 2.0).sum()


def op_names(graph: Graph | None) -> list[str]:
    """The ops that a graph calls, in order."""
    return [node.target.name for node in graph.calls] if graph else []


def main() -> None:
    plain = al.compile(loss)
    # verify=True also runs the graphs before and after the pass, on random inputs.
    changed = al.compile(loss, passes=[add_instead_of_doubling], verify=True)
    values, grads = [], []
    for function in (plain, changed):
        x = al.tensor([0.5, 1.0, 1.5]).requires_grad_()
        value = function(x)
        values.append(value.item())
        value.backward()
        grads.append(str(x.grad))
    print("forward  without the pass:", *op_names(plain.forward_graph))
    print("forward  with it:         ", *op_names(changed.forward_graph))
    print("backward without the pass:", *op_names(plain.backward_graph))
    print("backward with it:         ", *op_names(changed.backward_graph))
    print("equal values:", values[0] == values[1], "- equal gradients:", grads[0] == grads[1])


if __name__ == "__main__":
    main()
