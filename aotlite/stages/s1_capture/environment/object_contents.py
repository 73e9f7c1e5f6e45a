"""The contents of Python's objects, as the search of numbers compares them.

A container gives its items and how many there are; a set, an array, an iterator or a queue gives
one image of all that it holds. Nothing here calls code of a user's class, and no iterator moves.

`ValueComparison` compares what lies in one place before and after the run. Numbers are compared by
value. Of two objects that both were there before the run, one is not the other, though they are
alike: `first, second = second, first`. An object that the run may have made is like the one before
it if all that they hold is: `self.state = State(0)` in each call.
Used by `number_search` and its neighbours. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import _thread
import argparse
import array
import collections
import contextvars
import ctypes
import datetime
import enum
import functools
import io
import itertools
import numbers
import pathlib
import queue
import re
import threading
import types
import uuid
import warnings
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.op import Op
from aotlite.stages.records.guards.access_paths import ARGS, NOTHING, AccessPath, attributes_of
from aotlite.stages.records.guards.snapshots import MANY, PLAIN, Snapshot, snapshot_of
from aotlite.stages.s1_capture.environment.access_search import is_users, is_users_name
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    ANY,
    LENGTH,
    ORDER,
    SIZE,
    Items,
)

NUMBERS = (*PLAIN, np.generic, enum.Enum)
LISTS = (list, tuple, collections.deque)
SETS = (set, frozenset)
DICTS = (collections.OrderedDict, dict)
HELD = (list, collections.deque, set, *DICTS)
"""Containers that are read and restored by the builtin's methods, not a user subclass's."""
_BASES = (*HELD, tuple, frozenset)
_ARRAY = 4096
"""The largest array, in bytes, whose contents are compared and restored."""
_NO_OBJECTS = (
    *(Tensor, types.ModuleType, type, types.FunctionType, types.MethodType, types.GeneratorType),
    *(tuple, frozenset),
)
NAMESPACES = (types.SimpleNamespace, threading.local, argparse.Namespace)
"""Classes of Python's library whose objects have attributes of users."""
VALUES = (
    *(numbers.Number, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(uuid.UUID, pathlib.PurePath, range, slice),
)
"""Immutable classes of Python's library: their objects are compared as texts."""
_EMPTY: tuple[Any, ...] = ([], (), {}, set(), "", b"", range(0), {}.values(), {}.items())
_ITERATORS: tuple[type, ...] = (
    *{type(iter(each)) for each in _EMPTY},
    *(enumerate, zip, map, filter, reversed, type(reversed([])), type(reversed({}))),
    *[each for each in vars(itertools).values() if isinstance(each, type)],
)
_QUEUES = (queue.Queue, queue.SimpleQueue)
_SIGNALS = (threading.Event, threading.Semaphore, threading.Barrier)
_LOCKS = (_thread.LockType, _thread.RLock)
_WRAPPED = (
    *(collections.UserDict, collections.UserList, collections.UserString),
    *(weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet),
)
"""Classes of Python's library that hold their contents in `data`."""
_C_DATA = ctypes.c_int.__mro__[2]
_BUFFERS = (bytearray, array.array, memoryview, _C_DATA)
_STATEFUL: tuple[type, ...] = (
    *(*_ITERATORS, types.GeneratorType, *_QUEUES, *_SIGNALS, *_LOCKS),
    *(*_WRAPPED, collections.ChainMap),
    *(*_BUFFERS, io.StringIO, io.BytesIO, contextvars.ContextVar, np.flatiter),
)


_INNER = ((_WRAPPED, "data"), ((collections.ChainMap,), "maps"), ((queue.Queue,), "queue"))


class Image(str):
    """The contents of a set, an array or an iterator, compared as a whole; prints as text."""

    __slots__ = ("image",)
    image: object

    def __new__(cls, image: object, text: str) -> Image:
        made = super().__new__(cls, text)
        made.image = image
        return made

    def __repr__(self) -> str:
        return str(self)


# ------------------------------------------------------------------------------------ containers
def spread(place: AccessPath, value: object) -> Iterator[tuple[Items, Any, AccessPath]]:
    """A value and the items of nested containers in it, each with its keys and its path."""
    waiting: list[tuple[Items, Any, AccessPath, tuple[int, ...]]] = [((), value, place, ())]
    for items, inner, at, above in waiting:  # grows while it is walked
        yield items, inner, at
        match category(type(inner)):
            case "set":
                number = base_of(inner).__len__(inner)
                image = set_image(inner) if number <= MANY else number
                yield (*items, ANY), Image(image, f"a set of {number}"), at
            case "array" if is_small_array(inner) and inner.dtype == object:
                held = (inner.shape, *inner.ravel().tolist())
                yield (*items, ANY), Image(held, f"an array of {inner.size} objects"), at
            case "array" if is_small_array(inner):
                yield (*items, ANY), Image(snapshot_of(inner), str(inner)), at
            case "list" | "dict" as form if id(inner) not in above:
                number = base_of(inner).__len__(inner)
                yield (*items, SIZE if form == "dict" else LENGTH), number, at
                content = content_of(inner) if number <= MANY else []
                if form == "dict":
                    yield (*items, ORDER), _order_image([key for key, _ in content]), at
                for key, each in content if form == "dict" else enumerate(content):
                    waiting.append(((*items, key), each, at.then("item", key), (*above, id(inner))))
            case "stateful":
                image = state_image(inner)
                yield (*items, ANY), Image(image, f"a state of a {type(inner).__name__}"), at


def _category(kind: type) -> str:
    if issubclass(kind, NUMBERS):
        return "number"
    if issubclass(kind, SETS):
        return "set"
    if issubclass(kind, (*LISTS, dict)):
        return "dict" if issubclass(kind, dict) else "list"
    if kind is np.ndarray:
        return "array"
    if issubclass(kind, _STATEFUL):
        return "stateful"
    if issubclass(kind, (TrackedObject, *NAMESPACES, BaseException)):
        return "object"
    return "other" if issubclass(kind, _NO_OBJECTS) or not is_users(kind) else "object"


category: Callable[[type], str] = functools.lru_cache(maxsize=512)(_category)
"""How objects of a class are looked at: as a number, a container, an object."""


def is_a(thing: object, kinds: tuple[type, ...] | type) -> bool:
    """`isinstance` by the real type, also of an object that reports another `__class__`."""
    return issubclass(type(thing), kinds)


def is_small_array(thing: object) -> bool:
    return type(thing) is np.ndarray and thing.nbytes <= _ARRAY


def base_of(thing: object) -> Any:
    """The builtin class of a container."""
    return next(kind for kind in _BASES if is_a(thing, kind))


def content_of(thing: object) -> list[Any]:
    """The items of a container, read without calling methods of a subclass."""
    base = base_of(thing)
    return list(base.items(thing) if base in DICTS else base.__iter__(thing))


def _order_image(keys: list[Any]) -> Image:
    """The keys of a dict in their order."""
    shown = [repr(key) if type(key) in PLAIN else f"a {type(key).__name__}" for key in keys[:6]]
    return Image(tuple(keys), ", ".join([*shown, "..."] if len(keys) > 6 else shown))


def set_image(thing: object) -> object:
    """The items of a set, without an order."""
    return frozenset(map(plain_of, content_of(thing)))


def plain_of(key: object) -> object:
    """The image of a key: plain values, tuples and sets of such by value; others by identity."""
    kind = type(key)
    if kind in PLAIN:
        return kind, repr(key) if kind in (float, complex) else key
    if kind is tuple or kind is frozenset:
        return kind, kind(map(plain_of, content_of(key)))
    return snapshot_of(key) if is_a(key, (np.generic, enum.Enum)) else id(key)


# ------------------------------------------------------------------------------------- objects
def is_object(thing: object) -> bool:
    """Whether a thing is a Module, an optimizer, or an object whose attributes are users'."""
    kind = type(thing)
    if issubclass(kind, enum.Enum):
        return is_users(kind)
    found = category(kind)
    if found in ("object", "other", "number"):
        return found == "object"
    return is_users(kind)  # an iterator or container of a user's class has attributes, too


def attributes(thing: object) -> dict[str, object]:
    """The attributes of an object, slots among them, read without calling its class's code."""
    if type(thing) is types.FunctionType:
        return dict(attributes_of(thing))  # its closure, globals and defaults are variables
    found = {
        name: slot.__get__(thing) for name, slot in _slots(type(thing)) if _is_filled(slot, thing)
    }
    if is_a(thing, BaseException):
        found["args"] = ARGS.__get__(thing)
    return {**found, **attributes_of(thing)}


def _slots_of(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        [
            (name, slot)
            for cls in kind.__mro__
            for name, slot in vars(cls).items()
            if type(slot) is types.MemberDescriptorType
        ]
    )


_slots: Callable[[type], tuple[tuple[str, Any], ...]] = functools.lru_cache(maxsize=512)(_slots_of)


def _is_filled(slot: types.MemberDescriptorType, thing: object) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


# ------------------------------------------------------------------------- what things give next
def state_image(thing: Any, depth: int = 8) -> object:
    """What a thing will give next, without moving it: where an iterator stands, what is queued."""
    kind = type(thing)
    if depth == 0:
        return kind
    if kind is types.GeneratorType:
        frame = thing.gi_frame
        own = () if frame is None else tuple(frame.f_locals.items())
        at = None if frame is None else frame.f_lasti
        return kind, at, tuple([(name, _part(each, depth)) for name, each in own])
    if issubclass(kind, _ITERATORS):
        return kind, _reduced(thing, depth)
    for kinds, name in _INNER:
        if issubclass(kind, kinds):
            return kind, _part(attributes_of(thing).get(name), depth)
    if issubclass(kind, _SIGNALS):
        flags = [each for each in attributes_of(thing).values() if type(each) in PLAIN]
        return kind, tuple([(type(each), each) for each in flags])
    if issubclass(kind, _LOCKS):
        return kind, repr(thing).split(" at 0x")[0]  # locked, its owner and how often
    if issubclass(kind, queue.SimpleQueue):
        return kind, queue.SimpleQueue.qsize(thing)
    if issubclass(kind, contextvars.ContextVar):
        return kind, _part(thing.get(None), depth)
    if issubclass(kind, np.flatiter):
        return kind, thing.index
    if issubclass(kind, _BUFFERS):
        return kind, _buffer(thing)
    base: Any = io.StringIO if issubclass(kind, io.StringIO) else io.BytesIO
    try:
        return kind, base.tell(thing), hash(base.getvalue(thing))
    except ValueError:  # it is closed
        return kind, None


def _buffer(thing: Any) -> object:
    """The bytes of a buffer that is not large, else their number; None if it was released."""
    try:
        view = memoryview(thing)
    except ValueError:
        return None
    return bytes(view) if view.nbytes <= _ARRAY else view.nbytes


def _reduced(thing: Any, depth: int) -> object:
    """The arguments and the state of which a copy of an iterator would be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # itertools' since Python 3.12
        try:
            _, *rest = _iterator_base(type(thing)).__reduce__(thing)
        except TypeError:  # it holds what has no copies
            return None
    return tuple([_part(each, depth) for each in rest])


def _iterator_base(kind: type) -> Any:
    """The class of Python's library whose methods are asked, not those of a user's subclass."""
    return next(base for base in kind.__mro__ if base in _ITERATORS)


def _part(value: Any, depth: int) -> object:
    """The image of a part of a state: containers by their parts' images, any other as it is."""
    if is_a(value, _STATEFUL):
        return value, state_image(value, depth - 1)
    found = category(type(value))
    if found not in ("list", "dict", "set"):
        return value
    base = base_of(value)
    if base.__len__(value) > MANY or not depth:
        return type(value), base.__len__(value)
    if found == "set":
        return set_image(value)
    if found == "list":
        return tuple([_part(each, depth - 1) for each in content_of(value)])
    return tuple([(_part(k, depth - 1), _part(v, depth - 1)) for k, v in content_of(value)])


def inner_containers(thing: object) -> list[tuple[str, object]]:
    """The attributes in which a container of Python's library that is no builtin holds its own."""
    own = attributes_of(thing)
    return [(name, own[name]) for kinds, name in _INNER if is_a(thing, kinds) and name in own]


def codes_in(thing: object) -> Iterable[types.CodeType]:
    """The code of a generator that waits."""
    return [thing.gi_code] if type(thing) is types.GeneratorType else []


# ------------------------------------------------------------------------ the same for a next call
_DEPTH = 8
_ALONE = (
    *(object, DType, Device, np.ufunc, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
)
"""Classes without contents to compare: of two objects, one is not the other."""
_BY_EQUALITY = (np.dtype, re.Pattern, Snapshot)
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
_PARTIALS = (functools.partial, functools.partialmethod)


@attrs.frozen
class ValueComparison:
    """Compares values with those of before the run."""

    _known: Container[int]
    """The ids of objects that were found before the run, and live."""

    def is_change(self, was: Any, now: Any) -> bool:
        """Whether what lies in a place changed in a way that a later call can see.

        Not so for an object that came: a table of objects may be filled.
        """
        if not is_a(was, NUMBERS) and is_made(now):
            return False
        if was is NOTHING and not is_a(now, NUMBERS):
            return False
        return not self._is_same(was, now, _DEPTH)

    def comes(self, given: Any, now: Any) -> bool:
        """Whether a thing that came into an empty place gives another value than was given there
        before: that of the class, or none."""
        if is_a(now, NUMBERS):
            return given is not NOTHING and self.is_change(given, now)
        if now is NOTHING or is_a(now, types.ModuleType) or is_a(given, functools.cached_property):
            return False
        return is_made(now) or not self._is_same(given, now, _DEPTH)

    def _is_same(self, was: Any, now: Any, depth: int) -> bool:
        if was is now:
            return True
        kind = type(now)
        if issubclass(kind, Op):
            return False
        if type(was) is Image or kind is Image:
            return type(was) is kind and self._is_same(was.image, now.image, depth)
        if is_a(was, NUMBERS) or is_a(now, NUMBERS):
            return is_a(was, NUMBERS) and snapshot_of(was) == snapshot_of(now)
        if issubclass(kind, Tensor):
            return is_made(now)  # of no use afterwards
        if type(was) is not kind:
            return False
        if issubclass(kind, VALUES):
            return repr(was) == repr(now)
        if issubclass(kind, _BY_EQUALITY):
            return bool(was == now)
        if category(kind) == "set":
            return set_image(was) == set_image(now)
        if depth and category(kind) in ("list", "dict"):
            return self._are_same(_content(was), _content(now), depth)
        if issubclass(kind, (types.MethodType, *_BOUND)):
            return _name(was) == _name(now) and self._is_owner(was, now, depth)
        if kind in _ALONE or self._was_there(was) and self._was_there(now):
            return False
        return self._are_alike(was, now, depth)

    def _was_there(self, thing: Any) -> bool:
        """Whether a thing was there before the run: found, or of a module of a library."""
        return id(thing) in self._known or _is_librarys(thing)

    def _is_owner(self, was: Any, now: Any, depth: int) -> bool:
        one, other = was.__self__, now.__self__
        if type(was) is types.MethodType and not self._is_same(was.__func__, now.__func__, depth):
            return False
        if one is other or id(one) in self._known and id(other) in self._known:
            return one is other
        return depth > 0 and self._is_same(one, other, depth - 1)

    def _are_alike(self, was: Any, now: Any, depth: int) -> bool:
        """Whether two objects of one class hold the same, one of which is new."""
        if is_a(was, types.FunctionType):
            is_one = was.__code__ == now.__code__ and was.__globals__ is now.__globals__
            return is_one and self._hold_the_same(was, now, depth)
        if is_a(was, type):
            return (was.__module__, was.__qualname__) == (now.__module__, now.__qualname__)
        return self._hold_the_same(was, now, depth)

    def _hold_the_same(self, was: Any, now: Any, depth: int) -> bool:
        if type(now).__module__ == "ipaddress":
            return bool(was == now)
        if type(now) is re.Match:
            return repr(was) == repr(now) and bool(was.string == now.string)
        return depth == 0 or self._are_same(_parts(was), _parts(now), depth)

    def _are_same(self, some: Iterator[Any], others: Iterator[Any], depth: int) -> bool:
        one, other = list(some), list(others)
        if len(one) != len(other):
            return False
        return all(self._is_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))


def is_made(value: Any) -> bool:
    """Whether it is a tensor that the captured run has made."""
    return is_a(value, Tensor) and value.storage.capture is not None


def _is_librarys(thing: Any) -> bool:
    """Whether a thing is a function that a module of a library has under its name."""
    if not is_a(thing, types.FunctionType) or is_users(thing):
        return False
    return thing.__globals__.get(thing.__name__) is thing


def _name(method: Any) -> object:
    return None if type(method) is types.MethodType else method.__name__


def _content(value: Any) -> Iterator[Any]:
    """The items of a container; keys and values of a dict, in order."""
    number = base_of(value).__len__(value)
    if number > MANY:
        yield number
    elif category(type(value)) == "dict":
        for key, each in content_of(value):
            yield key
            yield each
    else:
        yield from content_of(value)


def _parts(value: Any) -> Iterator[Any]:
    """What an object holds. Numbers in a closure of a user's function are none of this: they come
    from arguments, which are guarded, or from where the function has read them."""
    if is_a(value, types.FunctionType):
        held = [*map(_cell, value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]
        is_own = is_users_name(str(value.__globals__.get("__name__")))
        yield from [NOTHING if is_own and is_a(each, NUMBERS) else each for each in held]
    elif is_a(value, _PARTIALS):
        yield from (value.func, value.args, value.keywords)
    elif is_object(value):
        for name, each in sorted(attributes(value).items(), key=itemgetter(0)):
            yield from (name, each)


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an empty one
        return NOTHING
