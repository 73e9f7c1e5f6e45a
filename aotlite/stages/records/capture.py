"""What stage 1 hands on: the captured graph, its inputs and results.

Spec: `specs/s1_capture.md`. Rules: META-2..META-16.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from optree import PyTreeSpec

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import ViewRoot
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Family, Hidden, Output, Part, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.call_effects import GradWrite, RegisteredHook

if TYPE_CHECKING:
    pass


InputRole = Primal | Hidden | Part


SourceRole = InputRole | Family
"""Whose gradient is collected."""


# ------------------------------------------------------------------------------- 1 capture
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


class NumpyResult(enum.Enum):
    """What a result is to its caller, where the function made it of an ndarray."""

    ARRAY = "array"
    SCALAR = "scalar"


@attrs.frozen(eq=False, repr=False)
class Containers(Record):
    """The containers that results come in, and what is put into them in place of tensors."""

    spec: PyTreeSpec | None = None
    """The lists, tuples and dicts, as optree has them; None for results that nobody is given."""
    numpy_results: tuple[NumpyResult | None, ...] = ()
    """For each flat result; None where it is given as it is (NDA-5)."""


@attrs.frozen(eq=False, repr=False)
class Captured(Record):
    """One run of the user's function on fake tensors: the graph it recorded, and its living
    tape.
    """

    graph: Graph
    recorder: Any
    inputs: tuple[CapturedInput, ...]
    results: tuple[Any, ...]
    """Flat results: fake tensors, `ArgumentLeaf`, or plain values."""
    grad_mode_before: bool | None
    grad_mode_after: bool | None
    families: tuple[CapturedFamily, ...] = ()
    late: tuple[tuple[Tensor, Tensor], ...] = ()
    """Fakes of inputs that should share a root, and were met too late for that."""
    reach: Mapping[InputRole, tuple[int, int]] = {}
    """Of inputs of which more is seen than they span: the first and last elements, from theirs."""
    parts: tuple[Part, ...] = ()
    """What the last results are the inner tensors of (SUB-13)."""
    grads: tuple[GradWrite, ...] = ()
    """What becomes the `.grad` of inputs: results behind the function's own."""
    hooks: tuple[tuple[RegisteredHook, Any], ...] = ()
    """What each call registers, and the functions."""
    containers: Containers = Containers()
    """What the flat results come in."""

    def role_of(self, index: int) -> Output | Part:
        """The role of result number `index`."""
        own = len(self.results) - len(self.parts)
        return Output(index) if index < own else self.parts[index - own]

    def index_of(self, role: Output | Part) -> int:
        """The number of the result with this role."""
        if isinstance(role, Output):
            return role.index
        return len(self.results) - len(self.parts) + self.parts.index(role)

    @property
    def sources(self) -> tuple[CapturedInput | CapturedFamily, ...]:
        """Where gradients can be collected: at inputs, and at the bases of families."""
        return (*self.inputs, *self.families)


@attrs.frozen(repr=False)
class ArgumentLeaf(Record):
    """A result that is the caller's own argument object number `index` and no tensor."""

    index: int
