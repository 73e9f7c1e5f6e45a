"""The watch: which code ran while a function was captured, and which of it cannot be checked again.

Python's own profiler in C (`cProfile`) records each Python and C function that is called, with its
callers. The function's own code is told from that of packages by its file. A call of a clock, a
file or the like by users' code is a reason not to keep the entry; so is a profiler of the user's,
which a second one would replace. Reads of `os.environ` are recorded by name.
Rules: CACHE-3, CACHE-4, CACHE-8, CACHE-9. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import cProfile
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import attrs

from aotlite.artifacts.reads.call_images import STATES, UNKEPT
from aotlite.artifacts.reads.code_digests import (
    FORMATTING,
    asks_for,
    attributes_in,
    formats_objects,
    globals_written_in,
    imports_in,
    matches_classes,
    names_in,
)
from aotlite.artifacts.reads.code_owners import CHECKED, Owner, owner_of
from aotlite.artifacts.reads.watched_names import NamesRead, watched_names
from aotlite.autograd.graph import saved_tensors_hooks
from aotlite.ir.provenance.purity import PURE_MODULES, is_pure
from aotlite.ir.symbols.floats.call_code import own_code


@attrs.define(eq=False, repr=False)
class CaptureWatch:
    """What one run of a user's function called and read."""

    codes: list[CodeType] = attrs.field(factory=list)
    """The code of users that ran, and of packages that are neither Python's nor aotlite's."""
    of_python: list[CodeType] = attrs.field(factory=list)
    """The code of Python's library that ran on its behalf."""
    environment: dict[str, str | None] = attrs.field(factory=dict)
    """The environment variables that were read, with their values."""
    states: list[str] = attrs.field(factory=list)
    """The questions for states of aotlite that were asked, by their names in `STATES`."""
    reasons: list[str] = attrs.field(factory=list)
    """Why the run cannot be checked again."""
    names: set[str] | None = attrs.field(factory=set)
    """The names of attributes that this code may ask for; None for any."""
    runs: int = 0
    _is_over: bool = False
    _runs_noted: list[tuple[CodeType, list[Any], NamesRead]] = attrs.field(factory=list)

    def around(self, call: Callable[[list[object]], object]) -> Callable[[list[object]], object]:
        """The function, watched."""

        def called(leaves: list[object]) -> object:
            return call(leaves)

        def watched(leaves: list[object]) -> object:
            if self._is_over:  # for a report, which traces a region again
                return call(leaves)
            self.runs += 1
            if sys.getprofile() is not None:
                self.reasons.append("a profiler is on, which a watch would replace")
                return call(leaves)
            profiler = cProfile.Profile(subcalls=True, builtins=True)
            with watched_names() as asked:
                try:
                    profiler.enable()
                except ValueError:  # from 3.12 on: another tool profiles
                    self.reasons.append("a profiler is on, which a watch would replace")
                    return call(leaves)
                try:
                    result = called(leaves)
                finally:
                    profiler.disable()
            self._runs_noted.append((called.__code__, profiler.getstats(), asked))
            return result

        return watched

    def finish(self) -> None:
        """Says what the run called and read, when the capture has ended."""
        for each in self._runs_noted:
            self._note(*each)
        self._runs_noted, self._is_over = [], True

    def _note(self, start: CodeType, entries: list[Any], names_read: NamesRead) -> None:
        if names_read.writes_environment:
            self.reasons.append("the function writes environment variables")
        if names_read.asks_modules:
            self.reasons.append("a user's module is asked for an attribute by getattr or hasattr")
        if names_read.handed_on:
            self.reasons.append(f"getattr gives {names_read.handed_on}, which C may call unseen")
        if "random" in names_read.attributes:
            self.reasons.append(_DRAWS)
        calls: dict[Any, list[Any]] = {}
        for each in entries:
            inner = [_own(c.code) for c in each.calls or ()]
            calls.setdefault(_own(each.code), []).extend(inner)
        called = _of_function(calls, start)
        if saved_tensors_hooks.__enter__.__code__ in called:
            self.reasons.append("the function sets hooks of saved tensors, which run later")
        makers = {c for c in called if _makes_named_tuple(c, called[c])}
        codes = [c for c in called if isinstance(c, CodeType) and c not in makers]
        self.codes = [c for c in codes if owner_of(c) in CHECKED]
        asked = {name for code in self.codes for name in attributes_in(code)}
        for name in sorted(_LOOKED_INTO & (asked | names_read.by_users)):
            self.reasons.append(f"the function asks an object for its {name}")
        if not names_read.by_users.isdisjoint(FORMATTING):
            self.reasons.append(_FORMATS)
        found: list[tuple[Any, CodeType]] = []
        for code in self.codes:
            self.reasons += _reasons_in(code)
            found += _reached(called, code, {each for each, _ in found})
        self.reasons += dict.fromkeys(_impure(found))
        asking = {c for each in [*self.codes, *[f for f, _ in found]] for c in called.get(each, ())}
        self.states += [name for name, each in STATES.items() if each.__code__ in asking]
        names = {name for each, name in UNKEPT.items() if each.__code__ in asking}
        names |= {
            c.co_name for c in asking if isinstance(c, CodeType) and _OF_TAPES in c.co_filename
        }
        for name in sorted(names):
            self.reasons.append(f"the function calls {name}, of a state that no entry has")
        inner = [each for each, _ in found if isinstance(each, CodeType)]
        self.of_python = inner
        names = {name for code in self.codes for name in names_in(code)}
        names |= {n for code in inner for n in names_in(code) if not n.startswith("__")}
        names |= {each for each in names_read.attributes if type(each) is str}
        self.environment = names_read.environment
        ours = {c for code in self.codes for c in called[code] if isinstance(c, CodeType)}
        is_open = names & _BY_OBJECT or any(map(_asks_for_all, [*inner, *ours]))
        is_open = is_open or any(map(matches_classes, self.codes))
        self.names = None if is_open or self.names is None else self.names | names


