"""Where a function's code reads what lies at a place, and does more with it than change it.

A number cannot be followed through Python: what is made of it is another number. So the code is
asked. Of a place that was changed each use is found: storing there, deleting, changing in place
(`n += 1`, `log.append(1)`) tells nothing of what is there, and any other use may.
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
    """A key that stands for more than itself."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


LENGTH = _Key("how many there are")
ANY = _Key("any")
"""The only key of things whose parts are not told apart: sets and arrays."""
Items = tuple[Any, ...]
"""Keys of a container, of one in it, and so on."""

_NOISE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"))
_WRITES = frozenset(
    "append appendleft extend extendleft insert remove discard add clear update sort reverse "
    "fill put".split()
)
"""Methods of containers that change them and give nothing back."""
_ASKS = ("get", "setdefault", "pop")
"""Methods that tell of one item."""
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_OF_VARIABLES = {
    "cell": ("LOAD_DEREF", "LOAD_CLASSDEREF"),
    "global": ("LOAD_GLOBAL", "LOAD_NAME"),
    "default": ("LOAD_FAST", "LOAD_DEREF"),
}
_BY_NAME = {"attr": lambda key: key, "module": lambda key: key, "class": lambda key: key[1]}


def first_read(
    place: AccessPath, items: Items, leaves: list[Any], functions: Sequence[types.FunctionType]
) -> Location | None:
    """The first instruction that reads what lies under these keys of what is at a place.

    `functions` are those that may run. What is reached by no name that code uses (an argument of a
    `partial`) counts as read where the function begins.
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
    """What a function calls a variable of its own."""
    code = function.__code__
    if kind == "cell":
        return code.co_freevars[key]
    if kind == "default" and isinstance(key, int):
        return code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) + key]
    return str(key)


def may_run(
    first: Any, functions: Iterable[types.FunctionType], methods: Iterable[str] = ()
) -> list[types.FunctionType]:
    """Those of the functions that something which runs has a name for.

    `methods` are names of methods that run besides. Variables are found since some code names
    them; of a class all methods are.
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
            steps = _steps(each)
            for at, step in enumerate(steps):
                if _loads(step, loads, name) and _reads(steps, at, items):
                    return each, step.offset
            if loads is _OF_ATTRIBUTES and "getattr" in each.co_names and name in each.co_consts:
                return each, 0
    return None


def _loads(step: dis.Instruction, loads: Sequence[str], name: str) -> bool:
    """Newer Pythons load local variables in many ways, two by one instruction."""
    is_one = step.opname in loads or "LOAD_FAST" in loads and step.opname.startswith("LOAD_FAST")
    return is_one and (step.argval == name or type(step.argval) is tuple and name in step.argval)


@functools.lru_cache(maxsize=1024)
def _with_inner(code: types.CodeType) -> tuple[types.CodeType, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return (code, *(each for c in inner for each in _with_inner(c)))


@functools.lru_cache(maxsize=1024)
def _steps(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    return tuple([step for step in dis.get_instructions(code) if step.opname not in _NOISE])


def _reads(steps: Sequence[dis.Instruction], at: int, items: Items) -> bool:
    """Whether code that loads something uses what lies under these keys of it."""
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


def _may_be(key: Any, other: Any) -> bool:
    """Whether two keys may be of one item; the last one has two numbers."""
    is_from_end = type(other) is int and other < 0 and type(key) is int
    return key is ANY or is_from_end or bool(key == other)


@attrs.frozen
class _Use:
    """What is done with a value."""

    what: str
    """'item': one of its items is taken; 'asked': whether it has one; 'changed': it, or an item of
    it, is changed in place; 'dropped': nothing; 'read'."""
    at: int = 0
    """The instruction that does it."""
    key: Any = NOTHING
    """Of the item; NOTHING if it is not known."""


_READ = _Use("read")


def _use(steps: Sequence[dis.Instruction], at: int) -> _Use:
    """What is done with the value that an instruction gives, as far as code runs in one line."""
    above = 0  # how many values lie on it
    for now in range(at + 1, len(steps)):
        step = steps[now]
        if above == 0 and step.opname == "POP_TOP":
            return _Use("dropped")
        if above == 0 and step.opname in _OF_ATTRIBUTES:
            return _method(steps, now)
        if above == 1 and step.opname == "CONTAINS_OP":  # the key lies on it: it is the key
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
    """What a method of a container does, by its name."""
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
    """`owner[key] += value`: the owner, and the key, are copied, and then the item is taken."""
    twice, taken = steps[at + 1 : at + 3]
    if twice.opname == "COPY" and twice.arg == 2 and _takes_item(taken):
        return _Use("item", at + 2, _constant(steps, at - 1))
    return _READ


def _stored(steps: Sequence[dis.Instruction], at: int, end: int) -> _Use:
    """Whether what `+=` gives is put back to where the value comes from, and nowhere else."""
    load, after = steps[at], [step.opname for step in steps[end + 1 : end + 4]]
    if after == ["SWAP", "SWAP", "STORE_SUBSCR"] and _takes_item(load):
        return _Use("changed")
    if after[:2] == ["SWAP", "STORE_ATTR"] and steps[at - 1].opname == "COPY":
        return _Use("changed")
    stores = steps[end + 1]
    is_same = stores.opname == load.opname.replace("LOAD", "STORE") and stores.argval == load.argval
    return _Use("changed") if is_same and load.opname in _VARIABLES else _READ


def _stored_again(steps: Sequence[dis.Instruction], at: int, end: int) -> _Use:
    """Whether a value and a constant make what is put back to where it comes from: `n = n + 1`.

    So it may be of an attribute or item whose owner is a variable. Another owner is asked for
    twice, and a property may give two of them.
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
    """How many instructions give a variable's item or attribute its owner and key."""
    return 2 if _takes_item(load) else int(load.opname == "LOAD_ATTR")


def _are_keys(steps: Sequence[dis.Instruction], at: int, keys: Sequence[dis.Instruction]) -> bool:
    return not keys or _constant(steps, at - 1) is not NOTHING


def _words(steps: Sequence[dis.Instruction]) -> list[tuple[str, type, object]]:
    return [(step.opname, type(step.argval), step.argval) for step in steps]


_VARIABLES = frozenset(name for names in _OF_VARIABLES.values() for name in names)


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """The functions that a users' class has, those of properties and static methods, too."""
    for cls in kind.__mro__:
        if is_users(cls):
            for value in vars(cls).values():
                inner = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(inner, types.FunctionType):
                    yield inner
