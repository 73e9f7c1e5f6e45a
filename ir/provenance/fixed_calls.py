"""What a capture fixes besides values of arguments: clocks, files, random numbers of Python.

Ground floor. `watching` is a block in which calls of these functions are seen, by Python's
profiler, each with the user's line; `warning_of_fixed` warns of them. The profiler of before goes
on afterwards. Spec: `specs/programs.md`, PRG-7.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import numpy as np

from aotlite.ir.errors import ExportWarning
from aotlite.ir.provenance.library_files import is_library_file

_STANDARD: Final = os.path.dirname(os.__file__)
_OS_FILES: Final = (os.__file__, os.walk.__code__.co_filename)
_SYSTEM: Final = frozenset(("urandom", "getrandom", "stat", "listdir", "getpid", "open", "times"))
_UNKNOWN: Final = "an unknown line"


@contextmanager
def watching() -> Iterator[list[str]]:
    """A block; the list gets a line for each call of a function whose answer is fixed by it."""
    found: dict[str, None] = {}
    seen: list[str] = []
    before, drawn = sys.getprofile(), _numpy_state()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        words = _called(arg) if event == "c_call" else _entered(frame) if event == "call" else ""
        if words and (line := _users_line(frame, event)):
            found.setdefault(f"{words} at {line}")

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        if _numpy_state() != drawn:  # its functions are no calls that a profiler sees
            found[f"numpy.random at {_UNKNOWN}"] = None
        seen.extend(found)


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
        file = at.f_code.co_filename
        if not is_library_file(file) and not file.startswith(_STANDARD):
            break
        at, level = at.f_back, level + 1
    return level


def _numpy_state() -> object:
    """The state of NumPy's own generator."""
    state: Any = np.random.get_state()
    kind, words, *rest = state
    return kind, words.tobytes(), *rest


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
    if name == "open" and module in ("io", "_io"):
        return "open()"
    if name in ("now", "utcnow", "today") and getattr(owner, "__module__", "") == "datetime":
        return f"datetime.{name}()"
    return ""


def _entered(frame: FrameType) -> str:
    """The words for a function of Python whose answer is fixed: reads of the environment."""
    code = frame.f_code
    if code.co_name in ("getenv", "__getitem__") and code.co_filename in _OS_FILES:
        return "os.environ"
    return ""


def _users_line(frame: FrameType | None, event: str) -> str:
    """The nearest line of a user's code; empty where the library itself asks, an import,
    or a callback of the garbage collector."""
    at = frame.f_back if event == "call" and frame is not None else frame
    line = ""
    collecting = {getattr(each, "__code__", None) for each in gc.callbacks}
    while at is not None:
        file = at.f_code.co_filename
        if file.startswith("<frozen importlib") or at.f_code in collecting:
            return ""
        if not line and is_library_file(file):
            return ""
        if not line and not file.startswith((_STANDARD, "<frozen")):
            line = f"{os.path.basename(file)}:{at.f_lineno}"
        at = at.f_back
    return line
