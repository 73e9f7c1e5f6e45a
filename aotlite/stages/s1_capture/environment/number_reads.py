"""Finds the code that reads a number: by the name of its variable, attribute or item, or by a text.

A Python number cannot be traced: a number computed from it is just a number. So the bytecode of
all functions that may run is searched for loads of the variable or attribute that reads it; also
for `getattr(x, "n")`, `vars(x)["n"]`, patterns, and copies of the object that holds it.
Used by `python_numbers` and `number_search`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import logging
import operator
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.provenance.location import Location
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, take
from aotlite.stages.s1_capture.environment.access_search import (
    is_installed,
    is_users_name,
)
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    OF_ATTRIBUTES,
    OF_VARIABLES,
    Instruction,
    Items,
    call_of,
    loads_name,
    reads,
    steps_of,
    with_inner,
)

_BY_NAME = {"attr": lambda key: key, "module": lambda key: key, "class": lambda key: key[1]}
_GLOBALS = OF_VARIABLES["global"]
GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
TAKE_TEXTS = (*GETTERS, getattr, hasattr, setattr, vars)
"""Functions that take the name of an attribute as a text."""
_NAMES = frozenset([*[each.__name__ for each in GETTERS], "__getattribute__"])
_BY_TEXT = _NAMES | {"getattr", "hasattr", "setattr", "globals", "vars", "__dict__"}
_COPIERS = frozenset(
    "copy deepcopy asdict astuple replace evolve dumps pformat pprint __getstate__".split()
)
_COPYING = frozenset(("copy", "dataclasses", "attrs", "attr", "pickle", "json", "pprint"))
"""The modules of these functions, which read all attributes of an object."""


@attrs.frozen(eq=False, repr=False)
class Change:
    """A number that changed: the keys of an item of the object at a path, and what is known."""

    place: AccessPath
    items: Items
    owner: object
    existence: bool
    """The item was not there before, or is not any more."""
    is_number: bool
    """It was and is a plain number, text or None: who prints it runs no code of a user."""
    is_count: bool
    """It says where an `itertools.count` stands, which never ends and runs no code of a user."""
    comes: bool
    """It is an object that came into an empty attribute: only reads that found it empty count."""
    read_at: Collection[Instruction] | None
    """The instructions that have read the attribute (if an object came: before that); None if that
    is not known."""


@attrs.frozen(eq=False, repr=False)
class SearchedCode:
    """The code that may run."""

    codes: dict[types.CodeType, None]
    asked: dict[str, None]
    """What getters ask for."""
    functions: list[types.FunctionType]

    @classmethod
    def of(cls, *worlds: Any) -> SearchedCode:
        """That of several snapshots."""
        codes = {code: None for world in worlds for code in world.codes}
        things = [thing for world in worlds for thing in world.objects.values()]
        functions = [each for each in things if type(each) is types.FunctionType]
        return cls(codes, {x: None for world in worlds for x in world.asked}, functions)


def first_read(change: Change, leaves: list[object], searched: SearchedCode) -> Location | None:
    """The first instruction that reads the number that changed.

    An object that no name in code refers to (an argument of a `partial`) counts as read at the
    first instruction.
    """
    place, items = change.place, change.items
    kind, key = place.path[-1] if place.path else ("", None)
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    all_codes = [each for code in searched.codes for each in with_inner(code)]
    search = _Search(change, all_codes, HarmlessReads(change, searched.functions))
    if change.comes and kind in _BY_NAME:
        return search.of_empty(_BY_NAME[kind](key), owner)
    if kind in _BY_NAME:
        found = search.of_attribute(_BY_NAME[kind](key))
        if found is None and owner is builtins:
            found = search.first(all_codes, OF_VARIABLES["global"], str(key))
        is_asked = search.known_reads is None and _BY_NAME[kind](key) in searched.asked
        if found is not None or not is_asked:
            return found
    if kind in OF_VARIABLES and isinstance(owner, types.FunctionType):
        name = variable(owner, kind, key)
        found = search.first(with_inner(owner.__code__), OF_VARIABLES[kind], name)
        if found is None and kind == "global":
            found = search.by_call("globals", name, items)
        return found
    return next(((each, 0) for each in all_codes), None)


def variable(function: types.FunctionType, kind: str, key: Any) -> str:
    """The name of a cell, a default or a global in a function's code."""
    code = function.__code__
    if kind == "cell":
        return code.co_freevars[key]
    if kind == "default" and isinstance(key, int):
        return code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) + key]
    return str(key)


