"""What stage 4 hands on: the joint graph, and what its backward needs besides values.

Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import IntermediateBase, Output, Result
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole, SourceRole
from aotlite.stages.records.metadata.function_facts import BaseMeta


# --------------------------------------------------------------------------------- 4 joint
@attrs.frozen(eq=False, repr=False)
class BackwardMemory(Record):
    """Memory that outlives the forward and that the backward reads as it is by then, or writes."""

    owner: InputRole | Output | IntermediateBase
    meta: TensorMeta
    """As the graph sees it: an input's geometry at entry, a base's at its first view."""
    place: str
    requires_grad: bool
    """After the call."""
    writes: tuple[frozenset[Result], ...]
    """For each write of the backward the results of which one's gradient has to arrive for it."""
    is_counted_alone: bool = False
    """It is a wrapper: its parts are written, and it counts the writes as they do (SUB-15)."""


@attrs.frozen(eq=False, repr=False)
class JointBackward(Record):
    """What is known of the backward in a joint graph, apart from its ops."""

    errors: dict[Result, Exception]
    """Results whose backward cannot be recorded, with what eager's backward raises (JNT-15)."""
    reachable_inputs: dict[Result, frozenset[SourceRole]]
    """The inputs to which the tape of each differentiable result leads."""
    receiving_inputs: dict[Result, frozenset[SourceRole]]
    """Those to which a gradient of it flows: users' code may give None on the way (TAN-8)."""
    reads: Any
    """Memory of inputs and results that gradients read: a `GradientReads` (SAV-2)."""
    memory: tuple[BackwardMemory, ...] = ()
    """What the backward finds in memory, and writes there (FUN-31, SAV-3)."""
    arrivals: tuple[frozenset[Result], ...] = ()
    """For each `Arrived` input of the graph the results of which one's gradient has to arrive."""
    new_leaves: frozenset[InputRole] = frozenset()
    """Inputs whose gradient is that of the leaf which the function made of them (FUN-36)."""
    subclass_metas: Mapping[Any, Any] = {}
    """How tangents and gradients that are wrappers are made, by role (SUB-11, SUB-12)."""
    effects: tuple[Any, ...] = ()
    """What happens in the backward, in order, and when (`BackwardEffect`)."""
    final_rng_state: Any = None
    """Where the backward leaves the generator: None, or a `FinalRngState` (RNG-5)."""
    required_arrivals: tuple[Any, ...] = ()
    """Results whose gradients have to arrive together: `RequiredArrivals`."""
    arrival_choices: tuple[Any, ...] = ()
    """Where gradients are other ones for each choice of results: `ArrivalChoice`."""
    run_once_nodes: tuple[tuple[int, bool], ...] = ()
    """Whose gradients, as bits, pass nodes spent once (SAV-1); whether for tensors (CKP-1)."""


@attrs.frozen(eq=False, repr=False)
class Joint(Record):
    """The joint graph, or the forward alone with the error that a backward is to raise."""

    graph: Graph
    backward: JointBackward
    late_inputs: tuple[CapturedInput, ...] = ()
    """Inputs that only the backward reaches."""
    late_bases: tuple[BaseMeta, ...] = ()
    """Memory of the call's own that its backward writes (FUN-33)."""
    layouts: dict[Result, TensorMeta] = attrs.field(factory=dict)
    """What each differentiable result is."""
    kept_tape: Any = None
    """What derivatives of the backward are recorded from, a `KeptTape`; None if it has none."""
    runs_user_code: bool = False
    """Users' Python has run in the backward."""
    has_backward: bool = True
    """Gradients reach inputs, or what happens on the way to none can be told (TOK-4)."""
    order: tuple[SourceRole, ...] = ()
    """Inputs in the order in which their gradients arrive in eager (CAG-10)."""


@attrs.frozen(eq=False)
class BackwardEffect:
    """One effect of a backward, and when it happens."""

    effect: str
    arrivals: frozenset[Result]
    """The results of which one's gradient has to arrive."""
    reachable_inputs: frozenset[Any]
    """The inputs to which the tape node leads in whose turn it is; one's gradient is asked for."""

    def __str__(self) -> str:
        return f"an effect {self.effect}"


@attrs.frozen(eq=False, repr=False)
class ArrivalChoice(Record):
    """A choice of results, and what their gradients give."""

    arrived: frozenset[Any]
    """The results whose gradients arrive, and no others do."""
    subclass_metas: Mapping[Any, Any]
    """How gradients that are wrappers are made, by role."""
    error: Exception | None = None
    """What eager's backward raises for this choice."""
