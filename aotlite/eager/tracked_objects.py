"""`TrackedObject`: a capture records reads of its attributes, and refuses writes.

The base of `Module` and `Optimizer`. Attributes are in the instance's `__dict__`, and eager reads
are plain Python: the class has a `__getattribute__` only while some thread is in `observing()`.
Stage 1 enters that for a capture, and `functional_call` to substitute other tensors for parameters.
Reading the `__dict__`, as `vars`, `dir` and copies do, counts as reading all attributes.
Reads that bypass the class are not seen: `object.__getattribute__`, `inspect.getattr_static`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MemberDescriptorType, NoneType
from typing import Any

import numpy as np

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.forks import Blocks

Place = tuple[int, str]
"""(id of a `TrackedObject`, name of an attribute)."""


class TrackedObject:
    """An object whose attribute reads a capture records, and whose writes it refuses (CAP-4)."""

    def __new__(cls, *args: object, **kwargs: object) -> TrackedObject:
        self = super().__new__(cls)
        recorder = STATE.recorder
        if recorder is not None:
            recorder.created(self)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        mine = _MODE.substitutes
        place = id(self), name
        if mine and place in mine and place not in _MODE.through:
            mine[place] = value  # it is dropped with the substitutes
            return
        _check_writable(self, name)
        object.__setattr__(self, name, value)
        if mine and place in mine:
            mine[place] = value

    def __delattr__(self, name: str) -> None:
        _check_writable(self, name)
        object.__delattr__(self, name)


class TrackedCallable(TrackedObject):
    """A `TrackedObject` that is called: a capture records the ops inside as its own (SEQ-5)."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of a call."""
        raise AssertionError(f"{type(self).__name__} says what it computes")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


_call = TrackedCallable.__call__


class _Mode(threading.local):
    """The values that this thread's reads return instead of the attributes' (`substituting`)."""

    substitutes: dict[Place, object] | None = None
    through: frozenset[Place] = frozenset()
    """The attributes of which a write is no write of the substitute alone."""


_MODE = _Mode()


def _observe() -> None:
    TrackedObject.__getattribute__ = _read  # type: ignore[method-assign, assignment]
    TrackedCallable.__call__ = _call_noted  # type: ignore[method-assign]


def _observe_no_more() -> None:
    del TrackedObject.__getattribute__
    TrackedCallable.__call__ = _call  # type: ignore[method-assign]


observing = Blocks(_observe, _observe_no_more).entered
"""A block in which reads of any `TrackedObject` go through `_read`."""


@contextmanager
def substituting(
    values: Mapping[Place, object], *, writes_through: bool = False
) -> Iterator[Mapping[Place, object]]:
    """A block in which this thread's reads of these attributes return these values.

    Captures do not record such reads. A write changes the substitute, which is dropped at the end;
    with `writes_through` it writes the attribute as well, which a capture refuses. Yields the
    substitutes as they are.
    """
    before, through = _MODE.substitutes, _MODE.through
    now = _MODE.substitutes = {**(before or {}), **values}
    _MODE.through = through | values.keys() if writes_through else through - values.keys()
    try:
        with observing():
            yield now
    finally:
        _MODE.substitutes, _MODE.through = before, through


def _read(self: TrackedObject, name: str) -> object:
    try:
        value = object.__getattribute__(self, name)
    except AttributeError:
        if STATE.recorder is not None and not name.startswith("__"):
            STATE.recorder.read_absent(self, name)
        raise
    recorder, substitutes = STATE.recorder, _MODE.substitutes
    if recorder is None and substitutes is None:
        return value
    if substitutes and (id(self), name) in substitutes:
        return substitutes[id(self), name]
    if recorder is not None and name in _WHOLE:
        recorder.read_attribute(self, "__dict__", own_attributes(self))
    if recorder is None or not _is_data(self, name, value):
        return value
    return recorder.read_attribute(self, name, value)


def _call_noted(self: TrackedCallable, *args: object, **kwargs: object) -> object:
    recorder = STATE.recorder
    if recorder is None:
        return self.forward(*args, **kwargs)
    before = recorder.scopes.enter(self)
    try:
        return self.forward(*args, **kwargs)
    finally:
        recorder.scopes.leave(before)


_WHOLE = frozenset(("__dict__", "__getstate__", "__reduce__", "__reduce_ex__"))
"""Attributes whose read counts as reading all attributes of the instance."""
_PLAIN = (bool, int, float, complex, str, NoneType)


def _is_data(obj: TrackedObject, name: str, value: object) -> bool:
    """Whether the attribute is data of the instance or its class, and not a method or property."""
    if name.startswith("__"):
        return False
    if name in own_attributes(obj):
        return True
    found = [vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls)]
    if found and isinstance(found[0], MemberDescriptorType):
        return True  # a slot
    kinds = (*_PLAIN, list, tuple, dict, np.generic, Tensor, TrackedObject)
    return isinstance(value, kinds) and any(each is value for each in found)


def own_attributes(obj: TrackedObject) -> dict[str, object]:
    """The `__dict__` of an object; captures do not record this read."""
    found: dict[str, object] = object.__getattribute__(obj, "__dict__")
    return found


def _check_writable(obj: TrackedObject, name: str) -> None:
    recorder = STATE.recorder
    if recorder is not None and not recorder.is_created(obj):
        is_tensor = isinstance(own_attributes(obj).get(name), Tensor)
        keep = f"write it in place, {name}.copy_(value)" if is_tensor else _KEEP
        raise recorder.refuse(
            f"writing attribute {name!r} of a {type(obj).__name__}",
            f"{keep}, or write the attribute outside the compiled function",
        )


_KEEP = "keep what changes in a buffer or parameter and write it in place (copy_, add_)"
