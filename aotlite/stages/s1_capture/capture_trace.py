"""`CaptureTrace`: the recorder's interface for the files of stage 1, which it is composed of.

`Trace` (`records/trace.py`) is the smaller interface that later stages use.
Spec: `specs/s1_capture.md`.
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
from aotlite.stages.records.trace import Trace


class Extents(Protocol):
    """The range of each input's storage that `as_strided` reaches (`as_strided_extents`)."""

    def note(self, given: Any, meta: TensorMeta, start: int) -> None:
        """Notes a window that begins `start` elements after the input's first one."""


class CaptureTrace(Trace, Protocol):
    """The recorder while the function runs."""

    function: Any
    leaves: list[Any]
    """The arguments, flat."""

    @property
    def reach(self) -> Extents: ...

    def refuse(self, what: str, advice: str, at: Location | None = None) -> Exception:
        """An UnsupportedError for `what`, with `advice` and the user's line."""

    def check_is_argument(self, fake: Tensor, name: str) -> None:
        """Refuses a geometry op on a tensor that Python also reaches outside the arguments."""

    def input_for(self, tensor: Tensor, role: Part, place: str) -> CapturedInput:
        """The input record of an inner tensor of a wrapper."""

    def replace_input(self, given: CapturedInput, later: CapturedInput) -> None:
        """Replaces the record of an input."""

    def real_at(self, placeholder: Node) -> Tensor | None:
        """The caller's tensor that a placeholder stands for; None for any other node."""

    def place_at(self, role: InputRole) -> AccessPath:
        """The access path of an input: how each call finds it."""

    def learn(self, value: Any, place: AccessPath) -> None:
        """Records the access paths of tensors and objects in nested containers, in order."""

    def compared(self) -> list[Any]:
        """The functions whose variables the guards compare at each call."""

    def note_reached(self, things: Sequence[Any]) -> None:
        """Excludes containers from the guards: a hook called at each backward may change them."""
