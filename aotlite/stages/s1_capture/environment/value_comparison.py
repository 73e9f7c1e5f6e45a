"""Compares what lies in one place before and after the captured run: is it the same for a call?

Numbers are compared by value. Of two objects that both were there before the run, one is not the
other, though they are alike: `first, second = second, first`. An object that the run may have made
is like the one before it if all that they hold is: `self.state = State(0)` in each call.
Used by `python_numbers`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Container, Iterator
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.stages.records.guards.access_paths import NOTHING
from aotlite.stages.records.guards.snapshots import MANY, Snapshot, snapshot_of
from aotlite.stages.s1_capture.environment.object_contents import (
    NUMBERS,
    VALUES,
    Image,
    attributes,
    base_of,
    category,
    content_of,
    is_a,
    is_object,
    set_image,
)

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

        Not so for an object that came, or went: a table of objects may be filled.
        """
        if not is_a(was, NUMBERS) and (now is NOTHING or _is_made(now)):
            return False
        if was is NOTHING and not is_a(now, NUMBERS):
            return False
        return not self._is_same(was, now, _DEPTH)

    def _is_same(self, was: Any, now: Any, depth: int) -> bool:
        if was is now:
            return True
        kind = type(now)
        if type(was) is Image or kind is Image:
            return type(was) is kind and self._is_same(was.image, now.image, depth)
        if is_a(was, NUMBERS) or is_a(now, NUMBERS):
            return is_a(was, NUMBERS) and snapshot_of(was) == snapshot_of(now)
        if issubclass(kind, Tensor):
            return _is_made(now)  # of no use afterwards
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
        if kind in _ALONE or id(was) in self._known and id(now) in self._known:
            return False
        return self._are_alike(was, now, depth)

    def _is_owner(self, was: Any, now: Any, depth: int) -> bool:
        one, other = was.__self__, now.__self__
        if type(was) is types.MethodType and not self._is_same(was.__func__, now.__func__, depth):
            return False
        if one is other or id(one) in self._known and id(other) in self._known:
            return one is other
        return depth > 0 and self._is_same(one, other, depth - 1)

    def _are_alike(self, was: Any, now: Any, depth: int) -> bool:
        """Whether two objects of one class hold the same, one of which is new."""
        if is_a(was, types.FunctionType) and was.__code__ is not now.__code__:
            return was.__code__ == now.__code__ and self._hold_the_same(was, now, depth)
        if is_a(was, type):
            return (was.__module__, was.__qualname__) == (now.__module__, now.__qualname__)
        return self._hold_the_same(was, now, depth)

    def _hold_the_same(self, was: Any, now: Any, depth: int) -> bool:
        return depth == 0 or self._are_same(_parts(was), _parts(now), depth)

    def _are_same(self, some: Iterator[Any], others: Iterator[Any], depth: int) -> bool:
        one, other = list(some), list(others)
        if len(one) != len(other):
            return False
        return all(self._is_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))


def _is_made(value: Any) -> bool:
    """Whether it is a tensor that the captured run has made."""
    return is_a(value, Tensor) and value.storage.capture is not None


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
    """What an object holds. Numbers in a closure are none of this: they come from arguments, which
    are guarded, or from where the function has read them."""
    if is_a(value, types.FunctionType):
        held = [*map(_cell, value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]
        yield from [NOTHING if is_a(each, NUMBERS) else each for each in held]
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
