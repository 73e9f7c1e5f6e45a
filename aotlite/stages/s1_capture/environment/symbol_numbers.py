"""Puts numbers in place of symbols in what a captured function raises or leaves (DYN-23).

    raise Missing(x.shape[0])        its args and attributes, and those of its cause
    stats.append(Row(n))             a named tuple, a namespace, a set, a slice, an error
    later.append(lambda: n)          the variables of a closure, and the attributes of a function
    VARIABLE.set(n); ROOM.n = n      a context variable, and what is local to this thread
    table[0] = n                     an ndarray of objects

Used by `python_numbers`. Rule: DYN-23. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import collections
import queue
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import cast

import numpy as np

from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.python_number import PythonNumber, plain
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.records.guards.access_paths import attributes_of
from aotlite.stages.s1_capture.environment.access_search import is_users

MOST = 1000
"""At most so many objects are looked at."""
HOLDERS = (
    *(types.SimpleNamespace, types.ModuleType, type, set, frozenset, BaseException),
    *(collections.ChainMap, collections.UserDict, collections.UserList),
    *(ContextVar, threading.local, queue.Queue, np.ndarray, types.FunctionType),
)
"""Classes beside containers and users' own whose objects may hold symbols."""
_LISTS = (list, collections.deque)
Place = tuple[Callable[..., object], object]
"""A place of an object: what sets it, and what lies there."""


def put_numbers_in(thing: object) -> None:
    """Puts the numbers of the call in place of the symbols that an object holds."""
    waiting, seen = collections.deque([thing]), dict[int, object]()
    while waiting and len(seen) < MOST:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen[id(each)] = each  # alive, so that no other object gets its id
        for put, value in _places(each):
            number = in_numbers(value)
            if number is not value:
                put(number)
            waiting.append(number)


def in_numbers(value: object) -> object:
    """The number of a symbol; tuples, frozen sets and slices with numbers for the symbols in them;
    anything else itself."""
    kind = type(value)
    if kind is SymFloat or kind is SizeFloat:
        return plain(value)  # a float that is stored is assumed
    if issubclass(kind, PythonNumber):
        number: object = cast("SymInt", value).hint
        return number
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        found = tuple(map(in_numbers, parts))
        return value if _same(parts, found) else slice(*found)
    if not issubclass(kind, (tuple, frozenset)):
        return value
    items = tuple(cast("Iterable[object]", value))
    found = tuple(map(in_numbers, items))
    if _same(items, found):
        return value
    return getattr(kind, "_make", kind)(found)  # of a named tuple, by its method


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _places(thing: object) -> Iterator[Place]:
    kind = type(thing)  # an object may report another class
    if issubclass(kind, dict):
        yield from _items(cast("dict[object, object]", thing))
    elif issubclass(kind, _LISTS):
        some = cast("list[object]", thing)
        for index, value in enumerate(list(some)):
            yield partial(some.__setitem__, index), value
    elif issubclass(kind, (tuple, frozenset)):
        for value in cast("Iterable[object]", thing):
            yield _never, value
    elif issubclass(kind, set):
        thing = cast("set[object]", thing)
        numbers = list(map(in_numbers, thing))
        set.clear(thing)  # symbols lie there by hashes of their values
        set.update(thing, numbers)
    elif issubclass(kind, BaseException):
        thing = cast("BaseException", thing)
        yield partial(setattr, thing, "args"), thing.args
        yield _never, thing.__cause__
        yield _never, thing.__context__
        yield from _attributes(thing)
    elif issubclass(kind, types.FunctionType):
        if is_users(cast("types.FunctionType", thing)):
            yield from _of_function(cast("types.FunctionType", thing))
    elif issubclass(kind, ContextVar):
        variable = cast("ContextVar[object]", thing)
        yield variable.set, variable.get(None)
    elif issubclass(kind, np.ndarray):
        yield from _elements(cast("np.ndarray", thing))
    elif issubclass(kind, threading.local):
        here = cast("threading.local", thing).__dict__  # of this thread
        for name, value in list(here.items()):
            yield partial(here.__setitem__, name), value
    elif issubclass(kind, (types.ModuleType, type)):
        if is_users(cast("type", thing)):
            yield from _variables(cast("type", thing))
    elif issubclass(kind, HOLDERS) or is_users(kind):
        yield from _attributes(thing)


def _items(thing: dict[object, object]) -> Iterator[Place]:
    is_ordered = issubclass(type(thing), collections.OrderedDict)
    base: type[dict[object, object]] = collections.OrderedDict if is_ordered else dict
    items = [(in_numbers(key), value) for key, value in base.items(thing)]
    if not _same(tuple([key for key, _ in items]), tuple(base.keys(thing))):
        base.clear(thing)  # symbols lie there by hashes of their values
        for key, value in items:
            base.__setitem__(thing, key, value)
    for key, value in items:
        yield partial(base.__setitem__, thing, key), value


def _of_function(function: types.FunctionType) -> Iterator[Place]:
    """The variables of a closure, the defaults of a function, and its attributes."""
    for cell in function.__closure__ or ():
        try:
            yield partial(setattr, cell, "cell_contents"), cell.cell_contents
        except ValueError:  # an empty one
            continue
    yield partial(setattr, function, "__defaults__"), function.__defaults__
    named = function.__kwdefaults__ or {}
    for name, value in list(named.items()):
        yield partial(named.__setitem__, name), value
    yield from _attributes(function)


def _elements(array: np.ndarray) -> Iterator[Place]:
    if array.dtype == object and array.flags.writeable:
        for place in np.ndindex(array.shape):
            yield partial(array.__setitem__, place), array[place]


def _variables(thing: types.ModuleType | type) -> Iterator[Place]:
    """The symbols among the variables of a module or class."""
    for name, value in list(vars(thing).items()):
        if in_numbers(value) is not value:
            yield partial(setattr, thing, name), value


def _attributes(thing: object) -> Iterator[Place]:
    """The attributes of an object, slots among them, read without calling its class's code."""
    own = attributes_of(thing)
    for name, value in list(own.items()):
        yield partial(own.__setitem__, name), value
    for cls in type(thing).__mro__:
        for slot in vars(cls).values():
            if type(slot) is types.MemberDescriptorType and is_users(cls):
                try:
                    yield partial(slot.__set__, thing), slot.__get__(thing)
                except AttributeError:
                    continue


def _never(number: object) -> None:
    """For what is no place: a symbol there was replaced around it."""
