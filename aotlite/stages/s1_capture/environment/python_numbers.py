"""Refuses functions that change a Python number and read it: `self.step += 1; x * self.step`.

The graph would have the number of the first call at every call. Numbers that the function can reach
by name are compared before and after its run. If one changed, and code that may run reads it
(`bytecode_reads`), the function is refused and its changes are undone.
Used by the recorder. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, attributes_of
from aotlite.stages.records.guards.snapshots import IN_ALL, MANY, PLAIN, snapshot_of
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.environment.access_search import is_users
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    ANY,
    LENGTH,
    Items,
    first_read,
    may_run,
    methods_of,
    variable,
)
from aotlite.stages.s1_capture.environment.symbol_numbers import HOLDERS, in_numbers, put_numbers_in

_NUMBERS = (*PLAIN, np.generic, enum.Enum)
_LISTS = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_DICTS = (collections.OrderedDict, dict)
_HELD = (list, collections.deque, set, *_DICTS)
"""Containers that are read and restored by the builtin's methods, not a user subclass's."""
_ARRAY = 4096
"""The largest array, in bytes, whose contents are compared and restored."""
_LEFT = (Tensor, types.ModuleType, type, types.FunctionType, types.MethodType, tuple, frozenset)

_CACHED = type(functools.lru_cache(print))
_PLAIN = frozenset(PLAIN)
_ALONE = _PLAIN | {Tensor, types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType}
"""Most of the things that a function can name: none holds others, or attributes to look at."""

_Name = tuple[int | None, Any]
"""An access path as a dict key: its argument and its steps."""


@attrs.frozen(eq=False, repr=False)
class _World:
    """A snapshot of all numbers that a function can reach by name."""

    numbers: dict[_Name, tuple[AccessPath, dict[Items, Any]]] = attrs.field(factory=dict)
    """At each path the numbers found, by their keys in nested containers."""
    objects: dict[_Name, Any] = attrs.field(factory=dict)
    """Plain objects, Modules and optimizers, by the path on which they were found."""
    held: dict[int, tuple[Any, Any]] = attrs.field(factory=dict)
    """Containers, objects and small arrays by `id`, each with a copy of its contents."""
    variables: list[tuple[AccessPath, Any]] = attrs.field(factory=list)
    met: set[int] = attrs.field(factory=set)
    methods: set[str] = attrs.field(factory=set)
    """Names of bound methods that were found: code calls them by the names of variables."""

    def meet(self, thing: object, at: AccessPath) -> list[tuple[AccessPath, object]]:
        """Records an object; returns its attributes, with their paths."""
        self.met.add(id(thing))
        held = _attributes(thing)
        self.objects[at.argument, at.path] = thing
        self.held[id(thing)] = thing, held
        return [(at.then("attr", name), each) for name, each in held.items()]

    def keep(self, thing: Any) -> None:
        """Copies the contents of a container or array that is not large."""
        if id(thing) in self.held:
            return
        if _is_small_array(thing):
            self.held[id(thing)] = thing, thing.copy()
        elif _is(thing, _HELD) and _base(thing).__len__(thing) <= MANY:
            self.held[id(thing)] = thing, _content(thing)


@attrs.define(eq=False, repr=False)
class SelfChangedNumbers:
    """The check of one function."""

    _roots: list[AccessPath] = attrs.field(factory=list)
    _before: _World = attrs.field(factory=_World)

    def look(self, roots: Sequence[AccessPath], leaves: list[object]) -> None:
        """Takes the first snapshot; `roots` are the variables, and Modules among the arguments."""
        self._roots = list(roots)
        self._before = _looked(self._roots, leaves, keeps=True)

    def put_numbers(self, recorder: CaptureTrace, error: BaseException | None = None) -> None:
        """Puts numbers in place of the symbolic sizes that the function has stored (DYN-23), and of
        those in an error that it raised: `raise KeyError(x.shape[0])`."""
        if error is not None and recorder.sizes is not None:
            put_numbers_in(error)
        if (recorder.sizes, table_in([x.meta for x in recorder.placeholders])) != (None, None):
            _put_numbers([*self._roots, *_stored(recorder.compared())], recorder.leaves)

    def check(self, recorder: CaptureTrace) -> None:
        """Raises UnsupportedError where the function reads a number that it has changed."""
        self.put_numbers(recorder)
        leaves, after = recorder.leaves, _looked(self._roots, recorder.leaves, keeps=False)
        changed = list(_changes(self._before, after))
        if not changed:
            return
        classes = {type(each) for each in (*self._before.objects.values(), *after.objects.values())}
        known = [*recorder.compared(), *(f for kind in classes for f in methods_of(kind))]
        methods = self._before.methods | after.methods
        functions = may_run(recorder.function, dict.fromkeys(known), methods)
        for place, items, was, became in changed:
            location = first_read(place, items, leaves, functions)
            if location is not None:
                what = _text(place, items, leaves)
                self._put_back(leaves)
                raise recorder.refuse(
                    f"a read of {what}, which the function itself changed from {was} to {became},",
                    _WAY_OUT + (_IF_LAZY if _is_lazy(place, items, was) else ""),
                    location,
                )

    def _put_back(self, leaves: list[Any]) -> None:
        """Undoes the changes, as far as objects can be written; never raises."""
        for thing, copy in self._before.held.values():
            with contextlib.suppress(Exception):
                _fill(thing, copy)
        for place, value in self._before.variables:
            with contextlib.suppress(Exception):
                if place.resolve(leaves) is not value:
                    _bind(place, value, leaves)


_WAY_OUT = (
    "pass the number as an argument, keep it in a tensor that is written in place, or change it "
    "outside the compiled function"
)
_IF_LAZY = ", or compute it before the first compiled call"


def _is_lazy(place: AccessPath, items: Items, was: object) -> bool:
    """Whether an attribute was absent or None before: a cached value, computed when needed."""
    return place.path[-1][0] == "attr" and not items and (was is NOTHING or was is None)


# ------------------------------------------------------------------------------------- looking
def _looked(roots: Sequence[AccessPath], leaves: list[Any], *, keeps: bool) -> _World:
    """A snapshot: numbers at the roots and, breadth first, in attributes of objects found.

    With `keeps`, containers and objects are copied, so that changes can be undone.
    """
    world, left = _World(), IN_ALL
    queue = [(place, place.resolve(leaves)) for place in roots]
    world.variables.extend(each for each in queue if each[0].path and each[0].path[-1][0] != "attr")
    bound = AccessPath(None, roots[0].function) if roots else None
    owners = [bound, bound.then("member", "__self__")] if bound is not None else []
    queue += [(at, at.resolve(leaves)) for at in owners]  # what a method belongs to
    for place, value in queue:  # grows while it is walked
        numbers: dict[Items, Any] = {}
        if type(value) in _ALONE:
            left -= 1
            if left < 0:
                return world
            if type(value) in _PLAIN:
                numbers[()] = value
            world.numbers[place.argument, place.path] = place, numbers
            continue
        for items, inner, at in _spread(place, value):
            left -= 1
            if left < 0:
                return world
            if items and items[-1] is LENGTH or _is(inner, _NUMBERS):
                numbers[items] = inner
            elif keeps and (_is(inner, _HELD) or _is_small_array(inner)):
                world.keep(inner)
            elif type(inner) is types.MethodType:
                world.methods.add(getattr(inner.__func__, "__name__", ""))
                if id(inner.__self__) not in world.met and _is_object(inner.__self__):
                    queue.append((at.then("member", "__self__"), inner.__self__))
            elif id(inner) not in world.met and _is_object(inner):
                queue += world.meet(inner, at)
        world.numbers[place.argument, place.path] = place, numbers
    return world


def _stored(functions: Iterable[object]) -> Iterator[AccessPath]:
    """The global variables of these functions that are sizes: such that are written alone, too."""
    for function in functions:
        if isinstance(function, types.FunctionType):
            for name in function.__code__.co_names:
                if type(function.__globals__.get(name)) in (SymInt, SymFloat, SizeFloat):
                    yield AccessPath(None, function, (("global", name),))


def _put_numbers(roots: Sequence[AccessPath], leaves: list[object]) -> None:
    """Puts numbers in place of symbolic sizes that the function has stored where it can be found
    by name: writes to Python objects happen once, in the call that is traced.

    An `lru_cache` with symbolic sizes is cleared: nobody can write numbers into it.
    """
    left, met = IN_ALL, set()
    queue = [(place, place.resolve(leaves)) for place in roots]
    for place, value in queue:  # grows while it is walked
        if type(value) is types.FunctionType:  # its variables are roots of their own
            put_numbers_in(vars(value))
            continue
        if type(value) in _ALONE and not _is(value, HOLDERS):
            continue
        for _, inner, at in _spread(place, value):
            left -= 1
            if left < 0:
                return
            number = _number(inner)
            if number is not inner:
                _bind(at, number, leaves)
            elif type(inner) is _CACHED and _has_size(gc.get_referents(inner), 3):
                inner.cache_clear()
            elif id(inner) not in met and _is(inner, HOLDERS):
                met.add(id(inner))
                put_numbers_in(inner)
            elif id(inner) not in met and _is_object(inner):
                met.add(id(inner))
                queue += [(at.then("attr", k), each) for k, each in _attributes(inner).items()]


def _number(value: object) -> object:
    with contextlib.suppress(UnsupportedError):  # a size that nobody knows yet
        return in_numbers(value)
    return value


def _has_size(things: Iterable[object], depth: int) -> bool:
    """Whether there is a symbolic size among these things, or that deep in containers there."""
    for each in things:
        if type(each) in (SymInt, SymFloat, SizeFloat):
            return True
        if depth and isinstance(each, dict) and _has_size((*each, *each.values()), depth - 1):
            return True
        if depth and isinstance(each, (tuple, list)) and _has_size(each, depth - 1):
            return True
    return False


def _spread(place: AccessPath, value: object) -> Iterator[tuple[Items, Any, AccessPath]]:
    """A value and the items of nested containers in it, each with its keys and its path."""
    queue: list[tuple[Items, Any, AccessPath, tuple[int, ...]]] = [((), value, place, ())]
    for items, inner, at, above in queue:  # grows while it is walked
        yield items, inner, at
        if _is(inner, _SETS):
            number = _base(inner).__len__(inner)
            image = _set_image(inner) if number <= MANY else number
            yield (*items, ANY), _Image(image, f"a set of {number}"), at
        elif _is_small_array(inner) and inner.dtype != object:
            yield (*items, ANY), _Image(snapshot_of(inner), str(inner)), at
        elif _is(inner, (*_LISTS, dict)) and id(inner) not in above:
            number = _base(inner).__len__(inner)
            yield (*items, LENGTH), number, at
            content = _content(inner) if number <= MANY else []
            for key, each in content if _is(inner, dict) else enumerate(content):
                queue.append(((*items, key), each, at.then("item", key), (*above, id(inner))))


def _is(thing: object, kinds: tuple[type, ...] | type) -> bool:
    """`isinstance` by the real type, also of an object that reports another `__class__`."""
    return issubclass(type(thing), kinds)


def _is_small_array(thing: object) -> bool:
    return type(thing) is np.ndarray and thing.nbytes <= _ARRAY


def _base(thing: object) -> Any:
    """The builtin class of a container."""
    return next(kind for kind in (*_HELD, tuple, frozenset) if _is(thing, kind))


def _content(thing: object) -> list[Any]:
    """The items of a container, read without calling methods of a subclass."""
    base = _base(thing)
    return list(base.items(thing) if base in _DICTS else base.__iter__(thing))


def _set_image(thing: object) -> object:
    """The items of a set: plain values and tuples by value, all others by identity."""
    return frozenset(
        snapshot_of(each) if type(each) in (*PLAIN, tuple) or _is(each, np.generic) else id(each)
        for each in _content(thing)
    )


class _Image(str):
    """The contents of a set or an array, compared as a whole; prints as text."""

    __slots__ = ("image",)
    image: object

    def __new__(cls, image: object, text: str) -> _Image:
        made = super().__new__(cls, text)
        made.image = image
        return made

    def __repr__(self) -> str:
        return str(self)


def _is_object(thing: object) -> bool:
    """Whether a thing is a Module, an optimizer, or an object of a user's class."""
    return _is(thing, TrackedObject) or not _is(thing, _LEFT) and is_users(type(thing))


