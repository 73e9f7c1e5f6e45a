"""Reads by name that are watched while a function is captured: `os.environ`, `getattr`, `hasattr`.

`os.environ` keeps its variables in a dictionary, for which a proxy stands during a capture; it
hands everything on, and notes the variables that are asked for. `getattr` and `hasattr` are asked
for names that no code need have: wrappers stand for them. A capture notes what its own thread asks.
Rules: CACHE-8, CACHE-9. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import types
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import attrs

from aotlite.artifacts.reads.code_owners import Owner, owner_of
from aotlite.ir.forks import Blocks
from aotlite.ir.provenance.purity import impure_words
from aotlite.stages.s1_capture.environment.access_search import is_users

WHOLE = ""
"""The name of the read of all variables; no variable has it."""


@attrs.define(eq=False, repr=False)
class NamesRead:
    """What one capture asked for by name."""

    environment: dict[str, str | None] = attrs.field(factory=dict)
    """Environment variables with their values; None for one that is not set."""
    attributes: set[str] = attrs.field(factory=set)
    """Names of attributes that `getattr` and `hasattr` were asked for."""
    by_users: set[str] = attrs.field(factory=set)
    """Those that no code of Python's library asked for."""
    writes_environment: bool = False
    asks_modules: bool = False
    """Whether a user's module was asked for a name that no access path may have."""
    handed_on: str = ""
    """An impure function in C that `getattr` gave, for C to call unseen."""
    thread: int = attrs.field(factory=get_ident)
    """The thread of the capture. One that the function starts is a reason not to keep anything."""


_captures: list[NamesRead] = []


def _active() -> Iterator[NamesRead]:
    """The captures of this thread."""
    thread = get_ident()
    return (each for each in _captures if each.thread == thread)


_getattr, _hasattr = builtins.getattr, builtins.hasattr


class _Noted(MutableMapping[Any, Any]):
    """The dictionary of `os.environ`, with a note of each read."""

    def __init__(self, data: dict[Any, Any]) -> None:
        self.data = data

    def _note(self, key: Any) -> None:
        name = os.fsdecode(key)
        for each in _active():
            each.environment.setdefault(name, value_of(name, self.data))

    def _note_all(self) -> None:
        for each in _active():
            each.environment.setdefault(WHOLE, _whole(self.data))

    def __getitem__(self, key: Any) -> Any:
        self._note(key)
        return self.data[key]

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return key in self.data

    def __iter__(self) -> Iterator[Any]:
        self._note_all()
        return iter(self.data)

    def __len__(self) -> int:
        self._note_all()
        return len(self.data)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._note_write()
        self.data[key] = value

    def __delitem__(self, key: Any) -> None:
        self._note_write()
        del self.data[key]

    def _note_write(self) -> None:
        for each in _active():
            each.writes_environment = True


def value_of(name: str, data: Any = None) -> str | None:
    """The present value of an environment variable; of all of them for the name `WHOLE`."""
    environment: Any = os.environ
    data = environment._data if data is None else data
    if name == WHOLE:
        return _whole(data)
    key = environment.encodekey(name)
    return None if key not in data else os.fsdecode(data[key])


def _whole(data: Any) -> str:
    """All variables, in order."""
    return repr(sorted([(os.fsdecode(k), os.fsdecode(v)) for k, v in data.items()]))


def _note(args: tuple[Any, ...], found: object = None) -> None:
    if len(args) < 2:
        return
    owner = owner_of(sys._getframe(2).f_code)
    if owner is Owner.OURS:
        return
    words = "" if owner is Owner.PYTHON else impure_words(found)
    of_module = isinstance(args[0], types.ModuleType) and is_users(args[0])
    for each in _active():
        each.attributes.add(args[1])
        if owner is not Owner.PYTHON:
            each.by_users.add(args[1])
        each.asks_modules |= of_module
        each.handed_on = each.handed_on or words


@functools.wraps(_getattr)
def _noting_getattr(*args: Any) -> Any:
    try:
        found = _getattr(*args)
    except AttributeError:
        _note(args)
        raise
    _note(args, found)
    return found


@functools.wraps(_hasattr)
def _noting_hasattr(*args: Any) -> bool:
    _note(args)
    return _hasattr(*args)


def _begin() -> None:
    environment: Any = os.environ
    environment._data = _Noted(environment._data)
    builtins.getattr, builtins.hasattr = _noting_getattr, _noting_hasattr


def _end() -> None:
    environment: Any = os.environ
    environment._data = environment._data.data
    builtins.getattr, builtins.hasattr = _getattr, _hasattr


_WATCHED = Blocks(_begin, _end)


@contextmanager
def watched_names() -> Iterator[NamesRead]:
    """A block in which reads by name are noted."""
    found = NamesRead()
    owner_of(_note.__code__)  # asks the system for folders, once
    with _WATCHED.entered():
        _captures.append(found)
        try:
            yield found
        finally:
            _captures.remove(found)
