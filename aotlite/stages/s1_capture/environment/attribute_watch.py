"""Notes which instructions read which attributes of plain objects while a function is captured.

The search of names (`number_reads`) knows the instructions that may read an attribute called
`step`: those that load `step` of any object. Which object it was, and whether the instruction ran
at all, is noted here. A data descriptor stands in the class of the object, gives what the object
holds, and notes the instruction that asked. The class, and `__dict__`, of the object stay.
Used by `python_numbers`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import sys
import types
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Protocol

import attrs

from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.forks import lock
from aotlite.ir.graph import Node
from aotlite.ir.op import Op
from aotlite.ir.ops import BUILT_IN
from aotlite.stages.records.guards.access_paths import NOTHING, attributes_of
from aotlite.stages.records.guards.snapshots import PLAIN
from aotlite.stages.s1_capture.data_sizes import DataSizes
from aotlite.stages.s1_capture.environment.access_search import is_installed, is_users
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    OF_ATTRIBUTES,
    Instruction,
    steps_of,
    with_inner,
)
from aotlite.stages.s1_capture.environment.number_reads import texts_in
from aotlite.stages.s1_capture.environment.number_search import World
from aotlite.stages.s1_capture.environment.object_contents import NAMESPACES, attributes, is_object
from aotlite.stages.s1_capture.grad_attribute import GradAttributes
from aotlite.stages.s1_capture.metadata_mutations import MetadataMutations

_LOCK = lock()
_METHODS = (types.FunctionType, classmethod, staticmethod)
_SLOT = types.MemberDescriptorType
_LOOKS = frozenset("vars __dict__ __mro__ dir getmembers getmembers_static getattr_static".split())
"""Names by which code looks into the body of a class."""
_SAVING = frozenset(("saved_tensors_hooks", "save_on_cpu", "register_hooks"))
"""Names of hooks of saved tensors, which a backward runs."""
Effects = tuple[object, ...]


class WatchedCapture(Protocol):
    """The parts of the recorder that tell what code has recorded."""

    nodes: list[Node]
    changes: MetadataMutations
    grads: GradAttributes
    data: DataSizes


@attrs.define(eq=False, repr=False)
class AttributeWatch:
    """The reads of attributes by one captured run."""

    recorder: WatchedCapture | None = None
    _objects: dict[int, object] = attrs.field(factory=dict)
    """The objects that the function reached before it ran, by `id`."""
    _placed: dict[tuple[type, str], _Watched] = attrs.field(factory=dict)
    _reads: dict[tuple[int, str], set[Instruction]] = attrs.field(factory=dict)
    _computed: dict[tuple[int, str], object] = attrs.field(factory=dict)
    """What cached properties gave that recorded nothing; NOTHING where that is not known."""
    _is_known: bool = False
    times: int = 0
    """How often guards were made: another time because users' Python ran in the backward, which is
    not watched, or will."""

    def start(self, world: World, recorder: WatchedCapture) -> None:
        """Watches the attributes that code asks for, of the objects found."""
        self.recorder = recorder
        self._objects = {id(each): each for each in world.objects.values() if _is_plain(each)}
        if self._objects:
            self._place_in_classes([inner for code in world.codes for inner in with_inner(code)])

    def _place_in_classes(self, codes: list[types.CodeType]) -> None:
        if "__class__" in _names(codes, ("STORE_ATTR",)).union(*map(texts_in, codes)):
            return  # an object may get another class
        if any(not _LOOKS.isdisjoint(code.co_names) for code in codes):
            return  # the descriptors would be seen
        self._is_known = True
        held: dict[type, set[str]] = {}
        for each in self._objects.values():
            held.setdefault(type(each), set()).update(attributes(each))
        loaded, stored = _names(codes, OF_ATTRIBUTES), _names(codes, ("STORE_ATTR",))
        loaded -= {name for code in codes if "super" in code.co_names for name in code.co_names}
        with _LOCK:
            for kind, own in held.items():
                for name in (own | stored | _cached(kind)) & loaded:
                    if _can_watch(kind, name, is_held=name in own):
                        self._placed[kind, name] = _place(kind, name, self)

    def stop(self) -> None:
        """Takes the descriptors out of the classes."""
        with _LOCK:
            for (kind, name), watched in self._placed.items():
                if vars(kind).get(name) is not watched:  # the function has set another one
                    self._objects = {i: x for i, x in self._objects.items() if type(x) is not kind}
                watched.leave(self)

    @contextlib.contextmanager
    def running(self, world: World, recorder: WatchedCapture) -> Iterator[None]:
        """A block in which the function runs, watched."""
        try:
            self.start(world, recorder)
            yield
        finally:
            self.stop()

    def forget(self) -> None:
        """From now on nothing is known: code ran, or will run, that was not watched."""
        self._is_known = False

    def forget_what_runs_later(self, world: World) -> None:
        """Nothing is known where later calls run code of users: hooks, callbacks, own ops."""
        recorder = self.recorder
        if recorder is None or not self._is_known:
            return
        targets = [node.target for node in recorder.nodes]
        is_own = any(isinstance(each, Op) and each not in BUILT_IN for each in targets)
        names = {name for code in world.codes for c in with_inner(code) for name in c.co_names}
        if is_own or recorder.data.keeps or not _SAVING.isdisjoint(names):
            self.forget()

    def reads(self, thing: object, name: str) -> set[Instruction] | None:
        """The instructions that have read an attribute of an object; None if that is not known."""
        key = id(thing), name
        is_watched = id(thing) in self._objects and (type(thing), name) in self._placed
        if not (self._is_known and is_watched) or self.times > 1:
            return None
        if key in self._computed and self._computed[key] is attributes_of(thing).get(name):
            return set()  # later reads give what this run has computed
        return self._reads.get(key, set())

    # --- what the descriptors tell
    def note(self, thing: object, name: str, frame: types.FrameType) -> None:
        if id(thing) in self._objects:
            at = frame.f_code, frame.f_lasti
            self._reads.setdefault((id(thing), name), set()).add(at)

    def effects(self) -> Effects:
        """What has been recorded so far."""
        recorder = self.recorder
        assert recorder is not None
        changes = recorder.changes
        tables: tuple[Sized, ...] = (
            changes.puts,
            changes.moved,
            changes.growths,
            changes.sizes,
            changes.counts.steps,
        )
        made = sum(map(len, changes.of.values())) + len(changes.counts.steps)
        return len(recorder.nodes), made, *map(len, tables), recorder.grads.image()

    def computes(self, thing: object, name: str, value: object, before: Effects) -> None:
        """A cached property has given its first value."""
        is_pure = _is_immutable(value) and before == self.effects()
        known = value if is_pure and (id(thing), name) not in self._computed else NOTHING
        self._computed[id(thing), name] = known


def _names(codes: Iterable[types.CodeType], kinds: tuple[str, ...]) -> set[str]:
    return {step.argval for code in codes for step in steps_of(code) if step.opname in kinds}


def _cached(kind: type) -> set[str]:
    own = [each for cls in kind.__mro__ for each in vars(cls).items()]
    return {name for name, value in own if type(value) is functools.cached_property}


def _is_plain(thing: object) -> bool:
    """Whether a thing is an object of a user's class, whose attributes can be watched."""
    kind = type(thing)
    if issubclass(kind, (TrackedObject, types.FunctionType, type, *NAMESPACES)):
        return False
    return is_object(thing) and is_users(kind) and not is_installed(kind) and _is_simple(kind)


