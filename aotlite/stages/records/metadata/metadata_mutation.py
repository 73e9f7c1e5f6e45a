"""Records of an input's changes of geometry and memory in a captured function.

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


@attrs.frozen(eq=False, repr=False)
class StorageGrowth:
    """A storage that `resize_` has grown: later nodes of the graph use another storage for it."""

    old: Node
    new: Node
    value: Node
    """The value of the resized tensor at that time."""


@attrs.frozen(eq=False, repr=False)
class MetadataMutation:
    """A change of an input."""

    step: StateStep | Node
    """A node for a change of memory: the value that the input has from then on."""
    position: int
    """The number of nodes recorded before it."""


@attrs.frozen(eq=False, repr=False)
class MemoryReplacement:
    """An input gets another storage."""

    role: InputRole
    storage: Storage
    grows: bool = False
    """Whether it is the input's own storage, which grew."""
    left: ViewRoot | None = None
    """The view family that it left, with its history there."""
    history: Any = None
    before: Node | None = None
    """The value that the input had; None where its storage grows."""

    def is_left_behind(self) -> bool:
        """Whether the family has got another history since."""
        return self.left is not None and self.left.node is not self.history
