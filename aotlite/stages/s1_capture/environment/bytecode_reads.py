"""How bytecode uses a value that it loads: does it read the value, or only change it in place?

A load counts as no read if it only stores, deletes or updates (`n += 1`, `log.append(1)`).
Used by `number_reads`, and for the list of instructions by hooks. Rule: CAP-14.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.stages.records.guards.access_paths import NOTHING


class ItemMark:
    """A marker among the keys of items, printed as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


LENGTH = ItemMark("how many there are")
"""The key of the number of items of a list, tuple or deque, which an item may be counted from."""
SIZE = ItemMark("how many keys there are")
"""The key of the number of items of a dict."""
ORDER = ItemMark("in which order")
"""The key of the order of a dict's keys."""
GONE = ItemMark("not there any more")
"""The last key of an object that went: a table may lose items under keys that are computed."""
ANY = ItemMark("any")
"""The only key of sets and arrays, whose items are not distinguished."""
Instruction = tuple[types.CodeType, int]
"""An instruction, by its code and its offset there."""
Items = tuple[Any, ...]
"""Keys into nested containers: `x[a][b]` is `(a, b)`."""

_NOISE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"))
WRITES = frozenset(
    "append appendleft extend extendleft insert remove discard add clear update sort reverse "
    "fill put put_nowait set write writelines move_to_end rotate".split()
)
"""Methods of containers that change them and return nothing of their contents."""
_TAKES = ("popitem", "popleft")
"""Methods that only change a container if what they return is dropped."""
_VIEWS = ("keys", "values", "items")
_BY_CALL = {
    **dict.fromkeys(("len", "bool"), "counted"),
    **dict.fromkeys(("sorted", "set", "frozenset"), "unordered"),
}
"""How functions of Python use a container that they are called with."""
_ASKS = ("get", "setdefault", "pop")
"""Methods that return one item."""
_HANDS_ON = frozenset(
    "YIELD_VALUE SEND BEFORE_WITH BEFORE_ASYNC_WITH GET_AWAITABLE GET_AITER".split()
)
"""Instructions that give a value to somebody, and push another one in its place."""
_CALLS = ("PRECALL", "CALL", "CALL_KW")
_CONDITIONS = ("UNARY_NOT", "TO_BOOL")
OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
OF_VARIABLES = {
    "cell": ("LOAD_DEREF", "LOAD_CLASSDEREF"),
    "global": ("LOAD_GLOBAL", "LOAD_NAME"),
    "default": ("LOAD_FAST", "LOAD_DEREF"),
}
VARIABLES = frozenset(name for names in OF_VARIABLES.values() for name in names)


def loads_name(step: dis.Instruction, loads: Sequence[str], name: str) -> bool:
    """Whether a step loads the name. Newer Pythons load two locals in one instruction."""
    is_one = step.opname in loads or "LOAD_FAST" in loads and step.opname.startswith("LOAD_FAST")
    return is_one and (step.argval == name or type(step.argval) is tuple and name in step.argval)


