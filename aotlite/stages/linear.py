"""Whether a recorded backward is linear in the gradients that arrive.

What the engine runs is; what users' hooks and backwards compute may be anything. It matters at the
second order: eager sends all that arrives at a hook through it at once, a compiled call sends what
arrives in its backward, and in the backward of that, apart (DBL-1).
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import scalar
from aotlite.ir.graph import Graph, Node
from aotlite.ir.op import Cost, PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.role import Gradient, Tangent

_SAME = frozenset({"neg", "real", "imag", "conj", "cast"})
"""Scalar functions that are linear in their one operand."""


def is_linear(joint: Graph) -> bool:
    """Whether all gradients of a pure joint graph are linear in its tangents.

    False also for what is not known: ops whose declaration does not say.
    """
    marked: set[Node] = set()
    spoilt: set[Node] = set()
    for node in joint.nodes:
        if isinstance(node.role, Tangent):
            marked.add(node)
        elif node.op == "call":
            inputs = node.inputs()
            if any(value in spoilt for value in inputs):
                spoilt.add(node)
            elif any(value in marked for value in inputs):
                (marked if _keeps(node, marked) else spoilt).add(node)
    return not any(value in spoilt for _, value in joint.outputs_with(Gradient))


def _keeps(node: Node, marked: set[Node]) -> bool:
    """Whether a call is linear in its marked operands."""
    op = node.target
    if isinstance(op, ViewOp) or op is GETITEM:
        return True
    if not isinstance(op, PureOp):
        return False
    read = [value for value in node.inputs() if value.dtype.is_differentiable]
    count = sum(value in marked for value in read)
    match op.cost:
        case Cost.VIEW | Cost.INDEXING:
            return count == len(read) or _is_scatter(node, marked)
        case Cost.CONTRACTION:
            return count == 1
        case Cost.REDUCTION:
            return op.additive
        case Cost.POINTWISE if op.scalar is not None:
            return _degree(_tree(node, marked)) == 1
    return count == len(read) == 1 and op.additive


def _is_scatter(node: Node, marked: set[Node]) -> bool:
    """Whether all that is not marked is zeros."""
    for value in node.inputs():
        if value not in marked and value.dtype.is_differentiable:
            while isinstance(value.target, ViewOp):
                value = value.args[0]
            if value.op != "call" or value.target.name != "full" or value.args[1] != 0:
                return False
    return True


def _tree(node: Node, marked: set[Node]) -> Any:
    """The scalar expression: marked operands are symbols "g", others "x"."""
    args = [("g" if a in marked else "x") if type(a) is Node else a for a in node.args]
    return scalar.tree(node.target.scalar, tuple(args))


def _degree(expr: Any) -> int | None:
    """0 for what does not depend on "g", 1 for what is linear in it, None for anything else.

    A number 0 is both, and counts as 0: see `_joined`.
    """
    if not isinstance(expr, scalar.Expr):
        return 0
    if expr.op == "symbol":
        return int(expr.args[0] == "g")
    degrees = [_degree(arg) for arg in expr.args]
    if None in degrees:
        return None
    if not any(degrees):
        return 0
    match expr.op:
        case "add" | "sub":
            return _joined(expr.args, degrees)
        case "mul":
            return 1 if sum(degrees) == 1 else None  # type: ignore[arg-type]
        case "div":
            return 1 if degrees == [1, 0] else None
        case "where":
            return _joined(expr.args[1:], degrees[1:]) if degrees[0] == 0 else None
    return 1 if expr.op in _SAME else None


def _joined(args: Any, degrees: list[int | None]) -> int | None:
    """The degree of a sum or choice: all parts are linear, or the number 0."""
    parts = zip(args, degrees, strict=True)
    return 1 if all(d == 1 or (type(a) in (int, float) and a == 0) for a, d in parts) else None
