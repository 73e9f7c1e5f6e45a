"""What users' hooks reach besides their gradient, and whether a run of one has changed it.

A capture runs a hook on a gradient without data. What it changes then in Python objects is put
back (`Remembered`), and the hook is called at each backward instead. Hooks that may be called so
reach nothing that the captured run made: neither its tensors, nor its lists (`reason_against`).
Used by `inner_hooks` alone. Rules: HOOK-1 to HOOK-3. Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import io
import logging
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from aotlite.eager.observed import Observed
from aotlite.eager.tensor import Tensor
from aotlite.stages.places import attributes_of, names_used

MOST = 10_000
"""Objects that are looked at, of what a hook reaches."""
_BOUND = (types.MethodType, types.BuiltinMethodType, functools.partial)
_CONTAINERS = (list, dict, set, collections.deque)
_LOUD = frozenset((builtins.print, builtins.input, builtins.open))
_CHANNELS = (io.IOBase, logging.Logger, logging.Handler)
_LEFT_ALONE = (Tensor, types.ModuleType, np.generic, str, bytes, int, float, complex)
_BYTES = 1 << 16
_LIBRARY = sys.stdlib_module_names - {"__main__"}


def is_loud(hook: Callable[..., Any]) -> bool:
    """Whether a hook tells the world something: it prints, logs, or is code of another language."""
    if isinstance(hook, types.BuiltinFunctionType):
        return True
    return any(map(_tells, reached([hook])))


def _tells(thing: Any) -> bool:
    if isinstance(thing, types.BuiltinFunctionType):
        return thing in _LOUD
    return isinstance(thing, _CHANNELS) or thing is logging


def reached(things: Iterable[Any]) -> Iterator[Any]:
    """The things and all that they reach by name, breadth first, each object once."""
    queue, seen = list(things), set[int]()
    for thing in queue:  # grows while it is walked
        if id(thing) not in seen and len(seen) < MOST:
            seen.add(id(thing))
            yield thing
            queue.extend(_inside(thing))


def _inside(thing: Any) -> Iterable[Any]:
    """What lies one step from an object."""
    match thing:
        case types.FunctionType():
            return _variables(thing) if _is_users(thing) else ()
        case types.MethodType():
            return thing.__self__, thing.__func__
        case types.BuiltinFunctionType():
            return () if isinstance(thing.__self__, types.ModuleType) else (thing.__self__,)
        case functools.partial():
            return thing.func, *thing.args, *thing.keywords.values()
        case dict():
            return list(thing.values())
        case list() | tuple() | set() | frozenset() | collections.deque():
            return list(thing)
    if isinstance(thing, _LEFT_ALONE):
        return ()
    if isinstance(thing, type):
        return [*vars(thing).values(), *thing.__bases__] if _is_users(thing) else ()
    return [*attributes_of(thing).values(), type(thing)]


def _is_users(thing: types.FunctionType | types.ModuleType | type) -> bool:
    """Whether a function, class or module is a user's: not ours, NumPy's or of Python's library."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    package = (name or "").split(".")[0]
    ours = package == "aotlite" and not (name or "").startswith("aotlite.testing.")
    return not ours and package != "numpy" and package not in _LIBRARY


def _variables(function: types.FunctionType) -> list[Any]:
    """The values of all variables that a function has or names, those of modules too."""
    found = [cell.cell_contents for cell in function.__closure__ or () if _is_bound(cell)]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    names, attributes = names_used(function.__code__)
    for name in names:
        if name in function.__globals__:
            found.append(function.__globals__[name])
        elif hasattr(builtins, name):
            found.append(getattr(builtins, name))
    modules = [each for each in found if isinstance(each, types.ModuleType) and _is_users(each)]
    found += [vars(m)[name] for m in modules for name in attributes if name in vars(m)]
    return found


