"""What the backwards of all calls of an entry have in common, and which results they are without.

Made by `plan_backward`, read by the tape node of each call.
Rules: TAN-1..TAN-9, SAV-1, SAV-2, DBL-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from aotlite.backends.calling_convention import Value
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.graph.role import Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.backward.gradient_reads import GradientReads, SavedOf
from aotlite.stages.records.backward.joint import ArrivalChoice, BackwardEffect, BackwardMemory
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.rng_state import FinalRngState
from aotlite.stages.shared.required_tangents import RequiredArrivals

Absent = frozenset[Any]
"""Results to which no gradient arrives in a backward, and effects that do not happen in it."""
NOTHING_ABSENT: Absent = frozenset()


class BackwardVariants(Protocol):
    """The backward functions by their absent tangents (`backward/variants.py`)."""

    graph: Graph
    arrivals: tuple[frozenset[ResultRole], ...]
    whole: Any
    """The backward that lacks nothing, once it is made."""

    def needed(self, absent: Absent, plan: BackwardPlan) -> frozenset[int]:
        """The numbers of the saved values that the backward without these tangents reads."""
        ...

    def step(self, absent: Absent, plan: BackwardPlan) -> Any:
        """The backward without these tangents, made on first use."""
        ...


class HigherOrders(Protocol):
    """The backward as a function to differentiate (`backward/double_backward.py`)."""

    incoming: Any

    def step(self, plan: BackwardPlan, absent: Absent, arriving: Mapping[Any, bool]) -> Any:
        """The differentiable backward for the gradients that arrive, made on first use."""
        ...


class NanChecks(Protocol):
    """The checks of anomaly mode on the ops within a backward (`backward/anomaly.py`)."""

    def look(self, call: Any, grads: Sequence[Any], wanted: Sequence[bool] | None) -> Any:
        """Runs the checks for one call of the backward."""
        ...


class BackwardCall(Protocol):
    """The tape node of one call (`backward/node.py`), as its parts see it."""

    plan: BackwardPlan
    saved: list[Value] | None
    links: Sequence[tuple[Storage, int]]
    memory: tuple[Tensor, ...]
    versions: Sequence[int]
    _lock: Any

    @property
    def sources(self) -> dict[Any, Edge | None]:
        """Where the gradients go, by the inputs' roles; a new dict."""
        ...

    def begin_order(self, made: Any) -> None: ...
    def check(self, absent: Absent) -> None: ...
    def absent(self, grads: Sequence[Any]) -> Absent: ...


@attrs.frozen(eq=False)
class BackwardFacts:
    """What stages 4 to 8 found out of a backward; read when a variant or an order is made."""

    is_compact: bool
    """The backward is called by its compact face (`backends.calling_convention`)."""
    reachable_inputs: dict[ResultRole, frozenset[SourceRole]]
    """The inputs to which the tape of each result leads."""
    receiving_inputs: dict[ResultRole, frozenset[SourceRole]]
    """The inputs to which a gradient of each result flows."""
    run_once_nodes: tuple[tuple[int, bool], ...]
    """For nodes of eager's tape that are spent once the results whose gradients pass them, as bits
    (`GradientReads.results`), and whether they ask for tensors."""
    only_leaves: bool
    """Whether every input that gets a gradient is a leaf."""
    new_leaves: frozenset[SourceRole]
    """Inputs that the function makes leaves, which get the gradient as such (FUN-36)."""
    number: int = 0
    """Of the compilation (GEN-9)."""
    memory: tuple[BackwardMemory, ...] = ()
    """What the backward finds in memory, and writes there (FUN-31)."""
    final_rng_state: FinalRngState | None = None
    """Where the backward leaves the generator (RNG-5)."""
    required_arrivals: tuple[RequiredArrivals, ...] = ()
    """Results whose gradients have to arrive together."""
    arrival_choices: tuple[ArrivalChoice, ...] = ()
    """Where gradients are other ones for each choice of results."""
    subclass_metas: Mapping[Any, SubclassMeta] = {}
    """How tangents and gradients that are wrappers are made, by role (SUB-11, SUB-12)."""


