"""Backward graphs without absent tangents, which are no gradient, and not zeros (TAN-8).

Used by stage 10, which keeps one graph for each set of absent tangents. An absent tangent is a
symbolic zero. An op that is linear in it gives a symbolic zero, an addition gives its other
operand, and only for other ops is a tensor of zeros made. So a gradient that eager never computes,
perhaps an infinite one, does not change the gradients that it does compute.
Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from aotlite.ir import scalar
from aotlite.ir.effects import TokenOp
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.effect_chains import numbered
from aotlite.ir.graph.role import Arrived, Current, Gradient, Result, Rewritten, Role, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, PureOp, ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.pointwise_expression import expression_of_call
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.joint import BackwardEffect
from aotlite.stages.records.metadata.subclass_meta import gradient_of

WHERE = OPS["where"]


def without_tangents(
    backward: Graph,
    absent: frozenset[object],
    reached: Container[Any],
    arrivals: tuple[frozenset[Result], ...] = (),
    effects: tuple[BackwardEffect, ...] = (),
) -> Graph:
    """The backward graph that takes no tangents of the `absent` results.

    A source that is not `reached` from the other results gets None, even if its gradient is zeros
    that depend on no tangent. A reached source gets a gradient, even if user code gave none for an
    absent one. `arrivals` has for each `Arrived` input the results of which one's gradient has to
    arrive: the inputs become constants. `effects` are the graph's effects in order; those among
    `absent` do not happen (TOK-6).
    """
    return _Specializer(backward, absent, reached, arrivals, effects).run()


def _is_of_zeros(node: Node) -> bool:
    """Whether a value is a new tensor of zeros, into which a gradient is scattered."""
    return node.target is FULL and not node.args[1]


class _Specializer:
    def __init__(
        self,
        graph: Graph,
        absent: frozenset[Any],
        reached: Container[Any],
        arrivals: Any,
        effects: tuple[BackwardEffect, ...],
    ) -> None:
        self.graph = graph
        self.absent = absent
        self.reached = reached
        self.arrivals = arrivals
        self.build = Builder(graph.name)
        self.new: dict[Node, Any] = {}
        """The new node of each old one; None for a symbolic zero."""
        self.made: dict[TensorMeta, Node] = {}
        """The zeros that ops read: one tensor of each kind."""
        self.effects = effects
        self.muted: set[Node] = set()
        """The calls of effects that do not happen."""

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op == "output":
                break
            self.build.source = node
            self.new[node] = self._translated(node)
        roles = self.graph.output_roles
        values = [
            self._result(role, value) if type(value) is Node else value
            for role, value in zip(roles, self.graph.outputs, strict=True)
        ]
        edit = self.build.finish(values, roles).edit()
        edit.eliminate_dead_code()
        graph: Graph = edit.graph()
        return graph

    def _translated(self, node: Node) -> Node | None:
        if isinstance(node.role, Arrived):
            return self.build.emit(FULL, ((), self._arrives(node), node.dtype, node.meta.device))  # type: ignore[union-attr]
        if node.op != "call":
            gone = isinstance(node.role, Tangent) and gradient_of(node.role.of) in self.absent
            return None if gone else self.build.add(node)
        if node.target is WHERE and isinstance(node.args[0].role, Arrived):
            chosen = node.args[1 if self._arrives(node.args[0]) else 2]
            # A number stands for the gradient that user code does not return
            # (`ArrivalConditions.guarded`).
            found: Node | None = self.new[chosen] if type(chosen) is Node else None
            meta: Any = node.meta
            if found is not None and found.meta is not meta:  # readers count on its strides
                found = self.build.emit(RESTRIDE, (found, meta.stride))
            return found
        if type(node.target) is TokenOp and node.target.effect and self._is_missing(node):
            self.muted.add(node)
            return self.new[node.args[0]]  # the token goes by
        if node.target is GETITEM and node.args[0] in self.muted:
            return None if node.args[1] else self.new[node.args[0]]
        zeros = {value for value in node.inputs() if self.new[value] is None}
        if not zeros:
            return self._copied(node, map_nodes(node.args, self.new.__getitem__))
        if type(node.meta) is not tuple:
            if self._vanishes(node, zeros):
                return None
            passed = self._passes(node, zeros)
            if passed is not None:
                return passed
        return self._copied(node, map_nodes(node.args, self._filled))

    def _is_missing(self, node: Node) -> bool:
        """Whether the effect of this number in its chain does not happen."""
        known = [each for each in self.effects if each.effect == node.target.effect]
        number = numbered(node)
        # An effect that the plan does not know happens.
        return number < len(known) and known[number] in self.absent

    def _arrives(self, node: Node) -> bool:
        """The value of an `Arrived` input: whether any gradient of its results arrived."""
        role: Any = node.role
        return bool(self.arrivals[role.index] - self.absent)

    def _copied(self, node: Node, args: tuple[object, ...]) -> Node:
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        return self.build.add(node if same else node.with_args(args, node.meta))

    def _filled(self, value: Node) -> Node:
        """The new node; for a symbolic zero a tensor of zeros."""
        found: Node | None = self.new[value]
        if found is not None:
            return found
        meta: TensorMeta = value.meta  # type: ignore[assignment]
        if meta not in self.made:
            self.made[meta] = self._zeros(meta)
        return self.made[meta]

    def _zeros(self, meta: TensorMeta) -> Node:
        zeros = self.build.emit(FULL, (meta.shape, 0, meta.dtype, meta.device))
        if meta.stride != zeros.meta.stride:  # type: ignore[union-attr]
            zeros = self.build.emit(RESTRIDE, (zeros, meta.stride))
        return zeros

    # --- what zeros do to an op
    def _vanishes(self, node: Node, zeros: set[Node]) -> bool:
        """Whether the result is zero, by the op's class and cost alone."""
        op = node.target
        if isinstance(op, ViewOp):
            return True
        if not isinstance(op, PureOp):
            return False
        tensors = [v for v in node.inputs() if v.dtype.is_differentiable]
        every = all(value in zeros or _is_of_zeros(value) for value in tensors)
        match op.cost:
            case Cost.CONTRACTION:
                return len(tensors) == 2
            case Cost.INDEXING:
                return every
            case Cost.REDUCTION:
                return bool(op.linear) and every
            case Cost.POINTWISE:
                return bool(every) if op.scalar is None else self._is_zero(node, zeros)
        return False

    def _passes(self, node: Node, zeros: set[Node]) -> Node | None:
        """The operand that the result equals, in the result's layout."""
        op = node.target
        if not (isinstance(op, PureOp) and op.scalar is not None):
            return None
        rest = self._simplified(node, zeros)
        while rest is not None and rest.op == "cast":  # to the dtype that the op computes in
            rest = rest.operands[0]
        tensors = [a for a in node.args if type(a) is Node]
        if rest is None or rest.op != "parameter" or rest.args[0] >= len(tensors):
            return None
        value = self.new[tensors[rest.args[0]]]
        meta: Any = node.meta
        if value.meta.shape != meta.shape or value.dtype is not meta.dtype:
            return None
        if value.meta is not meta:
            value = self.build.emit(RESTRIDE, (value, meta.stride))
        return value

    def _is_zero(self, node: Node, zeros: set[Node]) -> bool:
        rest = self._simplified(node, zeros)
        return rest is not None and scalar.is_zero(rest)

    def _simplified(self, node: Node, zeros: set[Node]) -> scalar.Scalar | None:
        """The scalar expression where some operands are zeros; the k-th tensor is parameter(k).

        None where the numbers among the arguments have none.
        """
        tensors = [a for a in node.args if type(a) is Node]
        nothing = [scalar.parameter(k, a.dtype) for k, a in enumerate(tensors) if a in zeros]
        args = [a.meta if type(a) is Node else a for a in node.args]
        root = expression_of_call(node.target, node.dtype, args)
        return None if root is None else scalar.with_zeros(root, nothing)

    def _result(self, role: Role, value: Node) -> Node | None:
        """A gradient in its own memory: an operand that an addition passed on may be a tangent."""
        if type(role) is Gradient and gradient_of(role.of) not in self.reached:
            return None
        found: Node | None = self.new[value]
        if found is None and type(role) in (Rewritten, Gradient):
            return self._zeros(value.meta)  # type: ignore[arg-type]  # memory of its own
        if type(role) is Rewritten and found is not None and found.role == Current(role.of):
            return found
        if found is None or found.op == "call" and not found.target.views:
            return found
        self.build.source = value
        return self.build.emit(CLONE, (found,))


def missing(
    effects: Iterable[BackwardEffect], absent: frozenset[object], wanted: frozenset[object] | None
) -> frozenset[object]:
    """The effects that do not happen if these results' gradients are absent, and only those of
    `wanted` inputs are asked for; None asks for all."""
    return frozenset(
        [
            each
            for each in effects
            if each.arrivals <= absent
            or (wanted is not None and not each.reachable_inputs & wanted)
        ]
    )
