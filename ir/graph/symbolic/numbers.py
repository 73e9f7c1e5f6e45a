"""`with_sizes`: a graph with other sizes in the place of its symbolic ones.

Ground floor. Regions of sizes, templates of tapes and kernels for all sizes put their numbers into
graphs here. Spec: `specs/graph.md`, GRA-15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, is_
from typing import Any, TypeVar

import attrs

from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

__all__ = ["at_sizes", "with_sizes"]

T = TypeVar("T")

_KEPT = attrgetter(*[field.name for field in attrs.fields(Node)[4:]])
"""The fields of a node that have no sizes; its last ones."""
_WITHOUT_SIZES = {int, float, bool, type(None)}


def at_sizes(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The graph with these numbers in the place of its symbols, given by name.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> from aotlite.ir.meta.symbolic import symbolic_meta
    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> build = Builder("doubled")
    >>> x = build.placeholder(symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x"))
    >>> graph = build.finish([x.flatten() * 2])
    >>> [node.meta for node in at_sizes(graph, {"s0": 2, "s1": 5}).nodes[:2]]
    [f32[2, 5], f32[10]]
    """
    return with_sizes(graph, partial(concrete, values=values))


def with_sizes(
    graph: Graph, put: Callable[[object], object], made: dict[Node, Node] | None = None
) -> Graph:
    """The graph with `put(size)` for its symbolic sizes, and `put(meta)` for its metas.

    `put` is called once for each. A node in which nothing changes is shared with the given graph.
    `made` gets for each node the one that takes its place.
    """
    new: dict[Node, Node] = {} if made is None else made
    known: dict[int, object] = {}  # by id: the graph keeps its sizes and metas alive

    def changed(value: T) -> T:
        kind = type(value)
        if kind is Node:
            return new[value]  # type: ignore[index,return-value]
        if kind is tuple:
            items = [changed(item) for item in value]  # type: ignore[attr-defined]
            same = all(map(is_, items, value))  # type: ignore[call-overload]
            return value if same else tuple(items)  # type: ignore[return-value]
        if kind is not TensorMeta and kind is not SymInt and kind is not SizeFloat:
            return value
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = put(value)
        return found  # type: ignore[return-value]

    for node in graph.nodes:
        given, before = node.args, node.meta
        meta: Any = known.get(id(before)) or changed(before)
        items = tuple(
            [
                new[x] if type(x) is Node else x if type(x) in _WITHOUT_SIZES else changed(x)
                for x in given
            ]
        )
        args = given if all(map(is_, items, given)) else items
        if args is given and meta is before:
            new[node] = node
        else:  # attrs.evolve takes twice as long
            new[node] = Node(node.op, node.target, args, meta, *_KEPT(node))
    copies = tuple([attrs.evolve(copy, node=new[copy.node]) for copy in graph.copies])
    return attrs.evolve(graph, nodes=tuple([new[node] for node in graph.nodes]), copies=copies)
