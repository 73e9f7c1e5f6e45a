"""The history of gradients that a compiled backward gives with grad mode on: it raises.

Used by stage 10 alone. Rule: DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.node import Edge, TapeNode, next_sequence
from aotlite.ir.errors import AutogradError, noted


class DoubleBackward(TapeNode):
    """Raises when a gradient of a compiled backward is differentiated again (DBL-1)."""

    __slots__ = ()

    def __init__(self, edges: list[Edge | None]) -> None:
        self.edges = tuple(edges)
        self.sequence = next_sequence()
        self.origin = self.extra = None

    def run(self, grads: list[Any]) -> Sequence[Any]:
        raise noted(
            AutogradError(
                "backward: a gradient computed by a compiled function is differentiated, expected "
                "first derivatives only"
            ),
            "Differentiate the eager function for derivatives of higher order. (DBL-1)",
        )


def forbid_second_order(
    found: list[Any], edges: Sequence[Edge | None], grads: Sequence[Any]
) -> None:
    """The gradients depend on all that the inputs and the incoming gradients depend on."""
    arriving = [None if grad is None else edge_of(grad) for grad in grads]
    node = DoubleBackward([*edges, *arriving])
    for grad in found:
        if grad is not None:
            grad._node, grad._index, grad.facts = node, 0, None
