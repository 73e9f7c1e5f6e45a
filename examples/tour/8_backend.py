"""Tour 8, exercise: a backend for `loss`, forward and backward, by functions of NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al
from aotlite.ir.graph import Graph, Node
from aotlite.testing import laws


def scattered(parent: Any, value: Any, dim: int, index: int) -> Any:
    result = parent.copy()
    np.moveaxis(result, dim, 0)[index] = value
    return result


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "matmul": np.matmul,
    "relu": lambda a: np.where(a <= 0, np.zeros_like(a), a),
    "relu_backward": lambda grad, result: np.where(result <= 0, np.zeros_like(grad), grad),
    "select": lambda a, dim, index: np.take(a, index, axis=dim),
    "select_scatter": scattered,
    "sum": lambda a, dims, keepdim, dtype: np.sum(a, axis=dims, keepdims=keepdim, dtype=dtype),
    "transpose": np.swapaxes,
    "view": np.reshape,
    "expand": np.broadcast_to,
}


def by_numpy(graph: Graph) -> Callable[..., list[Any]]:
    for node in graph.calls:
        if node.target.name not in FUNCTIONS:
            raise al.UnsupportedError(f"by_numpy: the op is {node.target.name}, expected another")

    def run(*arrays: Any) -> list[Any]:
        values: dict[Any, Any] = dict(zip(graph.placeholders, arrays, strict=True))
        with np.errstate(all="ignore"):  # eager gives no warnings about numbers either
            for node in graph.calls:
                args = [values[arg] if type(arg) is Node else arg for arg in node.args]
                values[node] = FUNCTIONS[node.target.name](*args)
        return [values.get(value) for value in graph.outputs]  # a gradient may be None

    return run


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    x[0].mul_(2.0)
    hidden = x @ w
    hidden[:, 1].relu_()
    return (hidden * hidden).sum()


def main() -> None:
    x, w = al.ones(4, 3), al.ones(3, 2).requires_grad_()
    value = al.compile(loss, backend=by_numpy)(x, w)
    value.backward()
    print("loss", value.item(), "gradient", w.grad)
    print(laws.check_backend(by_numpy, tolerance=1e-6))


if __name__ == "__main__":
    main()
