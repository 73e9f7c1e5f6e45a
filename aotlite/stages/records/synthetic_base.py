"""Records of synthetic bases: one input for several arguments on one memory.

Spec: `specs/s3_convention.md`.
"""

from __future__ import annotations

import attrs

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.graph.role import SyntheticBase
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import InputRole


@attrs.frozen(eq=False, repr=False)
class Member(Record):
    """An input that is a view of a synthetic base."""

    role: InputRole
    chain: ViewChain
    """The views from the base to it."""


@attrs.frozen(eq=False, repr=False)
class BaseInput(Record):
    """A synthetic base: a window on the memory of its members, made at each call."""

    role: SyntheticBase
    meta: TensorMeta
    anchor: InputRole
    """The member from whose first byte the base's start is counted."""
    start: int
    """Bytes from there to the base's first element, 0 or negative."""
    whole: bool
    """Whether the anchor itself is the base (SYN-2)."""
    members: tuple[Member, ...]
