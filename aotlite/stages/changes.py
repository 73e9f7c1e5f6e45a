"""What a captured function does to its inputs that is no op: changes of autograd state and memory.

The recorder notes each change with its place among the recorded nodes; stage 2 asks for them, and
which results were taken between which. Rules: FUN-36. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.history import accumulator
from aotlite.eager.autograd.node import TapeNode
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.facts import CapturedInput, InputRole, StateStep


@attrs.frozen(eq=False)
class Change:
    """A change of an input."""

    step: StateStep
    position: int
    """The number of nodes recorded before it."""


class Changes:
    """The changes of one capture, in order, by input. The eager layer tells them."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self.of: dict[InputRole, list[Change]] = {}

    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> None:
        """The tensor became a leaf that requires grad, or is no longer one."""
        self._recorder.unrecorded = True
        given = self._recorder.input_of(tensor)
        if given is None:
            return
        self._note(given, StateStep.TRACK if requires_grad else StateStep.UNTRACK)
        node = accumulator(tensor)
        if requires_grad and (given.entry is None or given.entry[0] is not node):
            later = attrs.evolve(given, leaf_entry=(node, 0))
            self._recorder.replace_input(given, later)

    def detached(self, tensor: Tensor) -> bool:
        """The tensor is taken out of its history; whether it stands for a view."""
        self._recorder.unrecorded = True
        given = self._recorder.input_of(tensor)
        if given is None:
            return False
        self._note(given, StateStep.DETACH)
        return self._recorder.real_of(tensor)._base is not None

    def _note(self, given: CapturedInput, step: StateStep) -> None:
        self.of.setdefault(given.role, []).append(Change(step, len(self._recorder.nodes)))


class Timeline:
    """Which changes of an input came before what."""

    def __init__(self, changes: Changes, nodes: tuple[Node, ...]) -> None:
        self.of = changes.of
        started = iter(nodes) if self.of else iter(())
        calls = [node for node in started if node.op != "placeholder"]
        self._places = {node: i for i, node in enumerate(calls)}

    def before(self, role: InputRole, view: Node) -> int:
        """The number of changes of the input before a view of it was taken.

        A view of a view was taken when the first was: it has that one's memory and history.
        """
        changes = self.of.get(role)
        if not changes:
            return 0
        place = min([self._places[node] for node in _way(view) if _is_view(node)])
        return sum(change.position <= place for change in changes)

    def steps(self, given: CapturedInput, *, shown: bool) -> tuple[StateStep, ...]:
        """What is to be done to the input at each call: if no result shows what was in between,
        the net of the changes (FUN-36).
        """
        steps = tuple([change.step for change in self.of.get(given.role, ())])
        return steps if shown else _net(steps, given)


def _net(steps: tuple[StateStep, ...], given: CapturedInput) -> tuple[StateStep, ...]:
    if not steps or _is_as_it_was(given):
        return ()
    first = (StateStep.DETACH,) if StateStep.DETACH in steps else ()
    return first if steps[-1] in first else (*first, steps[-1])


def _is_as_it_was(given: CapturedInput) -> bool:
    """Whether the input is the leaf, or has the history, that it was or had at entry."""
    fake = given.fake
    if given.requires_grad != fake.requires_grad_outside():
        return False
    if not given.requires_grad or given.is_leaf:
        return fake._node is None
    return given.entry is not None and fake._node is given.entry[0]


def _way(node: Node) -> Iterator[Node]:
    """The values from this one back to the one that made its storage."""
    while node.op == "call":
        yield node
        op = node.target
        if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
            node = node.args[0].args[0]
        elif isinstance(op, (ViewOp, InplaceOp, GeometryOp)):
            node = node.args[0]
        else:
            return


def _is_view(node: Node) -> bool:
    return isinstance(node.target, ViewOp) or node.target is GETITEM


def new_leaves(
    inputs: Sequence[CapturedInput], passed: Container[TapeNode]
) -> frozenset[InputRole]:
    """The inputs whose gradient, if one comes, is that of the leaf that they became.

    Raises UnsupportedError where gradients go to an input's history at entry as well.
    """
    found = set()
    for given in inputs:
        if given.leaf_entry is None or given.leaf_entry[0] not in passed:
            continue
        found.add(given.role)
        if given.entry is not None and given.entry[0] in passed:
            raise noted(
                UnsupportedError(
                    f"joint: {given.place} is a leaf that the function made of a tensor with a "
                    "history, and both get gradients, expected one of the two to get one"
                ),
                "Use detach() and requires_grad_() on that, or take it out of its history before "
                "the call. (FUN-36)",
            )
    return frozenset(found)
