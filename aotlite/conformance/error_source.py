"""Whose an error is: the suite's own, the adapter's, or the library's that is asked.

The traceback says it. Everything of the library is called through `through`, or by a function of
arrays that the library runs itself; so an error is the suite's where no frame is deeper than its
last one but Python's own, and the adapter's where one of its lines names what is not there.

Ground floor of the conformance suite: imports nothing of it but `unsupported`.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from aotlite.conformance.unsupported import Absent

HERE = Path(__file__).parent
ADAPTERS = HERE / "adapters"
WORDS = ("adapter.py", "adapter_autograd.py")
"""Modules of this package that are the adapter's part, with methods that any library has."""
PYTHON = (*map(sysconfig.get_path, ("stdlib", "platstdlib")), "<frozen ", "<attrs generated ")
FOREIGN = ("site-packages", "dist-packages")
"""Folders below Python's own that hold libraries."""


class ToolFault(Exception):
    """The suite or the adapter made a mistake, where it asks a library: nobody's breach."""


class Signal(Exception):
    """Base of what the suite raises to itself, as that the model of memory has no such view."""


def through(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Calls a method of an adapter; what is raised from here on is not the suite's."""
    return method(*arguments)


def is_ours(error: BaseException) -> bool:
    """Whether an error, or one that it was raised for, is a mistake of the suite or the adapter."""
    return any(isinstance(each, ToolFault) or _is_ours(each) for each in _chain(error))


def demand_theirs(error: Exception) -> None:
    """Raises `ToolFault` for an error that is the suite's: it is no refusal of a library."""
    if is_ours(error):
        raise ToolFault(str(error)) from error


def place_of(error: BaseException) -> str:
    """The line at which a mistake was made: `call_source.py:165 in _value`."""
    first = next((each for each in _chain(error) if _is_ours(each)), error)
    for frame, line in reversed(list(traceback.walk_tb(first.__traceback__))):
        code = frame.f_code
        if not _is_pythons(code):
            return f"{Path(code.co_filename).name}:{line} in {code.co_name}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised for, but for what the suite raises to itself."""
    yield error
    seen = [error]
    following = _reason(error)
    while following is not None and following not in seen:
        if not isinstance(following, Absent | Signal):
            yield following
        seen.append(following)
        following = _reason(following)


def _reason(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_ours(error: BaseException) -> bool:
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    inner = max((place for place, code in enumerate(codes) if _is_suites(code)), default=-1)
    beyond = codes[inner + 1 :]
    if inner >= 0 and codes[inner] is not through.__code__ and all(map(_is_pythons, beyond)):
        return True
    lines = [code for code in beyond if not _is_pythons(code) and code.co_name != "__getattr__"]
    is_last = bool(lines) and lines[-1].co_filename == lines[0].co_filename
    return is_last and _names_nothing(error)


def _is_suites(code: CodeType) -> bool:
    path = Path(code.co_filename)
    is_here = path.is_relative_to(HERE) and path.parent != ADAPTERS
    return is_here and path.name not in WORDS


def _is_pythons(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(PYTHON) and not any(each in name for each in FOREIGN)


def _names_nothing(error: BaseException) -> bool:
    """Whether a line asks for a name, a module, or an attribute that there is not.

    An attribute of Python's own types is asked of what a library gave in the place of an array.
    """
    match error:
        case AttributeError(name=str(name), obj=value):
            is_pythons = type(value).__module__ == "builtins" and not isinstance(value, ModuleType)
            return not is_pythons and name not in dir(value)
        case NameError() | ImportError() | AssertionError():
            return True
    return False
