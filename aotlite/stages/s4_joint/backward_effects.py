"""The conditions under which an effect in a backward happens: when eager would run its tape node.

Eager runs a node if a gradient arrives at it and, under `grad(inputs=..)`, if it leads to one of
the inputs asked for. A compiled backward is one graph of all nodes. So stage 4 records both
conditions for each effect (`BackwardEffect`), and stage 10 makes variants of the backward without
the effects that do not happen. Rules: TOK-4, TOK-6, TAN-8. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.dtypes import bool_
from aotlite.ir.effects import EffectOp
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Result
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import GeometryOp, InplaceOp, RandomOp
from aotlite.stages.records.backward.joint import BackwardEffect
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.instrumented_runs import InstrumentedRun, NodeVisit
from aotlite.stages.shared.subclass_rebuild import rebuilt_wrapper
from aotlite.stages.shared.user_frames import describe


class ArrivalConditions:
    """Answers, while a backward is recorded, under which condition the running node runs (RNG-5).

    `reach` are all inputs to which any gradient flows. A node that every result's gradient passes,
    on the way to all of them, runs in every backward.
    """

    def __init__(
        self,
        run: InstrumentedRun,
        recorder: Trace,
        results: Sequence[Result],
        sinks: Mapping[TapeNode, Any],
        reach: frozenset[Any],
    ) -> None:
        self.run = run
        self.recorder = recorder
        self.results = results
        self.sinks = sinks
        self.reach = reach
        self.found: dict[tuple[int, frozenset[Any]], BackwardEffect] = {}

    def now(self) -> BackwardEffect | None:
        """The condition of the node that runs now; None if it runs in every backward."""
        if not self.run.visits:
            return None
        turn = self.run.visits[-1]
        every = (1 << len(self.results)) - 1
        reach = _reached(turn.node, self.sinks)
        if turn.arrived == every and reach >= self.reach:
            return None
        key = turn.arrived, reach
        if key not in self.found:
            arrived = [role for k, role in enumerate(self.results) if turn.arrived >> k & 1]
            self.found[key] = BackwardEffect(_DRAWS, frozenset(arrived), reach)
        return self.found[key]

    # Note [no gradient is not zeros]
    #     class Count(al.autograd.Function): ...; backward = lambda ctx, g: g.ones_like()
    #     y, z = Count.apply(x), x * 2
    #     z.sum().backward()
    # Eager does not run Count's backward, since no gradient arrives for y: x.grad is 2. The joint
    # graph is recorded with both tangents, and run with zeros for y's: Count would add 1. For
    # formulas of ops zeros in give zeros out; users' Python may give anything. So what it gives is
    # where(arrived, grad, 0), and `arrived` is an input of the backward, a constant once a variant
    # of it is specialized for the tangents that arrive.
    def guarded(self, grad: Tensor, bits: int) -> Tensor:
        """`where(arrived, grad, 0)`, for a gradient of users' code (TAN-8).

        `bits` are the results of which one's gradient has to arrive. Note [no gradient is not
        zeros]. Of a wrapper the differentiable parts are guarded; a mask of bools stays.
        """
        if is_wrapper(grad):
            parts = inner_tensors(grad).items()
            return rebuilt_wrapper(self.recorder, grad, {k: self._part(x, bits) for k, x in parts})
        arrived = frozenset([role for k, role in enumerate(self.results) if bits >> k & 1])
        flag = Tensor(Storage(None, capture=self.recorder), tensor_meta((), None, bool_))
        flag.value = self.recorder.streams.flag(arrived)
        guarded: Tensor = flag.where(grad, 0)
        return guarded

    def _part(self, part: Tensor, bits: int) -> Tensor:
        """A guarded part of a wrapper gradient, with the part's own strides."""
        if not part.dtype.is_differentiable:
            return part
        guarded = self.guarded(part, bits)
        same = guarded.meta is part.meta
        return guarded if same else guarded.restride(part.meta.stride)


_DRAWS = "draws from the generator"
"""No op has an effect of this name."""


def has_backward_effects(nodes: Iterable[Node]) -> bool:
    """Whether a recorded backward has effects, or draws random numbers."""
    return any(n.phase is Phase.BACKWARD and type(n.target) in _LATE for n in nodes)


_LATE = (EffectOp, RandomOp)


def has_observable_effects(recorder: Trace, start: int, late_inputs: Sequence[object]) -> bool:
    """Whether a program can observe the backward, apart from its gradients (TOK-4, RNG-5).

    It has effects, draws, writes memory of the forward, or reads inputs that only it reaches.
    """
    nodes = recorder.nodes[start:]
    draws = recorder.streams.after_backward() is not None
    return (
        draws or bool(late_inputs) or has_backward_effects(nodes) or any(map(writes_forward, nodes))
    )


def writes_forward(node: Node) -> bool:
    """Whether a node of the backward writes memory of the forward (FUN-31)."""
    return isinstance(node.target, InplaceOp) and storage_root(node).phase is Phase.FORWARD


def what_happens(nodes: Sequence[Node], start: int) -> str:
    """A phrase on what the nodes from `start` on do besides computing; empty if nothing."""
    new = set(nodes[start:])
    for node in nodes[start:]:
        if type(node.target) is EffectOp:
            return "has effects"
        if isinstance(node.target, (InplaceOp, GeometryOp)) and storage_root(node) not in new:
            return "writes memory that is not its own"
    return ""


def refuse_repeated_writes(nodes: Iterable[Node]) -> None:
    """Refuses to record a backward again that wrote memory of the forward: it would write twice."""
    for node in nodes:
        if writes_forward(node):
            raise noted(
                UnsupportedError(
                    f"joint: {node.target.name} in a backward writes memory of the forward, "
                    "and another part of the backward fails, expected one that does not"
                ),
                describe(node.location),
                "Write after the backward, or write to a clone().",
            )


def backward_effects(
    nodes: Sequence[Node],
    turns: Sequence[NodeVisit],
    results: Sequence[Result],
    sinks: Mapping[TapeNode, object],
    wrappers: Container[Node],
) -> tuple[BackwardEffect, ...]:
    """The effects among recorded nodes. `turns` are those of the run that recorded them, `results`
    those whose gradients it started from; `sinks` say which input's gradient each node collects.
    Nodes that are `wrappers` are effects on their parts.
    """
    starts = [turn.start for turn in turns]
    found = []
    for place, node in enumerate(nodes):
        is_effect = node.phase is Phase.BACKWARD and type(node.target) is EffectOp
        if is_effect and node not in wrappers:
            turn = turns[bisect_right(starts, place) - 1]
            arrived = [role for k, role in enumerate(results) if turn.arrived >> k & 1]
            reach = _reached(turn.node, sinks)
            found.append(BackwardEffect(node.target.effect, frozenset(arrived), reach))
    return tuple(found)


def _reached(start: TapeNode, sinks: Mapping[TapeNode, object]) -> frozenset[Any]:
    """The inputs to which a tape node leads; that of a sink itself."""
    found: set[Any] = set()
    seen = {start}
    stack = [start]
    while stack:
        node = stack.pop()
        if node in sinks:
            found.add(sinks[node])
            continue
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return frozenset(found)