@attrs.frozen(eq=False)
class Derivatives:
    """How a backward is differentiated, and what anomaly mode runs in its place."""

    orders: HigherOrders | None = None
    """The backward as something to differentiate (DBL-2); None where that is refused (DBL-1)."""
    why: str = ""
    """Why it is refused, or why not `splits`."""
    splits: bool = True
    """Gradients may arrive in parts: what is computed of them is linear (DBL-1)."""
    inside: NanChecks | None = None
    """What anomaly mode looks at (JNT-8); None where that is the gradients it gives alone."""
    order: int = 1
    """Of the derivatives that the backward computes (DBL-2)."""
    higher_order_inputs: tuple[SourceRole, ...] = ()
    """The inputs that get no gradient here, and may get one from a derivative of it (DBL-2)."""


@attrs.frozen(eq=False)
class BackwardPlan:
    """All that a compiled backward needs to know, apart from what one call saves.

    What each run reads stands here; what is read once, or by a second order, in the two records.
    """

    variants: BackwardVariants | None
    """None where no gradient reaches any input: the backward only checks what eager's checks."""
    tangents: tuple[tuple[ResultRole, TensorMeta], ...]
    """Differentiable results in order, and the layout in which their gradients are expected."""
    gradients: tuple[tuple[SourceRole, TensorMeta | None], ...]
    """The inputs, and the geometry of the gradients of those that get one."""
    facts: BackwardFacts
    derivatives: Derivatives
    reads: GradientReads
    """Whose memory gradients read."""
    errors: dict[ResultRole, Exception]
    """What eager's backward raises for the gradient of a result."""
    lent: tuple[tuple[int, Any], ...] = ()
    """Saved values that lie in memory of others, which may write it; and whose it is (PART-37)."""
    guarded: tuple[tuple[int, Any], ...] = ()
    """Saved values that eager's backward reads, too, and of which this one computes again what
    eager has saved; and whose memory it is (PART-40)."""
    effects: tuple[BackwardEffect, ...] = ()
    """What happens in the backward (TOK-4)."""
    edge_order: tuple[int, ...] | None = None
    """The places of the gradients as they arrive in eager, where that is another order (CAG-10)."""
    borrowed: tuple[tuple[int, Any], ...] = attrs.field(init=False)
    """What is lent and what is guarded: the node is told before that memory is written."""
    wrapped: tuple[bool, ...] = attrs.field(init=False)
    """For each tangent whether it is a wrapper."""

    @borrowed.default
    def _borrowed(self) -> tuple[tuple[int, Any], ...]:
        return (*self.lent, *self.guarded)

    @wrapped.default
    def _wrapped(self) -> tuple[bool, ...]:
        return tuple([Tangent(role) in self.facts.subclass_metas for role, _ in self.tangents])

    may_reopen: bool = attrs.field(init=False)
    """Whether some result can have a backward behind one of another, or a second one (SAV-1)."""

    @may_reopen.default
    def _may_reopen(self) -> bool:
        facts = self.facts
        if self.effects or facts.memory or facts.final_rng_state or facts.arrival_choices:
            return False
        return len(self.tangents) > 1 or not facts.run_once_nodes

    def left(self, values: Sequence[Value | None], closed: Absent) -> list[Value | None]:
        """Of the saved values those that backwards without gradients of these results read."""
        if not closed or self.variants is None or not self.facts.is_compact:
            return list(values)
        needed = self.variants.needed(closed, self)
        return [value if index in needed else None for index, value in enumerate(values)]

    def closed(self, arrived: Absent) -> Absent:
        """Results whose backward raises behind one with gradients of these."""
        bits, spent = self.reads.bits_among(arrived), 0
        for each, _ in self.facts.run_once_nodes:
            spent |= each if each & bits else 0
        return self.reads.results_of(spent)

    def asks_without(self, absent: Absent) -> bool:
        """Whether a gradient that is not absent passes a node that asks for tensors."""
        bits = self.reads.bits_without(absent)
        return any(asks and each & bits for each, asks in self.facts.run_once_nodes)

    @property
    def links(self) -> tuple[SavedOf, ...]:
        """All that `reads` names, once each."""
        return self.reads.links

    def read(self, absent: Absent) -> list[bool]:
        """For each of `links` whether a gradient that is not absent reads it."""
        return self.reads.read_by(self.reads.bits_without(absent))

    def reached(self, absent: Absent) -> set[SourceRole]:
        """The inputs to which a gradient that is not absent flows."""
        return {
            of
            for role, _ in self.tangents
            if role not in absent
            for of in self.facts.receiving_inputs[role]
        }
