"""The layout pass: frozen factors of matrix products are folded to the layout that is read fastest.

`x @ w.t()` reads a frozen `w` of shape (n, k) by columns. Where n >= k the rows of the transposed
copy are read faster (specs/freezing.md has the figures), and the copy is made once. It runs before
the fold, on forwards without backward, for backends with kernels of their own; those of the
reference backend keep eager's bits. Results keep eager's strides. Rule: FRZ-5.
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
from aotlite.ir.ops.shape.copies import RESTRIDE

_FACTORS: dict[Any, int] = {OPS["matmul"]: 1, OPS["addmm"]: 2}
"""Matrix products, and the place of their right factor."""


def laid_out(graph: Graph, frozen: Collection[object]) -> Graph:
    """The forward whose products read frozen right factors by rows; itself if none gains."""
    if any(isinstance(role, Saved) for role in graph.output_roles):
        return graph
    cone = Cone(graph, frozen)
    build = Builder(graph.name)
    new: dict[Node, Node] = {}
    copies: dict[Node, Node] = {}
    for node in graph.nodes[:-1]:
        args = map_nodes(node.args, lambda each: new.get(each, each))
        place = _FACTORS.get(node.target)
        if place is not None and _gains(node, node.args[place], cone):
            factor = node.args[place]
            if factor not in copies:
                build.source = factor
                strides = layout.contiguous_strides(factor.meta.shape)
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


def _gains(product: Node, factor: Any, cone: Cone) -> bool:
    """Whether a product's right factor is a frozen matrix, read by columns, and wide enough."""
    if product in cone.inputs or not cone.inputs.get(factor):
        return False
    meta = factor.meta
    is_turned = isinstance(factor.target, ViewOp) and len(meta.shape) == 2 and not meta.contiguous
    if not is_turned or meta.stride[0] != 1:
        return False
    inner, columns = meta.shape
    return bool(columns >= inner > 1)
