"""Snapshots of a function's environment (closure, globals, Modules), made before its run.

A value that the run did not change becomes a guard: the graph may depend on it. Called by stage 1.
Rules: CAP-12, CAP-14, GRD-3. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs

from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath
from aotlite.stages.records.guards.guard_records import (
    EnvironmentGuard,
    Guard,
    NoHooksGuard,
    ValueGuard,
)
from aotlite.stages.records.guards.snapshots import (
    COMPOUND,
    PLAIN,
    Snapshot,
    snapshot_of,
    snapshot_of_all,
)
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.environment.attribute_watch import WatchedCapture
from aotlite.stages.s1_capture.environment.bytecode_reads import Items
from aotlite.stages.s1_capture.environment.number_reads import Change, SearchedCode, first_read
from aotlite.stages.s1_capture.environment.object_contents import (
    DICTS,
    HELD,
    attributes,
    base_of,
    content_of,
    is_a,
)
from aotlite.stages.s1_capture.environment.python_numbers import SelfChangedNumbers

_DEEPEST = 4


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
        a compiled call does not repeat the change, and nothing may read it (CAP-14). Of a container
        the other items that code reads are guarded. A change of a Module's attributes is refused.
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
            elif number not in self._changed and is_a(value, HELD):
                guards += self._items(place, value, recorder.leaves)
        guards += self._attributes(recorder.leaves)
        if kept:
            snapshot = snapshot_of_all(list(kept.values()), list(tensors.values()), deep=True)
            guards.append(EnvironmentGuard(tuple(kept), tuple(tensors), snapshot))
        stale = set(map(id, self._guards))
        recorder.guards[:] = [each for each in recorder.guards if id(each) not in stale] + guards
        self._guards = guards

    def _attributes(self, leaves: list[Any]) -> Iterator[Guard]:
        """Guards of the attributes of plain objects that the run has read and not changed, and that
        code of the function changes in other calls: `if n > self.most: self.most = n`."""
        before = self.numbers.before
        roots = [*self.numbers.roots, *[place for place, _ in before.numbers.values()]]
        functions = {id(each.function): each.function for each in roots}
        done = set()
        for (argument, function, path), owner in before.objects.items():
            _, held = before.held.get((id(owner), "attributes"), (None, {}))
            for name in self.numbers.watch.names_read(owner):
                place = AccessPath(argument, functions.get(function), (*path, ("attr", name)))
                value = place.resolve(leaves)
                if (id(owner), name) in done or function not in functions:
                    continue
                done.add((id(owner), name))
                was, now = held.get(name, NOTHING), attributes(owner).get(name, NOTHING)
                if not (was is now or type(was) in PLAIN and snapshot_of(was).holds(now)):
                    continue
                if type(value) in PLAIN or value is NOTHING or self._is_kept(value):
                    yield ValueGuard(place, snapshot_of(value, deep=True))

    def _is_kept(self, container: Any) -> bool:
        """Whether it is a container of numbers that is as it was."""
        _, was = self.numbers.before.held.get((id(container), "contents"), (None, None))
        if was is None or not is_a(container, HELD):
            return False
        now, items = content_of(container), list(was)
        if is_a(container, DICTS):
            items = [each for pair in items for each in pair]
        return all(type(each) in PLAIN for each in items) and snapshot_of(was).holds(now)

    def _items(
        self, place: AccessPath, container: Any, leaves: list[Any], above: Items = ()
    ) -> Iterator[Guard]:
        """Guards of the numbers that a changed container held before, and still holds, and that
        code reads: `self.table["scale"]` beside `self.table["calls"] += 1`."""
        _, content = self.numbers.before.held.get((id(container), "contents"), (None, ()))
        is_dict = is_a(container, DICTS)
        if not is_dict and base_of(container) is set:
            return
        now = dict(content_of(container) if is_dict else enumerate(content_of(container)))
        searched = SearchedCode.of(self.numbers.before)
        for key, was in list(content) if is_dict else list(enumerate(content)):
            value, items = now.get(key, NOTHING), (*above, key)
            at = functools.reduce(lambda at, each: at.then("item", each), items, place)
            if type(key) not in PLAIN:
                continue
            if was is value and is_a(value, HELD) and len(items) < _DEEPEST:
                yield from self._items(place, value, leaves, items)
            elif type(was) in PLAIN and snapshot_of(was).holds(value):
                one = Change(place, items, NOTHING, False, True, False, False, None)
                if first_read(one, leaves, searched) is not None:
                    yield ValueGuard(at, snapshot_of(was))


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
