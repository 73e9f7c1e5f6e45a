"""Decides whether a recorded backward is linear in its tangents.

Formulas of ops are linear; a user's hook or backward may be anything, say `grad * grad`. In a
double backward two gradients of one value may arrive at a compiled call one after the other, where
eager passes their sum through the hook once. For a linear backward that is the same (DBL-1).
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.ir import scalar
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Gradient, Tangent
from aotlite.ir.op import OPS, Cost, PureOp, ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.pointwise_expression import expression_of_call
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.functions import FUNCTIONS

FILL = OPS["fill"]


def is_linear(joint: Graph) -> bool:
    """Whether all gradients of a pure joint graph are linear in its tangents.

    False also if it cannot be proven: an op's declaration does not say.
    """
    values = _Values(set(), set())
    spoilt: set[Node] = set()
    for node in joint.nodes:
        if isinstance(node.role, Tangent) and node.dtype.is_differentiable:
            values.marked.add(node)
        elif node.op == "call":
            inputs = () if node.target is FILL else node.inputs()  # fill reads no element
            if any(value in spoilt for value in inputs):
                spoilt.add(node)
            elif any(value in values.marked for value in inputs):
                (values.marked if _keeps(node, values) else spoilt).add(node)
            elif _is_zeros(node, values):
                values.zeros.add(node)
    return not any(value in spoilt for _, value in joint.outputs_with(Gradient))


@attrs.frozen
class _Values:
    marked: set[Node]
    """Values that are linear in the tangents."""
    zeros: set[Node]
    """Values that are zeros, whatever the tangents."""


def _keeps(node: Node, values: _Values) -> bool:
    """Whether a call is linear in its marked operands."""
    op, marked = node.target, values.marked
    if isinstance(op, ViewOp) or op is GETITEM:
        return True
    if not isinstance(op, PureOp):
        return False
    if any(_is_of(group, node, values) for group in op.linear):
        return True
    read = [value for value in node.inputs() if value.dtype.is_differentiable]
    count = sum(value in marked for value in read)
    match op.cost:
        case Cost.VIEW | Cost.INDEXING:
            return all(value in marked or value in values.zeros for value in read)
        case Cost.CONTRACTION:
            return count == 1
        case Cost.POINTWISE if op.scalar is not None:
            return _is_linear_in(node, marked)
    return False


def _is_of(group: tuple[str, ...], node: Node, values: _Values) -> bool:
    """Whether the op is linear in its marked operands: all are in this declared group (OPS-24).

    The other operands of the group have to be zeros.
    """
    for parameter, arg in zip(node.target.schema.parameters, node.args, strict=True):
        inside = parameter.name in group
        for value in arg if type(arg) is tuple else (arg,):
            is_marked = type(value) is Node and value in values.marked
            if is_marked is not inside and not (inside and _is_nothing(value, values)):
                return False
    return True


def _is_nothing(value: object, values: _Values) -> bool:
    """Whether an operand adds nothing."""
    return value in values.zeros if type(value) is Node else value is None or value == 0


def _is_zeros(node: Node, values: _Values) -> bool:
    op: Any = node.target
    if op in (FULL, FILL):
        return bool(node.args[1] == 0)
    if isinstance(op, ViewOp) or op in (GETITEM, CLONE, RESTRIDE):
        return node.args[0] in values.zeros
    return isinstance(op, PureOp) and any(_is_of(group, node, values) for group in op.linear)


def _is_linear_in(node: Node, marked: set[Node]) -> bool:
    """Whether the scalar expression of a pointwise op is linear in the marked operands."""
    tensors = [a for a in node.args if type(a) is Node]
    args = [a.meta if type(a) is Node else a for a in node.args]
    root = expression_of_call(node.target, node.dtype, args)
    if root is None:
        return False
    degrees: dict[Scalar, int | None] = {}
    for value in walk([root]):
        if value.op == "parameter":
            k = value.args[0]
            degrees[value] = int(k < len(tensors) and tensors[k] in marked)
        else:
            degrees[value] = _degree(value, [degrees[each] for each in value.operands])
    return degrees[root] == 1


def _degree(value: Scalar, degrees: list[int | None]) -> int | None:
    """0 for an expression without marked operands, 1 for one that is linear in them, None for any
    other.

    The number 0 is both, and counts as 0: see `_joined`.
    """
    if None in degrees:
        return None
    if not any(degrees):
        return 0
    match value.op:
        case "add" | "sub":
            return _joined(value.operands, degrees)
        case "mul":
            return 1 if sum(degrees) == 1 else None  # type: ignore[arg-type]
        case "div":
            return 1 if degrees == [1, 0] else None
        case "where":
            return _joined(value.operands[1:], degrees[1:]) if degrees[0] == 0 else None
        case "cast":
            return 1
    row = FUNCTIONS.get(value.op)
    return 1 if row is not None and row.linear else None


def _joined(operands: Sequence[Scalar], degrees: list[int | None]) -> int | None:
    """The degree of a sum or choice: all parts are linear, or the number 0."""
    parts = zip(operands, degrees, strict=True)
    return 1 if all(d == 1 or scalar.is_zero(a) for a, d in parts) else None
