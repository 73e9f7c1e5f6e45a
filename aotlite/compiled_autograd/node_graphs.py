"""Fragments: the graph that one tape node recorded, copied for further nodes of the same form.

Nodes of equal forms record equal graphs (CAG-7). So in a deep network each formula runs once, and
its fragment is copied for the other layers. Used by `recorder`. Rules: CAG-2, CAG-7.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import attrs

from aotlite.compiled_autograd.node_signatures import Form
from aotlite.eager.autograd.differentiable_views import link_view
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM, ResultOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def key_of(
    node: OpNode, form: Form, grads: Sequence[Tensor | None], inputs: Sequence[Node]
) -> Hashable | None:
    """The cache key of a node's fragment; None if it cannot be shared.

    `form` is the node's form when the structure was read: users' Python may have run since.
    """
    present = [grad for grad in grads if grad is not None]
    values = {grad.value for grad in present}
    if None in values or len(values) != len(present):
        return None
    arrived = [None if grad is None else (grad.meta, grad.offset) for grad in grads]
    return node.call, form[-1], (*arrived,), (*[value.meta for value in inputs],)


@attrs.frozen(eq=False)
class _Step:
    """One recorded op, with value numbers in place of its operands."""

    node: Node
    args: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]
    """(index of an argument, number of the value)."""
    lists: tuple[tuple[int, tuple[int | None, ...]], ...]
    """(index of a list argument, numbers of its values; None for items that are no values)."""


@attrs.frozen(eq=False)
class View:
    """A gradient that is a view of an arrived gradient, or of a computed value."""

    number: int
    source: int
    steps: tuple[tuple[Any, tuple[Any, ...], Any, int, int], ...]
    """For each view: op, arguments after the operand, meta, start, and number of the value."""

    def of(self, source: Tensor, values: Sequence[object]) -> Tensor:
        """The view of this tensor."""
        for op, args, meta, start, number in self.steps:
            out = Tensor(source.storage, meta, source.offset + start)
            out.value = values[number]
            link_view(out, source, op, args)
            source = out
        return source


@attrs.frozen(eq=False)
class Fragment:
    """The ops that a node recorded, on numbered values: gradients, saved values, then results."""

    steps: tuple[_Step, ...]
    results: tuple[int | None, ...]
    """For each edge the number of its gradient."""
    made: tuple[int, ...]
    """The numbers of values that become new tensors: gradients, and bases of gradients."""
    views: tuple[View, ...]
    """The gradients that are views; hooks have to see them as such."""

    def copied(self, values: list[Any], origin: Node) -> list[Node]:
        """Copies the ops onto other values; appends their results to `values`, returns the nodes.

        The nodes get the scope of `origin`.
        """
        start = len(values)
        for step in self.steps:
            args = list(step.args)
            for place, number in step.places:
                args[place] = values[number]
            for place, numbers in step.lists:
                given = zip(args[place], numbers, strict=True)
                args[place] = tuple([x if k is None else values[k] for x, k in given])
            like = step.node
            values.append(
                Node(
                    "call",
                    like.target,
                    tuple(args),
                    like.meta,
                    None,
                    like.grad_mode,
                    like.phase,
                    like.sequence,
                    None,
                    origin,
                    like.recompute,
                    origin.scope,
                )
            )
        return values[start:]


def fragment_of(
    nodes: Sequence[Node], grads: Sequence[Any], inputs: Sequence[Node], found: Sequence[Any]
) -> Fragment | None:
    """The fragment of recorded nodes and their gradients; None if it is more than pure ops and
    views, or reads other values.
    """
    values = [None if grad is None else grad.value for grad in grads] + list(inputs)
    numbers = {value: k for k, value in enumerate(values) if value is not None}
    steps: list[_Step] = []
    for node in nodes:
        known = node.op == "call" and isinstance(node.target, (PureOp, ViewOp, ResultOp))
        if not known or any(value not in numbers for value in node.inputs()):
            return None
        steps.append(_step_of(node, numbers))
        numbers[node] = len(values) + len(steps) - 1
    results = _Results(grads, numbers)
    if not all(each is None or results.add(each) for each in found):
        return None
    order = [None if each is None else numbers[each.value] for each in found]
    views = [view for _, view in results.views.values()]
    return Fragment(tuple(steps), tuple(order), tuple(results.made), tuple(views))


class _Results:
    """Classifies the gradients of a node: arrived ones, new tensors, views of these."""

    def __init__(self, grads: Sequence[Tensor | None], numbers: dict[Node, int]) -> None:
        self.arrived = {grad.value: grad for grad in grads if grad is not None}
        self.numbers = numbers
        self.made: dict[int, Tensor] = {}
        self.views: dict[int, tuple[Tensor, View]] = {}

    def add(self, grad: Tensor) -> bool:
        """Adds a gradient; False if it is of no such kind."""
        value = grad.value
        if value not in self.numbers:
            return False
        if self.arrived.get(value) is grad:
            return True
        return self._is_made(grad) if grad._base is None else self._is_view(grad)

    def _is_made(self, tensor: Tensor) -> bool:
        """Whether it is the only tensor on the result of a pure op."""
        value = tensor.value
        made = value.args[0] if value.target is GETITEM else value
        if value not in self.numbers or type(made.target) is not PureOp:
            return False
        return self.made.setdefault(self.numbers[value], tensor) is tensor

    def _is_view(self, grad: Tensor) -> bool:
        path: list[Node] = []
        node: Any = grad.value
        while node not in self.arrived and isinstance(node.target, ViewOp):
            op, operand = node.target, node.args[0]
            if op is AS_STRIDED or operand.meta.dtype is not node.meta.dtype:
                return False
            path.append(node)
            node = operand
        source, base = self.arrived.get(node), grad._base
        assert base is not None
        if source is not None:
            before = len(source._chain)
            is_of = base is (source if source._base is None else source._base)
        else:
            before = 0
            is_of = base.value is node and base._base is None and self._is_made(base)
        if not is_of or len(grad._chain) != before + len(path):
            return False
        numbers = self.numbers
        steps = [
            (each.target, each.args[1:], each.meta, each.target.start(each.args), numbers[each])
            for each in reversed(path)
        ]
        number = numbers[grad.value]
        view = View(number, numbers[node], tuple(steps))
        return self.views.setdefault(number, (grad, view))[0] is grad


def _step_of(node: Node, numbers: dict[object, int]) -> _Step:
    places, lists = [], []
    for place, value in enumerate(node.args):
        if type(value) is Node:
            places.append((place, numbers[value]))
        elif type(value) is tuple and any(type(item) is Node for item in value):
            each = [numbers[item] if type(item) is Node else None for item in value]
            lists.append((place, tuple(each)))
    return _Step(node, node.args, tuple(places), tuple(lists))