_OF_TAPES = f"aotlite{os.sep}compiled_autograd{os.sep}"
_DRAWS = "the function asks a module for its `random`, whose functions no profiler sees"
_FORMATS = "the function formats a text whose fields may read attributes and items"
_LOOKED_INTO = frozenset(
    "__dict__ __doc__ __hash__ __annotations__ __globals__ __closure__ __subclasses__ "
    "cell_contents f_globals f_locals f_builtins f_back gi_frame tb_frame".split()
)
"""Attributes by which code looks into functions, classes and frames."""


def _reasons_in(code: CodeType) -> Iterator[str]:
    at = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    if asks_for(code, "random", but_of=("al", "aotlite")):
        yield _DRAWS
    if formats_objects(code):
        yield _FORMATS
    for name in globals_written_in(code):
        yield f"{at} binds the global {name!r}"
    for module in imports_in(code):
        if module.split(".")[0] not in PURE_MODULES:
            yield f"{at} imports {module!r} when it runs"


def _own(code: Any) -> Any:
    """The code of a function, where a capture with symbols has run a changed one (DYN-39)."""
    return own_code(code) if isinstance(code, CodeType) else code


_NEW = repr(type.__new__)
"""How a profiler names `__new__` of any class in C."""


def _makes_named_tuple(code: Any, calls: list[Any]) -> bool:
    """Whether a code is that by which Python's library makes a named tuple, such as the results of
    `max` with a dimension: it has no file, and makes a tuple."""
    if not isinstance(code, CodeType) or code.co_filename != "<string>":
        return False
    is_maker = code.co_name == "<lambda>" and code.co_names == ("_tuple_new",)
    return is_maker and all(each == _NEW for each in calls)


