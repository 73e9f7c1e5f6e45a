"""A backend of one's own: a graph becomes one Python function of NumPy expressions.

The short way to write a backend is a function from a graph to a function from arrays to arrays.
"""

from typing import Any

import numpy as np

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.printer import literal

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
    lines = [f"def {graph.name}({', '.join(names[node] for node in graph.placeholders)}):"]
    for node in graph.calls:
        args = [literal(value, names) for value in node.args]
        expression = TEXT[node.target.name].format(*args, shape=getattr(node.meta, "shape", None))
        lines.append(f"    {names[node]} = {expression}")
    lines.append(f"    return [{', '.join(literal(value, names) for value in graph.outputs)}]")
    return "\n".join(lines)


def numpy_text(graph: Graph) -> Any:
    """The backend: `aotlite.compile(fn, backend=numpy_text)`."""
    source = numpy_source(graph)
    print(source, end="\n\n")
    exec(source, scope := {"np": np})
    return scope[graph.name]


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
