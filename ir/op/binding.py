"""`Binder`: `Schema.bind` with a cache. Also the functions that make the key of a call.

Ground floor. `Schema.bind` converts every argument of every call. Mostly the outcome follows from
the arguments' types, or from the values of a few literals; a `Binder` caches it by these. The key
(`Op.key`) is what meta rules take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotlite.ir.dtypes import DType
from aotlite.ir.op.parameter_types import LEAST, MOST
from aotlite.ir.op.schema import Schema
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt

CACHE_LIMIT = 1 << 16

_INT = frozenset((int,))
_LITERALS = frozenset((bool, int, str, tuple, type(None), DType))
"""Types of arguments that may be part of a cache key. No floats: 0.0 equals -0.0."""


class Binder:
    """Binds calls to one schema."""

    __slots__ = ("_bound", "_is_list_first", "_literal", "_tensor_types", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        lists = [i for i, p in enumerate(schema.parameters) if p.type.is_tensor_list]
        self._is_list_first = lists == [0]
        self._bound: dict[tuple[type, ...], tuple[Any, ...]] = {}
        """Types of canonical arguments -> the defaults of the parameters after them."""
        self._literal: dict[tuple[object, ...], tuple[object, ...]] = {}
        """Types and values of the literals after a tensor -> their canonical form."""
        self._tensor_types: set[type] = set()
        """Types that were accepted as tensors in a first list of tensors."""

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
        """The canonical positional arguments, defaults filled in. Raises ArgumentError."""
        types = tuple(map(type, args))
        if not kwargs:
            # Plain arguments are canonical by their types alone, and ints by their size.
            rest = self._bound.get(types)
            if rest is not None and (int not in types or _are_short(args)):
                if tuple not in types or _are_canonical(args):
                    return args + rest
        if _LITERALS.issuperset(types[1:]) and (tuple not in types or self._holds(args)):
            return self._bind_literals(types, args, kwargs)
        return self._bind_anew(types, args, kwargs)

    def _bind_literals(
        self, types: tuple[type, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[object, ...]:
        """`bind` where only the first argument is a tensor: cached by the values of the others."""
        named = tuple(kwargs.values())
        if not _LITERALS.issuperset(map(type, named)) or tuple in map(type, named):
            return self._bind_anew(types, args, kwargs)
        key = (types, args[1:], tuple(kwargs), named, tuple(map(type, named)))
        rest = self._literal.get(key)
        if rest is not None:
            return args[:1] + rest
        bound = self._bind_anew(types, args, kwargs)
        first = args[0] if args else None
        if type(first) is not tuple and not hasattr(first, "meta"):
            return bound
        if bound[0] is first:
            if len(self._literal) >= CACHE_LIMIT:
                self._literal.clear()
            self._literal[key] = bound[1:]
        return bound

    def _holds(self, args: tuple[object, ...]) -> bool:
        """Whether tuples among the arguments hold ints, and the first one perhaps tensors."""
        if not self._is_list_first or type(args[0]) is not tuple:
            return _are_canonical(args)
        return self._tensor_types.issuperset(map(type, args[0])) and _are_canonical(args[1:])

    def _bind_anew(
        self, types: tuple[type, ...], args: tuple[Any, ...], kwargs: Mapping[str, object]
    ) -> tuple[object, ...]:
        bound = self.schema.bind(args, kwargs)
        if self._is_list_first and types and types[0] is tuple:
            self._tensor_types.update(map(type, args[0]))
        lists = self._is_list_first and tuple in types  # an empty list proves nothing for others
        settled = not kwargs and list not in types and not lists and SymInt not in types
        if settled and _same(args, bound) and all(map(_is_canonical, args)):
            self._bound[types] = bound[len(args) :]
        return bound


def _are_canonical(args: tuple[object, ...]) -> bool:
    """Whether all tuples among the arguments hold ints only, and so are canonical."""
    return all(_INT.issuperset(map(type, value)) for value in args if type(value) is tuple)


def _are_short(args: tuple[object, ...]) -> bool:
    """Whether some dtype holds each of the ints among the arguments."""
    for value in args:
        if type(value) is int and not LEAST <= value <= MOST:
            return False
    return True


def _is_canonical(value: object) -> bool:
    return type(value) is not tuple or _INT.issuperset(map(type, value))


def _same(args: tuple[object, ...], bound: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(args, bound, strict=False))


# ------------------------------------------------------------------------------------------ keys
NUMBERS = (int, float, bool, complex)


_SYMBOLIC: Mapping[type, type] = {SymInt: int, SymFloat: float, SizeFloat: float}
KINDS: Mapping[type, type] = {**{kind: kind for kind in NUMBERS}, **_SYMBOLIC}
"""Type of a number in a tensor's place -> what stands for it in the key."""


def _key_of_one(args: tuple[Any, ...]) -> tuple[object, ...]:
    return (args[0].meta,)


def _key_of_two(args: tuple[Any, ...]) -> tuple[object, ...]:
    return args[0].meta, args[1].meta


def _key_of_mixed(args: tuple[Any, ...]) -> tuple[object, ...]:
    first, second = args
    return first.meta, KINDS.get(type(second)) or second.meta


def _key_of_list(args: tuple[Any, ...]) -> tuple[object, ...]:
    return tuple([value.meta for value in args[0]]), args[1]


def _key_of_index(args: tuple[Any, ...]) -> tuple[object, ...]:
    return args[0].meta, args[1], args[2].meta


# Key functions for the parameter lists of most calls: they need no loop.
FAST_KEYS = {
    ("Tensor[]", "int"): _key_of_list,
    ("Tensor", "int", "Tensor"): _key_of_index,
    ("Tensor",): _key_of_one,
    ("Tensor", "Tensor"): _key_of_two,
    ("Tensor", "Tensor|Scalar"): _key_of_mixed,
}


def key_of_first(args: tuple[Any, ...]) -> tuple[object, ...]:
    return args[0].meta, *args[1:]
