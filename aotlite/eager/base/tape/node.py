"""`TapeNode`: what every node of a tape has, whatever made it; and edges.

An edge (node, index) says whose gradient a tensor's gradient adds to: result `index` of `node`.
Tensors know their node, so this stands below them. The nodes of ops are in `tape`, those that
collect gradients in `leaf`, those of users' functions in `custom`. Spec: `specs/autograd.md`.
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
    """The number of the next tape node: nodes made later have a greater one (SEQ-1)."""
    return next(SEQUENCE)


LAST = 1 << 62
"""Sequence number of gradient accumulation: as soon as it is ready, it runs (TEN-27)."""


class TapeNode:
    """Base of tape nodes: what `grad_fn` gives."""

    __slots__ = ("__weakref__", "edges", "extra", "origin", "sequence")

    edges: tuple[Edge | None, ...]
    sequence: int
    origin: Any
    """The graph node whose op made this, while a function is captured."""
    extra: NodeAttachments | None
    """What few nodes have: hooks, and where they were made (TEN-39, TEN-43)."""
    hears_absent: ClassVar = True
    """Whether hooks on results are called with None where the gradients of others arrived."""

    # --- for users
    def name(self) -> str:
        """The op's name in the form of a class: `MulBackward`."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[TapeNode | None, int], ...]:
        """Where the gradients go: a node and the number of its result for each operand."""
        return tuple([(None, 0) if edge is None else edge for edge in self.spread(self.edges)])

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for whatever users want to note about the node."""
        return self.attachments().metadata

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)` after the node ran; a tuple replaces the former."""
        self._forbid_outside("register_hook")
        return RemovableHandle.of(self.attachments().post, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before the node runs; a tuple that it gives replaces them."""
        self._forbid_outside("register_prehook")
        return RemovableHandle.of(self.attachments().pre, fn)

    def is_outside(self) -> bool:
        """Whether it stands, in a captured function, for the history of a tensor from outside."""
        return False

    def _forbid_outside(self, what: str) -> None:
        if STATE.recorder is None:
            return
        STATE.recorder.unrecorded = True  # no op is left behind that says so
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

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """Values for the edges as users see them: None for operands that have no edge."""
        return list(values)

    def gathered(self, values: Sequence[Any]) -> list[Any]:
        """What belongs to the edges of values as users see them."""
        return list(values)

    @property
    def edges_in_order(self) -> Sequence[Edge | None]:
        """The edges in the order in which the nodes behind them are told of this one."""
        return self.edges

    def results(self) -> int:
        """Number of results of the op, that is of gradients `run` takes."""
        return 1

    def formed(self, index: int, grad: Any) -> Any:
        """A gradient of result `index` in the form that those of such a tensor have (SHD-15)."""
        form = None if self.extra is None else self.extra.forms.get(index)
        return grad if form is None else form(grad)

    def leaf_nodes(self) -> list[Any] | None:
        """Where the edges lead, if each leads to a leaf of its own: no engine is needed (`single`).

        An `AccumulateGrad`, or None, for each edge. None where it is otherwise, or not known.
        """
        return None

    def gradients(self, grads: Gradients) -> list[Any]:
        """`run` for a node with `leaf_nodes`: without a history, whatever the grad mode."""
        raise AssertionError(f"{self.name()} has an engine run it")

    def run(self, grads: Gradients) -> Sequence[Any]:
        """Gradients for the edges, None where nothing flows."""
        raise AssertionError(f"{self.name()} says how it runs")

    def run_for(self, grads: Gradients, wanted: Sequence[bool]) -> Sequence[Any]:
        """`run` where gradients are asked for at some of the edges; others may be None."""
        return self.run(grads)

    def look_inside(self, grads: Gradients, wanted: Sequence[bool] | None) -> bool:
        """Raises, in anomaly mode, what an op that this is made of raises, or a nan that it gives.

        Where it is True, there is nothing left to look at. `wanted` is None where all is. (JNT-8)
        """
        return False

    def kept_records(self) -> list[Any]:
        """What `run` unpacks, each a `SavedTensor`."""
        return []

    def kept_tensors(self) -> list[Any]:
        """What `run` unpacks, checking versions; not what hooks have packed."""
        return [each for record in self.kept_records() for each in record.checked()]

    def release(self) -> None:
        """Drops what was saved; a second backward then raises."""

    def is_spent_once(self) -> bool:
        """Whether a second backward through it raises, once it has released what it had saved."""
        return bool(self.kept_records())


def refuse_outside() -> Exception:
    """The error of a backward, while a function is captured, that leaves it (CAP-6)."""
    assert STATE.recorder is not None
    return STATE.recorder.refuse(
        "backward() into the .grad of a tensor from outside",
        "call backward outside the compiled function, or use autograd.grad inside it",
    )


def released(name: str) -> AutogradError:
    """The error of a second backward through a freed node (TEN-12)."""
    return noted(
        AutogradError(
            f"{name}: the values saved for the backward are freed, expected the first backward "
            "through this graph"
        ),
        "Pass retain_graph=True to the first backward to go through the graph again. (TEN-12)",
    )
