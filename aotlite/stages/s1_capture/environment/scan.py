"""Snapshots of a function's environment (closure, globals, Modules), made before its run.

A value that the run did not change becomes a guard: the graph may depend on it. Called by stage 1.
Rules: CAP-12, CAP-14, GRD-3. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs

from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import (
    EnvironmentGuard,
    Guard,
    NoHooksGuard,
    ValueGuard,
)
from aotlite.stages.records.guards.snapshots import COMPOUND, Snapshot, snapshot_of, snapshot_of_all
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.environment.attribute_watch import WatchedCapture
from aotlite.stages.s1_capture.environment.python_numbers import SelfChangedNumbers


@attrs.define(eq=False, repr=False)
class EnvironmentBefore:
    """The environment as it was before the function ran, and the guards made of it."""

    _before: list[tuple[AccessPath, Snapshot]] = attrs.field(factory=list)
    _changed: set[int] = attrs.field(factory=set)
    """Indices of places that hooks may change: their values are not guarded."""
    _guards: list[Guard] = attrs.field(factory=list)
    numbers: SelfChangedNumbers = attrs.field(factory=SelfChangedNumbers)

    def look(self, function: object, places: Sequence[AccessPath], leaves: list[Any]) -> None:
        """Takes the snapshots, before the function runs."""
        self._before = [(place, snapshot_of(place.resolve(leaves), deep=True)) for place in places]
        self.numbers.look(function, places, leaves)

    def note_reached(self, things: Sequence[object], leaves: list[Any]) -> None:
        """Excludes containers from the guards: each backward may call a hook that changes them."""
        ids = set(map(id, things))
        for number, (place, _) in enumerate(self._before):
            if id(place.resolve(leaves)) in ids:
                self._changed.add(number)

    def guard(self, recorder: CaptureTrace, tensors: dict[InputRole, Tensor]) -> None:
        """Adds guards of all values that neither the function nor its hooks change.

        A value that the function changed itself, such as a list that it appends to, is not guarded:
        a compiled call does not repeat the change, and nothing may read it (CAP-14). A change of a
        Module's attributes is refused.
        """
        kept: dict[AccessPath, Any] = {}
        guards: list[Guard] = []
        self.numbers.watch.times += 1
        for number, (place, before) in enumerate(self._before):
            value = place.resolve(recorder.leaves)
            if before.holds(value):
                if number in self._changed:
                    continue
                if isinstance(value, COMPOUND):
                    kept[place] = value
                else:
                    guards.append(ValueGuard(place, before))
            elif isinstance(value, TrackedObject):
                raise recorder.refuse(
                    f"a change of what {place} holds",
                    "keep what changes in a buffer and write it in place, or change the object "
                    "outside the compiled function",
                )
        if kept:
            snapshot = snapshot_of_all(list(kept.values()), list(tensors.values()), deep=True)
            guards.append(EnvironmentGuard(tuple(kept), tuple(tensors), snapshot))
        stale = set(map(id, self._guards))
        recorder.guards[:] = [each for each in recorder.guards if id(each) not in stale] + guards
        self._guards = guards


class Surrounded(WatchedCapture, Protocol):
    """A recorder with what surrounds its function."""

    around: EnvironmentBefore


def watching(recorder: Surrounded) -> AbstractContextManager[None]:
    """A block in which the captured function runs, and reads of attributes are noted (CAP-14)."""
    numbers = recorder.around.numbers
    return numbers.watch.running(numbers.before, recorder)


def check_unwatched(recorder: CaptureTrace, inputs: Sequence[Any]) -> None:
    """Checks the inputs of an inner `grad` or `backward`: they have no hooks, now and at each call.

    Hooks would have to run at each call, and each call may have other ones. A view that was written
    before is refused too: its gradient has the history of its base.
    """
    for each in inputs:
        given = recorder.input_of(recorder.here(each)) if isinstance(each, Tensor) else None
        if given is not None and is_watched(recorder.real_of(given.fake)):
            what = f"the gradient of {given.place}, which has hooks or is retained,"
            raise recorder.refuse(what, "ask for it outside, or of x.view_as(x), taken inside")
        if given is not None and given.family is None and given.storage.version:
            is_view = recorder.real_of(given.fake)._base is not None
            if is_view and given.requires_grad and not given.is_leaf:
                what = f"the gradient of {given.place}, a view that was written before,"
                raise recorder.refuse(what, "pass what it is a view of, too")
        if given is not None:
            recorder.guards.append(NoHooksGuard(given.role))
