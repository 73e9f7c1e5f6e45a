"""`BackwardPlan`: the facts that the backwards of all calls of an entry share.

Made by `plan_backward`, read by the tape node of each call.
Rules: TAN-1..TAN-9, SAV-1, SAV-2, DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from aotlite.backends.calling_convention import Value
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.graph.role import Role, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.records.backward.joint import BackwardFacts
from aotlite.stages.records.backward.partition import SavedOwner
from aotlite.stages.records.capture_inputs import SourceRole

Absent = frozenset[Any]
"""Results whose gradients do not arrive in a backward, and effects that do not happen in it."""
NOTHING_ABSENT: Absent = frozenset()
UNREAD: tuple[Storage, int] = (Storage(None), 0)
"""Stands for the saved version of a tensor that is not checked: no further backward reads it."""


class BackwardVariants(Protocol):
    """The backward functions by their absent tangents (`backward/variants.py`)."""

    graph: Graph
    whole: Any
    """The backward for all tangents; None until it is made."""

    def needed(self, absent: Absent, plan: BackwardPlan) -> frozenset[int]:
        """The numbers of the saved values that the backward without these tangents reads."""
        ...

    def step(self, absent: Absent, plan: BackwardPlan) -> Any:
        """The backward without these tangents, made on first use."""
        ...


class DifferentiableBackward(Protocol):
    """The backward as a function to differentiate (`backward/double_backward.py`)."""

    incoming: Any

    def step(self, plan: BackwardPlan, absent: Absent, arriving: Mapping[Role, bool]) -> Any:
        """The differentiable backward for the gradients that arrive, made on first use."""
        ...


class BackwardCall(Protocol):
    """The tape node of one call (`backward/node.py`), as its parts see it."""

    plan: BackwardPlan
    saved_versions: Sequence[tuple[Storage, int]]
    memory: tuple[Tensor, ...]
    memory_versions: Sequence[int]

    @property
    def sources(self) -> dict[Role, Edge | None]:
        """Where the gradients go, by the inputs' roles; a new dict."""
        ...

    def begin_order(self, made: object) -> None: ...


@attrs.frozen(eq=False, repr=False)
class Derivatives:
    """How a backward is differentiated."""

    orders: DifferentiableBackward | None = None
    """The differentiable backwards (DBL-2); None where differentiating is refused (DBL-1)."""
    why: str = ""
    """Why it is refused, or why `splits` is False."""
    splits: bool = True
    """A gradient may arrive in parts: the backward is linear in it (DBL-1)."""
    order: int = 1
    """The order of the derivatives that the backward computes (DBL-2)."""
    higher_order_inputs: tuple[SourceRole, ...] = ()
    """Inputs that get no gradient here, and may get one from a derivative of this one (DBL-2)."""


@attrs.frozen(eq=False, repr=False)
class BackwardPlan:
    """All that a compiled backward needs, apart from the values that one call saves.

    `facts` are those of stage 4, which hold for every graph of this backward; the other fields are
    of the graph that stage 8 has cut off.
    """

    variants: BackwardVariants | None
    """None if no gradient reaches an input: the backward then checks versions only."""
    tangents: tuple[tuple[ResultRole, TensorMeta], ...]
    """Differentiable results in order, each with the layout expected of its gradient."""
    gradients: tuple[tuple[SourceRole, TensorMeta | None], ...]
    """The inputs, each with the meta of its gradient; None where no result leads to it."""
    facts: BackwardFacts
    derivatives: Derivatives
    number: int = 0
    """The number of the compilation (GEN-9)."""
    only_leaves: bool = False
    """Whether every input that gets a gradient is a leaf."""
    copied_on_write: tuple[tuple[int, SavedOwner], ...] = ()
    """Saved values in memory that the caller may write, each with that memory's owner: they are
    copied before a write (PART-37)."""
    byte_checked: tuple[tuple[int, SavedOwner], ...] = ()
    """Saved values that eager's backward reads, too, and from which this one recomputes what eager
    has saved; each with that memory's owner (PART-40)."""
    edge_order: tuple[int, ...] | None = None
    """The places of the gradients in eager's order of arrival; None if that is their order here
    (CAG-10)."""
    write_observed: tuple[tuple[int, SavedOwner], ...] = attrs.field(init=False)
    """Saved values of both kinds: storages call the node before they are written."""
    wrapped: tuple[bool, ...] = attrs.field(init=False)
    """Whether each tangent is a wrapper."""

    @write_observed.default
    def _borrowed(self) -> tuple[tuple[int, SavedOwner], ...]:
        return (*self.copied_on_write, *self.byte_checked)

    @wrapped.default
    def _wrapped(self) -> tuple[bool, ...]:
        return tuple([Tangent(role) in self.facts.subclass_metas for role, _ in self.tangents])

    may_reopen: bool = attrs.field(init=False)
    """Whether a result can have a second backward, or one after another result's (SAV-1)."""

    @may_reopen.default
    def _may_reopen(self) -> bool:
        facts = self.facts
        if facts.effects or facts.memory or facts.final_rng_state or facts.arrival_choices:
            return False
        return len(self.tangents) > 1 or not facts.run_once_nodes

    def left(self, values: Sequence[Value | None], closed: Absent) -> list[Value | None]:
        """The saved values that backwards without these results read; None for the others."""
        if not closed or self.variants is None:
            return list(values)
        needed = self.variants.needed(closed, self)
        return [value if index in needed else None for index, value in enumerate(values)]

    def closed(self, arrived: Absent) -> Absent:
        """Results whose backward raises after one with gradients of `arrived`."""
        bits, spent = self.facts.reads.bits_among(arrived), 0
        for each, _ in self.facts.run_once_nodes:
            spent |= each if each & bits else 0
        return self.facts.reads.results_of(spent)

    def asks_without(self, absent: Absent) -> bool:
        """Whether an arriving gradient passes a node of eager's tape that reads saved tensors."""
        bits = self.facts.reads.bits_without(absent)
        return any(asks and each & bits for each, asks in self.facts.run_once_nodes)

    @property
    def saved_tensors(self) -> tuple[SavedOf, ...]:
        """The tensors of the facts' `reads`, each once."""
        return self.facts.reads.saved_tensors

    def read(self, absent: Absent) -> list[bool]:
        """Whether an arriving gradient reads each of `saved_tensors`."""
        return self.facts.reads.read_by(self.facts.reads.bits_without(absent))

    def reached(self, absent: Absent) -> set[SourceRole]:
        """The inputs to which the arriving gradients flow."""
        return {
            of
            for role, _ in self.tangents
            if role not in absent
            for of in self.facts.receiving_inputs[role]
        }


def copied_error(error: Exception) -> Exception:
    """A copy of an error for one call; the same object if a user's class cannot be copied.

    The plan's errors are raised by each call's backward, and notes are added to them there.
    """
    try:
        made = copy.copy(error)
        if hasattr(error, "__notes__"):
            made.__notes__ = list(error.__notes__)
        return made
    except Exception:  # whatever its __init__ or __reduce__ raises
        return error