# --------------------------------------------------------------------------------- what is called
def _of_function(called: dict[Any, list[Any]], start: CodeType) -> dict[Any, list[Any]]:
    """The calls of the function alone, which `start` calls. Where aotlite imports a module that it
    has not needed before, hooks run, such as those of editable packages and of pytest."""
    waiting: list[Any] = [start]
    found: dict[Any, list[Any]] = {}
    while waiting:
        each = waiting.pop()
        if each in called and each not in found and not _is_import(each):
            found[each] = called[each]
            waiting += called[each]
    return found


def _is_import(code: Any) -> bool:
    return isinstance(code, CodeType) and code.co_filename.startswith("<frozen importlib")


def _reached(
    called: dict[Any, list[Any]], start: CodeType, known: set[Any]
) -> Iterator[tuple[Any, CodeType]]:
    """The C functions that a user's code calls, and the functions of Python's library, each with
    the user's code on whose behalf they run."""
    waiting = [start]
    while waiting:
        for each in called.get(waiting.pop(), ()):
            if each in known:
                continue
            if isinstance(each, str) or owner_of(each) is Owner.PYTHON:
                known.add(each)
                yield each, start
                waiting.append(each)  # C functions call Python's, too: isinstance asks a class


def _impure(found: list[tuple[Any, CodeType]]) -> Iterator[str]:
    """The calls whose results or effects differ in another process."""
    for each, by in found:
        if isinstance(each, str):
            if not is_pure(each):
                yield f"{by.co_qualname} calls {_named(each)}"
        elif not _is_pure_file(each):
            yield f"{by.co_qualname} calls {each.co_qualname} of {each.co_filename}"


_BY_OBJECT = {"__slots__", "attrgetter", "methodcaller"}
"""Names by which code asks for attributes whose names it need not have."""
_OF_ALL = frozenset(
    "parameters named_parameters buffers named_buffers children named_children modules "
    "named_modules state_dict load_state_dict apply zero_grad to train eval requires_grad_ "
    "get_submodule get_parameter get_buffer functional_call".split()
)
"""Functions of aotlite that ask a Module for all of its attributes."""
_COPYING = ("copy.py", "dataclasses.py", "operator.py")


def _asks_for_all(code: CodeType) -> bool:
    """Whether a function of a library asks objects for attributes that no code of users names."""
    if owner_of(code) is Owner.OURS:
        return code.co_name in _OF_ALL and f"{os.sep}nn{os.sep}" in code.co_filename
    return os.path.basename(code.co_filename) in _COPYING


def _named(text: str) -> str:
    return text.strip("<>").removeprefix("built-in method ")


_PURE_FILES = frozenset(
    "functools contextlib collections _collections_abc enum dataclasses typing types "
    "operator copy copyreg numbers fractions statistics string re textwrap json bisect heapq "
    "keyword reprlib warnings weakref _weakrefset codecs posixpath ntpath decimal".split()
)


_OF_ENVIRONMENT = frozenset(
    "getenv _Environ.__getitem__ _Environ.__iter__ _Environ.__len__ _createenviron.<locals>.encode "
    "_createenviron.<locals>.decode fsencode fsdecode _fscodec.<locals>.fsencode "
    "_fscodec.<locals>.fsdecode".split()
)
"""Functions of `os` that read the environment, which is watched."""


def _is_pure_file(code: CodeType) -> bool:
    """Whether code of Python's library reads nothing but its arguments."""
    file = code.co_filename
    if code.co_qualname in _OF_ENVIRONMENT and os.path.basename(file) == "os.py":
        return True
    if file.startswith("<frozen "):
        if file == "<frozen os>":
            return code.co_qualname in _OF_ENVIRONMENT
        name = file.removeprefix("<frozen ").rstrip(">")
        return name in _PURE_FILES
    base = os.path.splitext(os.path.basename(file))[0]
    folder = os.path.basename(os.path.dirname(file))
    return base in _PURE_FILES or folder in _PURE_FILES
