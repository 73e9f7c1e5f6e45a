"""What "module:name" and "file.py:name" stand for: compilers and engines of the user's own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from aotlite.ir.errors import ArgumentError
from aotlite.testing.engines import ENGINES, Engine, engine


def library_of(text: str) -> Engine:
    """The engine of a name, or an object of the class that "module:Class" stands for."""
    if text in ENGINES:
        return engine(text)
    found = named(text, "engine")
    if isinstance(found, type) and issubclass(found, Engine):
        return found()
    raise ArgumentError(f"fuzz: engine {text!r} is {found!r}, expected a subclass of Engine")


def compiler_of(text: str) -> Callable[..., Any]:
    """The function that "module:name" stands for."""
    found = named(text, "function")
    if not callable(found):
        raise ArgumentError(f"fuzz: function {text!r} is {found!r}, expected what compiles one")
    return found


def named(text: str, what: str) -> Any:
    """The object of "module:name", "module:outer.name" or "file.py:name"."""
    place, _, name = text.rpartition(":")
    found: Any = _file(place, what) if place.endswith(".py") else _module(place, what)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"fuzz: {what} is {text!r}, expected a name that {place!r} has")
        found = getattr(found, part)
    return found


def _module(name: str, what: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(
            f"fuzz: {what} is in module {name!r}, expected one that Python can import"
        ) from error


def _file(path: str, what: str) -> ModuleType:
    file = Path(path).absolute()
    spec = importlib.util.spec_from_file_location(f"fuzzed_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ArgumentError(f"fuzz: {what} is in file {path!r}, expected one that exists")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))  # so that it finds its neighbours, as when it is run
    spec.loader.exec_module(module)
    return module
