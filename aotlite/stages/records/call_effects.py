"""Effects at the end of each call: `.grad`s that it sets, and hooks that it registers.

Recorded by stage 1, carried out by stage 10. Rules: DBL-3, HOOK-1. Specs:
`specs/gradients_inside.md`, `specs/hooks_inside.md`.
"""

from __future__ import annotations

from enum import Enum

import attrs

from aotlite.ir.graph.role import Hidden, Output, Part, Primal
from aotlite.stages.records.base import Record


@attrs.frozen(repr=False)
class GradWrite(Record):
    """Each call sets the `.grad` of an input, or of a result that it made (DBL-3)."""

    role: Primal | Hidden | Part | Output
    result: int | None
    """The index of the result that becomes the `.grad`; None sets it to None."""


class HookPlace(Enum):
    """Which history of a tensor a hook is on (TEN-39)."""

    ENTRY = "the history that it had before the call"
    LEAF = "its own, as a leaf"
    NOW = "the history that it has after the call"
    INSIDE = "the history that it has after the call, which goes on inside"


@attrs.frozen(repr=False)
class RegisteredHook(Record):
    """Each call registers a hook on an input or a result, or lets it retain its gradient.

    Rules: HOOK-1, HOOK-4.
    """

    role: Primal | Hidden | Part | Output
    place: HookPlace
    kind: str
    """"gradient", "accumulated" or "retained"."""
    name: str
    """The name of the hook function, which the entry keeps."""
