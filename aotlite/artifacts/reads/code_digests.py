"""Digests of code objects: equal in two processes iff the code, its constants and lines are equal.

Used by the images of functions, and by the watch. Rule: CACHE-8. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import dis
import string
import sys
from collections.abc import Iterator
from hashlib import sha256
from types import CodeType
from typing import Any

_MOST = 8192
_KNOWN: dict[int, tuple[CodeType, str]] = {}
"""Digests by the `id` of the code, which is kept alive: equal code objects may differ in lines."""


def digest_of(code: CodeType) -> str:
    """The digest of a code object, with those of the functions nested in it.

    Lines count: graphs, errors and explanations name them. The file is a read of its own, since a
    bundle is loaded where the same code lies elsewhere (CACHE-16).
    """
    known = _KNOWN.get(id(code))
    if known is None:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        text = "\0".join(_words(code)).encode("utf-8", "surrogatepass")
        known = _KNOWN[id(code)] = code, sha256(text).hexdigest()[:32]
    return known[1]


def _words(code: CodeType) -> Iterator[str]:
    yield from (code.co_qualname, str(code.co_firstlineno))
    yield from (code.co_code.hex(), code.co_linetable.hex(), code.co_exceptiontable.hex())
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    yield repr((counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    yield from map(_constant, code.co_consts)


def _constant(value: object) -> str:
    """The words of a constant: 1, 1.0, True and -0.0 differ."""
    match value:
        case CodeType():
            return digest_of(value)
        case tuple():
            return f"({','.join(map(_constant, value))})"
        case frozenset():
            return f"{{{','.join(sorted(map(_constant, value)))}}}"
        case int() if value.bit_length() > 4096:  # Python refuses to write its digits
            return f"int {value:x}"
        case slice():
            return f"slice {_constant((value.start, value.stop, value.step))}"
    return f"{type(value).__name__} {value!r}"


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions nested in it."""
    stack = [code]
    while stack:
        each = stack.pop()
        yield each
        stack.extend(c for c in each.co_consts if isinstance(c, CodeType))


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a code object may ask an object for: those in it, and its texts."""
    yield from code.co_names
    yield from (each for each in code.co_consts if isinstance(each, str) and each.isidentifier())


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_GETTERS = ("attrgetter", "methodcaller")


def attributes_in(code: CodeType) -> Iterator[str]:
    """The attributes that a code object asks for, also by `attrgetter` and `methodcaller`."""
    yield from _arguments_of(code, _ATTRIBUTE)
    if any(name in code.co_names for name in _GETTERS):
        for each in code.co_consts:
            yield from each.split(".") if isinstance(each, str) else ()


def matches_classes(code: CodeType) -> bool:
    """Whether a code object has a pattern such as `case Point(x, y)`, which reads attributes."""
    return any(True for _ in _arguments_of(code, ("MATCH_CLASS",)))


def formats_objects(code: CodeType) -> bool:
    """Whether a code object may format a text with fields such as `{0.rate}`, whose attributes and
    items C reads: each `format` that is not of a literal without such fields."""
    before = None
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if step.opname in _ATTRIBUTE and step.argval in FORMATTING:
            literal = before.argval if before and before.opname == "LOAD_CONST" else None
            if step.is_jump_target or not isinstance(literal, str) or _has_lookups(literal):
                return True
        before = step
    return False


FORMATTING = ("format", "format_map")


def _has_lookups(text: str) -> bool:
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return True
    return any(
        "." in (name or "") or "[" in (name or "") or _has_lookups(spec or "")
        for _, name, spec, _ in fields
    )


def imports_in(code: CodeType) -> Iterator[str]:
    """The modules that a code object imports when it runs."""
    yield from _arguments_of(code, ("IMPORT_NAME",))


def asks_for(code: CodeType, name: str, *, but_of: tuple[str, ...]) -> bool:
    """Whether a code object asks for an attribute, or says its name; not counting attributes of the
    variables `but_of`."""
    before: object = None
    for step in dis.get_instructions(code):
        if step.argval == name and type(step.argval) is str and before not in but_of:
            return True
        before = step.argval
    return False


def globals_written_in(code: CodeType) -> Iterator[str]:
    """The globals that a code object binds when it runs."""
    yield from _arguments_of(code, ("STORE_GLOBAL", "DELETE_GLOBAL"))


def _arguments_of(code: CodeType, opnames: tuple[str, ...]) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in opnames:
            yield str(step.argval)


def loaded_modules(file: str) -> list[Any]:
    """The modules that were loaded from a file."""
    return [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
