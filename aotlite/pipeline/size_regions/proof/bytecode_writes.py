"""What the bytecode of a function may write: names, attributes and items, and by which methods.

A variable of the function itself is no write, and neither is an attribute of `self` in `__init__`,
nor an item of a list that the function has made. Used by `python_writes`. Rule: DYN-24.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Mapping, Sequence
from types import CodeType

import attrs

from aotlite.ir.provenance.location import Location

_NOISE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "RESUME", "KW_NAMES", "TO_BOOL"))
_MADE = frozenset(
    "BUILD_LIST BUILD_MAP BUILD_SET BUILD_TUPLE BUILD_STRING BUILD_CONST_KEY_MAP BUILD_SLICE "
    "LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE LIST_TO_TUPLE LOAD_CONST LOAD_SMALL_INT "
    "UNARY_NEGATIVE UNARY_NOT COMPARE_OP CONTAINS_OP IS_OP FORMAT_VALUE".split()
)
"""What they push is new, or cannot change."""
MAKERS = frozenset(("list", "dict", "set", "sorted", "tuple", "range", "len", "int", "float"))
_INNER = ("<listcomp>", "<dictcomp>", "<setcomp>")
_ITEMS = frozenset(("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"))
_CONTAINER_BELOW: Mapping[str, int] = {"STORE_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_SLICE": 2}
"""How many values lie above the container."""
BY_TUPLE = "STORE_SUBSCR of a tuple"
"""An item such as x[:, 0] is set: of no list."""
_SETTING = frozenset(("__setattr__", "__delattr__"))
_TELLING = frozenset(
    "__dict__ __setitem__ __delitem__ __set__ __delete__ __iadd__ __ior__ __iand__ __isub__ "
    "__ixor__ __imul__ __init__ __globals__ __closure__ f_globals f_locals cell_contents "
    "gi_frame __builtins__".split()
)
"""Attributes by which code may write anything."""
_METHODS = ("LOAD_ATTR", "LOAD_METHOD")
_VALUES = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_SMALL_INT")
_READING = frozenset(("get", "items", "keys", "values", "index", "count", "copy", "shape"))
FIRST_CALLS = frozenset(("__init__", "__new__", "__post_init__", "__attrs_post_init__"))
"""The methods that get a new object."""


@attrs.frozen
class CodeStep:
    """One instruction; those of newer Pythons that work on two variables are two of these."""

    name: str
    value: object
    effect: int
    """How many values more there are on the stack behind it."""
    at: tuple[CodeType, int]
    argument: int = 0
    is_target: bool = False
    """Whether other steps jump to it."""


_END = CodeStep("", None, 0, ((lambda: None).__code__, 0))


@attrs.frozen
class WrittenCode:
    """What the code of a function, and of those nested in it, names and may write."""

    write: tuple[str, Location] | None
    """The first instruction that writes outside whatever there is outside."""
    words: Mapping[str, Location]
    """The opcodes, methods and in-place operators by which containers change, but of those that
    the code has made itself; and all further attributes that it names."""
    names: Mapping[str, Location]
    """The globals that it loads."""
    texts: frozenset[str]
    """Those that may be names of attributes."""
    modules: tuple[str, ...]
    """Those that it imports."""
    is_dynamic: bool
    """Whether it gets attributes whose names it computes."""
    handed: frozenset[str]
    """The variables and attributes that it uses for more than to read their items."""

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def of(cls, code: CodeType, fresh_first: bool = False) -> WrittenCode:
        """Reads a function's code. With `fresh_first` its first argument is an object that the
        call has made."""
        reader = _Reader(frozenset(code.co_freevars), fresh_first or code.co_name in FIRST_CALLS)
        reader.read(code)
        texts = frozenset(reader.texts)
        found = reader.write, reader.words, reader.names, texts, tuple(reader.modules)
        return cls(*found, reader.is_dynamic, frozenset(reader.handed))


@attrs.define
class _Reader:
    """Reads a code and those nested in it."""

    outer: frozenset[str]
    """The variables of functions around the first code."""
    fresh_first: bool
    write: tuple[str, Location] | None = None
    words: dict[str, Location] = attrs.field(factory=dict)
    names: dict[str, Location] = attrs.field(factory=dict)
    texts: set[str] = attrs.field(factory=set)
    modules: list[str] = attrs.field(factory=list)
    is_dynamic: bool = False
    handed: set[str] = attrs.field(factory=set)

    def read(self, first: CodeType) -> None:
        stack = [first]
        while stack:
            code = stack.pop()
            steps = _steps(code)
            new = _new_variables(code, steps)
            own = code.co_varnames[:1] if self.fresh_first and code is first else ()
            for place, step in enumerate(steps):
                self._writes(steps, place, step, {*new, *own}, own)
                self._names(steps, place, step)
            self.texts |= {x for x in code.co_consts if isinstance(x, str) and x.isidentifier()}
            stack += [x for x in code.co_consts if isinstance(x, CodeType)]

    def _writes(
        self,
        steps: Sequence[CodeStep],
        place: int,
        step: CodeStep,
        new: set[str],
        own: tuple[str, ...],
    ) -> None:
        name, what = step.name, ""
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            what = f"sets the global {step.value!r}"
        elif name in ("STORE_DEREF", "DELETE_DEREF") and step.value in self.outer:
            what = f"sets the variable {step.value!r} of a function around it"
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            owner = _owner(steps, place, 0)
            fresh = {*own, *(new if steps[place].at[0].co_name == "__new__" else ())}
            what = "" if owner in fresh else f"sets the attribute {step.value!r}"
        elif name == "LOAD_BUILD_CLASS":
            what = "makes a class, which its bases know"
        elif name in _ITEMS:
            if _owner(steps, place, _CONTAINER_BELOW[name]) not in new:
                word = BY_TUPLE if name != "STORE_SLICE" and _is_tuple(steps, place) else name
                self.words.setdefault(word, step.at)
        elif name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            what = self._attribute(steps, place, step, new, own)
        elif name == "BINARY_OP" and _is_in_place(step):
            if _owner(steps, place, 1) not in new:
                self.words.setdefault(_operator(step), step.at)
        if what and self.write is None:
            self.write = what, step.at

    def _attribute(
        self,
        steps: Sequence[CodeStep],
        place: int,
        step: CodeStep,
        new: set[str],
        own: tuple[str, ...],
    ) -> str:
        """Notes an attribute that code reads; what it writes by that for sure."""
        name = str(step.value)
        if _owner(steps, place, 0) not in new:
            self.words.setdefault(name, step.at)
        if name in _SETTING and step.at[0].co_name not in _SETTING:
            after = steps[place + 1 : place + 2]
            is_own = bool(own) and bool(after) and after[0].value in own
            is_super = step.name == "LOAD_SUPER_ATTR" or _starts_with(steps, place, "super")
            return "" if is_own or (is_super and own) else f"calls {name!r}"
        is_first = name == "__init__" and self.fresh_first
        return f"uses {name!r}" if name in _TELLING and not is_first else ""

    def _names(self, steps: Sequence[CodeStep], place: int, step: CodeStep) -> None:
        if step.name.startswith("LOAD_") and not _reads_items(steps, place):
            self.handed.add(str(step.value))
        if step.name in ("LOAD_GLOBAL", "LOAD_NAME") and not str(step.value).startswith("@"):
            self.names.setdefault(str(step.value), step.at)
            if step.value in ("getattr", "attrgetter", "methodcaller"):
                self.is_dynamic |= not _names_constant(steps, place)
        elif step.name == "IMPORT_NAME":
            self.modules.append(str(step.value))
        elif step.name == "IMPORT_FROM":
            self.words.setdefault(str(step.value), step.at)
            self.handed.add(str(step.value))
        elif step.name == "MATCH_CLASS":
            self.is_dynamic = True


# --------------------------------------------------------------------------------------- the stack
@functools.lru_cache(maxsize=1024)
def _steps(code: CodeType) -> tuple[CodeStep, ...]:
    found: list[CodeStep] = []
    is_target = False
    for each in dis.get_instructions(code):
        name, at = each.opname.replace("_BORROW", "").replace("_CHECK", ""), (code, each.offset)
        is_target |= each.is_jump_target
        if name in _NOISE:
            continue
        if type(each.argval) is tuple and "_FAST_" in name:
            parts = name.replace("STORE_FAST", "S").replace("LOAD_FAST", "L").split("_")
            for kind, value in zip(parts, each.argval, strict=True):
                word, effect = ("LOAD_FAST", 1) if kind == "L" else ("STORE_FAST", -1)
                found.append(CodeStep(word, value, effect, at, 0, is_target))
                is_target = False
        else:
            found.append(CodeStep(name, each.argval, _effect(each), at, each.arg or 0, is_target))
        is_target = False
    return tuple(found)


def _effect(step: dis.Instruction) -> int:
    return dis.stack_effect(step.opcode, step.arg, jump=False)


def _pushing(steps: Sequence[CodeStep], place: int, below: int) -> int | None:
    """The last of the steps that push the value that has so many above it, before a step; None
    where they are not in one line."""
    while below:
        first = _first(steps, place)
        if first is None:
            return None
        place, below = first, below - 1
    return place - 1 if place and not steps[place].is_target else None


def _first(steps: Sequence[CodeStep], place: int) -> int | None:
    """The first of the steps that push the value on top of the stack, before a step."""
    count = 0
    for n in range(place - 1, -1, -1):
        is_moved = steps[n].name.startswith(("JUMP", "POP_JUMP", "FOR_ITER", "SWAP", "COPY"))
        if is_moved or steps[n + 1].is_target:
            return None
        count += steps[n].effect
        if count >= 1:
            return n
    return None


def _owner(steps: Sequence[CodeStep], place: int, below: int) -> object:
    """The variable of the function that a step works on; None if it is something else."""
    found = _pushing(steps, place, below)
    if found is None or steps[found].name not in ("LOAD_FAST", "LOAD_DEREF"):
        return None
    return steps[found].value


def _starts_with(steps: Sequence[CodeStep], place: int, name: str) -> bool:
    """Whether the value that a step takes comes from a global of this name."""
    first = _first(steps, place)
    near = [] if first is None else steps[max(first - 1, 0) : first + 2]
    return any(step.value == name for step in near)


def _is_tuple(steps: Sequence[CodeStep], place: int) -> bool:
    """Whether the value on top of the stack is a tuple, before a step."""
    if not place or steps[place].is_target:
        return False
    before = steps[place - 1]
    return before.name == "BUILD_TUPLE" or type(before.value) is tuple


def _is_in_place(step: CodeStep) -> bool:
    return 13 <= step.argument < 26  # of Python's operators, the second half works in place


def _operator(step: CodeStep) -> str:
    names = "+ & // << @ * % | ** >> - / ^".split()
    return f"{names[step.argument - 13]}="


def _reads_items(steps: Sequence[CodeStep], place: int) -> bool:
    """Whether the value that a step loads is used for one of its items, or for all in turn."""
    first, second = [*steps[place + 1 : place + 3], *[_END] * 2][:2]
    if first.is_target:
        return False
    if first.name == "GET_ITER" or (first.name in _METHODS and first.value in _READING):
        return True
    is_item = second.name == "BINARY_SUBSCR" or (second.name, second.argument) == ("BINARY_OP", 26)
    return is_item and first.name in _VALUES and not second.is_target


def _names_constant(steps: Sequence[CodeStep], place: int) -> bool:
    """Whether the second argument of `getattr` is a text."""
    for step in steps[place + 1 : place + 8]:
        if step.name == "LOAD_CONST":
            return isinstance(step.value, str)
        if step.name not in ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "PUSH_NULL"):
            return False
    return False


def _new_variables(code: CodeType, steps: Sequence[CodeStep]) -> set[str]:
    """The variables that only get lists, dicts and sets that this code makes, or what cannot
    change."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
    count += bool(code.co_flags & 8)
    own = {*code.co_varnames, *code.co_cellvars} - {*code.co_varnames[:count]}
    own -= _set_inside(code)
    for place, step in enumerate(steps):
        is_store = step.name in ("STORE_FAST", "STORE_DEREF")
        if is_store and step.value in own and not _makes(steps, place, step.value):
            own.discard(str(step.value))
    return own


def _set_inside(code: CodeType) -> set[object]:
    """The variables that functions nested in a code set."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    stores = [s.value for each in inner for s in _steps(each) if s.name == "STORE_DEREF"]
    return {*stores}.union(*map(_set_inside, inner))


def _makes(steps: Sequence[CodeStep], place: int, variable: object) -> bool:
    """Whether the value that is stored at a step is new there, or cannot change."""
    if not place or steps[place].is_target:
        return False
    before = steps[place - 1]
    if before.name == "BINARY_OP":
        return not _is_in_place(before) or _owner(steps, place - 1, 1) == variable
    if before.name not in ("CALL", "CALL_FUNCTION_EX"):
        return before.name in _MADE
    first = _first(steps, place)
    if first is None:
        return False
    made = [steps[n] for n in (first - 1, first, first + 1) if 0 <= n < place]
    return any(
        (step.name == "LOAD_GLOBAL" and step.value in MAKERS)
        or (isinstance(step.value, CodeType) and step.value.co_name in _INNER)
        for step in made
    )