def _attributes(thing: object) -> dict[str, object]:
    """The attributes of an object, slots among them, read without calling its class's code."""
    found = {
        name: slot.__get__(thing)
        for cls in type(thing).__mro__
        for name, slot in vars(cls).items()
        if type(slot) is types.MemberDescriptorType and _is_filled(slot, thing)
    }
    return {**found, **attributes_of(thing)}


def _is_filled(slot: types.MemberDescriptorType, thing: object) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


# ----------------------------------------------------------------------------------- comparing
def _changes(before: _World, after: _World) -> Iterator[tuple[AccessPath, Items, object, object]]:
    """(path, keys, before, after) of each number that changed, appeared or vanished."""
    for name in dict.fromkeys((*before.numbers, *after.numbers)):
        if not all(name in world.numbers or _owner_is_in(world, name) for world in (before, after)):
            continue
        was, now = before.numbers.get(name), after.numbers.get(name)
        place: AccessPath = (now or was)[0]  # type: ignore[index]
        one, other = (each[1] if each is not None else {} for each in (was, now))
        for items in dict.fromkeys((*one, *other)):
            a, b = one.get(items, NOTHING), other.get(items, NOTHING)
            if a is not b and _image(a) != _image(b):
                yield place, items, a, b


def _owner_is_in(world: _World, name: _Name) -> bool:
    """Whether the path is an attribute of an object in the snapshot: absent, not unseen."""
    return bool(name[1]) and (name[0], name[1][:-1]) in world.objects


