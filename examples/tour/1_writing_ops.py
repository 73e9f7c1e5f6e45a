"""Tour 1, exercise: how many ops each stage's graph has, and how many of them write."""

from typing import Any

import aotlite as al
from aotlite.ir.graph import Graph


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    x[0].mul_(2.0)
    hidden = x @ w
    hidden[:, 1].relu_()
    return (hidden * hidden).sum()


def observer(stage: str, made: Any) -> None:
    """Prints the counts of a graph; stages also make records, which have no ops."""
    if isinstance(made, Graph):
        writing = [node.target.name for node in made.calls if not node.target.pure]
        print(f"{stage}: {len(made.calls)} ops, {len(writing)} write {' '.join(writing)}".rstrip())


def main() -> None:
    x, w = al.ones(4, 3), al.ones(3, 2).requires_grad_()
    al.compile(loss, backend="reference", observer=observer)(x, w)


if __name__ == "__main__":
    main()
