"""The layout pass: frozen weights are folded to the layout that is read fastest.

`x @ w.t()` reads a frozen `w` of shape (n, k) by columns. Where n >= k the rows of the transposed
copy are read faster. A convolution whose result has channels last multiplies rows of pixels by
weights with channels last, which each call would copy: with many channels that is most of the time.
specs/freezing.md has the figures. The copy is made once. The pass runs before the fold, on forwards
without backward, for backends with kernels of their own; those of the reference backend keep
eager's bits. Results keep eager's strides.
Rule: FRZ-5.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from aotlite.freezing.fold_graph import Cone
from aotlite.ir.geometry import layout
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Saved
from aotlite.ir.op import OPS, ViewOp
from aotlite.ir.ops.nn.convolution.patches import is_last
from aotlite.ir.ops.shape.copies import RESTRIDE

_CONVOLUTION: Any = OPS["conv2d"]
_WEIGHTS: dict[Any, int] = {OPS["matmul"]: 1, OPS["addmm"]: 2, _CONVOLUTION: 1}
"""Matrix products and convolutions, and the place of their right factor or weight."""

_CHANNELS, _WINDOW = 512, 3
"""The fewest channels of a group and the smallest window of a convolution that gains."""


def laid_out(graph: Graph, frozen: Collection[object]) -> Graph:
    """The forward whose products and convolutions read frozen weights in the fastest layout; itself
    if none gains."""
    if any(isinstance(role, Saved) for role in graph.output_roles):
        return graph
    cone = Cone(graph, frozen)
    build = Builder(graph.name)
    new: dict[Node, Node] = {}
    copies: dict[Node, Node] = {}
    for node in graph.nodes[:-1]:
        args = map_nodes(node.args, lambda each: new.get(each, each))
        place = _WEIGHTS.get(node.target)
        strides = None if place is None else _strides(node, node.args[place], cone)
        if place is not None and strides is not None:
            factor = node.args[place]
            if factor not in copies:
                build.source = factor
                copies[factor] = build.emit(RESTRIDE, (args[place], strides))
            args = (*args[:place], copies[factor], *args[place + 1 :])
        if args is not node.args:
            new[node] = node.with_args(args, node.meta)
        build.nodes.append(new.get(node, node))
    if not copies:
        return graph
    values = [new.get(v, v) if type(v) is Node else v for v in graph.outputs]
    made = build.finish(values, graph.output_roles)
    return attrs.evolve(made, exported=graph.exported, saved_sizes=graph.saved_sizes)


def _strides(node: Node, weight: Any, cone: Cone) -> tuple[int, ...] | None:
    """The strides of a copy of a frozen weight that is read faster; None where none gains."""
    if node in cone.inputs or not cone.inputs.get(weight):
        return None
    if node.target is _CONVOLUTION:
        return _channels_last(node, weight)
    return layout.contiguous_strides(weight.meta.shape) if _gains(weight) else None


def _channels_last(node: Node, weight: Any) -> tuple[int, ...] | None:
    """The strides of a weight with channels last, where a convolution gives a result of that
    layout, sums up floats, and has the channels and window of those that gained in all runs."""
    meta: Any = weight.meta
    result: Any = node.meta
    _, channels, height, width = meta.shape
    gains = channels >= _CHANNELS and min(height, width) >= _WINDOW
    if not gains or not meta.dtype.is_floating_point or not is_last(result):
        return None
    last = height * width * channels, 1, width * channels, channels
    return None if meta.stride == last else last


def _gains(factor: Any) -> bool:
    """Whether a product's right factor is a matrix, read by columns, and wide enough."""
    meta = factor.meta
    is_turned = isinstance(factor.target, ViewOp) and len(meta.shape) == 2 and not meta.contiguous
    if not is_turned or meta.stride[0] != 1:
        return False
    inner, columns = meta.shape
    return bool(columns >= inner > 1)
