"""Static analysis of bytecode: does a function read a variable that it also changes?

A Python number cannot be traced: a number computed from it is just a number. So the bytecode of
all functions that may run is searched for loads of the variable, attribute or item. A load counts
as no read if it only stores, deletes or updates in place (`n += 1`, `log.append(1)`).
Used by `python_numbers` alone. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.provenance.location import Location
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath
from aotlite.stages.s1_capture.environment.access_search import is_users, names_used


class _Key:
    """A marker among the keys of items, printed as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


LENGTH = _Key("how many there are")
ANY = _Key("any")
"""The only key of sets and arrays, whose items are not distinguished."""
Items = tuple[Any, ...]
"""Keys into nested containers: `x[a][b]` is `(a, b)`."""

_NOISE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"))
_WRITES = frozenset(
    "append appendleft extend extendleft insert remove discard add clear update sort reverse "
    "fill put".split()
)
"""Methods of containers that change them and return nothing of their contents."""
_ASKS = ("get", "setdefault", "pop")
"""Methods that return one item."""
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_OF_VARIABLES = {
    "cell": ("LOAD_DEREF", "LOAD_CLASSDEREF"),
    "global": ("LOAD_GLOBAL", "LOAD_NAME"),
    "default": ("LOAD_FAST", "LOAD_DEREF"),
}
_BY_NAME = {"attr": lambda key: key, "module": lambda key: key, "class": lambda key: key[1]}


def first_read(
    place: AccessPath, items: Items, leaves: list[object], functions: Sequence[types.FunctionType]
) -> Location | None:
    """The first instruction that reads the item under these keys of the object at a path.

    `functions` are those that may run. An object that no name in code refers to (an argument of a
    `partial`) counts as read at the function's first instruction.
    """
    kind, key = place.path[-1]
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind in _BY_NAME:
        codes = [each.__code__ for each in functions]
        return _first(codes, _OF_ATTRIBUTES, _BY_NAME[kind](key), items)
    if kind in _OF_VARIABLES and isinstance(owner, types.FunctionType):
        name = variable(owner, kind, key)
        return _first([owner.__code__], _OF_VARIABLES[kind], name, items)
    return next(((each.__code__, 0) for each in functions), None)


def variable(function: types.FunctionType, kind: str, key: Any) -> str:
    """The name of a cell, a default or a global in a function's code."""
    code = function.__code__
    if kind == "cell":
        return code.co_freevars[key]
    if kind == "default" and isinstance(key, int):
        return code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) + key]
    return str(key)


def may_run(
    first: object, functions: Iterable[types.FunctionType], methods: Iterable[str] = ()
) -> list[types.FunctionType]:
    """The functions that may be called when `first` runs.

    A plain function is among `functions` because some code names it, so it may run. Of a class all
    methods are among them: a method may run if its name occurs in code that may run, or in
    `methods`.
    """
    while isinstance(first, functools.partial):
        first = first.func
    found: list[types.FunctionType] = []
    waiting, names = list(functions), {getattr(first, "__name__", ""), *methods}
    while True:
        named = [f for f in waiting if not _is_method(f) or f.__name__ in names]
        if not named:
            return found
        waiting = [f for f in waiting if _is_method(f) and f.__name__ not in names]
        found += named
        for function in named:
            for each in names_used(function.__code__):
                names.update(each)


def _is_method(function: types.FunctionType) -> bool:
    within = function.__qualname__.rpartition(".")[0]
    is_called_by_python = function.__name__.startswith("__") or function.__name__ in _CALLED
    return bool(within) and not within.endswith("<locals>") and not is_called_by_python


_CALLED = ("forward", "backward", "vjp", "setup_context")


# --------------------------------------------------------------------------------------- code
def _first(
    codes: Iterable[types.CodeType], loads: Sequence[str], name: str, items: Items
) -> Location | None:
    for code in codes:
        for each in _with_inner(code):
            steps = steps_of(each)
            for at, step in enumerate(steps):
                if _loads(step, loads, name) and _reads(steps, at, items):
                    return each, step.offset
            if loads is _OF_ATTRIBUTES and "getattr" in each.co_names and name in each.co_consts:
                return each, 0
    return None


def _loads(step: dis.Instruction, loads: Sequence[str], name: str) -> bool:
    """Whether a step loads the name. Newer Pythons load two locals in one instruction."""
    is_one = step.opname in loads or "LOAD_FAST" in loads and step.opname.startswith("LOAD_FAST")
    return is_one and (step.argval == name or type(step.argval) is tuple and name in step.argval)


