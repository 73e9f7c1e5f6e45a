"""`Joint`, the record of stage 4: the joint graph, and facts of its backward.

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
    """Memory of the caller's that the backward reads as it then is, or writes."""

    owner: InputRole | Output | IntermediateBase
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
class JointBackward(Record):
    """Facts of the backward in a joint graph, apart from its ops."""

    errors: dict[Result, Exception]
    """Results whose backward cannot be recorded, with the error of eager's backward (JNT-15)."""
    reachable_inputs: dict[Result, frozenset[SourceRole]]
    """The inputs to which the tape of each differentiable result leads."""
    receiving_inputs: dict[Result, frozenset[SourceRole]]
    """The inputs to which its gradient flows: user code may return None on the way (TAN-8)."""
    reads: Any
    """Saved tensors of eager's tape on memory of inputs and results, as `GradientReads` (SAV-2)."""
    memory: tuple[BackwardMemory, ...] = ()
    """Memory that the backward reads as it then is, or writes (FUN-31, SAV-3)."""
    arrivals: tuple[frozenset[Result], ...] = ()
    """For each `Arrived` input, the results of which one's gradient has to arrive."""
    new_leaves: frozenset[InputRole] = frozenset()
    """Inputs that the function makes leaves: their gradient is the leaf's (FUN-36)."""
    subclass_metas: Mapping[Any, Any] = {}
    """How wrapper tangents and gradients are rebuilt, by role (SUB-11, SUB-12)."""
    effects: tuple[Any, ...] = ()
    """The effects of the backward in order, as `BackwardEffect`s."""
    final_rng_state: Any = None
    """The generator's state after the backward, a `FinalRngState`; None if unchanged (RNG-5)."""
    required_arrivals: tuple[Any, ...] = ()
    """Sets of results whose gradients have to arrive together, as `RequiredArrivals`."""
    arrival_choices: tuple[Any, ...] = ()
    """An `ArrivalChoice` for each set of arriving gradients, if the gradients differ by it."""
    run_once_nodes: tuple[tuple[int, bool], ...] = ()
    """For each node that runs only once: the results whose gradients pass it, as bits (SAV-1), and
    whether it reads saved tensors (CKP-1)."""


@attrs.frozen(eq=False, repr=False)
class Joint(Record):
    """The joint graph, or the forward alone with the error that its backward raises."""

    graph: Graph
    backward: JointBackward
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


@attrs.frozen(eq=False, repr=False)
class BackwardEffect:
    """One effect of a backward, and the condition for it."""

    effect: str
    arrivals: frozenset[Result]
    """The results of which one's gradient has to arrive."""
    reachable_inputs: frozenset[Any]
    """The inputs to which its tape node leads; the gradient of one has to be asked for."""

    def __str__(self) -> str:
        return f"an effect {self.effect}"


@attrs.frozen(eq=False, repr=False)
class ArrivalChoice(Record):
    """A set of results whose gradients arrive, and the resulting gradients' form."""

    arrived: frozenset[Any]
    """The results whose gradients arrive; no others do."""
    subclass_metas: Mapping[Any, Any]
    """How wrapper gradients are rebuilt, by role."""
    error: Exception | None = None
    """The error of eager's backward for this set."""
