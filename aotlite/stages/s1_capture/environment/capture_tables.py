"""`CaptureTables`: the outer tensors and objects that a captured function has used, by id.

The recorder looks them up, and forgets them at the end of the capture.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import weakref

import attrs

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.trace import OuterFakes


@attrs.define(eq=False, repr=False)
class CaptureTables:
    """Outer tensors and objects by id, with their fakes, nodes, records and access paths."""

    fakes: dict[int, Tensor] = attrs.field(factory=dict)
    """The fake of each tensor."""
    reals: dict[int, Tensor] = attrs.field(factory=dict)
    """The tensor that each fake stands for."""
    inputs: dict[int, CapturedInput] = attrs.field(factory=dict)
    """The record of each fake that is an input."""
    reached: set[int] = attrs.field(factory=set)
    """The ids of arguments that the function also reached through a closure, global or Module."""
    real_by_node: dict[Node, Tensor] = attrs.field(factory=dict)
    storages: dict[int, Storage] = attrs.field(factory=dict)
    places: dict[int, AccessPath] = attrs.field(factory=dict)
    parts: dict[int, AccessPath] = attrs.field(factory=dict)
    """Access paths of the inner tensors of wrappers that were read from attributes, by id."""
    guarded: set[tuple[int, str]] = attrs.field(factory=set)
    """Attributes of Modules and optimizers that were read."""
    created: dict[int, object] = attrs.field(factory=dict)
    """Modules and optimizers that were made during the capture."""
    alive: list[object] = attrs.field(factory=list)
    """The objects whose ids are keys above, kept alive so that no other object gets their id."""

    def outer_fakes(self) -> OuterFakes:
        """The fakes of tensors from outside, which are not kept alive."""
        return {id(t): (weakref.ref(t), self.fakes[id(t)]) for t in self.reals.values()}