@functools.lru_cache(maxsize=1024)
def _with_inner(code: types.CodeType) -> tuple[types.CodeType, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return (code, *(each for c in inner for each in _with_inner(c)))


@functools.lru_cache(maxsize=1024)
def steps_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object that do something. Cached: `dis` is slow."""
    return tuple([step for step in dis.get_instructions(code) if step.opname not in _NOISE])


def _reads(steps: Sequence[dis.Instruction], at: int, items: Items) -> bool:
    """Whether the value loaded at `at` is used in a way that reads the item under these keys."""
    for key in items:
        use = _use(steps, at)
        if use.what in ("changed", "dropped"):
            return False
        if use.what not in ("item", "asked"):
            return True
        if key is LENGTH or use.key is not NOTHING and not _may_be(key, use.key):
            return False
        if use.what == "asked":
            return True
        at = use.at
    return _use(steps, at).what not in ("changed", "dropped")


def _may_be(key: object, other: object) -> bool:
    """Whether two keys may denote one item: a negative index may be any."""
    is_from_end = type(other) is int and other < 0 and type(key) is int
    return key is ANY or is_from_end or bool(key == other)


@attrs.frozen
class _Use:
    """How a loaded value is used."""

    what: str
    """'item': it is subscripted; 'asked': `in`, `get` or `pop`; 'changed': it or an item is
    changed in place; 'dropped': it is popped; 'read': anything else."""
    at: int = 0
    """The instruction of the use."""
    key: Any = NOTHING
    """The key of the item; NOTHING if it is not a constant."""


_READ = _Use("read")


def _use(steps: Sequence[dis.Instruction], at: int) -> _Use:
    """The use of the value that an instruction pushes; 'read' at the first jump."""
    above = 0  # the number of values above it on the stack
    for now in range(at + 1, len(steps)):
        step = steps[now]
        if above == 0 and step.opname == "POP_TOP":
            return _Use("dropped")
        if above == 0 and step.opname in _OF_ATTRIBUTES:
            return _method(steps, now)
        if above == 1 and step.opname == "CONTAINS_OP":  # it is the key, below the container
            return _READ
        if above == 0 and step.opname == "CONTAINS_OP":
            return _Use("asked", now, _constant(steps, at - 1))
        if above == 1:
            if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
                return _Use("changed")
            if step.opname == "COPY" and step.arg == 2:
                return _changed_item(steps, now)
            if _takes_item(step):
                return _Use("item", now, _constant(steps, now - 1))
            if step.opname.startswith(("BINARY_", "COMPARE_", "IS_")):
                is_in_place = step.argrepr.endswith("=")
                return (_stored if is_in_place else _stored_again)(steps, at, now)
        if above == 2 and step.opname in ("STORE_SLICE", "BINARY_SLICE"):
            return _Use("changed") if step.opname == "STORE_SLICE" else _READ
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return _READ
        above += dis.stack_effect(step.opcode, step.arg, jump=False)
        if above < 0 or step.opname in ("SWAP", "COPY"):
            return _READ
    return _READ


def _method(steps: Sequence[dis.Instruction], at: int) -> _Use:
    """The use of a container by a method, known by the method's name."""
    if steps[at].argval in _ASKS:
        return _Use("asked", at, _constant(steps, at + 1))
    return _Use("changed") if steps[at].argval in _WRITES else _READ


def _takes_item(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or step.argrepr == "[]"


def _constant(steps: Sequence[dis.Instruction], at: int) -> Any:
    step = steps[max(at, 0)]
    is_known = step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(step.argval) is not slice
    return step.argval if is_known else NOTHING


def _changed_item(steps: Sequence[dis.Instruction], at: int) -> _Use:
    """`owner[key] += value`: bytecode copies the owner and the key, then subscripts."""
    twice, taken = steps[at + 1 : at + 3]
    if twice.opname == "COPY" and twice.arg == 2 and _takes_item(taken):
        return _Use("item", at + 2, _constant(steps, at - 1))
    return _READ


def _stored(steps: Sequence[dis.Instruction], at: int, end: int) -> _Use:
    """'changed' if the result of `+=` is stored back to its variable, attribute or item."""
    load, after = steps[at], [step.opname for step in steps[end + 1 : end + 4]]
    if after == ["SWAP", "SWAP", "STORE_SUBSCR"] and _takes_item(load):
        return _Use("changed")
    if after[:2] == ["SWAP", "STORE_ATTR"] and steps[at - 1].opname == "COPY":
        return _Use("changed")
    stores = steps[end + 1]
    is_same = stores.opname == load.opname.replace("LOAD", "STORE") and stores.argval == load.argval
    return _Use("changed") if is_same and load.opname in _VARIABLES else _READ


def _stored_again(steps: Sequence[dis.Instruction], at: int, end: int) -> _Use:
    """'changed' if a value and a constant are combined and stored back: `n = n + 1`.

    Also for an attribute or item of a variable. Any other owner is evaluated twice, and may be two
    objects, as of a property.
    """
    load = steps[at]
    owner = steps[at - _owner_steps(load) : at]
    after = steps[end + 1 : end + 2 + len(owner)]
    if end != at + 2 or steps[end].opname != "BINARY_OP" or _constant(steps, at + 1) is NOTHING:
        return _READ
    if _words(owner) != _words(after[: len(owner)]) or len(after) <= len(owner):
        return _READ
    if owner and not (owner[0].opname in _VARIABLES and _are_keys(steps, at, owner[1:])):
        return _READ
    store = after[-1]
    if _takes_item(load):
        return _Use("changed") if store.opname == "STORE_SUBSCR" else _READ
    is_same = store.opname == load.opname.replace("LOAD", "STORE") and store.argval == load.argval
    return _Use("changed") if is_same and (owner or load.opname in _VARIABLES) else _READ


def _owner_steps(load: dis.Instruction) -> int:
    """How many instructions load the owner, and the key, of an attribute or item."""
    return 2 if _takes_item(load) else int(load.opname == "LOAD_ATTR")


def _are_keys(steps: Sequence[dis.Instruction], at: int, keys: Sequence[dis.Instruction]) -> bool:
    return not keys or _constant(steps, at - 1) is not NOTHING


def _words(steps: Sequence[dis.Instruction]) -> list[tuple[str, type, object]]:
    return [(step.opname, type(step.argval), step.argval) for step in steps]


_VARIABLES = frozenset(name for names in _OF_VARIABLES.values() for name in names)


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a user's class, with those of properties and static methods."""
    for cls in kind.__mro__:
        if is_users(cls):
            for value in vars(cls).values():
                inner = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(inner, types.FunctionType):
                    yield inner
