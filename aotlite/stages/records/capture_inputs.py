"""The inputs of a captured function: their fakes, and where gradients for them are collected.

Spec: `specs/s1_capture.md`. Rules: META-2, SYN-7.
"""

from __future__ import annotations

import attrs

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import ViewRoot
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Family, Hidden, Part, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record

InputRole = Primal | Hidden | Part


SourceRole = InputRole | Family
"""Whose gradient is collected."""


@attrs.frozen(eq=False, repr=False)
class CapturedInput(Record):
    """A tensor that the captured function was given, or reached."""

    role: InputRole
    placeholder: Node
    fake: Tensor
    entry: Edge | None
    """Where gradients for it are collected, taken before any op ran on it."""
    entry_meta: TensorMeta
    entry_offset: int
    is_leaf: bool
    requires_grad: bool
    """At entry; it may have no `entry` all the same: a view made under no_grad (TEN-21)."""
    place: str
    """How a person finds it: `argument 0['x']`, `model.weight`."""
    storage: Storage
    """The fake storage at entry: `set_` can have put the fake elsewhere since."""
    memory: int = 0
    """The same for inputs on one memory: a hidden alias has a storage of its own (TEN-5)."""
    leaf_entry: Edge | None = None
    """Where it collects as the leaf that the function made of it (FUN-36)."""
    family: Family | None = None
    """Of those that overlap and are views of one base."""
    entry_chain: ViewChain = EMPTY_CHAIN
    """The views from the family's base to it, at entry."""

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edges at which its gradient is collected."""
        return tuple([edge for edge in (self.entry, self.leaf_entry) if edge is not None])


@attrs.frozen(eq=False, repr=False)
class CapturedFamily(Record):
    """Captured inputs that overlap and are views of one base, with the root that they share."""

    role: Family
    root: ViewRoot
    entry: Edge | None
    """Where the gradient of the base is collected; None where it does not require grad."""
    outside: ViewRoot
    """The caller's root."""
    members: list[InputRole]

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edge at which the base's gradient is collected, if it goes anywhere."""
        return () if self.entry is None else (self.entry,)
