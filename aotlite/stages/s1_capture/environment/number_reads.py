"""Finds the code that reads a number: by the name of its variable, attribute or item, or by a text.

A Python number cannot be traced: a number computed from it is just a number. So the bytecode of
all functions that may run is searched for loads of the variable or attribute that reads it; also
for `getattr(x, "n")`, `vars(x)["n"]`, patterns, and copies of the object that holds it.
Used by `python_numbers` and `number_search`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import dis
import functools
import operator
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aotlite.ir.provenance.location import Location
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    OF_ATTRIBUTES,
    OF_VARIABLES,
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


def first_read(
    place: AccessPath,
    items: Items,
    leaves: list[object],
    codes: Iterable[types.CodeType],
    asked: Mapping[str, object],
    *,
    existence: bool,
) -> Location | None:
    """The first instruction that reads the item under these keys of the object at a path.

    `codes` are those that may run, `asked` what getters ask for. An object that no name in code
    refers to (an argument of a `partial`) counts as read at the first instruction. `existence`:
    the item was not there before, or is not any more.
    """
    kind, key = place.path[-1] if place.path else ("", None)
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    all_codes = [each for code in codes for each in with_inner(code)]
    if kind in _BY_NAME:
        found = _first_of_attribute(all_codes, _BY_NAME[kind](key), items, existence=existence)
        if found is not None or _BY_NAME[kind](key) not in asked:
            return found
    if kind in OF_VARIABLES and isinstance(owner, types.FunctionType):
        name = variable(owner, kind, key)
        found = _first(with_inner(owner.__code__), OF_VARIABLES[kind], name, items)
        if found is None and kind == "global":
            found = _first_by_call(all_codes, "globals", name, items)
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
def _first(
    codes: Iterable[types.CodeType],
    loads: Sequence[str],
    name: str,
    items: Items,
    *,
    existence: bool = False,
) -> Location | None:
    for code in codes:
        steps = steps_of(code)
        for at, step in enumerate(steps):
            if loads_name(step, loads, name) and reads(steps, at, items, existence=existence):
                return code, step.offset
    return None


def _first_of_attribute(
    codes: Sequence[types.CodeType], name: str, items: Items, *, existence: bool
) -> Location | None:
    """The first read of an attribute, also by a function that is given its name as a text."""
    found = _first(codes, OF_ATTRIBUTES, name, items, existence=existence)
    if found is None and existence:
        asks = [code for code in codes if "hasattr" in code.co_names and name in texts_in(code)]
        found = (asks[0], 0) if asks else None
    found = found or _first(codes, OF_ATTRIBUTES, "__dict__", (name, *items))
    found = found or _first_by_call(codes, "vars", name, items)
    return found or next(
        ((code, at) for code in codes for at in _offsets_by_text(code, name, items)), None
    )


def _first_by_call(
    codes: Iterable[types.CodeType], function: str, name: str, items: Items
) -> Location | None:
    """The first read of an item of the dict that `vars(x)` or `globals()` gives."""
    for code in codes:
        if function in code.co_names:
            steps = steps_of(code)
            for at, step in enumerate(steps):
                if loads_name(step, _GLOBALS, function):
                    call = call_of(steps, at)
                    if call is None or reads(steps, call, (name, *items)):
                        return code, step.offset
    return None


def _offsets_by_text(code: types.CodeType, name: str, items: Items) -> Iterator[int]:
    """Instructions that ask for an attribute by a text, or for all of them."""
    steps = steps_of(code)
    if not _NAMES.isdisjoint(code.co_names) and name in texts_in(code):
        yield 0
    for at, step in enumerate(steps):
        if step.opname == "MATCH_CLASS" or _copies(steps, at):
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
