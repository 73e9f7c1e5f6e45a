"""What a function can reach, compared before and after its capture: it must not change any of it.

A kept entry repeats no change of Python objects: a call that appends to a list would do so in the
process that compiles, and in no other. Rule: CACHE-3. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import types
from typing import Any

from aotlite.artifacts.reads.value_images import Images, NoImage
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex


class Surroundings:
    """The images of all variables that a function can reach by name, at one time."""

    def __init__(self, function: Any, leaves: list[Any]) -> None:
        index = AccessPathIndex(function, leaves)
        observed = [i for i, leaf in enumerate(leaves) if isinstance(leaf, TrackedObject)]
        self._places = [AccessPath(i, function) for i in observed] + index.roots()
        self._leaves = leaves
        self.functions = index.functions()
        """The functions among them."""
        self._before = self._images()

    def change(self) -> str | None:
        """The first place whose value is another one now; None if there is none."""
        for place, before, now in zip(self._places, self._before, self._images(), strict=True):
            if before != now:
                return str(place)
        return None

    def _images(self) -> list[str]:
        images, found = _IdentityImages((), None), []
        for place in self._places:
            try:
                found.append(images.of(place.resolve(self._leaves)))
            except NoImage as error:
                found.append(f"unkeyed: {error}")
        return found


class _IdentityImages(Images):
    """Images within one process: code and unknown objects by identity."""

    def _function(self, value: types.FunctionType, depth: int) -> str:
        return f"function {id(value)}"

    def _kind(self, kind: type, depth: int) -> str:
        return f"class {id(kind)}"

    def _object(self, value: Any, depth: int) -> str:
        try:
            return super()._object(value, depth)
        except NoImage:
            return f"object {id(value)}"
