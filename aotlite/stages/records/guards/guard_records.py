"""The guards of a compiled entry about values outside its arguments. Rules: CAP-3..CAP-5, GRD-1.

Stage 1 collects guards while the function runs; `aotlite.pipeline.arguments` checks them at each
call. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.snapshots import Snapshotter


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
    """The value at `place` equals `frozen` (numbers, flags, the form of containers)."""

    place: AccessPath
    frozen: Any


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
    """The values at `places` have these images, in which equal numbers mean the same object.

    The places are all values that the function can reach by name, and the Modules among its
    arguments.
    """

    places: tuple[AccessPath, ...]
    images: tuple[Any, ...]

    @classmethod
    def at(
        cls, places: tuple[AccessPath, ...], leaves: list[Any], tensors: list[Tensor]
    ) -> EnvironmentGuard:
        """Returns the guard of the present values, for the arguments' leaves and tensors."""
        freezer = Snapshotter(tensors, deep=True)
        return cls(places, tuple([freezer.image(place.resolve(leaves)) for place in places]))

    def changed(self, leaves: list[Any], tensors: list[Tensor]) -> AccessPath | None:
        """Returns the first place whose value has changed; None if none has."""
        now = EnvironmentGuard.at(self.places, leaves, tensors).images
        if now == self.images:
            return None
        pairs = zip(self.places, self.images, now, strict=True)
        return next(place for place, before, after in pairs if before != after)


Guard = (
    HiddenInputGuard
    | SameTensorGuard
    | ValueGuard
    | GradAttributeGuard
    | NoHooksGuard
    | EnvironmentGuard
)
