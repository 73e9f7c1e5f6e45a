"""Snapshots of Python values: flat lists of tests, by which a compiled entry guards what it read.

A snapshot holds for values iff a function that only reads cannot tell them from the values of which
it was made, as far as capture compares: numbers by type and value, containers by form and content,
tensors and Modules by the pattern of identities. A `Snapshotter` walks the values in reading order
and writes one test, a *look*, for each; `Snapshot.first_change` runs them. The snapshot of the list
`[x, {"by": 2.0}, x]` has five looks:

    holder  key   test
    0       0     a list of 3 items: becomes holder 1, and number 0 of the objects met
    1       0     a tensor of this class and meta: becomes number 1 of the objects met
    1       1     a dict with the key "by": becomes holder 2, and number 2 of the objects met
    2       "by"  a float of these bits
    1       2     object number 1

Used by stage 1, and by the guards of an entry. Rules: CAP-3, CAP-5, CAP-12. Spec:
`specs/s1_capture.md`.
"""

from __future__ import annotations

import enum
import functools
import numbers
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
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
_CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
"""The types of attributes of a Module that may be called in place of a method."""
COMPOUND = (Tensor, TrackedObject, list, tuple, dict)
"""The types of values that a snapshot opens, or numbers."""
MANY = 512
IN_ALL = 4096
"""Of a container with more than `MANY` items, or after `IN_ALL` items in all, only the type and
length are compared."""

Look = tuple[int, Any, Callable[..., bool] | None, Any, int]
"""(holder, key in it, test, expected value, number of the value that it is part of); holder 0 is
the sequence of values. Without a test, the object is the one with the expected number."""
_Items = Iterator[tuple[int, Any, Any, bool]]
"""(holder, key, value, whether it is inside a Module) of each."""


