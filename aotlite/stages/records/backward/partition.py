"""Records of stage 8: a joint graph cut in two, and the values saved between the two graphs.

Rules: SAV-1, SAV-4. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter

import attrs

from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, MutatedInput, Saved
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import OwnerRole, SourceRole

SavedOwner = OwnerRole | MutatedInput


@attrs.frozen(eq=False, repr=False)
class SavedValue(Record):
    """A value that the forward saves for the backward (SAV-1)."""

    name: str
    meta: TensorMeta
    owner: SavedOwner | None
    """The input or result in whose memory it lies; None if only the graphs see that memory. A
    `MutatedInput` is the new value of an argument: the call copies it into the argument."""
    reason: str
    copied_on_write: bool = False
    """The caller may write that memory before the backward; the value is copied then (PART-37)."""
    byte_checked: bool = False
    """Eager's backward reads that memory, too, and this one recomputes from it: its bytes are
    compared with a copy where a write can go unnoticed (PART-40)."""
    lent = property(attrgetter("copied_on_write"), doc="The name in the release before.")
    guarded = property(attrgetter("byte_checked"), doc="The name in the release before.")


@attrs.frozen(eq=False, repr=False)
class Partition(Record):
    """A joint graph cut in two. The forward's last outputs are the saved values, in order."""

    forward: Graph
    backward: Graph | None
    saved: tuple[SavedValue, ...]
    no_backward: str = ""
    """Why there is no backward, where the reason is known."""
    saved_sizes: tuple[str, ...] = ()
    """The symbols that are saved as numbers, in order: no tensor of the backward has them (PART-4).
    `with_saved_sizes` finds them."""

    @property
    def result_slice(self) -> slice:
        """Where the results are among the forward's outputs: in front."""
        return slice(0, len(self.forward.outputs) - len(self.saved) - len(self.saved_sizes))

    @property
    def saved_slice(self) -> slice:
        """Where the saved values are among the forward's outputs."""
        end = len(self.forward.outputs) - len(self.saved_sizes)
        return slice(end - len(self.saved), end)

    @property
    def saved_size_slice(self) -> slice:
        """Where the saved sizes are among the forward's outputs: at the end."""
        end = len(self.forward.outputs)
        return slice(end - len(self.saved_sizes), end)

    @property
    def gradients(self) -> tuple[SourceRole, ...]:
        """The inputs whose gradients the backward returns, in order."""
        if self.backward is None:
            return ()
        return tuple(r.of for r in self.backward.output_roles if isinstance(r, Gradient))

    @property
    def copied_on_write(self) -> tuple[tuple[int, SavedOwner], ...]:
        """Numbers of the saved values that are copied on write, each with its owner (PART-37)."""
        return self._numbered([each.copied_on_write for each in self.saved])

    @property
    def byte_checked(self) -> tuple[tuple[int, SavedOwner], ...]:
        """Numbers of the byte-checked saved values, each with its owner (PART-40)."""
        return self._numbered([each.byte_checked for each in self.saved])

    def _numbered(self, chosen: Sequence[bool]) -> tuple[tuple[int, SavedOwner], ...]:
        saved = compress(enumerate(self.saved), chosen)
        return tuple([(i, each.owner) for i, each in saved if each.owner is not None])

    lent, guarded = copied_on_write, byte_checked  # the names in the release before

    @property
    def donated(self) -> tuple[Saved, ...]:
        """Saved values that a backward which retains nothing may overwrite (SAV-4).
        Each has memory of its own: that of no input, result or other saved value."""
        values = self.forward.outputs_with(Saved)
        roots = [storage_root(value) for _, value in values]
        return tuple(
            [
                role
                for (role, _), root, saved in zip(values, roots, self.saved, strict=True)
                if saved.owner is None and root.op == "call" and roots.count(root) == 1
            ]
        )