def _is_simple(kind: type) -> bool:
    return type(kind) in (type, abc.ABCMeta)


def _found(kind: type, name: str) -> object:
    return next((vars(cls)[name] for cls in kind.__mro__ if name in vars(cls)), NOTHING)


def _can_watch(kind: type, name: str, *, is_held: bool) -> bool:
    """Whether a descriptor in the class gives all that Python gives for the name."""
    found = _found(kind, name)
    if type(found) in (_SLOT, _Watched):
        return True
    if not kind.__dictoffset__ or name.startswith("__"):
        return False
    if isinstance(found, _METHODS) and not is_held:
        return False
    return not any(hasattr(type(found), each) for each in ("__set__", "__delete__"))


def _place(kind: type, name: str, watch: AttributeWatch) -> _Watched:
    """The descriptor of a name in a class, which now also tells this watch."""
    there: Any = vars(kind).get(name, NOTHING)
    if type(there) is not _Watched:
        slot = _found(kind, name)
        there = _Watched(kind, name, there, slot if type(slot) is _SLOT else None)
        type.__setattr__(kind, name, there)
    there.watches.append(watch)
    return there


def _is_immutable(value: object) -> bool:
    return type(value) in PLAIN or type(value) is tuple and all(map(_is_immutable, value))


@attrs.define(eq=False, repr=False)
class _Watched:
    """A data descriptor that gives and sets what an object holds under a name."""

    kind: type
    name: str
    own: object
    """What the body of the class has under the name; NOTHING if it has not."""
    slot: types.MemberDescriptorType | None
    """The descriptor of the slot; None if the object has a dictionary."""
    watches: list[AttributeWatch] = attrs.field(factory=list)

    def leave(self, watch: AttributeWatch) -> None:
        self.watches.remove(watch)
        if self.watches or vars(self.kind).get(self.name) is not self:
            return
        if self.own is NOTHING:
            type.__delattr__(self.kind, self.name)
        else:
            type.__setattr__(self.kind, self.name, self.own)

    def __get__(self, thing: object, kind: Any = None) -> object:
        if thing is None:
            return self._of_class(None, kind)
        for watch in self.watches:
            watch.note(thing, self.name, sys._getframe(1))
        if self.slot is not None:
            return self.slot.__get__(thing, kind)
        held = attributes_of(thing)
        return held[self.name] if self.name in held else self._of_class(thing, type(thing))

    def __set__(self, thing: object, value: object) -> None:
        if self.slot is not None:
            self.slot.__set__(thing, value)
        else:
            attributes_of(thing)[self.name] = value

    def __delete__(self, thing: object) -> None:
        if self.slot is not None:
            self.slot.__delete__(thing)
        elif self.name in attributes_of(thing):
            del attributes_of(thing)[self.name]
        else:  # the error that Python raises for an object of this name
            stand_in = type(type(thing).__name__, (), {})()
            delattr(stand_in, self.name)

    def _of_class(self, thing: object, kind: type) -> object:
        """What the class gives for the name, without this descriptor."""
        found = self._below(kind)
        if found is NOTHING and thing is None:
            text = f"type object {kind.__name__!r} has no attribute {self.name!r}"
            raise AttributeError(text, name=self.name, obj=kind)
        if found is NOTHING:
            text = f"{kind.__name__!r} object has no attribute {self.name!r}"
            raise AttributeError(text, name=self.name, obj=thing)
        getter = getattr(type(found), "__get__", None)
        if getter is None:
            return found
        if thing is None or type(found) is not functools.cached_property:
            return getter(found, thing, kind)
        before = [(each, each.effects()) for each in self.watches]
        value = getter(found, thing, kind)
        for watch, effects in before:
            watch.computes(thing, self.name, value, effects)
        return value

    def _below(self, kind: type) -> object:
        for cls in kind.__mro__:
            found = vars(cls).get(self.name, NOTHING)
            if type(found) is _Watched:
                found = found.own
            if found is not NOTHING:
                return found
        return NOTHING
