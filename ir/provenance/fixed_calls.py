"""What a capture fixes besides values of arguments: clocks, files, random numbers of Python.

Ground floor. `watching` is a block in which calls of these functions are seen, by Python's
profiler, each with the user's line; `random_states` sees draws of NumPy. `warning_of_fixed` warns
of them. The profiler of before goes on afterwards. Spec: `specs/programs.md`, PRG-7.
"""

from __future__ import annotations

import gc
import io
import linecache
import logging
import os
import random
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from aotlite.ir.errors import ExportWarning
from aotlite.ir.provenance.library_files import is_library_file
from aotlite.ir.provenance.purity import handed_on, held_in, modules_in
from aotlite.ir.provenance.random_states import RandomStates

_STANDARD: Final = (
    *(os.path.dirname(str(each.__file__)) for each in (os, np)),
    *("<frozen", "<attrs generated "),
)
_PACKAGES: Final = tuple({sysconfig.get_path(kind) for kind in ("purelib", "platlib")})
_ASIDE: Final = (
    os.path.dirname(logging.__file__),
    *[str(each.__file__) for each in (linecache, traceback, warnings)],
)
"""Files of Python whose own questions reach no result: clocks for a line of a log, source texts."""
_OS_FILES: Final = (os.__file__, os.walk.__code__.co_filename)
_SYSTEM: Final = frozenset(
    "urandom getrandom stat lstat statvfs access readlink listdir scandir open read pread getcwd "
    "getcwdb getpid getppid getuid getgid getlogin uname cpu_count sched_getaffinity getloadavg "
    "times _path_exists _path_isfile _path_isdir".split()
)
_MEMORY: Final = frozenset(
    "getrefcount getsizeof getallocatedblocks intern get_count get_objects get_referrers "
    "get_referents get_stats is_tracked isenabled get_threshold collect".split()
)
_PLATFORM: Final = os.path.join(os.path.dirname(os.__file__), "platform.py")
_STATES: Final = frozenset(
    "get_num_threads is_available device_count current_device get_device_name memory_allocated "
    "get_device_capability get_device_properties mem_get_info memory_reserved".split()
)
"""Questions of aotlite for what a process has set, or a machine has."""
_FILES: Final = frozenset((io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO))
_USERS: Final[dict[str, bool]] = {}
"""Of files whether they are users' code."""
_READS: Final = frozenset(
    ("read", "read1", "readall", "readinto", "readinto1", "readline", "readlines", "peek")
)
_ENVIRONMENT: Final = frozenset(("getenv", "__getitem__", "__iter__", "__len__"))


@contextmanager
def watching() -> Iterator[list[str]]:
    """A block; the list gets a line for each call of a function whose answer is fixed by it."""
    found: dict[str, None] = {}
    seen: list[str] = []
    before, states = sys.getprofile(), RandomStates()
    known = set[CodeType]()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if states.naming:
            states.look(frame.f_back if event == "call" else frame, found)
        if event == "call" and _is_users(frame):
            states.enter(frame)
            if frame.f_code not in known:
                known.add(frame.f_code)
                found.update(dict.fromkeys(_unseen(frame)))
        words = _words(frame, event, arg)
        if words and (line := _users_line(frame, event)):
            found.setdefault(f"{words} at {line}")

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        states.end(found)
        seen.extend(_without_seen(found))


@contextmanager
def warning_of_fixed(what: str) -> Iterator[list[str]]:
    """A `watching` block; behind it an `ExportWarning` at the user's line, where `what` has answers
    of such calls fixed."""
    with watching() as seen:
        yield seen
    if seen:
        warnings.warn(fixed_words(what, seen), ExportWarning, stacklevel=_level())


def fixed_words(what: str, calls: list[str]) -> str:
    """The message of the warning, with the first five calls.

    >>> fixed_words("export: step", ["time.time() at model.py:3"])
    'export: step has the answers of 1 call fixed: time.time() at model.py:3'
    """
    count = f"{len(calls)} call{'s' * (len(calls) > 1)}"
    return f"{what} has the answers of {count} fixed: {'; '.join(calls[:5])}"


def _level() -> int:
    """The `stacklevel`, for who warns, of the nearest frame outside of the library."""
    at: FrameType | None = sys._getframe(1)
    level = 1
    while at is not None and at.f_back is not None:
        if _is_users(at):
            break
        at, level = at.f_back, level + 1
    return level