def _is_bound(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- changes
def may_change(hook: Any) -> list[Any]:
    """The containers and objects that a hook may change, by what its code says."""
    things = list(reached([hook]))
    words = {word for thing in things for word in _words(thing)}
    bound = {id(each.__self__) for each in things if isinstance(each, types.BuiltinFunctionType)}
    return [
        thing
        for thing in things
        if _can_change(thing) and (id(thing) in bound or not words.isdisjoint(_changes_of(thing)))
    ]


def _words(thing: Any) -> Iterator[str]:
    """The names of attributes, and the ways of storing, in a user's function."""
    if isinstance(thing, types.FunctionType) and _is_users(thing):
        _, attributes = names_used(thing.__code__)
        yield from attributes
        for code in (thing.__code__, *_codes_made_by([thing])):
            yield from {step.opname for step in dis.get_instructions(code)}


def _changes_of(thing: Any) -> tuple[str, ...]:
    """What code says that changes such a thing."""
    for kind, words in _CHANGES:
        if isinstance(thing, kind):
            return words
    return ("STORE_ATTR", "DELETE_ATTR", "setattr")


_ITEMS = ("STORE_SUBSCR", "DELETE_SUBSCR")
_LISTS = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse")
_CHANGES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (dict, ("update", "setdefault", "pop", "popitem", "clear", *_ITEMS)),
    (set, ("add", "discard", "remove", "pop", "clear", "update")),
    ((list, collections.deque), (*_LISTS, "appendleft", "popleft", "extendleft", *_ITEMS)),
    (np.ndarray, (*_ITEMS, "fill", "put")),
)


class Remembered:
    """What a hook reaches, as it was: what changed since is found, and put back."""

    def __init__(self, hook: Any) -> None:
        self._things = list(reached([hook]))
        self._before = [_contents(thing) for thing in self._things]
        functions = [each for each in self._things if isinstance(each, types.FunctionType)]
        self._rebound = [place for function in functions for place in _stored(function)]
        self._globals = [names.get(name, self) for names, name in self._rebound]

    def changed(self) -> bool:
        """Whether anything is not what it was."""
        now = [_contents(thing) for thing in self._things]
        return not all(map(_same, self._before, now)) or any(
            names.get(name, self) is not before
            for (names, name), before in zip(self._rebound, self._globals, strict=True)
        )

    def restore(self) -> None:
        """Puts back what was there."""
        for thing, before in zip(self._things, self._before, strict=True):
            if not _same(before, _contents(thing)):
                _put_back(thing, before)
        for (names, name), before in zip(self._rebound, self._globals, strict=True):
            if before is self:
                names.pop(name, None)
            else:
                names[name] = before