class Snapshot:
    """Tests that values are as they were; equal to another iff both were made of equal values."""

    __slots__ = ("_looks", "_start", "_values_of_met")

    def __init__(self, looks: Sequence[Look], values_of_met: Sequence[int], start: int) -> None:
        """`values_of_met` is by object met the number of the value that it is part of.

        Objects met before number `start` are known to be different.
        """
        self._looks, self._values_of_met, self._start = tuple(looks), values_of_met, start

    @property
    def content(self) -> tuple[tuple[Look, ...], tuple[int, ...], int]:
        """What it was made of: looks, values of the objects met, number of the first new one."""
        return self._looks, tuple(self._values_of_met), self._start

    def holds(self, value: object) -> bool:
        """Whether the snapshot, which is one of one value, holds for this one."""
        return self.first_change((value,)) is None

    def first_change(self, values: Sequence[object], tensors: Sequence[Tensor] = ()) -> int | None:
        """Returns the number of the first value that is not as it was; None if all are."""
        holders: list[Any] = [values]
        met: list[object] = list(tensors)
        number = 0
        try:
            for holder, key, test, expected, number in self._looks:
                value = holders[holder][key]
                if test is None:
                    if value is not met[expected] and given_for(value) is not met[expected]:
                        return number
                elif not test(value, expected, holders, met):
                    return number
        except (KeyError, IndexError, AttributeError):  # an object is missing
            return number
        new = met[self._start :]
        return None if len(set(map(id, new))) == len(new) else self._first_repeated(met)

    def _first_repeated(self, met: Sequence[object]) -> int:
        """The number of the first value with an object that it did not share, and now does."""
        ids = list(map(id, met))
        first = len(met) - len(self._values_of_met)
        pairs = enumerate(self._values_of_met, first)
        return next((number for i, number in pairs if ids[i] in ids[:i]), 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._looks == other._looks

    def __hash__(self) -> int:
        return hash(self._looks)


def snapshot_of(value: object, *, deep: bool = False) -> Snapshot:
    """The snapshot of one value."""
    if isinstance(value, COMPOUND):
        return snapshot_of_all((value,), deep=deep)
    test = _is_exact if type(value) in _EXACT else _is_leaf
    return Snapshot(((0, 0, test, _leaf(value), 0),), (), 0)


def snapshot_of_all(
    values: Sequence[object], tensors: Sequence[Tensor] = (), *, deep: bool
) -> Snapshot:
    """The snapshot of values; `tensors` are different objects, which other guards check.

    With `deep`, the attributes of a Module and the parts of a wrapper are compared, too: tensors,
    Modules and containers, since plain values are guarded where they are read. Without, Modules are
    compared by their class, and wrappers as tensors.
    """
    walk = Snapshotter(tensors, deep=deep)
    for number, value in enumerate(values):
        walk.add(number, value)
    return Snapshot(walk.looks, walk.values_of_met, 0 if walk.has_tensors else len(tensors))


# ------------------------------------------------------------------------------------- the tests
def _is_exact(value: object, expected: Any, holders: list[Any], met: list[Any]) -> bool:
    return type(value) is expected[0] and value == expected[1]


def _is_leaf(value: object, expected: object, holders: list[Any], met: list[Any]) -> bool:
    return bool(_leaf(value) == expected)


def given_for(value: Any) -> object:
    """The tensor that a call is given for an erased one (FRZ-4); the value itself for others."""
    given: object = getattr(value.storage, "stand_in", None) if isinstance(value, Tensor) else None
    return value if given is None else given


def _is_tensor(value: Any, expected: Any, holders: Sequence[object], met: list[object]) -> bool:
    met.append(value)
    return type(value) is expected[0] and value.meta is expected[1]


def _is_wrapper(value: Any, expected: Any, holders: list[object], met: list[object]) -> bool:
    kind, meta, names, spec = expected
    if type(value) is not kind or value.meta is not meta:
        return False
    found, its = value.__tensor_flatten__()
    if (*found,) != names or Spec(its) != spec:
        return False
    holders.append({name: getattr(value, name) for name in names})
    met.append(value)
    return True


def _is_module(value: object, expected: Any, holders: list[object], met: list[object]) -> bool:
    if type(value) is not expected.kind:
        return False
    own = _attribute_of(value, "__dict__")
    outline = tuple(own), tuple(map(type, own.values()))
    if outline not in expected.accepted:
        # Plain attributes are guarded where they are read: they may come and go.
        if _parts(own) != expected.parts:
            return False
        if len(expected.accepted) < 8:
            expected.accepted.add(outline)
    holders.append(own)
    met.append(value)
    return True


_attribute_of = object.__getattribute__
"""Reads an attribute of a Module, which a capture does not note."""


def _is_sequence(value: Any, expected: Any, holders: list[object], met: list[object]) -> bool:
    kind, count = expected
    if type(value) is not kind or len(value) != count:
        return False
    holders.append(value)
    if not isinstance(value, tuple):
        met.append(value)
    return True


def _is_dict(value: Any, expected: Any, holders: list[object], met: list[object]) -> bool:
    kind, keys, key_kinds = expected
    if type(value) is not kind or tuple(value) != keys or tuple(map(type, value)) != key_kinds:
        return False
    holders.append(value)
    met.append(value)
    return True


def _is_dict_of_any_keys(
    value: dict[object, object],
    expected: tuple[type, tuple[object, ...]],
    holders: list[object],
    met: list[object],
) -> bool:
    """As `_is_dict`, for keys that may equal others: numbers, tuples, sets."""
    kind, keys = expected
    if (
        type(value) is not kind
        or len(value) != len(keys)
        or tuple(map(image_of_key, value)) != keys
    ):
        return False
    holders.append(value)
    met.append(value)
    return True


def _is_long(value: Any, expected: Any, holders: Sequence[object], met: Sequence[object]) -> bool:
    return type(value) is expected[0] and len(value) == expected[1]


def _is_kind(value: object, expected: object, holders: list[Any], met: Sequence[object]) -> bool:
    return type(value) is expected


def _is_plain_value(value: object, expected: object, holders: list[Any], met: list[Any]) -> bool:
    return not isinstance(value, (*COMPOUND, *_CALLED)) and (value is None) is expected


@attrs.frozen
class ModuleForm:
    """The form of a Module: its class, and the names and types of attributes that count."""

    kind: type
    parts: tuple[tuple[str, type], ...]
    accepted: set[object] = attrs.field(factory=set, eq=False)
    """Names and types of all attributes, as they were found with these parts."""

    @classmethod
    def of(cls, value: object, own: dict[str, object]) -> ModuleForm:
        return cls(type(value), _parts(own), {(tuple(own), tuple(map(type, own.values())))})


def _parts(own: Mapping[str, object]) -> tuple[tuple[str, type], ...]:
    """The attributes of a Module that are no plain values, in order, with their types."""
    kinds = (*COMPOUND, type(None), *_CALLED)
    return tuple([(name, type(value)) for name, value in own.items() if isinstance(value, kinds)])


TESTS: dict[str, Callable[..., bool]] = {
    "exact": _is_exact,
    "leaf": _is_leaf,
    "tensor": _is_tensor,
    "wrapper": _is_wrapper,
    "module": _is_module,
    "sequence": _is_sequence,
    "dict": _is_dict,
    "dict of any keys": _is_dict_of_any_keys,
    "long": _is_long,
    "kind": _is_kind,
    "plain value": _is_plain_value,
}
"""The tests of looks by name, for files."""


# ------------------------------------------------------------------------------------- the walk
class Snapshotter:
    """Walks values in reading order, and writes a look for each; it numbers the objects it meets.

    A value inside a Module, and inside containers in it, is compared by its form alone.
    """

    def __init__(self, tensors: Sequence[Tensor] = (), *, deep: bool) -> None:
        self.looks: list[Look] = []
        self.values_of_met: list[int] = []
        """The value that each object met is part of."""
        self.has_tensors = False
        self._deep = deep
        self._met: dict[int, int] = {id(tensor): i for i, tensor in enumerate(tensors)}
        self._holders = 1
        self._containers: set[int] = set()
        """Holders that are containers."""
        self._left = IN_ALL
        self._number = 0

    def add(self, number: int, value: object) -> None:
        """Adds the looks of a value, with its number."""
        self._number = number
        items = self._look(0, number, value, inside=False)
        stack = [] if items is None else [items]
        while stack:
            for holder, key, item, inside in stack[-1]:
                items = self._look(holder, key, item, inside=inside)
                if items is not None:
                    stack.append(items)
                    break
            else:
                stack.pop()

    def _look(self, holder: int, key: object, value: object, *, inside: bool) -> _Items | None:
        """Adds the look of a value; returns the items in it."""
        kind = type(value)
        if kind in _EXACT and not inside:
            return self._add(holder, key, _is_exact, (kind, value))
        known = self._met.get(id(value), self._met.get(id(given_for(value))))
        if known is not None:
            return self._add(holder, key, None, known)
        if isinstance(value, Tensor):
            return self._tensor(holder, key, value)
        if isinstance(value, TrackedObject):
            return self._module(holder, key, value)
        if isinstance(value, (list, tuple, dict)):
            return self._container(holder, key, value, inside=inside)
        if not inside:
            return self._add(holder, key, _is_leaf, _leaf(value))
        if holder in self._containers:  # an attribute is part of the Module's form
            if isinstance(value, _CALLED):  # in an instance, it hides the method of the class
                return self._add(holder, key, _is_kind, kind)
            return self._add(holder, key, _is_plain_value, value is None)
        return None

    def _add(self, holder: int, key: Any, test: Any, expected: Any) -> _Items | None:
        """Adds a look; returns None, since the value is not opened."""
        self.looks.append((holder, key, test, expected, self._number))
        return None

    def _tensor(self, holder: int, key: object, value: Tensor) -> _Items | None:
        """Of a wrapper also the spec and parts, which a program can read without an op."""
        self.has_tensors = True
        kind, meta = type(value), value.meta
        if self._deep and _is_apart(value):
            parts, spec = inner_tensors(value), Spec(flatten(value)[1])
            expected = kind, meta, (*parts,), spec
            return self._open(holder, key, value, _is_wrapper, expected, parts.items())
        self._meet(value)
        return self._add(holder, key, _is_tensor, (kind, meta))

    def _module(self, holder: int, key: object, value: TrackedObject) -> _Items | None:
        if not self._deep:
            return self._add(holder, key, _is_kind, type(value))
        own = dict(attributes_of(value))
        form = ModuleForm.of(value, own)
        return self._open(holder, key, value, _is_module, form, own.items(), inside=True)

    def _container(self, holder: int, key: object, value: Any, *, inside: bool) -> _Items | None:
        kind = type(value)
        if len(value) > min(MANY, self._left):
            return self._add(holder, key, _is_long, (kind, len(value)))
        self._left -= len(value)
        self._containers.add(self._holders)
        if isinstance(value, dict):
            keys, items = tuple(value), list(value.items())
            kinds = tuple(map(type, keys))
            if _EXACT.issuperset(kinds):
                return self._open(
                    holder, key, value, _is_dict, (kind, keys, kinds), items, inside=inside
                )
            form = kind, tuple(map(image_of_key, keys))
            return self._open(holder, key, value, _is_dict_of_any_keys, form, items, inside=inside)
        items = list(enumerate(value))
        return self._open(
            holder, key, value, _is_sequence, (kind, len(value)), items, inside=inside
        )

    def _open(
        self,
        holder: int,
        key: object,
        value: object,
        test: object,
        expected: object,
        items: Any,
        *,
        inside: bool = False,
    ) -> _Items:
        self._add(holder, key, test, expected)
        if not isinstance(value, tuple):
            self._meet(value)
        mine = self._holders
        self._holders += 1
        return ((mine, name, item, inside) for name, item in items)

    def _meet(self, value: object) -> None:
        self._met[id(value)] = len(self._met)
        self.values_of_met.append(self._number)


def _is_apart(tensor: Tensor) -> bool:
    """Whether a tensor is a wrapper with parts: a capture's wrappers have none."""
    return is_wrapper(tensor) and tensor.storage.capture is None


# ------------------------------------------------------------------------------------- the leaves
def _leaf(value: Any) -> object:
    """The image of a value that is neither tensor nor Module nor a known container."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
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
        return kind, tuple(map(image_of_key, value))  # in order: a program may walk through it
    if issubclass(kind, (range, slice, numbers.Number)):  # asking its `__class__` may run code
        return kind, repr(value)
    return Same(value)


def image_of_key(value: object) -> object:
    """The image of a key of a dict, or of an item of a set: numbers in it by type and bits."""
    kind = type(value)
    if isinstance(value, tuple):
        return kind, tuple(map(image_of_key, value))
    if isinstance(value, (frozenset, numbers.Number, np.generic)):
        return _leaf(value)
    return kind, value


class Same:
    """The image of an object by its identity. It holds a weak reference where possible."""

    __slots__ = ("_strong", "_weak")

    def __init__(self, thing: object) -> None:
        self._strong = None
        try:
            self._weak: Any = weakref.ref(thing)
        except TypeError:
            self._weak, self._strong = None, thing

    def _thing(self) -> object:
        return self._strong if self._weak is None else self._weak()

    @property
    def thing(self) -> object:
        """The object; None if it is no more."""
        return self._thing()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and (
            self._thing() is other._thing() and self._thing() is not None
        )

    def __hash__(self) -> int:
        return id(type(self._thing()))


class Spec:
    """The image of a wrapper's present spec (SUB-21)."""

    __slots__ = ("_spec",)

    def __init__(self, spec: object) -> None:
        self._spec = kept_spec(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and same_spec(self._spec, other._spec)

    __hash__ = None  # type: ignore[assignment]
