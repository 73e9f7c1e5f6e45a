"""The source of an error: the suite itself, the adapter, or the library under test.

The traceback tells. The suite calls the library only through `through`, or by a function of arrays
that the library runs. So an error is the suite's if only Python's own frames lie below its last
frame, and the adapter's if one of its lines uses a name that does not exist.

The lowest module of the conformance suite: it imports nothing of it but `unsupported`.
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
"""The modules of this package whose errors count as the adapter's."""
PYTHON = (*map(sysconfig.get_path, ("stdlib", "platstdlib")), "<frozen ", "<attrs generated ")
FOREIGN = ("site-packages", "dist-packages")
"""The folders of installed libraries below Python's own."""


class ToolFault(Exception):
    """Raised for a fault of the suite or the adapter: the library breaks no rule."""


class Signal(Exception):
    """The base of exceptions that the suite raises and catches itself, such as `NoView`."""


def through(method: Callable[..., object], arguments: tuple[object, ...]) -> Any:
    """Calls a method of an adapter. Errors below this frame are not the suite's."""
    return method(*arguments)


def is_ours(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a fault of the suite or the adapter."""
    return any(isinstance(each, ToolFault) or _is_ours(each) for each in _chain(error))


def demand_theirs(error: Exception) -> None:
    """Raises `ToolFault` if an error is a fault of the suite or the adapter, not the library's
    refusal."""
    if is_ours(error):
        raise ToolFault(str(error)) from error


def place_of(error: BaseException) -> str:
    """Returns the line of a fault: `call_source.py:165 in _value`."""
    first = next((each for each in _chain(error) if _is_ours(each)), error)
    for frame, line in reversed(list(traceback.walk_tb(first.__traceback__))):
        code = frame.f_code
        if not _is_pythons(code):
            return f"{Path(code.co_filename).name}:{line} in {code.co_name}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes, without the suite's own signals."""
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
    """Whether an error is a missing name, module or attribute.

    A missing attribute of one of Python's own types is the library's: it returned such an object in
    place of an array.
    """
    match error:
        case AttributeError(name=str(name), obj=value):
            is_pythons = type(value).__module__ == "builtins" and not isinstance(value, ModuleType)
            return not is_pythons and name not in dir(value)
        case NameError() | ImportError() | AssertionError():
            return True
    return False