def _stored(function: types.FunctionType) -> list[tuple[dict[str, Any], str]]:
    """The globals that a function rebinds, its own and those of modules."""
    if not _is_users(function):
        return []
    steps = list(dis.get_instructions(function.__code__))
    own = [s.argval for s in steps if s.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")]
    found = [(function.__globals__, name) for name in own]
    attributes = [s.argval for s in steps if s.opname in ("STORE_ATTR", "DELETE_ATTR")]
    for module in _variables(function) if attributes else ():
        if isinstance(module, types.ModuleType) and _is_users(module):
            found += [(vars(module), name) for name in attributes]
    return found


_EMPTY = object()


def _contents(thing: Any) -> Any:
    """What an object that can change holds, None for others: by identity, arrays by their bytes."""
    match thing:
        case types.FunctionType():
            cells = thing.__closure__ or ()
            return [cell.cell_contents if _is_bound(cell) else _EMPTY for cell in cells]
        case dict():
            return [*thing.keys(), *thing.values()]
        case list() | collections.deque():
            return list(thing)
        case set():
            return sorted(thing, key=id)
        case np.ndarray():
            return thing.tobytes() if thing.nbytes <= _BYTES else None
        case type():
            own = _attributes(thing) if _is_users(thing) else {}
            return [*own.keys(), *own.values()]
    if isinstance(thing, (*_LEFT_ALONE, *_BOUND, Observed, tuple, frozenset)):
        return None
    own = attributes_of(thing)
    return [*own.keys(), *own.values()]


def _attributes(kind: type) -> dict[str, Any]:
    """What a class holds besides what Python puts there."""
    hidden = (types.GetSetDescriptorType, types.MemberDescriptorType)
    own = vars(kind).items()
    return {k: v for k, v in own if not k.startswith("__") and not isinstance(v, hidden)}


def _same(before: Any, now: Any) -> bool:
    if type(before) is not list:
        return bool(before == now)
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _put_back(thing: Any, before: Any) -> None:
    match thing:
        case types.FunctionType():
            for cell, value in zip(thing.__closure__ or (), before, strict=True):
                if value is _EMPTY:
                    del cell.cell_contents
                else:
                    cell.cell_contents = value
        case np.ndarray():
            thing[...] = np.frombuffer(before, thing.dtype).reshape(thing.shape)
        case set():
            thing.clear()
            thing.update(before)
        case list() | collections.deque():
            thing.clear()
            thing.extend(before)
        case type():
            half = len(before) // 2
            kept = dict(zip(before[:half], before[half:], strict=True))
            for name in [*_attributes(thing)]:
                if name not in kept:
                    delattr(thing, name)
            for name, value in kept.items():
                if vars(thing).get(name, _EMPTY) is not value:
                    setattr(thing, name, value)
        case _:
            own = thing if isinstance(thing, dict) else attributes_of(thing)
            half = len(before) // 2
            own.clear()
            own.update(zip(before[:half], before[half:], strict=True))


# ---------------------------------------------------------------------------- made by the run
def reason_against(hook: Any, capture: Any, known: Known) -> str | None:
    """Why a hook may not be called by later calls in place of one that eager would make anew.

    None where nothing speaks against it.
    """
    for thing in reached([hook]):
        if isinstance(thing, Tensor) and thing.storage.capture is capture:
            return f"uses a tensor {thing.meta} of the compiled function"
        if thing in known:
            continue
        held: list[tuple[str, Any]] = []
        if isinstance(thing, types.FunctionType):
            if thing.__code__ in known.codes:
                held = _own_variables(thing, known)
        elif isinstance(thing, functools.partial):
            held = [("an argument", each) for each in (*thing.args, *thing.keywords.values())]
        elif isinstance(thing, (types.MethodType, types.BuiltinFunctionType)):
            held = [("what it is bound to", thing.__self__)]
        elif thing is hook:
            held = [("itself", thing)]
        for what, each in held:
            if each is _REBOUND:
                return f"rebinds {what} of the compiled function"
            if _can_change(each) and each not in known:
                return f"reaches {_article(each)} ({what}) that the compiled function made"
    return None


_REBOUND = object()


def _own_variables(function: types.FunctionType, known: Known) -> list[tuple[str, Any]]:
    """The variables that a function which the run has made shares with nobody outside."""
    steps = dis.get_instructions(function.__code__)
    rebound = {s.argval for s in steps if s.opname in ("STORE_DEREF", "DELETE_DEREF")}
    names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [
        (f"variable {name!r}", _REBOUND if name in rebound else cell.cell_contents)
        for name, cell in names
        if cell not in known and _is_bound(cell)
    ]


def _can_change(thing: Any) -> bool:
    if isinstance(thing, (*_CONTAINERS, np.ndarray)):
        return True
    left = (*_LEFT_ALONE, *_BOUND, type, types.FunctionType, tuple, frozenset)
    return not isinstance(thing, left) and bool(attributes_of(thing))


def _article(thing: Any) -> str:
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


class Known:
    """What a compiled function reaches by name: objects that were there before it ran.

    `codes` are those of the functions that it makes.
    """

    def __init__(self, things: Iterable[Any]) -> None:
        self._alive = list(reached(things))
        functions = [each for each in self._alive if isinstance(each, types.FunctionType)]
        self._ids = set(map(id, self._alive))
        self._ids.update(id(cell) for f in functions for cell in f.__closure__ or ())
        self.codes = _codes_made_by(functions)

    def __contains__(self, thing: Any) -> bool:
        return id(thing) in self._ids


def _codes_made_by(functions: Iterable[types.FunctionType]) -> set[types.CodeType]:
    stack = [each.__code__ for each in functions if _is_users(each)]
    found: set[types.CodeType] = set()
    while stack:
        inner = [c for c in stack.pop().co_consts if isinstance(c, types.CodeType)]
        stack += [code for code in inner if code not in found]
        found.update(inner)
    return found
