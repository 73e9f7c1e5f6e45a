"""`Trace`: the recorder of a capture as later stages see it.

The recorder itself belongs to stage 1 (`s1_capture/recorder.py`). Stages 2 to 10 import these
protocols alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aotlite.eager.base.capture_protocol import HookProtocol, InputChanges, Recorder, RngState
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Gradient, Output, Role
from aotlite.ir.op import Op
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.guards.guard_records import Guard
from aotlite.stages.records.metadata.metadata_mutation import (
    MemoryReplacement,
    MetadataMutation,
    StorageGrowth,
)
from aotlite.stages.records.rng_state import FinalRngState
from aotlite.stages.records.version_counts import CountStep


class StorageCounts(Protocol):
    """How often storages were written between the steps that put tensors onto others."""

    storages: list[Storage]
    steps: list[CountStep]

    def rest(self) -> tuple[int, ...]:
        """The writes of each storage since the last step."""
        ...


class MetadataTrace(InputChanges, Protocol):
    """The changes of the inputs' geometry, memory and history, in order, by input."""

    of: dict[InputRole, list[MetadataMutation]]
    puts: dict[Node, MemoryReplacement]
    """The inputs that were put onto other memory, by the values that they then had."""
    moved: dict[int, Tensor]
    """The tensors of the function's own that were put onto other memory, by their id."""
    growths: list[StorageGrowth]
    sizes: dict[InputRole, int]
    """The bytes of the storages of inputs that grow."""
    viewed: set[InputRole]
    """Inputs that were asked whether they are views."""

    @property
    def counts(self) -> StorageCounts: ...

    def check_old(self, root: Node, name: str) -> None:
        """Refuses a window on memory that has grown since, of which the graph has the old part."""


class RngTrace(RngState, Protocol):
    """The states of the generator in the graph, and when the backward draws."""

    state: Any
    """The present one."""
    inputs: dict[type, Node]
    """Placeholders by the class of their role."""
    flags: dict[Any, Node]
    """Inputs that say whether moments of the backward come, or gradients of some results."""
    moments: dict[Any, None]
    """All in which something is drawn, or set, that do not come in every backward."""

    def placeholders(self) -> tuple[Node, ...]:
        """The inputs, in the order in which graphs take them (RNG-2)."""

    def outputs(self, phase: Phase) -> list[tuple[Role, Any]]:
        """Records where the generator is left, if that is not for stage 6 to count (RNG-3)."""

    def begin_backward(self, now: Callable[[], Any] = ...) -> None:
        """A backward is recorded; `now()` is the moment of what is recorded now (RNG-5)."""

    def drop_backward(self) -> None:
        """Forgets the inputs that are those of a backward which is not kept."""

    def after_forward(self) -> FinalRngState | None:
        """Where the function leaves the generator; None where it leaves it alone."""

    def after_backward(self) -> FinalRngState | None:
        """Where the recorded backward leaves the generator; None where it leaves it alone."""

    def arrivals(self) -> tuple[frozenset[Any], ...]:
        """The sets of gradients on which draws of the backward depend."""

    def flag(self, of: Any) -> Node:
        """The input that says whether a moment comes, or any of these results' gradients."""


class SubclassTrace(Protocol):
    """The wrappers of one capture; false where there are none."""

    nodes: dict[Node, Tensor | None]
    """Every node that stands for a wrapper, and the object, where the node made one."""
    parts: dict[InputRole, dict[str, InputRole]]
    """The roles of the parts of each input that is a wrapper."""
    required_arrivals: list[Any]
    """`RequiredArrivals`, unless each choice of gradients is recorded."""
    unlike: bool
    """Whether gradients are other ones for each choice of results."""

    def __bool__(self) -> bool: ...


class HookTrace(HookProtocol, Protocol):
    """The hooks that stay on the tape, and results that retain what a backward inside computes."""

    kept: dict[Output, Tensor]
    """These results."""
    come_back: bool
    """A hook left a result that its tape node saves: derivatives would pass it by (DBL-1)."""

    def ends(self) -> Mapping[TapeNode, Output]:
        """The nodes at which their gradients arrive."""

    def edges(self) -> dict[Any, list[Edge]]:
        """Where their gradients arrive, by role."""

    def clear(self) -> None:
        """A backward is recorded."""

    def gradients(self) -> list[tuple[Gradient, Any]]:
        """The outputs that their gradients are, when it has been."""


class Trace(Recorder, Protocol):
    """The recorder of one capture, from the moment at which the function has returned."""

    nodes: list[Node]
    """What is recorded, in order; nodes of the backward follow those of the forward."""
    placeholders: list[Node]
    inputs: list[CapturedInput]
    guards: list[Guard]
    offset_read: set[InputRole]
    """Inputs of which the function has read where they start in their memory."""
    phase: Phase
    """Of what is recorded next."""
    sequence: int
    """The number of the tape node whose op is recorded next (SEQ-1)."""
    counts: bool
    """Whether tape nodes that are made from now on get numbers of their own."""

    @property
    def hooks(self) -> HookTrace: ...

    @property
    def streams(self) -> RngTrace: ...

    @property
    def changes(self) -> MetadataTrace: ...

    @property
    def wrapped(self) -> SubclassTrace: ...

    def add_node(self, op: Op, args: tuple[Any, ...], meta: Any) -> Node:
        """Records a node, at the place of `origin` if that is set."""

    def drop_from(self, start: int) -> None:
        """Forgets the nodes recorded since there were so many."""

    def input_of(self, tensor: Tensor) -> CapturedInput | None:
        """The input that this is, or that stands for it."""

    def real_of(self, fake: Tensor) -> Tensor:
        """The tensor outside that an input's fake stands for."""

    def check_numbers(self) -> None:
        """Refuses numbers outside that the function, or its backward, has read and changed."""

    def close(self) -> None:
        """Drops everything but the nodes: captured tensors that stay alive hold nothing else."""
