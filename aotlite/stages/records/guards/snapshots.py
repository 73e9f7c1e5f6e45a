"""Comparable images of Python values, by which a compiled entry guards the values that it read.

Two images are equal iff a function that only reads cannot tell the values apart, as far as capture
compares: numbers by type and value, containers by form and content, tensors and Modules by
identity. Used by stage 1, and at each call by `aotlite.pipeline.arguments`.
Rules: CAP-3, CAP-5. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import enum
import functools
import numbers
import types
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.array_stand_in import ArrayStandIn
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, kept_spec, same_spec
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.stages.records.guards.access_paths import attributes_of

PLAIN = (int, float, complex, bool, str, type(None), bytes)
_EXACT = frozenset((int, bool, str, type(None), bytes))
CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
"""The types of attributes of a Module that may be called in place of a method."""
MANY = 512
IN_ALL = 4096
"""The image of a container with more than `MANY` items, or after `IN_ALL` items in all, is its type
and length."""


class Same:
    """The image of an object by its identity. It holds a weak reference where possible."""

    __slots__ = ("_strong", "_weak")

    def __init__(self, thing: Any) -> None:
        self._strong = None
        try:
            self._weak: Any = weakref.ref(thing)
        except TypeError:
            self._weak, self._strong = None, thing

    def _thing(self) -> Any:
        return self._strong if self._weak is None else self._weak()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and (
            self._thing() is other._thing() and self._thing() is not None
        )

    def __hash__(self) -> int:
        return id(type(self._thing()))


class Spec:
    """The image of a wrapper's present spec (SUB-21)."""

    __slots__ = ("_spec",)

    def __init__(self, spec: Any) -> None:
        self._spec = kept_spec(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and same_spec(self._spec, other._spec)

    __hash__ = None  # type: ignore[assignment]


class Snapshotter:
    """Makes images that share one numbering of the objects met so far.

    With `deep`, a Module's image has the form of its attributes (their values are guarded one by
    one, as they are read); without, its class alone. The image of a container is flat: one entry
    for each value in it, however deep, in reading order.
    """

    def __init__(self, tensors: Sequence[Tensor] = (), *, deep: bool) -> None:
        self.met: dict[int, int] = {id(tensor): i for i, tensor in enumerate(tensors)}
        self.deep = deep
        self.left = IN_ALL

    def image(self, value: Any) -> Any:
        """The image of a value."""
        entry, items = self._entry(value, inside=False)
        if items is None:
            return entry
        found = [entry]
        stack = [iter(items)]
        while stack:
            for label, item, inside in stack[-1]:
                entry, items = self._entry(item, inside=inside)
                if entry is False and label is not None and label[0] is _FORM:
                    continue  # a plain value is no part of the form: its own guard checks it
                found.append(entry if label is None else (label, entry))
                if items is not None:
                    stack.append(iter(items))
                    break
            else:
                stack.pop()
                found.append(_END)
        return tuple(found)

    def _entry(self, value: Any, *, inside: bool) -> tuple[Any, list[_Item] | None]:
        """Returns the entry of a value, and the items that follow in its image.

        Of a value `inside` a Module only the form counts.
        """
        kind = type(value)
        if kind in _EXACT:
            return (value is None if inside else (kind, value)), None
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, TrackedObject):
            return self._observed(value)
        if isinstance(value, (list, tuple, dict)):
            return self._container(value, inside=inside)
        if inside and isinstance(value, CALLED):
            return kind, None  # in an instance, it hides the method of the class
        return (False if inside else _leaf(value)), None

    def _number(self, thing: Any) -> tuple[int, bool]:
        known = self.met.get(id(thing))
        if known is not None:
            return known, True
        self.met[id(thing)] = len(self.met)
        return len(self.met) - 1, False

    def _tensor(self, value: Tensor) -> tuple[Any, list[_Item] | None]:
        """The entry of a tensor: class, number and meta; for a wrapper, also its spec and parts."""
        kind = type(value)
        number, known = self._number(value)
        if known or not self.deep or not is_apart(value):
            return (kind, number, value.meta), None
        parts = [(name, part, False) for name, part in inner_tensors(value).items()]
        return (kind, number, value.meta, Spec(flatten(value)[1])), parts

    def _observed(self, value: TrackedObject) -> tuple[Any, list[_Item] | None]:
        if not self.deep:
            return type(value), None
        number, known = self._number(value)
        if known:
            return number, None
        own = attributes_of(value)
        return type(value), [((_FORM, name), item, True) for name, item in own.items()]

    def _container(self, value: Any, *, inside: bool) -> tuple[Any, list[_Item] | None]:
        kind = type(value)
        if len(value) > min(MANY, self.left):
            return (kind, len(value)), None
        self.left -= len(value)
        if kind is not tuple:
            number, known = self._number(value)
            if known:
                return (kind, _AGAIN, number), None
        if isinstance(value, dict):
            return kind, [((type(key), key), item, inside) for key, item in value.items()]
        return kind, [(None, item, inside) for item in value]


def is_apart(tensor: Tensor) -> bool:
    """Whether a tensor is a wrapper with parts: a capture's wrappers have none."""
    return is_wrapper(tensor) and tensor.storage.capture is None


_Item = tuple[Any, Any, bool]
"""The label of an entry, the value, and whether it is inside a Module."""
_FORM, _AGAIN, _END = "attribute of a Module", "a container met before", "the end of a container"


def _leaf(value: Any) -> Any:
    """The image of a value that is neither tensor nor Module nor a known container."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is ArrayStandIn:
        return Same(value)  # it claims to be an ndarray, but has no memory
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if isinstance(value, np.ndarray):
        small = value.nbytes <= 4096 and value.dtype != object
        return (kind, str(value.dtype), value.shape, value.tobytes()) if small else Same(value)
    if isinstance(value, (enum.Enum, DType, Device, type, types.FunctionType)):
        return Same(value)
    if isinstance(value, (set, frozenset)):
        return kind, frozenset((type(item), item) for item in value)
    if isinstance(value, (range, slice, numbers.Number)):
        return kind, repr(value)
    return Same(value)


def snapshot_of(value: Any) -> Any:
    """The image of one value, Modules by their class."""
    return Snapshotter(deep=False).image(value)


def deep_snapshot_of(value: Any) -> Any:
    """The image of one value, Modules by the form of their attributes."""
    return Snapshotter(deep=True).image(value)
