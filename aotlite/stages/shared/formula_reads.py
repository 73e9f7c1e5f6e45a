"""The operands and results that the gradient formulas of a graph's calls read, by declaration.

Used by stage 8, to find the values that a double backward may read. Rules: OPS-4, DBL-2.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from aotlite.ir.graph import Graph, Node
from aotlite.ir.ops.structure import GETITEM


def results_of_calls(graph: Graph) -> dict[Node, list[Node]]:
    """The used results of each call with several results."""
    found: dict[Node, list[Node]] = {}
    for node in graph.calls:
        if node.target is GETITEM:
            found.setdefault(node.args[0], []).append(node)
    return found


def operands_with_gradient(node: Node, differentiable: Container[Node]) -> tuple[int, ...]:
    """The indices of a call's operands that get gradients."""
    vjp = getattr(node.target, "vjp", None)
    if vjp is None:
        return ()
    return tuple([i for i in vjp.positions if _holds(node.args[i], differentiable)])


def _holds(argument: object, values: Container[Node]) -> bool:
    if type(argument) is tuple:
        return any(type(item) is Node and item in values for item in argument)
    return type(argument) is Node and argument in values


def read_by_formulas(
    node: Node, differentiable: Container[Node], results: Mapping[Node, Sequence[Node]]
) -> Iterator[Node]:
    """The operands and results that a call's gradient formulas read (OPS-4).

    `results` has the used results of calls with several (`results_of_calls`).
    """
    needed = operands_with_gradient(node, differentiable)
    if not needed:
        return
    operands, numbers = node.target.vjp.saves(needed)
    for i in operands:
        argument = node.args[i]
        for item in argument if type(argument) is tuple else (argument,):
            if type(item) is Node:
                yield item
    if type(node.meta) is tuple:
        yield from [each for each in results.get(node, ()) if each.args[1] in numbers]
    elif numbers:
        yield node
