"""What a region is given, as keys: two calls of equal keys differ in nothing that Python can see.

Tensors and Modules are numbered in the order in which the region meets them. Everything else is
compared by value, or by identity. Rules: REG-22. Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

import types
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import TrackedCallable, own_attributes
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.meta.text import meta_text
from aotlite.stages.s1_capture.hooks.reachable import article

Key = tuple[Any, ...]
_PLAIN = (bool, int, str, bytes, types.NoneType, types.EllipsisType)
_BY_TEXT = (float, complex)
"""Numbers of which -0.0 is not 0.0, and nan is nan."""
_THEMSELVES = (
    *(types.FunctionType, types.BuiltinFunctionType, type),
    *(DType, Device, MemoryFormat),
)


_LITERALS = (*_PLAIN, *_BY_TEXT)


class UnlikeError(Exception):
    """Why a call can neither be repeated nor be the repetition of another."""


class Operands:
    """The tensors, Modules and containers that a region meets, by number."""

    __slots__ = ("_kept", "_numbers", "fakes", "things")

    def __init__(self, fakes: dict[int, Tensor]) -> None:
        self.fakes = fakes
        """Id of a tensor from outside -> the fake that stands for it, where one does by now."""
        self.things: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """What is compared by identity, so that its id stays its own."""

    def copy(self) -> Operands:
        """These operands, to which others may be added."""
        found = Operands(self.fakes)
        found.things, found._numbers = [*self.things], {**self._numbers}
        return found

    def number(self, thing: object) -> int | None:
        """The number of an operand; None for anything else."""
        return self._numbers.get(id(thing))

    def key(self, value: Any) -> Key:
        """The key of a value; operands in it that are new get numbers. Raises UnlikeError for a
        value of which nothing is known."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind in _BY_TEXT:
            return kind, repr(value)
        if kind is slice:
            return kind, self.key((value.start, value.stop, value.step))
        if isinstance(value, _THEMSELVES):
            self._kept.append(value)
            return kind, id(value)
        known = self._numbers.get(id(value))
        if known is not None:
            return kind, known
        if isinstance(value, Tensor):
            return kind, self._add(value), *tensor_facts(value, self.fakes)
        if isinstance(value, TrackedCallable):
            held = [(name, type(each)) for name, each in own_attributes(value).items()]
            return kind, self._add(value), *held
        if kind in (tuple, list):
            return kind, self._add(value), *[self.key(each) for each in value]
        if kind is dict:
            items = [self.key((name, each)) for name, each in value.items()]
            return kind, self._add(value), *items
        raise UnlikeError(f"it is given {article(value)}")

    def _add(self, thing: object) -> int:
        number = self._numbers[id(thing)] = len(self.things)
        self.things.append(thing)
        return number


def tensor_facts(tensor: Tensor, fakes: dict[int, Tensor]) -> Key:
    """All that Python can see of a tensor in a capture, but its identity. Raises UnlikeError for a
    wrapper, whose class runs code of its own."""
    if is_wrapper(tensor):
        raise UnlikeError(f"it is given {article(tensor)}, a wrapper subclass")
    now = fakes.get(id(tensor), tensor)
    root = now._root
    history = now._leaf, now._node is None, now._kind, root is None, now._grad is None
    inherited = None if root is None else root.requires_grad
    storage = now.storage
    return (now.meta, *history, inherited, storage.writable, type(storage.version))


def is_literal(value: object) -> bool:
    """Whether an argument of an op is the same in each call: a number, a dtype, a device."""
    return type(value) in _LITERALS or isinstance(value, (DType, Device, MemoryFormat))


def unlike(key: Key, other: Key) -> str:
    """How a value of the second key differs from one of the first, as the end of a sentence."""
    kind = key[0]
    if other[0] is not kind:
        return f"is of type {other[0].__name__}, not {kind.__name__}"
    if kind in _LITERALS:
        return f"is {other[1]}, not {key[1]}"
    if issubclass(kind, Tensor) and len(key) == len(other):
        if key[2:3] != other[2:3]:
            return f"is {meta_text(other[2])}, not {meta_text(key[2])}"
        if key[2:] != other[2:]:
            return "has another history"
    return "is not alike"
