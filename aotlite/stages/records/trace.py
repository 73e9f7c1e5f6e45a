"""`Trace`: the interface of a capture's recorder for later stages.

One object records a capture, a `CaptureRecorder` (`s1_capture/recorder.py`). Each part of the
library sees it by a protocol, which extends the one before:

    Recorder       eager/base/capture_protocol    the eager engine, for ops and state changes
    Trace          here                           stages 2 to 10, for the nodes and inputs
    CaptureTrace   s1_capture/capture_trace       the files of stage 1
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aotlite.eager.base.capture_protocol import HookProtocol, InputChanges, Recorder, RngState
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Gradient, Output, Result, Role
from aotlite.ir.op import Op
from aotlite.stages.records.backward.required_tangents import RequiredArrivals
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.guards.guard_records import Guard
from aotlite.stages.records.metadata.metadata_mutation import (
    MemoryReplacement,
    MetadataMutation,
    StorageGrowth,
)
from aotlite.stages.records.rng_state import FinalRngState
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.records.version_counts import CountStep


class StorageCounts(Protocol):
    """The numbers of writes of storages, between the steps that move tensors to other storages."""

    storages: list[Storage]
    steps: list[CountStep]

    def rest(self) -> tuple[int, ...]:
        """The writes of each storage since the last step."""
        ...


class MetadataTrace(InputChanges, Protocol):
    """The changes of the inputs' geometry, memory and history, in order, by input."""

    of: dict[InputRole, list[MetadataMutation]]
    puts: dict[Node, MemoryReplacement]
    """Node of an input's value at that time -> the replacement of its memory."""
    moved: dict[int, Tensor]
    """Id -> tensor that the function made and moved to other memory."""
    growths: list[StorageGrowth]
    sizes: dict[InputRole, int]
    """Input whose storage grows -> the bytes of the storage."""
    viewed: set[InputRole]
    """The inputs of which the function has read whether they are views."""

    @property
    def counts(self) -> StorageCounts: ...

    def check_old(self, root: Node, name: str) -> None:
        """Refuses a view of memory that has grown since, as the graph has the old part alone."""


class RngTrace(RngState, Protocol):
    """The states of the generator in the graph, and the moments of draws in the backward."""

    state: Any
    """The present state."""
    inputs: dict[type, Node]
    """Class of a role -> its placeholder."""
    flags: dict[Any, Node]
    """Condition -> the input that is true if it holds. Conditions: moments of the backward that
    happen, and results whose gradients arrive."""
    moments: dict[Any, None]
    """The moments with draws or settings that do not happen in every backward, in order."""

    def placeholders(self) -> tuple[Node, ...]:
        """The inputs, in the order in which graphs take them (RNG-2)."""

    def outputs(self, phase: Phase) -> list[tuple[Role, Node | None]]:
        """Returns the outputs of the generator's final state, unless stage 6 counts it (RNG-3)."""

    def begin_backward(self, now: Callable[[], object] = ...) -> None:
        """Begins the recording of a backward; `now()` returns the present moment (RNG-5)."""

    def drop_backward(self) -> None:
        """Drops the inputs of a backward that is not kept."""

    def after_forward(self) -> FinalRngState | None:
        """The state of the generator after the function; None if it does not change."""

    def after_backward(self) -> FinalRngState | None:
        """The state of the generator after the recorded backward; None if it does not change."""

    def arrivals(self) -> tuple[frozenset[Result], ...]:
        """The sets of gradients on which draws of the backward depend."""

    def flag(self, of: object) -> Node:
        """The input that is true if a moment happens, or a gradient of these results arrives."""


class SubclassTrace(Protocol):
    """The wrappers of one capture; false if there are none."""

    nodes: dict[Node, Tensor | None]
    """Node of a wrapper -> the object, or None if the node made none."""
    parts: dict[InputRole, dict[str, InputRole]]
    """The roles of the parts of each input that is a wrapper."""
    required_arrivals: list[RequiredArrivals]
    """The tangents that have to arrive together, unless each choice of gradients is recorded."""
    unlike: bool
    """Whether the gradients depend on the set of results with gradients."""

    def __bool__(self) -> bool: ...


class HookTrace(HookProtocol, Protocol):
    """The hooks that stay on the tape, and results that retain gradients of an inner backward."""

    kept: dict[Output, Tensor]
    """The results that retain their gradient."""
    come_back: bool
    """Whether a hook stays on a result that its tape node saves, so that second derivatives would
    miss the hook (DBL-1)."""

    def ends(self) -> Mapping[TapeNode, Output]:
        """Tape node at which the gradient of a result arrives -> the result."""

    def edges(self) -> dict[Output, list[Edge]]:
        """Role -> the edges at which its gradient arrives."""

    def clear(self) -> None:
        """Starts anew for the recording of a backward."""

    def gradients(self) -> list[tuple[Gradient, Node | None]]:
        """The outputs of the retained gradients, after the recording of the backward."""


OuterFakes = dict[int, tuple[weakref.ref[Tensor], Tensor]]
"""Id of a tensor from outside -> the tensor, if it is alive, and its fake."""


class Trace(Recorder, Protocol):
    """The recorder of one capture, after the return of the function."""

    nodes: list[Node]
    """The recorded nodes in order; those of the backward follow those of the forward."""
    placeholders: list[Node]
    inputs: list[CapturedInput]
    guards: list[Guard]
    offset_read: set[InputRole]
    """The inputs whose storage offset the function has read."""
    outer_fakes: OuterFakes
    """While a kept tape is recorded: the fakes of tensors that users' code may read."""
    phase: Phase
    """The phase of the next recorded node."""
    sequence: int
    """The number of the tape node whose op is recorded next (SEQ-1)."""
    counts: bool
    """Whether new tape nodes get numbers of their own."""
    sizes: SymbolicSizes | None
    """The symbols for sizes of arguments; None where all sizes are numbers."""

    @property
    def hooks(self) -> HookTrace: ...

    @property
    def streams(self) -> RngTrace: ...

    @property
    def changes(self) -> MetadataTrace: ...

    @property
    def wrapped(self) -> SubclassTrace: ...

    def add_node(self, op: Op, args: tuple[object, ...], meta: object) -> Node:
        """Records a node, at the place of `origin` if that is set."""

    def drop_from(self, start: int) -> None:
        """Drops the nodes from number `start` on."""

    def input_of(self, tensor: Tensor) -> CapturedInput | None:
        """The input of a tensor, which is the input itself or its fake."""

    def weak_fakes(self) -> OuterFakes:
        """The fakes of tensors from outside, before the recorder is closed."""

    def real_of(self, fake: Tensor) -> Tensor:
        """The real tensor of an input's fake tensor."""

    def guard_surroundings(self) -> None:
        """Adds guards for all that the function can reach by name and did not change."""

    def check_numbers(self) -> None:
        """Refuses outside numbers that the function, or its backward, has read and changed."""

    def close(self) -> None:
        """Drops everything but the nodes, as captured tensors may keep the recorder alive."""
