"""`calling`: code in which calls of some builtins, by their names, call other functions.

    int(n * 0.5)        LOAD_GLOBAL (NULL + int)    ->    PUSH_NULL, LOAD_CONST f, NOP ...

Instructions keep their places, so lines and tracebacks do. What only names such a builtin finds
Python's: `class Flag(int)`, `kind is int`, `dtype=float`. Code nested in it is changed, too:
functions that are made of it keep it, so who compares codes asks for `own_code`. Ground floor.
Spec: `specs/size_floats.md`.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from itertools import pairwise
from operator import is_
from types import CodeType
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["calling", "own_code"]

Calls = tuple[tuple[str, Callable[..., Any]], ...]
"""The names of builtins, each with the function that is called in its place."""
_NULL_FIRST: Final = sys.version_info < (3, 13)
"""Whether NULL lies below what is called on the stack."""
_IS_KNOWN: Final = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
"""Whether these are the instructions of this Python."""
_OWN: WeakKeyDictionary[CodeType, CodeType] = WeakKeyDictionary()
_GLOBAL, _CONST, _NULL, _MORE, _NOTHING = (
    dis.opmap.get(name, 0)
    for name in ("LOAD_GLOBAL", "LOAD_CONST", "PUSH_NULL", "EXTENDED_ARG", "NOP")
)


def calling(code: CodeType, calls: Calls) -> CodeType:
    """The code with these calls; itself where it has none.

    >>> def half(n):
    ...     return int(n * 0.5), int
    >>> half.__code__ = calling(half.__code__, (("int", round),))
    >>> half(7)
    (4, <class 'int'>)
    """
    # Codes that are equal may differ by these.
    made = _calling(code, calls, code.co_filename, code.co_qualname)
    return code if made == code else made  # not the equal one of an earlier call


@functools.lru_cache(maxsize=4096)
def _calling(code: CodeType, calls: Calls, *_: str) -> CodeType:
    consts = [
        calling(each, calls) if isinstance(each, CodeType) else each for each in code.co_consts
    ]
    text = bytearray(code.co_code)
    others = dict(calls)
    if _IS_KNOWN and not others.keys().isdisjoint(code.co_names):
        _change(code, text, consts, others)
    if text == code.co_code and all(map(is_, consts, code.co_consts)):
        return code
    made = code.replace(co_code=bytes(text), co_consts=tuple(consts))
    _OWN[made] = code
    return made


def own_code(code: CodeType) -> CodeType:
    """The code of which `calling` has made this one; itself if it has not."""
    return _OWN.get(code, code)


def _change(code: CodeType, text: bytearray, consts: list[Any], others: dict[str, Any]) -> None:
    """Writes the loads of what is called into the code's text and constants."""
    start = 0  # of an instruction, with what extends its argument
    for step, after in pairwise(dis.get_instructions(code)):
        begin, start = start, start if step.opcode == _MORE else after.offset
        other = others.get(step.argval) if step.opcode == _GLOBAL else None
        if other is None or not (step.arg or 0) & 1:
            continue
        if other not in consts:
            consts.append(other)
        place = consts.index(other)
        loads = [(_CONST, place & 255)]
        if place > 255:
            loads.insert(0, (_MORE, place >> 8))
        loads.insert(0 if _NULL_FIRST else len(loads), (_NULL, 0))
        room = (after.offset - begin) // 2
        if place < 1 << 16 and len(loads) <= room:
            loads += [(_NOTHING, 0)] * (room - len(loads))
            text[begin : after.offset] = bytes(x for load in loads for x in load)
