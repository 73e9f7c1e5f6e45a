"""Tour 7, exercise: a partitioner that saves inputs only, and an input that it saves as a copy."""

from collections.abc import Callable
from typing import Any

import aotlite as al
from aotlite.ir.graph import Graph, Phase
from aotlite.partition import Partition, cut


def inputs_only(graph: Graph) -> Partition:
    inputs = [node for node in graph.placeholders if node.phase is Phase.FORWARD]
    return cut(graph, dict.fromkeys(inputs, "it is an input"))


def wave(x: al.Tensor) -> al.Tensor:
    return x.sin().exp().sum()


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    x[0].mul_(2.0)
    hidden = x @ w
    hidden[:, 1].relu_()
    return (hidden * hidden).sum()


def show(function: Callable[..., Any], *args: al.Tensor) -> None:
    compiled = al.compile(function, backend="reference", partition=inputs_only, verify=True)
    compiled(*args).backward()
    copied = [node.target.name for node in compiled.forward_graph.calls].count("clone")
    bytes_ = al.inspect.saved_bytes(compiled.partition)
    names = [saved.name for saved in compiled.partition.saved]
    print(f"{function.__name__}: saves {', '.join(names)}, {bytes_} bytes, {copied} copied")


def main() -> None:
    show(wave, al.ones(4).requires_grad_())
    # x is written: when the backward runs, its memory holds the new value (PART-31)
    show(loss, al.ones(4, 3), al.ones(3, 2).requires_grad_())


if __name__ == "__main__":
    main()
