"""`steps`: the engine's step for one tape node, which pauses wherever Python may run.

The engine calls hooks and formulas inside of `BackwardPass._step`. Here the same step is a
generator. At each pause somebody else decides: a recording puts a call into the graph, a graph that
runs calls the hook, and a run that has left its graph goes on as the engine does.

    tensor_pre_hook ... retain_grad ... node_pre_hook ... run ... node_post_hook
    of a leaf:  ... accumulate_grad, post_acc_grad_hook ... in place of run

Rules: CAG-8, CAG-9, CAG-25. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import attrs

from aotlite.eager.autograd.engine import BackwardPass
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad, accumulate, collects
from aotlite.eager.base.tape.hooks import alike, all_alike, retain
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor

RUN = "run"
ACCUMULATE = "accumulate_grad"
RETAIN = "retain_grad"
OF_TENSOR, OF_NODE, AFTER_NODE, AFTER_LEAF = (
    "tensor_pre_hook",
    "node_pre_hook",
    "node_post_hook",
    "post_acc_grad_hook",
)


@attrs.frozen
class Pause:
    """A place in a step at which Python runs."""

    kind: str
    index: int = 0
    """The number of the node's result, for hooks of tensors and retained gradients."""
    hook: Callable[..., Any] | None = attrs.field(default=None, eq=False)

    @property
    def told(self) -> tuple[str, int]:
        """What two pauses at the same place have in common."""
        return self.kind, self.index


Pauses = Generator[Pause, Any, None]


@attrs.define(eq=False)
class NodeStep:
    """The gradients of a node whose step has begun: they are in flight like those of `State`."""

    node: TapeNode
    grads: list[Any] | None
    """Those of its results; None if none has arrived."""
    found: list[Any] | None = None
    """Those of its edges, once there are some."""
    leaf: Tensor | None = None
    """The leaf of an `AccumulateGrad`, which lives until its hooks have run."""

    def args(self, pause: Pause) -> tuple[Any, ...]:
        """The arguments of the hook."""
        grads: Any = self.grads
        if pause.kind == OF_TENSOR:
            return (grads[pause.index],)
        if pause.kind == OF_NODE:
            return (tuple(grads),)
        if pause.kind == AFTER_NODE:
            return tuple(self.found or ()), tuple(grads)
        return (self.leaf,)


def steps(run: BackwardPass, step: NodeStep) -> Pauses:
    """The step of a node, as `BackwardPass._step` takes it, up to the gradients of its edges.

    What is sent to a pause is the hook's result, or the gradients that the node gives.
    """
    node, sinks = step.node, run.sinks
    if step.grads is None:
        return
    useful = sinks is None or node in sinks.useful
    extra = node.extra
    if extra is not None and (
        sinks is None or useful or node in sinks.wanted or node in sinks.starts
    ):
        yield from _before(step, extra)
    if sinks is not None and not sinks.accumulate:
        for index, slot in sinks.wanted.get(node, ()):
            run.collected[slot] = step.grads[index]
    if not useful:
        return
    if extra is not None:
        for hook in list(extra.pre.values()):
            given = yield Pause(OF_NODE, hook=hook)
            step.grads = all_alike(hook, given, step.grads)
    if type(node) is AccumulateGrad and node.collected and not node.chain:
        yield from _of_leaf(node, step)
    else:
        step.found = list((yield Pause(RUN)))
    if extra is not None and extra.post:
        step.found = node.spread(step.found or ())
        for hook in list(extra.post.values()):
            given = yield Pause(AFTER_NODE, hook=hook)
            step.found = list(all_alike(hook, given, list(step.found)))
        step.found = node.gathered(step.found)


def _before(step: NodeStep, extra: Any) -> Pauses:
    """The hooks of the tensors, then the gradients that are retained."""
    grads: Any = step.grads
    for index, hooks in extra.tensors.items():
        is_called = step.node.hears_absent or grads[index] is not None
        for hook in list(hooks.values()) if is_called else ():
            given = yield Pause(OF_TENSOR, index, hook)
            if given is not None:
                grads[index] = alike(hook, given, grads[index])
    for index, reference in extra.retained.items():
        if reference() is not None and grads[index] is not None:
            yield Pause(RETAIN, index)


def _of_leaf(node: AccumulateGrad, step: NodeStep) -> Pauses:
    """The sum into the `.grad` of a leaf, and the hooks behind it."""
    step.leaf, step.found = node.leaf, []
    grads: Any = step.grads
    if step.leaf is None or grads[0] is None:
        return
    yield Pause(ACCUMULATE)
    for hook in list(node.collected.values()):
        yield Pause(AFTER_LEAF, hook=hook)


def performed(run: BackwardPass, step: NodeStep, pause: Pause) -> Any:
    """Does what is due at a pause, with tensors; the answer for the generator."""
    grads: Any = step.grads
    if pause.kind == RUN:
        return run._run(step.node, grads)
    if pause.kind == RETAIN:
        extra: Any = step.node.extra
        retain(extra.retained[pause.index](), grads[pause.index])
        return None
    if pause.kind == ACCUMULATE:
        if collects(step.leaf):  # type: ignore[arg-type]
            accumulate(step.leaf, [grads[0]])  # type: ignore[arg-type]
        return None
    assert pause.hook is not None
    given = pause.hook(*step.args(pause))
    return None if pause.kind == AFTER_LEAF else given