def _called(function: Callable[..., Any]) -> str:
    """The words for a function of C whose answer is fixed; empty for others."""
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "") or ""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, random.Random):
        return f"random.{name}()"
    if module == "time":
        return f"time.{name}()"
    if module in ("posix", "nt") and name in _SYSTEM:
        return f"os.{name}()"
    if module == "_socket":
        return f"socket.{name}()"
    if name == "open" and module in ("io", "_io"):
        return "open()"
    if name == "input" and module == "builtins":
        return "input()"
    if name == "fromfile" and module.partition(".")[0] == "numpy":
        return "numpy.fromfile()"
    if name in _READS and not _FILES.isdisjoint(type(owner).__mro__):
        return f"{name}() of a file"
    if name in ("now", "utcnow", "today") and getattr(owner, "__module__", "") == "datetime":
        return f"datetime.{name}()"
    return ""


def _words(frame: FrameType, event: str, arg: Any) -> str:
    if event == "c_call":
        return _called(arg) or _asked(arg, frame)
    return _entered(frame) if event == "call" else ""


def _asked(function: Callable[..., Any], frame: FrameType) -> str:
    """The words for a question about Python's memory and hashes, which a user's code asks; Python's
    library asks them too, for its own tables."""
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    if not _is_users(frame):
        return ""
    if module == "builtins" and name in ("id", "hash"):
        return f"{name}()"
    return f"{module}.{name}()" if module in ("gc", "sys") and name in _MEMORY else ""


def _entered(frame: FrameType) -> str:
    """The words for a function of Python whose answer is fixed: reads of the environment, of the
    platform, and of states of aotlite that a user's code asks for."""
    code = frame.f_code
    if code.co_name in _ENVIRONMENT and code.co_filename in _OS_FILES:
        return "os.environ"
    if frame.f_back is None or not _is_users(frame.f_back):
        return ""
    if code.co_filename == _PLATFORM:
        return f"platform.{code.co_name}()"
    if code.co_name in _STATES and is_library_file(code.co_filename):
        return f"aotlite's {code.co_name}()"
    return ""


def _unseen(frame: FrameType) -> Iterator[str]:
    """The impure functions that code loads for C to call, which no profiler sees."""
    code, file = frame.f_code, os.path.basename(frame.f_code.co_filename)
    variables = {**frame.f_globals, **frame.f_locals}
    modules = modules_in(code, variables)
    for name, line in (*handed_on(code, variables, modules), *held_in(code, variables)):
        yield f"{name}{_FOR_C} at {file}:{line}"


_FOR_C: Final = " for C to call"


def _without_seen(found: Iterable[str]) -> list[str]:
    """The calls, without those that C might have made where the code itself has called."""
    calls = list(found)
    return [each for each in calls if _FOR_C not in each or each.replace(_FOR_C, "()") not in calls]


def _is_users(frame: FrameType) -> bool:
    """Whether a frame runs a user's code: neither the library's, Python's, NumPy's, nor that of an
    installed package, unless it uses the library."""
    file = frame.f_code.co_filename
    if file == "<string>":  # of named tuples, or guards as texts that the library evaluates
        back, name = frame.f_back, str(frame.f_globals.get("__name__"))
        if name.startswith("namedtuple_") or (back and is_library_file(back.f_code.co_filename)):
            return False
    if file not in _USERS:
        if file.startswith(_PACKAGES):
            users = _uses_library(frame.f_globals)
        else:
            users = not file.startswith(_STANDARD)
        _USERS[file] = users and not is_library_file(file)
    return _USERS[file]


def _uses_library(names: Mapping[str, object]) -> bool:
    """Whether a module has a name for something of the library."""
    mine = __name__.partition(".")[0]
    for value in list(names.values()):
        if isinstance(value, ModuleType):
            of = value.__name__
        else:
            of = (value if isinstance(value, (type, FunctionType)) else type(value)).__module__
        if str(of).partition(".")[0] == mine:
            return True
    return False


def _users_line(frame: FrameType | None, event: str) -> str:
    """The nearest line of a user's code; empty where the library itself asks, an import, a log or
    warning, or a callback of the garbage collector."""
    at = frame.f_back if event == "call" and frame is not None else frame
    line, is_known = "", False
    collecting = {getattr(each, "__code__", None) for each in gc.callbacks}
    while at is not None:
        file = at.f_code.co_filename
        if file.startswith("<frozen importlib") or at.f_code in collecting:
            return ""
        if not is_known and file.startswith(_ASIDE):
            return ""
        if not is_known and _is_users(at):
            line, is_known = f"{os.path.basename(file)}:{at.f_lineno}", True
        elif not file.startswith("<frozen") and is_library_file(file):
            is_known = True
        at = at.f_back
    return line
