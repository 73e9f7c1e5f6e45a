"""The guards of a compiled entry about values outside its arguments. Rules: CAP-3..CAP-5, GRD-1.

Stage 1 collects guards while the function runs; `aotlite.pipeline.arguments` checks them at each
call. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.float_guards import FloatArgumentGuard, FloatFactGuard
from aotlite.stages.records.guards.snapshots import Snapshot


@attrs.frozen(eq=False)
class HiddenInputGuard:
    """The value at `place` is hidden input number `index`."""

    index: int
    place: AccessPath


@attrs.frozen(eq=False)
class SameTensorGuard:
    """The tensor at `place` is the same object as an input of this role."""

    place: AccessPath
    role: Primal | Hidden | Part


@attrs.frozen(eq=False)
class ValueGuard:
    """The value at `place` is as in its snapshot (numbers, flags, the form of containers)."""

    place: AccessPath
    snapshot: Snapshot


@attrs.frozen(eq=False)
class GradAttributeGuard:
    """The tensor at `place` has a `.grad`, or has none."""

    place: AccessPath
    """The path of the `.grad`."""
    is_so: bool

    @property
    def expected(self) -> str:
        return "a gradient" if self.is_so else "None"

    @property
    def test(self) -> str:
        return "is not None" if self.is_so else "is None"


@attrs.frozen(eq=False)
class NoHooksGuard:
    """The input of this role has no hooks, and does not retain its gradient (TEN-41)."""

    role: Primal | Hidden | Part


@attrs.frozen(eq=False)
class EnvironmentGuard:
    """The values at `places` are as in one snapshot, which knows the inputs with these roles.

    The places are those of all tensors, containers, Modules and optimizers that the function can
    reach by name, and of the Modules among its arguments.
    """

    places: tuple[AccessPath, ...]
    roles: tuple[Primal | Hidden | Part, ...]
    snapshot: Snapshot


Guard = (
    HiddenInputGuard
    | SameTensorGuard
    | ValueGuard
    | GradAttributeGuard
    | NoHooksGuard
    | EnvironmentGuard
    | FloatArgumentGuard
    | FloatFactGuard
)


def hidden_places(guards: Iterable[object]) -> dict[int, AccessPath]:
    """Where each call finds the hidden inputs, by number."""
    return {each.index: each.place for each in guards if isinstance(each, HiddenInputGuard)}


def reached_arguments(guards: Iterable[object]) -> dict[int, AccessPath]:
    """The arguments that the function reached by another path as well, each with one.

    What was captured holds for calls where both are one tensor: guards compare them, and an export
    without guards has to refuse such a function.
    """
    same = (each for each in guards if isinstance(each, SameTensorGuard))
    return {each.role.index: each.place for each in same if isinstance(each.role, Primal)}
