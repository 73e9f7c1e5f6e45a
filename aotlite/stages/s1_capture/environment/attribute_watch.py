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
import gc
import itertools
import os
import sys
import types
import weakref
from collections.abc import Collection, Iterable, Iterator, Sized
from typing import Any, Generic, Protocol, cast

import attr
import attrs

from aotlite.eager.base.tensor import Tensor
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
from aotlite.stages.s1_capture.environment.object_contents import (
    NAMESPACES,
    attributes,
    is_a,
    is_object,
)
from aotlite.stages.s1_capture.grad_attribute import GradAttributes
from aotlite.stages.s1_capture.metadata_mutations import MetadataMutations

_LOCK = lock()
_KINDS: weakref.WeakSet[type] = weakref.WeakSet()
"""The classes in which descriptors stand, or stood."""
_METHODS = (types.FunctionType, classmethod, staticmethod)
_SLOT = types.MemberDescriptorType
_TESTS = frozenset("isinstance issubclass singledispatch singledispatchmethod dispatch".split())
"""Names by which code asks for the class of an object."""
_OF_ATTRS = os.path.dirname(attr.__file__) + os.sep
"""Methods that attrs adds ask for no protocol."""
_LOOKS = frozenset(
    "vars __dict__ __mro__ dir getmembers getmembers_static getattr_static classify_class_attrs "
    "dataclass make_dataclass create_autospec mock update_abstractmethods".split()
)
"""Names by which code looks into the body of a class."""
_LOOKED = frozenset(("__dict__", "__mro__"))
_HOOKS = ("__subclasshook__", "__instancecheck__", "__subclasscheck__")
"""Methods by which a class answers `isinstance` and `issubclass`."""
_SETTERS = frozenset(("setattr", "delattr", "__setattr__", "__delattr__"))
_DELETERS = frozenset(("delattr", "__delattr__"))
_STORES = ("STORE_ATTR", "DELETE_ATTR")
_SINGLE = frozenset((*PLAIN, types.FunctionType, type, Tensor))
"""Types of values that change only where an attribute is set."""
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
            codes = [inner for code in world.codes for inner in with_inner(code)]
            if not _may_look(world, codes):
                self._is_known = True
                self._place_in_classes(codes)

    def _place_in_classes(self, codes: list[types.CodeType]) -> None:
        """Places descriptors of the names that code reads, and whose values it may change."""
        names = _Changed.by(codes)
        loaded = _names(codes, OF_ATTRIBUTES)
        loaded -= {name for code in codes if "super" in code.co_names for name in code.co_names}
        held: dict[type, dict[str, bool]] = {}
        for each in self._objects.values():
            own = held.setdefault(type(each), {})
            for name, value in attributes(each).items():
                may_change = names.is_stored(name) or not _is_single(value)
                own[name] = own.get(name, False) or may_change
        found = [
            (kind, name, name in own)
            for kind, own in held.items()
            for name in {*filter(own.get, own), *names.stored, *_cached(kind)} & loaded
        ]
        asks = _may_ask_protocols(codes)
        asked = _asked_by_protocols({name for _, name, _ in found}) if asks else set()
        with _LOCK:
            for kind, name, is_held in found:
                is_seen = name in asked or names.is_deleted(name) and name not in vars(kind)
                if not is_seen and _can_watch(kind, name, is_held=is_held):
                    self._placed[kind, name] = _place(kind, name, self)

    def stop(self) -> None:
        """Takes the descriptors out of the classes."""
        with _LOCK:
            for kind, name in self._placed:
                watched = self._placed[kind, name]
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
        is_own = any(is_a(x.target, Op) and x.target not in BUILT_IN for x in recorder.nodes)
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


def without_watches(world: World) -> World:
    """A snapshot in which classes hold what their bodies hold, where it was made while another
    thread captures."""
    if _KINDS:
        _see_through_all(world)
    return world


def _see_through_all(world: World) -> None:
    for kind, own in world.held.values():
        if is_a(kind, type):
            _see_through(own)
    for _, found in world.numbers.values():
        _see_through(found)
    world.variables[:] = [(at, _seen_through(value)) for at, value in world.variables]


