"""Records of how a captured function changes an input's geometry and memory, by set_ and resize_.

Rules: FUN-18, TEN-25, TEN-26.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_root import ViewRoot
from aotlite.ir.graph import Node
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.metadata.function_facts import StateStep


@attrs.frozen(eq=False)
class StorageGrowth:
    """A memory that grew: in the graph another one stands for it from then on."""

    old: Node
    new: Node
    value: Node
    """That of what was resized, then."""


@attrs.frozen(eq=False)
class MetadataMutation:
    """A change of an input."""

    step: StateStep | Node
    """A node for a change of memory: the value that the input has from then on."""
    position: int
    """The number of nodes recorded before it."""


@attrs.frozen(eq=False)
class MemoryReplacement:
    """An input is put onto a storage."""

    role: InputRole
    storage: Storage
    grows: bool = False
    """It is the input's own storage, which grew."""
    left: ViewRoot | None = None
    """The family that it left, with the history that it had there."""
    history: Any = None

    def is_left_behind(self) -> bool:
        """Whether the family got another history since, of which the input knows nothing."""
        return self.left is not None and self.left.node is not self.history
