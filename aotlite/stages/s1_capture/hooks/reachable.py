"""The objects that a hook reaches through its variables, and which of them it may change.

A hook may be called by later calls, or by each backward, only if it reaches no tensor and no list
that the captured run made: eager would make new ones at each call (`reason_against`).
Used by this folder alone. Rules: HOOK-1 to HOOK-3. Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.symbols.floats.call_code import own_code
from aotlite.stages.records.guards.access_paths import attributes_of
from aotlite.stages.s1_capture.environment.access_search import is_users, names_used
from aotlite.stages.s1_capture.environment.bytecode_reads import steps_of

MOST = 10_000
"""The largest number of objects that one search visits."""
_BOUND = (types.MethodType, types.BuiltinMethodType, functools.partial)
_CONTAINERS = (list, dict, set, collections.deque)
_LEFT_ALONE = (Tensor, types.ModuleType, np.generic, str, bytes, int, float, complex)


def reached(things: Iterable[object]) -> Iterator[Any]:
    """The objects and all that they reach by name, breadth first, each once."""
    queue, seen = list(things), set[int]()
    for thing in queue:  # grows while it is walked
        if id(thing) not in seen and len(seen) < MOST:
            seen.add(id(thing))
            yield thing
            queue.extend(_inside(thing))


def _inside(thing: object) -> Iterable[object]:
    """The objects one step from an object."""
    match thing:
        case types.FunctionType():
            return [each for _, each in variables_of(thing)] if is_users(thing) else ()
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
        return [*vars(thing).values(), *thing.__bases__] if is_users(thing) else ()
    return [*attributes_of(thing).values(), type(thing)]


def variables_of(function: types.FunctionType) -> list[tuple[str, object]]:
    """(name, value) of a function's cells, defaults and globals, and of module attributes."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found = [(name, cell.cell_contents) for name, cell in cells if _is_bound(cell)]
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    found += zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
    found += (function.__kwdefaults__ or {}).items()
    names, attributes = names_used(code)
    for name in names:
        if name in function.__globals__:
            found.append((name, function.__globals__[name]))
        elif hasattr(builtins, name):
            found.append((name, getattr(builtins, name)))
    modules = [each for _, each in found if isinstance(each, types.ModuleType) and is_users(each)]
    return [*found, *((n, vars(m)[n]) for m in modules for n in attributes if n in vars(m))]


def _is_bound(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- changes
def may_change(hook: object) -> list[object]:
    """The containers and objects that a hook may change, as its bytecode shows."""
    things = list(reached([hook]))
    words = {word for thing in things for word in words_of(thing)}
    bound = {id(each.__self__) for each in things if isinstance(each, types.BuiltinFunctionType)}
    return [
        thing
        for thing in things
        if _can_change(thing) and (id(thing) in bound or not words.isdisjoint(changes_of(thing)))
    ]


_OF_GRADIENTS = frozenset(("grad", "step", "zero_grad"))


def asked_gradients(hook: object) -> list[Tensor]:
    """The tensors that a hook reaches, if its code names `grad`, `step` or `zero_grad`."""
    things = list(reached([hook]))
    functions = [each for each in things if isinstance(each, types.FunctionType) and is_users(each)]
    codes = [*(own_code(each.__code__) for each in functions), *_codes_made_by(functions)]
    steps = (step for code in codes for step in dis.get_instructions(code))
    if not any(s.opname.endswith(_OF_ATTRIBUTES) and s.argval in _OF_GRADIENTS for s in steps):
        return []
    return [each for each in things if isinstance(each, Tensor)]


_OF_ATTRIBUTES = ("_ATTR", "_METHOD")


def words_of(thing: object) -> Iterator[str]:
    """The attribute names and opcodes in a user's function, and its in-place operators."""
    if isinstance(thing, types.FunctionType) and is_users(thing):
        _, attributes = names_used(thing.__code__)
        yield from attributes
        for code in (own_code(thing.__code__), *_codes_made_by([thing])):
            for step in steps_of(code):
                yield step.opname
                if step.opname == "BINARY_OP":
                    yield step.argrepr


def changes_of(thing: object) -> tuple[str, ...]:
    """The attribute names and opcodes by which code changes an object of this type."""
    for kind, words in _CHANGES:
        if isinstance(thing, kind):
            return words
    return ("STORE_ATTR", "DELETE_ATTR", "setattr")


_ITEMS = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
_UPDATES = ("update", "difference_update", "intersection_update", "symmetric_difference_update")
_IN_PLACE = ("|=", "&=", "-=", "^=")
_LISTS = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse")
_CHANGES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        dict,
        (
            "update",
            "setdefault",
            "pop",
            "popitem",
            "clear",
            "|=",
            "subtract",
            "move_to_end",
            *_ITEMS,
        ),
    ),
    (set, ("add", "discard", "remove", "pop", "clear", *_UPDATES, *_IN_PLACE)),
    (
        (list, collections.deque),
        (*_LISTS, "appendleft", "popleft", "extendleft", "+=", "*=", *_ITEMS),
    ),
    (np.ndarray, (*_ITEMS, "fill", "put")),
)