def _see_through(found: dict[Any, Any]) -> None:
    for key in [key for key, value in found.items() if type(value) is _Watched]:
        value = found.pop(key).own
        if value is not NOTHING:
            found[key] = value


def _seen_through(value: object) -> object:
    return value.own if type(value) is _Watched else value


def _may_look(world: World, codes: list[types.CodeType]) -> bool:
    """Whether code may look into bodies of classes, or give an object another class."""
    texts = {text for code in codes for text in texts_in(code)}
    if "__class__" in texts | _names(codes, ("STORE_ATTR",)) or not _LOOKED.isdisjoint(texts):
        return True
    met = list(world.met.values())
    hooks = [code for each in met if is_a(each, type) for code in _hooks_of(cast(type, each))]
    if any(not _LOOKS.isdisjoint(code.co_names) for code in (*codes, *hooks)):
        return True
    return any(_is_of_mock(each) for each in met)


def _is_of_mock(thing: object) -> bool:
    named = thing if is_a(thing, (type, types.FunctionType)) else type(thing)
    return named.__module__ == "unittest.mock"


def _hooks_of(kind: type) -> Iterator[types.CodeType]:
    """The code by which a class, also of a package, answers `isinstance` and `issubclass`."""
    owners: tuple[type, ...] = kind, type(kind)
    for cls in [cls for owner in owners for cls in owner.__mro__ if is_users(cls)]:
        for name in _HOOKS:
            found = vars(cls).get(name)
            function = getattr(found, "__func__", found)
            if type(function) is types.FunctionType:
                yield from with_inner(function.__code__)


def _may_ask_protocols(codes: Collection[types.CodeType]) -> bool:
    """Whether code tests classes: by name, by a class pattern, or by dispatch on them."""
    codes = [code for code in codes if not code.co_filename.startswith(_OF_ATTRS)]
    if any(not _TESTS.isdisjoint((*code.co_names, *code.co_freevars)) for code in codes):
        return True
    return any(step.opname == "MATCH_CLASS" for code in codes for step in steps_of(code))


def _asked_by_protocols(names: set[str]) -> set[str]:
    """The names that a `runtime_checkable` protocol asks for. `isinstance` looks for them in the
    bodies of classes, and keeps the answer for a class for ever."""
    generic: type = Generic
    known: list[type] = generic.__subclasses__()
    roots = [each for each in known if each.__name__ == "Protocol"]
    asked: set[str] = set()
    for root in roots:
        protocols: list[type] = type.__subclasses__(root)
        for kind in protocols:
            if is_users(kind) and getattr(kind, "_is_runtime_protocol", False):
                for cls in kind.__mro__:
                    asked |= names & {*vars(cls), *vars(cls).get("__annotations__", ())}
    return asked


@attrs.frozen
class _Changed:
    """The names of attributes that code sets and deletes."""

    stored: set[str]
    """Those that instructions set, but for those of an `__init__`, which has new objects."""
    deleted: set[str]
    """Those that instructions delete, of what may be a class."""
    has_setter: bool
    """Code calls functions that set the attribute of a computed name."""
    has_deleter: bool

    @classmethod
    def by(cls, codes: list[types.CodeType]) -> _Changed:
        called = {name for code in codes for name in code.co_names}
        again = [code for code in codes if code.co_name != "__init__"]
        return cls(
            _names(again, _STORES),
            {name for code in codes for name in _deleted(code)},
            not _SETTERS.isdisjoint(called),
            not _DELETERS.isdisjoint(called),
        )

    def is_stored(self, name: str) -> bool:
        return self.has_setter or name in self.stored

    def is_deleted(self, name: str) -> bool:
        return self.has_deleter or name in self.deleted


def _deleted(code: types.CodeType) -> Iterator[str]:
    """The attributes that code deletes, but for those of the `self` of a method."""
    steps = steps_of(code)
    is_method = "." in code.co_qualname and code.co_varnames[:1] == ("self",)
    for before, step in itertools.pairwise(steps):
        if step.opname == "DELETE_ATTR" and not (is_method and before.argval == "self"):
            yield step.argval