def _image(value: object) -> object:
    return value.image if type(value) is _Image else snapshot_of(value)


def _text(place: AccessPath, items: Items, leaves: list[object]) -> str:
    """The source text by which the function reaches a number: `self.sizes[0]`."""
    at, text = AccessPath(place.argument, place.function), ""
    for kind, key in place.path:
        owner, at = at.resolve(leaves), at.then(kind, key)
        if kind in ("cell", "default") and isinstance(owner, types.FunctionType):
            text = variable(owner, kind, key)
        elif kind == "global":
            text = key
        elif key == "__self__":
            text = "self"
        else:
            text = f"{text}{_step(kind, key)}" if text else str(at)
    if items and items[-1] is LENGTH:
        return f"the length of {text}{_keys(items[:-1])}"
    return text + _keys(each for each in items if each is not ANY)


def _step(kind: str, key: object) -> str:
    step = AccessPath(0, None).then(kind, key)
    return str(step).removeprefix("argument 0")


def _keys(items: Iterable[object]) -> str:
    return "".join(f"[{key!r}]" for key in items)


# -------------------------------------------------------------------------------- putting back
def _fill(thing: object, copy: Any) -> None:
    """Restores the contents of a container, an array or an object, if they changed."""
    if _is(thing, _HELD):
        _fill_container(thing, copy)
    elif type(thing) is np.ndarray:
        if thing.tobytes() != copy.tobytes():
            thing[...] = copy
    elif not _is(thing, TrackedObject):
        _fill_object(thing, copy)