# ----------------------------------------------------------------------------------- the searches
@attrs.frozen(eq=False, repr=False)
class _Search:
    """The search for reads of one number that changed."""

    change: Change
    codes: list[types.CodeType]
    harmless: HarmlessReads
    known_reads: Collection[Instruction] | None = attrs.field(init=False)
    """The instructions that have read the attribute, if each of them loads it by its name, in code
    that is searched; else None."""

    @known_reads.default
    def _if_known(self) -> Collection[Instruction] | None:
        found = self.change.read_at
        if found is None or not {code for code, _ in found} <= set(self.codes):
            return None
        if any("__dict__" in texts_in(code) for code in self.codes):
            return None  # `object.__getattribute__(self, "__dict__")["n"]`
        return None if any(True for _ in self._by_c_code()) else found

    def _by_c_code(self) -> Iterator[Instruction]:
        """The instructions that have read the attribute by a call, `"{0.n}".format(x)`, and those
        of code that was a text, `eval("x.n")`, which the search has not met."""
        codes, name = set(self.codes), self.change.place.path[-1][1]
        for code, offset in self.change.read_at or ():
            steps = steps_of(code)
            at = next((i for i, each in enumerate(steps) if each.offset == offset), None)
            is_load = at is not None and loads_name(steps[at], OF_ATTRIBUTES, name)
            is_read = at is None or not is_load or self._reads(code, at)
            if code in codes:
                if not is_load:
                    yield code, offset
            elif code.co_filename.startswith("<") and is_read:
                yield code, offset

    def first(
        self, codes: Iterable[types.CodeType], loads: Sequence[str], name: str
    ) -> Location | None:
        """The first read of a variable or attribute."""
        ran = self.known_reads if loads is OF_ATTRIBUTES else None
        for code in codes:
            for at, step in enumerate(steps_of(code)):
                if not loads_name(step, loads, name):
                    continue
                if (ran is None or (code, step.offset) in ran) and self._reads(code, at):
                    return code, step.offset
        return None

    def _reads(self, code: types.CodeType, at: int) -> bool:
        existence = self.change.existence and bool(self.change.place.path[-1][0] in _BY_NAME)
        how = functools.partial(self.harmless.holds, code)
        return reads(steps_of(code), at, self.change.items, existence=existence, harmless=how)

    def of_attribute(self, name: str) -> Location | None:
        """The first read of an attribute, also by a function that is given its name as a text. If
        it is known what has read the attribute, only what takes the `__dict__` is left."""
        items = self.change.items
        found = self.first(self.codes, OF_ATTRIBUTES, name)
        if found is None and self.known_reads is None:
            calls = [each for each in self._by_c_code() if "hasattr" not in each[0].co_names]
            found = self._by_text(name) or next(iter(calls), None)
        found = found or self._by_dict((name, *items)) or self.by_call("vars", name, items)
        return found or next(
            (
                (code, step.offset)
                for code in self.codes
                for at, step in enumerate(steps_of(code))
                if _copies(steps_of(code), at)
            ),
            None,
        )

    def of_empty(self, name: str, owner: object) -> Location | None:
        """The first read of an attribute into which an object came: one that found it empty. If
        that is not known: one that asks whether it is there, or that goes on if it is not."""
        early = self.change.read_at
        if early is not None and not any("__dict__" in texts_in(code) for code in self.codes):
            return next((each for each in early if self._is_read(*each, name)), None)
        is_given = not self.change.existence or any(
            "__getattr__" in vars(base) for base in type(owner).__mro__
        )
        codes = [each for each in self.codes if is_given or _has_except(each)]
        found = self.first(codes, OF_ATTRIBUTES, name) or self._by_text(name)
        return found or self._by_dict((name,)) or self.by_call("vars", name, ())

    def _is_read(self, code: types.CodeType, offset: int, name: str) -> bool:
        """Whether an instruction reads the attribute, not only changes it in place."""
        steps = steps_of(code)
        at = next((i for i, each in enumerate(steps) if each.offset == offset), None)
        is_load = at is not None and loads_name(steps[at], OF_ATTRIBUTES, name)
        return not is_load or self._reads(code, at or 0)

    def _by_text(self, name: str) -> Location | None:
        """The first instruction that asks for an attribute by a text, or by a pattern."""
        if self.change.existence:
            for code in self.codes:
                asks = "hasattr" in code.co_names and name in texts_in(code)
                if asks or "dir" in code.co_names:
                    return code, 0
        items = self.change.items
        return next(
            ((code, at) for code in self.codes for at in _offsets_by_text(code, name, items)), None
        )

    def _by_dict(self, items: Items) -> Location | None:
        for code in self.codes:
            steps = steps_of(code) if "__dict__" in code.co_names else ()
            for at, step in enumerate(steps):
                if loads_name(step, OF_ATTRIBUTES, "__dict__") and reads(steps, at, items):
                    return code, step.offset
        return None

    def by_call(self, function: str, name: str, items: Items) -> Location | None:
        """The first read of an item of the dict that `vars(x)` or `globals()` gives."""
        for code in self.codes:
            steps = steps_of(code) if function in code.co_names else ()
            for at, step in enumerate(steps):
                if loads_name(step, _GLOBALS, function):
                    call = call_of(steps, at)
                    if call is None or reads(steps, call, (name, *items)):
                        return code, step.offset
        return None


