"""What the parts of the recorder ask of it, besides what later stages may ask (`records/trace.py`).

Used by stage 1 alone. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Part
from aotlite.ir.meta import TensorMeta
from aotlite.ir.provenance.location import Location
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import AnomalyModeGuard
from aotlite.stages.records.trace import Trace


class Extents(Protocol):
    """What is seen of inputs of which more is seen than they span."""

    def note(self, given: Any, meta: TensorMeta, start: int) -> None:
        """A window that begins so many elements behind the input."""


class CaptureTrace(Trace, Protocol):
    """The recorder while the function runs."""

    function: Any
    leaves: list[Any]
    """The arguments, flat."""
    outer_mode: AnomalyModeGuard | None
    """The anomaly mode of the call; None when the function has run."""

    @property
    def reach(self) -> Extents: ...

    def refuse(self, what: str, advice: str, at: Location | None = None) -> Exception:
        """An UnsupportedError about something that a capture cannot do, with the user's line."""

    def check_is_argument(self, fake: Tensor, name: str) -> None:
        """Refuses an op on what is (also) seen as a tensor from outside."""

    def input_for(self, tensor: Tensor, role: Part, place: str) -> CapturedInput:
        """The input that a part of a wrapper is."""

    def replace_input(self, given: CapturedInput, later: CapturedInput) -> None:
        """From now on another record is that of an input."""

    def real_at(self, placeholder: Node) -> Tensor | None:
        """The tensor outside that a value of the graph is, if it is one."""

    def place_at(self, role: InputRole) -> AccessPath:
        """Where an input lies."""

    def learn(self, value: Any, place: AccessPath) -> None:
        """Remembers the places of the tensors and objects in nested containers, in order."""

    def compared(self) -> list[Any]:
        """The functions whose variables are compared at each call."""

    def note_reached(self, things: Sequence[Any]) -> None:
        """A hook that is not tried may change these containers."""

    def guard_surroundings(self) -> None:
        """Guards what the function can reach and leaves as it is."""
