"""`TapeNode`: the base class of tape nodes, PyTorch's `autograd.graph.Node`; and edges.

An edge (node, index) of a tensor is where its gradient goes: to result `index` of `node`.

    y = x * 2       y's edge: (MulBackward, 0)       MulBackward.edges: [(AccumulateGrad of x, 0)]

Subclasses: `OpNode`, `SliceAssign` (a write through a view), `AccumulateGrad`, `CustomNode`,
`CompiledBackward` (a compiled call), and a few of features. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.hooks import NodeAttachments, RemovableHandle
from aotlite.ir.errors import AutogradError, noted

Edge = tuple[Any, int]
Gradients = list[Any]

SEQUENCE = itertools.count()


def next_sequence() -> int:
    """The number of the next tape node. Later nodes have greater numbers (SEQ-1)."""
    return next(SEQUENCE)


LAST = 1 << 62
"""The sequence number of AccumulateGrad nodes, which run as soon as they are ready (TEN-27)."""


class TapeNode:
    """Base class of tape nodes; `grad_fn` of a tensor is one."""

    __slots__ = ("__weakref__", "edges", "extra", "origin", "sequence")

    edges: tuple[Edge | None, ...]
    sequence: int
    origin: Any
    """While a function is captured: the graph node whose op made this node."""
    extra: NodeAttachments | None
    """Hooks, and the stack that made the node; None for most nodes (TEN-39, TEN-43)."""
    hears_absent: ClassVar = True
    """Whether hooks of a result without a gradient are called with None."""

    # --- for users
    def name(self) -> str:
        """The name of the node, from that of its op: `MulBackward`."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[TapeNode | None, int], ...]:
        """The edge of each operand: (node, number of its result)."""
        return tuple([(None, 0) if edge is None else edge for edge in self.spread(self.edges)])

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for users' data about the node."""
        return self.attachments().metadata

    def register_hook(self, fn: Callable[..., object]) -> RemovableHandle:
        """Registers `fn(grad_inputs, grad_outputs)`, which may return other grad_inputs."""
        self._forbid_outside("register_hook")
        return RemovableHandle.of(self.attachments().post, fn)

    def register_prehook(self, fn: Callable[..., object]) -> RemovableHandle:
        """Registers `fn(grad_outputs)`, which may return other `grad_outputs` for the node."""
        self._forbid_outside("register_prehook")
        return RemovableHandle.of(self.attachments().pre, fn)

    def is_outside(self) -> bool:
        """Whether it is, in a captured function, the history of a tensor from outside."""
        return False

    def _forbid_outside(self, what: str) -> None:
        if STATE.recorder is None:
            return
        STATE.recorder.unrecorded = True  # no op in the graph shows this change
        if self.is_outside():
            raise STATE.recorder.refuse(
                f"{what} of the node of a tensor from outside",
                "register the hook outside the compiled function",
            )

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    # --- for the engine
    def attachments(self) -> NodeAttachments:
        """The node's `extra`, made if it has none."""
        if self.extra is None:
            self.extra = NodeAttachments()
        return self.extra

    def spread(self, values: Sequence[object]) -> list[Any]:
        """Values of the edges, with a None inserted for each operand without an edge, for users."""
        return list(values)

    def gathered(self, values: Sequence[object]) -> list[Any]:
        """The inverse of `spread`: drops the values of operands without an edge."""
        return list(values)

    @property
    def edges_in_order(self) -> Sequence[Edge | None]:
        """The edges in the order in which the engine counts them as passed."""
        return self.edges

    def results(self) -> int:
        """The number of results of the op, and of gradients that `run` takes."""
        return 1

    def formed(self, index: int, grad: Any) -> Any:
        """A gradient of result `index`, converted to the gradient form of that result (SHD-15)."""
        form = None if self.extra is None else self.extra.forms.get(index)
        return grad if form is None else form(grad)

    def leaf_nodes(self) -> list[Any] | None:
        """The AccumulateGrad, or None, of each edge, if all edges lead to different leaves.

        Then no engine is needed (`single`). None where an edge leads elsewhere, or it is unknown.
        """
        return None

    def gradients(self, grads: Gradients) -> list[Any]:
        """`run` for a node with `leaf_nodes`; the results have no history, in any grad mode."""
        raise AssertionError(f"{self.name()} has an engine run it")

    def run(self, grads: Gradients) -> Sequence[Any]:
        """The gradients of the edges, from those of the results; None for no gradient."""
        raise AssertionError(f"{self.name()} says how it runs")

    def run_for(self, grads: Gradients, wanted: Sequence[bool]) -> Sequence[Any]:
        """`run` for some of the edges; the gradients of others may be None."""
        return self.run(grads)

    def kept_records(self) -> list[Any]:
        """The `SavedTensor`s that `run` unpacks."""
        return []

    def kept_tensors(self) -> list[Any]:
        """The tensors that `run` unpacks, with version checks; not those packed by hooks."""
        return [each for record in self.kept_records() for each in record.checked()]

    def release(self) -> None:
        """Frees the saved values; a second backward raises then."""

    def is_spent_once(self) -> bool:
        """Whether a second backward through the node raises after `release`."""
        return bool(self.kept_records())


def refuse_outside() -> Exception:
    """The error for a backward in a captured function that reaches a history outside (CAP-6)."""
    assert STATE.recorder is not None
    return STATE.recorder.refuse(
        "backward() into the .grad of a tensor from outside",
        "call backward outside the compiled function, or use autograd.grad inside it",
    )


def released(name: str) -> AutogradError:
    """The error for a second backward through a freed node (TEN-12)."""
    return noted(
        AutogradError(
            f"{name}: the values saved for the backward are freed, expected the first backward "
            "through this graph"
        ),
        "Pass retain_graph=True to the first backward to go through the graph again. (TEN-12)",
    )
