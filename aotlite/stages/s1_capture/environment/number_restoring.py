"""Puts back what a captured function has changed in variables, containers and objects.

A function that is refused has changed nothing, as far as objects can be written. No code of a
user's class runs for it. Used by `python_numbers`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, attributes_of
from aotlite.stages.s1_capture.environment.object_contents import (
    DICTS,
    HELD,
    attributes,
    base_of,
    content_of,
    is_a,
)


def fill(thing: object, copy: Any) -> None:
    """Restores the contents of a container, an array or an object, if they changed."""
    if type(copy) is list:
        _fill_container(thing, copy)
    elif type(thing) is np.ndarray:
        if thing.tobytes() != copy.tobytes():
            thing[...] = copy
    elif is_a(thing, type):
        _fill_class(thing, copy)
    elif not is_a(thing, TrackedObject):
        _fill_object(thing, copy)


def _fill_container(thing: Any, content: list[Any]) -> None:
    base, now = base_of(thing), content_of(thing)
    if _identities(now, base) == _identities(content, base):
        return
    base.clear(thing)
    if base in DICTS:
        for key, value in content:
            base.__setitem__(thing, key, value)
    else:
        (base.update if base is set else base.extend)(thing, content)


def _identities(content: list[Any], base: type) -> list[object]:
    if base in DICTS:
        return [(id(key), id(value)) for key, value in content]
    return [id(each) for each in content]


def _fill_class(kind: Any, own: Mapping[str, object]) -> None:
    now = dict(vars(kind))
    for name in now.keys() | own.keys():
        was = own.get(name, NOTHING)
        if now.get(name, NOTHING) is not was:
            type.__delattr__(kind, name) if was is NOTHING else type.__setattr__(kind, name, was)


def _fill_object(thing: object, held: Mapping[str, object]) -> None:
    now, own = attributes(thing), attributes_of(thing)
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


def bind(place: AccessPath, value: object, leaves: list[object]) -> None:
    """Sets a variable, an item, or an attribute of an object, module or class."""
    kind, key = place.path[-1]
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind == "cell":
        cell = owner.__closure__[key]
        cell.cell_contents = value
    elif kind in ("global", "module"):
        names = owner.__globals__ if kind == "global" else vars(owner)
        names.pop(key, None) if value is NOTHING else names.__setitem__(key, value)
    elif kind == "item" and is_a(owner, HELD):
        base_of(owner).__setitem__(owner, key, value)
    elif kind == "attr" and _slot(owner, key) is not None:
        _slot(owner, key).__set__(owner, value)
    elif kind == "attr":
        attributes_of(owner)[key] = value
    elif kind == "class":
        kind = (owner if isinstance(owner, type) else type(owner)).__mro__[key[0]]
        delattr(kind, key[1]) if value is NOTHING else setattr(kind, key[1], value)
