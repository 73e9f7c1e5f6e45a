"""Gradient sinks: the tape edges at which an input's gradient is collected, and their sum.

Used by stage 4, and by the hooks of stage 1. Rules: JNT-3, TEN-24. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from typing import Any, Protocol

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import put
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import ViewStep
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.records.capture_inputs import CapturedInput, SourceRole


class GradientSource(Protocol):
    """Where gradients are collected: an input, a family, or a tangent of an earlier order."""

    @property
    def role(self) -> SourceRole: ...

    @property
    def entries(self) -> tuple[Edge, ...]: ...


def sinks_of(given: GradientSource) -> list[tuple[Edge, tuple[ViewStep, ...]]]:
    """The edges at which a gradient is collected, each with the geometry ops before it.
    A leaf whose geometry changes (under no_grad) gets a new accumulating node each time (TEN-24).
    """
    found: list[tuple[Edge, tuple[ViewStep, ...]]] = []
    for edge in given.entries:
        found += _collecting_nodes(edge)
    return found


def _collecting_nodes(edge: Edge) -> list[tuple[Edge, tuple[ViewStep, ...]]]:
    found: list[tuple[Edge, tuple[ViewStep, ...]]] = [(edge, ())]
    node = edge[0]
    moves: tuple[ViewStep, ...] = ()
    while isinstance(node, AccumulateGrad) and node.edges:
        moves = (*moves, *node.chain)
        (further,) = node.edges
        assert further is not None
        found.append((further, moves))
        node = further[0]
    return found


def sum_at_entry(given: GradientSource, parts: list[tuple[Any, tuple[ViewStep, ...]]]) -> object:
    """The sum of gradients collected in several geometries, in the input's geometry at entry."""
    total = None
    for grad, moves in parts:
        if grad is None:
            continue
        if not isinstance(given, CapturedInput):
            return grad  # a family's root keeps its geometry
        if any(step.op is AS_STRIDED for step in moves):
            raise noted(
                UnsupportedError(
                    f"joint: {given.place}, a leaf, is used after as_strided_, expected uses "
                    "before it only"
                ),
                "Take an as_strided view instead of changing the leaf.",
            )
        grad = put(moves, grad.new_zeros(given.entry_meta.shape), grad) if moves else grad
        total = grad if total is None else total + grad
    return total


def whole_edge(tensor: Tensor) -> Edge | None:
    """The tape edge of a tensor's whole base, in the geometry at its first view."""
    root = tensor._root
    edge: Edge | None = edge_of(tensor) if root is None else root.edge()
    return edge


def first_form(value: Node) -> Node:
    """The node that made the tensor object of `value`, before its in-place and geometry ops."""
    while isinstance(value.target, (InplaceOp, GeometryOp)):
        value = value.args[0]
    return value
