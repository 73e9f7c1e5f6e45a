"""`Joint`, the record of stage 4: the joint graph, and facts of its backward.

Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Result, Role
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.backward.gradient_reads import GradientReads, WrittenInside
from aotlite.stages.records.backward.required_tangents import RequiredArrivals
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole, OwnerRole, SourceRole
from aotlite.stages.records.metadata.function_facts import BaseMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.rng_state import FinalRngState


@attrs.frozen(eq=False, repr=False)
class BackwardEffect:
    """One effect of a backward, and the condition for it."""

    effect: str
    arrivals: frozenset[Result]
    """The results of which one's gradient has to arrive."""
    reachable_inputs: frozenset[SourceRole]
    """The inputs to which its tape node leads; the gradient of one has to be asked for."""

    def __str__(self) -> str:
        return f"an effect {self.effect}"


@attrs.frozen(eq=False, repr=False)
class ArrivalChoice(Record):
    """A set of results whose gradients arrive, and the resulting gradients' form."""

    arrived: frozenset[Result]
    """The results whose gradients arrive; no others do."""
    subclass_metas: Mapping[Role, SubclassMeta]
    """How wrapper gradients are rebuilt, by role."""
    error: Exception | None = None
    """The error of eager's backward for this set."""


# --------------------------------------------------------------------------------- 4 joint
@attrs.frozen(eq=False, repr=False)
class BackwardMemory(Record):
    """Memory of the caller's that the backward reads as it then is, or writes."""

    owner: OwnerRole
    meta: TensorMeta
    """Its geometry in the graph: an input's at entry, a base's at its first view."""
    place: str
    requires_grad: bool
    """Whether it requires grad after the call."""
    writes: tuple[frozenset[Result], ...]
    """For each write, the results of which one's gradient has to arrive for it to happen."""
    is_counted_alone: bool = False
    """Whether it is a wrapper: its parts are written, and it only counts the writes (SUB-15)."""


@attrs.frozen(eq=False, repr=False)
class BackwardFacts(Record):
    """Facts of a backward, apart from its ops. Stage 4 makes them, and the runtime reads them."""

    errors: dict[Result, Exception]
    """Results whose backward cannot be recorded, with the error of eager's backward (JNT-15)."""
    reachable_inputs: dict[Result, frozenset[SourceRole]]
    """The inputs to which the tape of each differentiable result leads."""
    receiving_inputs: dict[Result, frozenset[SourceRole]]
    """The inputs to which its gradient flows: user code may return None on the way (TAN-8)."""
    reads: GradientReads
    """The saved tensors of eager's tape that gradients read, on memory of inputs and results
    (SAV-2)."""
    memory: tuple[BackwardMemory, ...] = ()
    """Memory that the backward reads as it then is, or writes (FUN-31, SAV-3)."""
    arrivals: tuple[frozenset[Result], ...] = ()
    """For each `Arrived` input, the results of which one's gradient has to arrive."""
    new_leaves: frozenset[InputRole] = frozenset()
    """Inputs that the function makes leaves: their gradient is the leaf's (FUN-36)."""
    subclass_metas: Mapping[Role, SubclassMeta] = {}
    """How wrapper tangents and gradients are rebuilt, by role (SUB-11, SUB-12)."""
    effects: tuple[BackwardEffect, ...] = ()
    """The effects of the backward in order (TOK-4)."""
    final_rng_state: FinalRngState | None = None
    """The generator's state after the backward; None if unchanged (RNG-5)."""
    required_arrivals: tuple[RequiredArrivals, ...] = ()
    """Sets of results whose gradients have to arrive together."""
    arrival_choices: tuple[ArrivalChoice, ...] = ()
    """One for each set of arriving gradients, if the gradients differ by the set."""
    run_once_nodes: tuple[tuple[int, bool], ...] = ()
    """For each node that runs only once: the results whose gradients pass it, as bits (SAV-1), and
    whether it reads saved tensors (CKP-1)."""
    written_inside: Mapping[Result, WrittenInside] = {}
    """The results whose error is that a saved tensor on memory of an owner was written."""


@attrs.frozen(eq=False, repr=False)
class Joint(Record):
    """The joint graph, or the forward alone with the error that its backward raises."""

    graph: Graph
    backward: BackwardFacts
    late_inputs: tuple[CapturedInput, ...] = ()
    """Inputs that only the backward reaches."""
    late_bases: tuple[BaseMeta, ...] = ()
    """The call's own memory that its backward writes (FUN-33)."""
    layouts: dict[Result, TensorMeta] = attrs.field(factory=dict)
    """The meta of each differentiable result."""
    kept_tape: Any = None
    """The `KeptTape` from which derivatives of the backward are recorded; None without any."""
    runs_user_code: bool = False
    """Whether user code runs in the backward."""
    has_backward: bool = True
    """Whether gradients reach inputs, or an effect on the way can be noticed (TOK-4)."""
    order: tuple[SourceRole, ...] = ()
    """Inputs in the order in which their gradients arrive in eager (CAG-10)."""
