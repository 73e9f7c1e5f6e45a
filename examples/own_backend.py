"""A backend of your own: each graph becomes one Python function of NumPy expressions."""

from typing import Any

import numpy as np

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.graph.node_text import literal

TEXT = {
    "mul": "{0} * {1}",
    "rsub": "{1} - {0}",
    "matmul": "{0} @ {1}",
    "tanh": "np.tanh({0})",
    "sum": "np.sum({0}, axis={1}, keepdims={2})",
    "view": "np.reshape({0}, {shape})",
    "expand": "np.broadcast_to({0}, {shape})",
    "transpose": "np.swapaxes({0}, {1}, {2})",
}


def numpy_source(graph: Graph) -> str:
    """The text of a function that computes the graph."""
    names = graph.names
    inputs = ", ".join(names[node] for node in graph.placeholders)
    lines = [f"def run({inputs}):  # {graph.name}"]
    for node in graph.calls:
        args = [literal(value, names) for value in node.args]
        if node.target.name not in TEXT:
            raise al.UnsupportedError(f"numpy_text: the op is {node.target.name}, expected another")
        expression = TEXT[node.target.name].format(*args, shape=getattr(node.meta, "shape", None))
        lines.append(f"    {names[node]} = {expression}")
    lines.append(f"    return [{', '.join(literal(value, names) for value in graph.outputs)}]")
    return "\n".join(lines)


def numpy_text(graph: Graph) -> Any:
    """The backend, in the short form: from a graph to a function from arrays to arrays."""
    source = numpy_source(graph)
    print(source, end="\n\n")
    exec(source, scope := {"np": np})
    return scope["run"]


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    return (x @ w).tanh().sum()


def main() -> None:
    for function in (al.compile(loss, backend=numpy_text), loss):
        x, w = al.ones(4, 3), al.full((3, 2), 0.25).requires_grad_()
        value = function(x, w)
        value.backward()
        print(f"loss {value.item():.6f}, gradient {w.grad}".replace("\n", ""))


if __name__ == "__main__":
    main()
