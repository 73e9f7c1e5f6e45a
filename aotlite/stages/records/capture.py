"""`Captured`, the record of stage 1: the captured graph, its inputs and results.

Spec: `specs/s1_capture.md`. Rules: META-2..META-16.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from optree import PyTreeSpec

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Output, Part
from aotlite.stages.records.base import Record
from aotlite.stages.records.call_effects import GradWrite, RegisteredHook
from aotlite.stages.records.capture_inputs import CapturedFamily, CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import role_of_result
from aotlite.stages.records.trace import Trace


class NumpyResult(enum.Enum):
    """The NumPy form in which the caller gets a result that the function returned as an ndarray."""

    ARRAY = "array"
    SCALAR = "scalar"


@attrs.frozen(eq=False, repr=False)
class Containers(Record):
    """The containers of the results, and the NumPy form of each result."""

    spec: PyTreeSpec | None = None
    """The lists, tuples and dicts as an optree spec; None if no caller gets the results."""
    numpy_results: tuple[NumpyResult | None, ...] = ()
    """The NumPy form of each flat result; None for a tensor or plain value (NDA-5)."""


@attrs.frozen(eq=False, repr=False)
class Captured(Record):
    """One run of the user's function on fake tensors: the recorded graph, and the run's tape."""

    graph: Graph
    recorder: Trace
    inputs: tuple[CapturedInput, ...]
    results: tuple[Any, ...]
    """Flat results: fake tensors, `ArgumentLeaf`, or plain values."""
    grad_mode_before: bool | None
    grad_mode_after: bool | None
    families: tuple[CapturedFamily, ...] = ()
    without_family: tuple[tuple[Tensor, ...], ...] = ()
    """Fakes whose tensors are views of one base, and that make no family: some have symbols for
    sizes (SYN-12), or were reached too late for that (SYN-5)."""
    reach: Mapping[InputRole, tuple[int, int]] = {}
    """First and last elements, from its own first one, of inputs that `as_strided` exceeds."""
    parts: tuple[Part, ...] = ()
    """The roles of the last results, which are inner tensors of wrapper results (SUB-13)."""
    grads: tuple[GradWrite, ...] = ()
    """The `.grad`s that a call sets, to results after the function's own."""
    hooks: tuple[tuple[RegisteredHook, Callable[..., object]], ...] = ()
    """The hooks that each call registers, with their functions."""
    containers: Containers = Containers()
    """The containers of the flat results."""
    computed_sizes: tuple[str, ...] = ()
    """The symbols that depend on values: theirs are the last results before the parts (DYN-5)."""

    def role_of(self, index: int) -> Output | Part:
        """The role of result number `index`."""
        return role_of_result(index, len(self.results), self.parts, self.computed_sizes)

    def index_of(self, role: Output | Part) -> int:
        """The number of the result with this role."""
        if isinstance(role, Output):
            return role.index
        return len(self.results) - len(self.parts) + self.parts.index(role)

    @property
    def sources(self) -> tuple[CapturedInput | CapturedFamily, ...]:
        """The sources of gradients: inputs, and bases of view families."""
        return (*self.inputs, *self.families)


@attrs.frozen(repr=False)
class ArgumentLeaf(Record):
    """A result that is the argument leaf number `index` itself, and no tensor."""

    index: int
