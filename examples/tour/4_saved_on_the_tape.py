"""Tour 4, exercise: each node of a tape, with the shapes of the values that it saves."""

from collections.abc import Iterator
from typing import Any

import aotlite as al


def nodes_from(node: Any, seen: set[Any]) -> Iterator[Any]:
    """The node and all nodes that it leads to, each once."""
    if node is not None and node not in seen:
        seen.add(node)
        yield node
        for following, _ in node.next_functions:
            yield from nodes_from(following, seen)


def saved_by(node: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that a node saves, by the name of the operand or result."""
    names = [name for name in dir(node) if name.startswith("_saved_")]
    values = {name.removeprefix("_saved_"): getattr(node, name, None) for name in names}
    return {name: value.shape for name, value in values.items() if isinstance(value, al.Tensor)}


def main() -> None:
    x, w = al.ones(4, 3), al.ones(3, 2).requires_grad_()
    x[0].mul_(2.0)
    hidden = x @ w
    hidden[:, 1].relu_()
    value = (hidden * hidden).sum()
    for node in nodes_from(value.grad_fn, set()):
        print(node.name(), saved_by(node))


if __name__ == "__main__":
    main()