def _fill_container(thing: Any, content: list[Any]) -> None:
    base, now = _base(thing), _content(thing)
    if _identities(now, base) == _identities(content, base):
        return
    base.clear(thing)
    if base in _DICTS:
        for key, value in content:
            base.__setitem__(thing, key, value)
    else:
        (base.update if base is set else base.extend)(thing, content)


def _identities(content: list[Any], base: type) -> list[object]:
    if base in _DICTS:
        return [(id(key), id(value)) for key, value in content]
    return [id(each) for each in content]


def _fill_object(thing: object, held: Mapping[str, object]) -> None:
    now, own = _attributes(thing), attributes_of(thing)
    for name in now.keys() | held.keys():
        was = held.get(name, NOTHING)
        if now.get(name, NOTHING) is was:
            continue
        if name in own or was is not NOTHING and not _slot(thing, name):
            own.pop(name, None) if was is NOTHING else own.__setitem__(name, was)
        elif was is NOTHING:
            _slot(thing, name).__delete__(thing)
        else:
            _slot(thing, name).__set__(thing, was)


def _slot(thing: object, name: str) -> Any:
    """The descriptor of a slot; None if the name is not a slot."""
    found = (vars(cls).get(name) for cls in type(thing).__mro__)
    return next((each for each in found if type(each) is types.MemberDescriptorType), None)


def _bind(place: AccessPath, value: object, leaves: list[object]) -> None:
    """Sets a variable, an item, or an attribute of an object, module or class."""
    kind, key = place.path[-1]
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind == "cell":
        cell = owner.__closure__[key]
        cell.cell_contents = value
    elif kind in ("global", "module"):
        names = owner.__globals__ if kind == "global" else vars(owner)
        names.pop(key, None) if value is NOTHING else names.__setitem__(key, value)
    elif kind == "item" and _is(owner, _HELD):
        _base(owner).__setitem__(owner, key, value)
    elif kind == "attr" and _slot(owner, key) is not None:
        _slot(owner, key).__set__(owner, value)
    elif kind == "attr":
        attributes_of(owner)[key] = value
    elif kind == "class":
        kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
        setattr(kinds[key[0]], key[1], value)