def _is_single(value: object) -> bool:
    """Whether a value changes only where an attribute is set."""
    return type(value) in _SINGLE


def _cached(kind: type) -> set[str]:
    own = (each for cls in kind.__mro__ for each in vars(cls).items())
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
    if name.startswith("__"):
        return False
    if type(found) in (_SLOT, _Watched):
        return True
    if type(_found(kind, "__dict__")) is not types.GetSetDescriptorType:
        return False  # there is none, or a property of the user's
    if is_a(found, _METHODS) and not is_held:
        return False
    return not any(hasattr(type(found), each) for each in ("__set__", "__delete__"))


def _place(kind: type, name: str, watch: AttributeWatch) -> _Watched:
    """The descriptor of a name in a class, which now also tells this watch."""
    _KINDS.add(kind)
    there: Any = vars(kind).get(name, NOTHING)
    if type(there) is not _Watched:
        slot = _found(kind, name)
        there = _Watched(kind, name, there, slot if type(slot) is _SLOT else None)
        type.__setattr__(kind, name, there)
    there.watches.append(watch)
    return there


def _is_immutable(value: object) -> bool:
    return type(value) in PLAIN or type(value) is tuple and all(map(_is_immutable, value))


_OWN_REFERENCES = 4
"""The references to a descriptor that leaves: of its watch, of two calls, and of the count."""


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
        if self.watches:
            return
        if vars(self.kind).get(self.name) is self:
            self._give_back(self.kind)
        if sys.getrefcount(self) > _OWN_REFERENCES:
            self._leave_copies()

    def _give_back(self, kind: type) -> None:
        if self.own is NOTHING:
            type.__delattr__(kind, self.name)
        else:
            type.__setattr__(kind, self.name, self.own)

    def _leave_copies(self) -> None:
        """Takes this descriptor out of classes and dictionaries into which code has copied it by
        ways that no name tells: `getattr(kind, "__" + "dict" + "__")`."""
        for holder in gc.get_referrers(self):
            if type(holder) is not dict:
                continue
            owners = [x for x in gc.get_referrers(holder) if is_a(x, type)]
            kinds = [kind for kind in owners if vars(kind).get(self.name) is self]
            for kind in kinds:
                self._give_back(kind)
            for key in [key for key, value in holder.items() if value is self]:
                if type(key) is str:  # another key is one of the watch
                    holder.pop(key) if self.own is NOTHING else holder.__setitem__(key, self.own)

    def __get__(self, thing: object, kind: Any = None) -> object:
        if thing is None:
            return self._of_class(None, kind)
        for watch in self.watches:
            watch.note(thing, self.name, sys._getframe(1))
        if self.slot is not None:
            return self.slot.__get__(thing, kind)
        held = dict.get(attributes_of(thing), self.name, NOTHING)  # a subclass of dict is not asked
        return held if held is not NOTHING else self._of_class(thing, type(thing))

    def __set__(self, thing: object, value: object) -> None:
        if self.slot is not None:
            self.slot.__set__(thing, value)
        else:
            dict.__setitem__(attributes_of(thing), self.name, value)

    def __delete__(self, thing: object) -> None:
        if self.slot is not None:
            self.slot.__delete__(thing)
        elif dict.__contains__(attributes_of(thing), self.name):
            dict.__delitem__(attributes_of(thing), self.name)
        else:  # the error that Python raises for an object of this name
            stand_in = type(type(thing).__name__, (), {})()
            delattr(stand_in, self.name)

    def _of_class(self, thing: object, kind: type) -> object:
        """What the class gives for the name, without this descriptor."""
        found = self._below(kind)
        if found is NOTHING and thing is None:
            of_meta = _found(type(kind), self.name)
            if of_meta is not NOTHING:
                getter = getattr(type(of_meta), "__get__", None)
                return of_meta if getter is None else getter(of_meta, kind, type(kind))
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
