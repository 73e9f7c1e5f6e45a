"""Python numbers that a function changes itself, and reads: a graph has them for ever.

What the function can reach by name is looked at before it runs and afterwards. Where a number has
become another one, and code that may run reads it, the function is refused, and what it changed is
put back: nothing has happened then.
Used by the recorder. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.eager.observed import Observed
from aotlite.eager.tensor import Tensor
from aotlite.stages.frozen import IN_ALL, MANY, PLAIN, frozen_value
from aotlite.stages.number_reads import (
    ANY,
    LENGTH,
    Items,
    first_read,
    may_run,
    methods_of,
    variable,
)
from aotlite.stages.places import NOTHING, Place, attributes_of, is_users

_NUMBERS = (*PLAIN, np.generic, enum.Enum)
_LISTS = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_HELD = (list, collections.deque, set, dict, np.ndarray)
_ARRAY = 4096
"""Bytes of an array whose numbers are looked at."""
_LEFT = (Tensor, types.ModuleType, type, types.FunctionType, types.MethodType, tuple, frozenset)

_Name = tuple[int | None, Any]
"""What tells a place: its argument and its path."""


@attrs.frozen(eq=False)
class _World:
    """Numbers at the places that a function can name."""

    numbers: dict[_Name, tuple[Place, dict[Items, Any]]] = attrs.field(factory=dict)
    """What lies there: numbers by the keys of the containers that they are in."""
    objects: dict[_Name, Any] = attrs.field(factory=dict)
    """Plain objects, Modules and optimizers by where they were met."""
    held: list[tuple[Any, Any]] = attrs.field(factory=list)
    """Containers and objects, with a copy of what is in them."""
    variables: list[tuple[Place, Any]] = attrs.field(factory=list)
    met: set[int] = attrs.field(factory=set)

    def meet(self, thing: Any, at: Place) -> list[tuple[Place, Any]]:
        """The attributes of an object that is there."""
        self.met.add(id(thing))
        held = _attributes(thing)
        self.objects[at.argument, at.path] = thing
        self.held.append((thing, held))
        return [(at.then("attr", name), each) for name, each in held.items()]


class OwnNumbers:
    """The numbers that one function can reach."""

    def __init__(self) -> None:
        self._roots: list[Place] = []
        self._before = _World()

    def look(self, roots: Sequence[Place], leaves: list[Any]) -> None:
        """Before the function runs; `roots` are its variables and the Modules it is given."""
        self._roots = list(roots)
        self._before = _looked(self._roots, leaves)

    def check(self, recorder: Any) -> None:
        """Raises UnsupportedError where the function reads a number that it has changed."""
        leaves, after = recorder.leaves, _looked(self._roots, recorder.leaves)
        changed = list(_changes(self._before, after))
        if not changed:
            return
        classes = {type(each) for each in (*self._before.objects.values(), *after.objects.values())}
        known = [*recorder.compared(), *(f for kind in classes for f in methods_of(kind))]
        functions = may_run(recorder.function, dict.fromkeys(known))
        for place, items, was, became in changed:
            location = first_read(place, items, leaves, functions)
            if location is not None:
                what = _text(place, items, leaves)
                self._put_back(leaves)
                raise recorder.refuse(
                    f"a read of {what}, which the function itself changed from {was} to {became},",
                    "pass the number as an argument, keep it in a tensor that is written in place, "
                    "or change it outside the compiled function",
                    location,
                )

    def _put_back(self, leaves: list[Any]) -> None:
        for thing, copy in self._before.held:
            _fill(thing, copy)
        for place, value in self._before.variables:
            if place.resolve(leaves) is not value:
                _bind(place, value, leaves)


# ------------------------------------------------------------------------------------- looking
def _looked(roots: Sequence[Place], leaves: list[Any]) -> _World:
    """What lies at the roots and, breadth first, at the attributes of objects there."""
    world, left = _World(), IN_ALL
    queue = [(place, place.resolve(leaves)) for place in roots]
    world.variables.extend(each for each in queue if each[0].path and each[0].path[-1][0] != "attr")
    bound = Place(None, roots[0].function) if roots else None
    owners = [bound, bound.then("member", "__self__")] if bound is not None else []
    queue += [(at, at.resolve(leaves)) for at in owners]  # what a method belongs to
    for place, value in queue:  # grows while it is walked
        numbers: dict[Items, Any] = {}
        for items, inner, at in _spread(place, value):
            left -= 1
            if left < 0:
                return world
            if items and items[-1] is LENGTH or isinstance(inner, _NUMBERS):
                numbers[items] = inner
            elif isinstance(inner, _HELD):
                world.held.append((inner, inner.copy()))
            elif id(inner) not in world.met and _is_object(inner):
                queue += world.meet(inner, at)
        world.numbers[place.argument, place.path] = place, numbers
    return world


def _spread(place: Place, value: Any) -> Iterator[tuple[Items, Any, Place]]:
    """A value and all that is in it, where it is a container, with keys and place."""
    queue: list[tuple[Items, Any, Place, tuple[int, ...]]] = [((), value, place, ())]
    for items, inner, at, above in queue:  # grows while it is walked
        yield items, inner, at
        if isinstance(inner, _SETS):
            yield (*items, ANY), _Image(frozen_value(inner), f"a set of {len(inner)}"), at
        elif isinstance(inner, np.ndarray) and inner.nbytes <= _ARRAY and inner.dtype != object:
            yield (*items, ANY), _Image(frozen_value(inner), str(inner)), at
        elif isinstance(inner, (*_LISTS, dict)) and id(inner) not in above:
            yield (*items, LENGTH), len(inner), at
            inside = inner.items() if isinstance(inner, dict) else enumerate(inner)
            for key, each in list(inside) if len(inner) <= MANY else ():
                queue.append(((*items, key), each, at.then("item", key), (*above, id(inner))))


class _Image(str):
    """A text that stands for all that is in a set or an array."""

    __slots__ = ("image",)
    image: Any

    def __new__(cls, image: Any, text: str) -> _Image:
        made = super().__new__(cls, text)
        made.image = image
        return made

    def __repr__(self) -> str:
        return str(self)


def _is_object(thing: Any) -> bool:
    """Whether a thing has attributes that no capture hears of, or is a Module or optimizer."""
    if isinstance(thing, Observed):
        return True
    return not isinstance(thing, _LEFT) and is_users(type(thing))


def _attributes(thing: Any) -> dict[str, Any]:
    """What an object holds, in slots, too; no code of its class runs."""
    found = {
        name: slot.__get__(thing)
        for cls in type(thing).__mro__
        for name, slot in vars(cls).items()
        if type(slot) is types.MemberDescriptorType and _is_filled(slot, thing)
    }
    return {**found, **attributes_of(thing)}


def _is_filled(slot: types.MemberDescriptorType, thing: Any) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


# ----------------------------------------------------------------------------------- comparing
def _changes(before: _World, after: _World) -> Iterator[tuple[Place, Items, Any, Any]]:
    """Where one number has become another, has come or has gone, and what it was and is."""
    for name in dict.fromkeys((*before.numbers, *after.numbers)):
        if not all(name in world.numbers or _owner_is_in(world, name) for world in (before, after)):
            continue
        was, now = before.numbers.get(name), after.numbers.get(name)
        place: Place = (now or was)[0]  # type: ignore[index]
        one, other = (each[1] if each is not None else {} for each in (was, now))
        for items in dict.fromkeys((*one, *other)):
            a, b = one.get(items, NOTHING), other.get(items, NOTHING)
            if _image(a) != _image(b):
                yield place, items, a, b


def _owner_is_in(world: _World, name: _Name) -> bool:
    """Whether an object is there that has no such attribute."""
    return bool(name[1]) and (name[0], name[1][:-1]) in world.objects


def _image(value: Any) -> Any:
    return value.image if type(value) is _Image else frozen_value(value)


def _text(place: Place, items: Items, leaves: list[Any]) -> str:
    """What the function calls it."""
    at, text = Place(place.argument, place.function), ""
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


def _step(kind: str, key: Any) -> str:
    step = Place(0, None).then(kind, key)
    return str(step).removeprefix("argument 0")


def _keys(items: Iterable[Any]) -> str:
    return "".join(f"[{key!r}]" for key in items)


# -------------------------------------------------------------------------------- putting back
def _fill(thing: Any, copy: Any) -> None:
    """Makes what is in a container or object what it was."""
    if isinstance(thing, list):
        thing[:] = copy
    elif isinstance(thing, np.ndarray):
        thing[...] = copy
    elif isinstance(thing, (dict, set, collections.deque)):
        thing.clear()
        (thing.extend if isinstance(thing, collections.deque) else thing.update)(copy)
    elif not isinstance(thing, (frozenset, Observed)):
        for name in _attributes(thing).keys() - copy.keys():
            object.__delattr__(thing, name)
        for name, value in copy.items():
            object.__setattr__(thing, name, value)


def _bind(place: Place, value: Any, leaves: list[Any]) -> None:
    """Makes a variable what it was."""
    kind, key = place.path[-1]
    owner = Place(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind == "cell":
        cell = owner.__closure__[key]
        cell.cell_contents = value
    elif kind in ("global", "module"):
        names = owner.__globals__ if kind == "global" else vars(owner)
        names.pop(key, None) if value is NOTHING else names.__setitem__(key, value)
    elif kind == "class":
        kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
        setattr(kinds[key[0]], key[1], value)