@functools.lru_cache(maxsize=1024)
def with_inner(code: types.CodeType) -> tuple[types.CodeType, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return (code, *(each for c in inner for each in with_inner(c)))


@functools.lru_cache(maxsize=1024)
def steps_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object that do something. Cached: `dis` is slow."""
    return tuple([step for step in dis.get_instructions(code) if step.opname not in _NOISE])


def _no(steps: Sequence[dis.Instruction], at: int) -> bool:
    return False


def reads(
    steps: Sequence[dis.Instruction],
    at: int,
    items: Items,
    *,
    existence: bool = False,
    harmless: Callable[[Sequence[dis.Instruction], int], bool] = _no,
) -> bool:
    """Whether the value loaded at `at` is used in a way that reads the item under these keys. With
    `existence`, whether it is there: also a value that is dropped is read (`try: box.n`).
    `harmless` says of the item, or of what counts as one, that nothing comes of its use."""
    is_gone = items[-1:] == (GONE,)
    keys = items[: len(items) - is_gone]
    for number, key in enumerate(keys, 1):
        if key is ANY and harmless(steps, at):
            return False
        use = _use(steps, at)
        if use.what in ("changed", "dropped", "compared"):
            return False
        if use.what == "counted":
            return key is SIZE or key is LENGTH or key is ANY
        if use.what not in ("item", "asked"):
            return not (use.what == "unordered" and key is ORDER)
        if key is SIZE or key is ORDER:
            return False
        if key is LENGTH:
            if use.what == "asked":  # `x in items`, or a `pop` whose result is used
                return _is_used(steps, use.at)
            return _asks_length(use) and _use(steps, use.at).what not in ("changed", "dropped")
        if use.key is not NOTHING and not _may_be(key, use.key):
            return False
        if is_gone and number == len(keys) and use.key is NOTHING:
            return steps[use.at].argval == "pop" and _is_used(steps, use.at)
        if use.what == "asked":
            return True
        at = use.at
    what = _use(steps, at).what
    if what == "changed" or harmless(steps, at):
        return False
    return existence or what != "dropped"


def _is_used(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether the result of a method, or of `in`, is used."""
    call = call_of(steps, at) if steps[at].opname in OF_ATTRIBUTES else at
    return call is None or _use(steps, call).what != "dropped"


def _asks_length(use: _Use) -> bool:
    """Whether the item under a key depends on how many there are: `log[-1]`, `log[i]`."""
    is_from_end = type(use.key) is int and use.key < 0
    return use.what == "item" and (use.key is NOTHING or is_from_end)


def _may_be(key: object, other: object) -> bool:
    """Whether two keys may denote one item: a negative index may be any."""
    is_from_end = type(other) is int and other < 0 and type(key) is int
    return key is ANY or is_from_end or bool(key == other)


@attrs.frozen
class _Use:
    """How a loaded value is used."""

    what: str
    """'item': it is subscripted; 'asked': `in`, `get` or `pop`; 'changed': it or an item is
    changed in place; 'dropped': it is popped; 'compared': `is`; 'counted': `len`, or a condition;
    'unordered': all its items, in no order; 'read': anything else."""
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
        if above == 0 and step.opname in OF_ATTRIBUTES:
            return _method(steps, now)
        if above == 0 and step.opname in _HANDS_ON:
            return _READ
        if above == 0 and (step.opname in _CONDITIONS or step.opname.startswith("POP_JUMP")):
            return _Use("compared" if step.opname.endswith("NONE") else "counted")
        if above == 0 and step.opname in _CALLS and step.arg == 1:
            return _Use(_by_call(steps, at, now + (step.opname == "PRECALL")))
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
            if step.opname == "IS_OP":
                return _Use("compared")
            if step.opname.startswith(("BINARY_", "COMPARE_")):
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
    name = steps[at].argval
    if name in _ASKS:
        return _Use("asked", at, _constant(steps, at + 1))
    if name in WRITES:
        return _Use("changed")
    call = call_of(steps, at) if name in _TAKES or name in _VIEWS else None
    use = _READ if call is None else _use(steps, call)
    if name in _TAKES:
        return _Use("changed") if use.what == "dropped" else _READ
    return use if use.what in ("counted", "unordered") else _READ


def _by_call(steps: Sequence[dis.Instruction], at: int, call: int) -> str:
    """How a value is used by the function that it is the only argument of: `len(self.log)`."""
    for before in range(at - 1, max(at - 8, -1), -1):
        step = steps[before]
        if loads_name(step, OF_VARIABLES["global"], str(step.argval)):
            if step.argval in _BY_CALL and call_of(steps, before) == call:
                return _BY_CALL[step.argval]
    return "read"


def call_of(steps: Sequence[dis.Instruction], at: int) -> int | None:
    """The instruction that calls what `at` pushes; None if none does, or one behind a jump."""
    above = 0
    for now in range(at + 1, len(steps)):
        step = steps[now]
        if step.opname in _CALLS and above == step.arg:
            return now + (step.opname == "PRECALL")
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None
        above += dis.stack_effect(step.opcode, step.arg, jump=False)
        if above < 0:
            return None
    return None


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
    return _Use("changed") if is_same and load.opname in VARIABLES else _READ


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
    if owner and not (owner[0].opname in VARIABLES and _are_keys(steps, at, owner[1:])):
        return _READ
    store = after[-1]
    if _takes_item(load):
        return _Use("changed") if store.opname == "STORE_SUBSCR" else _READ
    is_same = store.opname == load.opname.replace("LOAD", "STORE") and store.argval == load.argval
    return _Use("changed") if is_same and (owner or load.opname in VARIABLES) else _READ


def _owner_steps(load: dis.Instruction) -> int:
    """How many instructions load the owner, and the key, of an attribute or item."""
    return 2 if _takes_item(load) else int(load.opname == "LOAD_ATTR")


def _are_keys(steps: Sequence[dis.Instruction], at: int, keys: Sequence[dis.Instruction]) -> bool:
    return not keys or _constant(steps, at - 1) is not NOTHING


def _words(steps: Sequence[dis.Instruction]) -> list[tuple[str, type, object]]:
    return [(step.opname, type(step.argval), step.argval) for step in steps]