def _offsets_by_text(code: types.CodeType, name: str, items: Items) -> Iterator[int]:
    """Instructions that ask for an attribute by a text, or by a pattern of a class."""
    steps = steps_of(code)
    if not _NAMES.isdisjoint(code.co_names) and name in texts_in(code):
        yield 0
    for at, step in enumerate(steps):
        if step.opname == "MATCH_CLASS":
            yield step.offset
        elif loads_name(step, _GLOBALS, "getattr"):
            call = call_of(steps, at)
            texts, is_computed = _texts_between(steps, at, call)
            if is_computed:
                is_called = call is not None and call_of(steps, call) is not None
                if not is_called and all(text in name for text in texts):
                    yield step.offset
            elif name in texts and (call is None or reads(steps, call, items)):
                yield step.offset


def _copies(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether an instruction names a function that reads all attributes of an object."""
    step = steps[at]
    if type(step.argval) is not str or step.argval not in _COPIERS:
        return False
    if step.opname in _GLOBALS or step.argval == "__getstate__":
        return True
    before = steps[at - 1]
    return step.opname in OF_ATTRIBUTES and before.opname in _GLOBALS and before.argval in _COPYING


def _texts_between(
    steps: Sequence[dis.Instruction], at: int, call: int | None
) -> tuple[tuple[str, ...], bool]:
    """The texts that a call of `getattr` is given; whether they are parts of a computed name."""
    given = [step for step in steps[at + 1 : call] if step.opname != "PRECALL"]
    texts = tuple([x.argval for x in given if _is_text(x)])
    if call is None or steps[call].arg != 2:  # with a default
        is_computed = any(x.opname.startswith(_COMPUTES) for x in given)
        return (() if is_computed else texts), is_computed or not texts
    if _is_text(given[-1]):
        return (given[-1].argval,), False
    return (texts if given[-1].opname.startswith(_JOINS) else ()), True


def _is_text(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_CONST" and type(step.argval) is str


_JOINS = ("BINARY_OP", "BUILD_STRING", "FORMAT_")
_COMPUTES = ("BINARY_", "BUILD_STRING", "FORMAT_", "CALL")


# -------------------------------------------------------------------------------- names in texts
@functools.lru_cache(maxsize=1024)
def texts_in(code: types.CodeType) -> tuple[str, ...]:
    """The identifiers among the texts of code, and of code in it: `"n"`, `"a.b"`, `("n", "m")`."""
    found: dict[str, None] = {}
    waiting = [each for inner in with_inner(code) for each in inner.co_consts]
    for each in waiting:  # grows while it is walked
        if isinstance(each, (tuple, frozenset)):
            waiting += each
        elif type(each) is str and all(part.isidentifier() for part in each.split(".")):
            found.update(dict.fromkeys(each.split(".")))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def _has_except(code: types.CodeType) -> bool:
    """Whether code goes on after errors: `except AttributeError:`, `except:`, `suppress`."""
    names = [step.opname for step in steps_of(code)]
    is_bare = ("PUSH_EXC_INFO", "POP_TOP") in itertools.pairwise(names)
    return is_bare or "CHECK_EXC_MATCH" in names or "suppress" in code.co_names


@functools.lru_cache(maxsize=1024)
def asks_by_text(code: types.CodeType) -> bool:
    """Whether code calls functions that take the name of an attribute or variable as a text."""
    return any(not _BY_TEXT.isdisjoint(each.co_names) for each in with_inner(code))


@functools.lru_cache(maxsize=1024)
def computed_names(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """The parts that are known of names by which code asks for attributes, and which it computes:
    `("on_",)` of `getattr(self, "on_" + kind)`, none of `getattr(self, kind)`."""
    found = []
    for each in with_inner(code):
        steps = steps_of(each) if "getattr" in each.co_names else ()
        for at, step in enumerate(steps):
            if loads_name(step, _GLOBALS, "getattr"):
                texts, is_computed = _texts_between(steps, at, call_of(steps, at))
                found += [texts] if is_computed else []
    return tuple(found)


# ---------------------------------------------------------------- reads of which nothing comes
_PRINT = print
_NEXT = next
_LEVELS = frozenset(("debug", "info", "warning", "error", "critical"))
_HANDS_ON = (
    *("LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FAST", "LOAD_ATTR", "LOAD_SMALL_INT"),
    *("FORMAT_", "CONVERT_VALUE", "BUILD_STRING", "PRECALL"),
)
"""Instructions that a printed number meets on its way, or that load what is printed beside it."""
_REDIRECTS = frozenset(("redirect_stdout", "redirect_stderr", "stdout", "stderr"))


@attrs.frozen(eq=False, repr=False)
class HarmlessReads:
    """Says of uses of one number whether nothing comes of them: the call is dropped, and hands the
    number to nobody else.

        print("step", self.n)          what is printed happens once, as all that a capture prints
        log.debug("step %d", self.n)   by a logger whose handlers are Python's
        next(self.ids)                 of an `itertools.count`
    """

    change: Change
    functions: list[types.FunctionType]
    """Those that may run: what names in their code mean."""

    def holds(self, code: types.CodeType, steps: Sequence[dis.Instruction], at: int) -> bool:
        """Whether nothing comes of the value that an instruction of the code loads."""
        if not (self.change.is_number or self.change.is_count):
            return False
        for start, call in _dropped_calls(steps, at):
            if self.change.is_count:
                is_alone = all(step.opname == "LOAD_CONST" for step in steps[at + 1 : call])
                return is_alone and self._is_global(code, steps[start], "next", _NEXT)
            if all(_hands_on(steps, now) for now in range(at + 1, call)):
                return self._prints(code, steps, start)
        return False

    def _prints(self, code: types.CodeType, steps: Sequence[dis.Instruction], start: int) -> bool:
        if not _REDIRECTS.isdisjoint([n for f in self.functions for n in _names(f.__code__)]):
            return False
        if self._is_global(code, steps[start], "print", _PRINT):
            return not _is_of_user(type(sys.stdout))
        loggers = self._meanings(code, steps[start - 1]) if start else []
        is_level = steps[start].opname in ("LOAD_METHOD", "LOAD_ATTR")
        is_level = is_level and steps[start].argval in _LEVELS
        return is_level and bool(loggers) and all(map(_is_pythons, loggers))

    def _is_global(
        self, code: types.CodeType, step: dis.Instruction, name: str, meaning: object
    ) -> bool:
        found = self._meanings(code, step) if step.argval == name else []
        return bool(found) and all(each is meaning for each in found)

    def _meanings(self, code: types.CodeType, step: dis.Instruction) -> list[object]:
        """What a global name, or one of a closure, means in the functions with this code; NOTHING
        among it where that is not known."""
        found: list[object] = []
        for function in self.functions:
            if code not in with_inner(function.__code__):
                continue
            names = function.__code__.co_freevars
            if step.opname == "LOAD_GLOBAL":
                value = function.__globals__.get(step.argval, NOTHING)
                found.append(vars(builtins).get(step.argval) if value is NOTHING else value)
            elif step.opname == "LOAD_DEREF" and code is function.__code__:
                is_free = step.argval in names
                found.append(
                    take(function, "cell", names.index(step.argval)) if is_free else NOTHING
                )
            else:
                found.append(NOTHING)
        return found


def _dropped_calls(steps: Sequence[dis.Instruction], at: int) -> Iterator[tuple[int, int]]:
    """The calls whose result is dropped and which get a value as an argument, or a part of one:
    the instructions that load what is called, and that call."""
    for start in range(at - 1, -1, -1):
        step = steps[start]
        if step.argval in ("next", "print") or step.argval in _LEVELS:
            call = call_of(steps, start)
            if call is not None and call > at and steps[call].opname == "CALL":
                if steps[call + 1].opname == "POP_TOP":
                    yield start, call - (steps[call - 1].opname == "PRECALL")


def _hands_on(steps: Sequence[dis.Instruction], now: int) -> bool:
    if steps[now].opname == "BINARY_OP":
        return steps[now - 1].opname == "LOAD_CONST" and not steps[now].argrepr.endswith("=")
    return steps[now].opname.startswith(_HANDS_ON)


def _names(code: types.CodeType) -> Iterator[str]:
    for each in with_inner(code):
        yield from each.co_names


def _is_of_user(kind: type) -> bool:
    """Whether a class, or one that it is made of, is a user's, not of an installed package."""
    return any(is_users_name(each.__module__) and not is_installed(each) for each in kind.__mro__)


def _is_pythons(thing: Any) -> bool:
    """Whether a thing is a logger, or the module `logging`, that runs no code of a user."""
    if thing is logging:
        thing = logging.root
    if type(thing) not in (logging.Logger, logging.RootLogger):
        return False
    parts: list[Any] = [thing]
    while thing is not None:
        parts += [*thing.filters, *thing.handlers]
        thing = thing.parent if thing.propagate else None
    parts += [each for one in parts for each in getattr(one, "filters", ())]
    parts += [one.formatter for one in parts if isinstance(one, logging.Handler)]
    is_plain = logging.getLogRecordFactory() is logging.LogRecord
    return is_plain and not any(_is_of_user(type(each)) for each in parts)
