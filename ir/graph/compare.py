"""Whether two graphs are the same program, and where they differ first. Spec: `specs/graph.md`."""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph.graph import Constant, Graph, Node
from aotlite.ir.graph.node_text import literal
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op import Op

__all__ = ["equal_graphs", "structurally_equal"]

Positions = dict[Node, int]


def equal_graphs(a: Graph, b: Graph) -> bool:
    """Whether both graphs have the same nodes in the same order (`structurally_equal`)."""
    return structurally_equal(a, b) is None


def structurally_equal(a: Graph, b: Graph) -> str | None:
    """The first difference between two graphs, as a sentence; None if they are the same program.

    It compares ops, arguments (exactly: nan equals nan, 0.0 differs from -0.0 and from 0), metas,
    roles and constants (same name and same object). It ignores graph names, phases, source lines,
    scopes, sequence numbers and `recompute`.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> def scaled(factor):
    ...     build = Builder()
    ...     return build.finish([build.placeholder(tensor_meta((2,))) * factor])
    >>> structurally_equal(scaled(2.0), scaled(2.0))
    >>> structurally_equal(scaled(2.0), scaled(3.0))
    "node 1 (mul): argument 'other' is 2.0 in the first graph and 3.0 in the second"
    """
    if len(a) != len(b):
        return f"the number of nodes is {len(a)} in the first graph and {len(b)} in the second"
    at_a: Positions = {}
    at_b: Positions = {}
    for index, (x, y) in enumerate(zip(a.nodes, b.nodes, strict=True)):
        found = _difference(x, y, at_a, at_b)
        if found is not None:
            what, first, second = found
            where = f"node {index} ({a.names[x]})"
            return f"{where}: {what} is {first} in the first graph and {second} in the second"
        at_a[x] = at_b[y] = index
    return None


def _difference(
    x: Node, y: Node, at_a: Positions, at_b: Positions
) -> tuple[str, object, object] | None:
    """(what, in the first, in the second) of the first difference between two nodes."""
    if x.op != y.op:
        return "its kind", x.op, y.op
    if x.op in ("call", "get_attr") and not _same_target(x.target, y.target):
        return "its target", x.target, y.target
    if x.meta is not y.meta and x.meta != y.meta:
        return "its meta", meta_text(x.meta), meta_text(y.meta)
    if x.role != y.role:
        return "its role", x.role, y.role
    return _argument_difference(x, y, at_a, at_b)


def _same_target(x: object, y: object) -> bool:
    if type(x) is Constant and type(y) is Constant:
        return x.name == y.name and x.value is y.value
    return x is y


def _argument_difference(
    x: Node, y: Node, at_a: Positions, at_b: Positions
) -> tuple[str, object, object] | None:
    args_a, args_b = (x.args[0], y.args[0]) if x.op == "output" else (x.args, y.args)
    if len(args_a) != len(args_b):
        return "the number of its arguments", len(args_a), len(args_b)
    for index, (value_a, value_b) in enumerate(zip(args_a, args_b, strict=True)):
        if not _same_value(value_a, value_b, at_a, at_b):
            return _argument_name(x, index), _shown(value_a, at_a), _shown(value_b, at_b)
    return None


def _same_value(x: Any, y: Any, at_a: Positions, at_b: Positions) -> bool:
    kind = type(x)
    if kind is not type(y):
        return False
    if kind is Node:
        return at_a.get(x, -1) == at_b.get(y, -2)
    if kind is tuple:
        same = (_same_value(p, q, at_a, at_b) for p, q in zip(x, y, strict=False))
        return len(x) == len(y) and all(same)
    # Numbers by their text: == would make nan unequal to itself and -0.0 equal to 0.0.
    return x is y or (literal(x, {}) == literal(y, {}) if kind in (float, complex) else x == y)


def _argument_name(node: Node, index: int) -> str:
    if node.op == "output":
        return f"output {index}"
    if isinstance(node.target, Op) and index < len(node.target.schema.parameters):
        return f"argument '{node.target.schema.parameters[index].name}'"
    return f"argument {index}"


def _shown(value: object, positions: Positions) -> str:
    return literal(value, {node: f"node {index}" for node, index in positions.items()})
