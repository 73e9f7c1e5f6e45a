"""Records of a captured function's inputs: their fakes, and the edges that collect gradients.

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
from aotlite.ir.graph.role import Family, Hidden, Incoming, IntermediateBase, Output, Part, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record

InputRole = Primal | Hidden | Part
SourceRole = InputRole | Family | Output | Incoming
"""Whose gradient is collected: an input, a family, a result that retains its gradient; at a later
order also a tangent of an earlier one (DBL-2)."""
OwnerRole = InputRole | Output | IntermediateBase | Incoming
"""Whose memory code outside the graph may write after the call."""


@attrs.frozen(eq=False, repr=False)
class CapturedInput(Record):
    """A tensor that the captured function got as an argument, or reached outside."""

    role: InputRole
    placeholder: Node
    fake: Tensor
    entry: Edge | None
    """The edge that collects its gradient, taken before any op ran on it."""
    entry_meta: TensorMeta
    entry_offset: int
    is_leaf: bool
    """As `Tensor.is_leaf` at entry: so is each input that does not require grad."""
    requires_grad: bool
    """Whether it requires grad at entry; a view made under no_grad has no `entry` (TEN-21)."""
    place: str
    """Its place in words: `argument 0['x']`, `model.weight`."""
    storage: Storage
    """The fake storage at entry; `set_` may have changed it since."""
    memory: int = 0
    """Equal for inputs on one memory: a hidden alias has a storage of its own (TEN-5)."""
    leaf_entry: Edge | None = None
    """The edge that collects its gradient after the function made it a leaf (FUN-36)."""
    family: Family | None = None
    """The family of overlapping inputs that are views of one base."""
    entry_chain: ViewChain = EMPTY_CHAIN
    """The views from the family's base to it, at entry."""

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edges that collect its gradient."""
        return tuple([edge for edge in (self.entry, self.leaf_entry) if edge is not None])


@attrs.frozen(eq=False, repr=False)
class CapturedFamily(Record):
    """Overlapping inputs that are views of one base, with the root that they share."""

    role: Family
    root: ViewRoot
    entry: Edge | None
    """The edge that collects the base's gradient; None if the base does not require grad."""
    outside: ViewRoot
    """The root of the caller's tensors."""
    members: list[InputRole]

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edges that collect the base's gradient: one or none."""
        return () if self.entry is None else (self.entry,)
