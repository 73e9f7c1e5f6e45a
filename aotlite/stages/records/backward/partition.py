"""What stage 8 hands on: a joint graph cut in two, and what is kept in between.

Rules: SAV-1, SAV-4. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, IntermediateBase, MutatedInput, Output, Saved
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import InputRole


@attrs.frozen(eq=False, repr=False)
class SavedValue(Record):
    """A value kept for the backward (SAV-1)."""

    name: str
    meta: TensorMeta
    owner: InputRole | Output | MutatedInput | IntermediateBase | None
    """In whose memory this lies; None if nobody else sees it. A `MutatedInput` is the new value of
    an argument, in memory of the graph's own: the call copies it into the argument."""
    reason: str
    lent: bool = False
    """The owner may write that memory before the backward: it is copied before (PART-37)."""
    guarded: bool = False
    """The backward reads that memory as eager's does, and computes again from it (PART-40)."""


@attrs.frozen(eq=False, repr=False)
class Partition(Record):
    """A joint graph cut in two. The forward's last outputs are the saved values, in order."""

    forward: Graph
    backward: Graph | None
    saved: tuple[SavedValue, ...]
    no_backward: str = ""
    """Why there is no backward, where that is known."""

    @property
    def gradients(self) -> tuple[Any, ...]:
        """The inputs that the backward's outputs are the gradients of, in order."""
        if self.backward is None:
            return ()
        return tuple(r.of for r in self.backward.output_roles if isinstance(r, Gradient))

    @property
    def lent(self) -> tuple[tuple[int, Any], ...]:
        """Numbers of the saved values that are lent, each with its owner (PART-37)."""
        return tuple([(i, value.owner) for i, value in enumerate(self.saved) if value.lent])

    @property
    def guarded(self) -> tuple[tuple[int, Any], ...]:
        """Numbers of the saved values that are guarded, each with its owner (PART-40)."""
        return tuple([(i, value.owner) for i, value in enumerate(self.saved) if value.guarded])

    @property
    def donated(self) -> tuple[Saved, ...]:
        """Saved values that a backward which retains nothing may overwrite (SAV-4).

        Each is memory that nobody else has: no input, no result, and no other saved value.
        """
        values = self.forward.outputs_with(Saved)
        roots = [storage_root(value) for _, value in values]
        return tuple(
            [
                role
                for (role, _), root, saved in zip(values, roots, self.saved, strict=True)
                if saved.owner is None and root.op == "call" and roots.count(root) == 1
            ]
        )
