"""What stage 1 hands on: the captured graph, its inputs and results.

Spec: `specs/s1_capture.md`. Rules: META-2..META-16.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs
from optree import PyTreeSpec

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Output, Part
from aotlite.stages.records.base import Record
from aotlite.stages.records.call_effects import GradWrite, RegisteredHook
from aotlite.stages.records.capture_inputs import CapturedFamily, CapturedInput, InputRole
from aotlite.stages.records.trace import Trace


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
    recorder: Trace
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
