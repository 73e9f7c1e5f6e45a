"""Functions by name: `module:qualname`, under which another process finds the same function.

No module is imported, and no code runs: a name is looked up in what is loaded already.
Rule: CACHE-8. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from aotlite.artifacts.reads.code_digests import loaded_modules, nested
from aotlite.eager.base.tensor import Tensor

_STEPS: dict[type, str] = {types.MethodType: "__func__", functools.partial: "func"}


def name_of(function: Any) -> str:
    """The name under which the entries of a function are kept: of a bound method that of the
    method, of a Module that of its class."""
    while type(function) in _STEPS:
        function = getattr(function, _STEPS[type(function)])
    named = function if isinstance(function, (types.FunctionType, type)) else type(function)
    return f"{named.__module__ or '(no module)'}:{named.__qualname__}"


def function_named(name: str) -> types.FunctionType | None:
    """The function with this `module:qualname` now. No code runs, no module is imported."""
    module, _, qualname = name.partition(":")
    value: Any = sys.modules.get(module)
    for each in qualname.split("."):
        if not isinstance(value, (types.ModuleType, type)):
            return None
        value = vars(value).get(each)
        for step in ("__func__", "fget", "func", "__wrapped__"):
            value = _opened(value, step)
    return value if isinstance(value, types.FunctionType) else None


def library_name_of(function: types.FunctionType) -> str | None:
    """A name under which a function of a library is found, in its module, another module of the
    same package, or the class of tensors; None where it has none."""
    name = f"{function.__module__}:{function.__qualname__}"
    if function_named(name) is function:
        return name
    package, own = (function.__module__ or "").partition(".")[0], function.__name__
    places: dict[str, Any] = {f"{each.__module__}:{each.__name__}": each for each in Tensor.__mro__}
    modules = [(n, m) for n, m in list(sys.modules.items()) if n.partition(".")[0] == package]
    places |= {n: m for n, m in modules if isinstance(m, types.ModuleType)}
    found = [each for each, place in places.items() if vars(place).get(own) is function]
    return f"{own} of {min(found)}" if found else None


def own_package() -> types.ModuleType:
    """The package `aotlite`, whose attributes users may set."""
    return sys.modules[__name__.partition(".")[0]]


def _opened(value: Any, step: str) -> Any:
    if isinstance(value, (types.FunctionType, type)) or value is None:
        return value
    inner = getattr(type(value), step, None)
    return getattr(value, step, value) if inner is not None else value


def name_of_code(code: types.CodeType) -> str | None:
    """The `module:qualname` under which the function with this code, or the one around it, is
    found; None where it is not."""
    qualname = code.co_qualname.split(".<locals>")[0]
    for module in loaded_modules(code.co_filename):
        name = f"{module.__name__}:{qualname}"
        function = function_named(name)
        if function is not None and code in set(nested(function.__code__)):
            return name
    return None