# ---------------------------------------------------------------------------- made by the run
def reason_against(hook: object, capture: object, known: Known) -> str | None:
    """Why the hook of this capture may not serve later calls; None if it may.

    Eager makes a new hook at each call, with new variables. The captured one may replace it if it
    shares none of the captured run's tensors, lists or rebound variables.
    """
    for thing in reached([hook]):
        if isinstance(thing, Tensor) and thing.storage.capture is capture:
            return f"uses a tensor {thing.meta} of the compiled function"
        if thing in known:
            continue
        held: list[tuple[str, object]] = []
        if isinstance(thing, types.FunctionType):
            if own_code(thing.__code__) in known.codes:
                held = _ownvariables_of(thing, known)
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
                return f"reaches {article(each)} ({what}) that the compiled function made"
    return None


_REBOUND = object()


def _ownvariables_of(function: types.FunctionType, known: Known) -> list[tuple[str, object]]:
    """The variables of a function made by the run that nothing outside shares."""
    steps = dis.get_instructions(function.__code__)
    rebound = {s.argval for s in steps if s.opname in ("STORE_DEREF", "DELETE_DEREF")}
    names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [
        (f"variable {name!r}", _REBOUND if name in rebound else cell.cell_contents)
        for name, cell in names
        if cell not in known and _is_bound(cell)
    ]


def _can_change(thing: object) -> bool:
    if isinstance(thing, (*_CONTAINERS, np.ndarray)):
        return True
    left = (*_LEFT_ALONE, *_BOUND, type, types.FunctionType, tuple, frozenset)
    return not isinstance(thing, left) and bool(attributes_of(thing))


def article(thing: object) -> str:
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


class Known:
    """The objects that a compiled function reaches by name: they existed before it ran.

    `codes` are the code objects of the functions that it makes. `compared` are the functions whose
    variables the guards compare at each call.
    """

    def __init__(self, things: Iterable[object], compared: Iterable[types.FunctionType]) -> None:
        self._alive = list(reached(things))
        functions = [each for each in self._alive if isinstance(each, types.FunctionType)]
        self._ids = set(map(id, self._alive))
        self._ids.update(id(cell) for f in functions for cell in f.__closure__ or ())
        self.codes = _codes_made_by(functions)
        self._compared = list(compared)
        self._compared_ids = set(map(id, self._compared))
        self._compared_codes = _codes_made_by(self._compared)

    def __contains__(self, thing: object) -> bool:
        return id(thing) in self._ids

    def is_compared(self, function: types.FunctionType) -> bool:
        """Whether the guards compare the function's variables, or the run made the function."""
        code = own_code(function.__code__)
        return id(function) in self._compared_ids or code in self._compared_codes


def _codes_made_by(functions: Iterable[types.FunctionType]) -> set[types.CodeType]:
    stack = [own_code(each.__code__) for each in functions if is_users(each)]
    found: set[types.CodeType] = set()
    while stack:
        inner = [c for c in stack.pop().co_consts if isinstance(c, types.CodeType)]
        stack += [code for code in inner if code not in found]
        found.update(inner)
    return found
