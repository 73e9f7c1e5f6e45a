"""The user's own compilers and engines, by "module:name" or "file.py:name"."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from aotlite.ir.errors import ArgumentError, noted
from aotlite.testing.engines import ENGINES, Engine, engine


def library_of(text: str) -> Engine:
    """Returns the engine of a name, or an instance of the class of "module:Class"."""
    if text in ENGINES:
        return engine(text)
    found = named(text, "engine")
    if isinstance(found, type) and issubclass(found, Engine):
        return found()
    raise ArgumentError(f"fuzz: engine {text!r} is {found!r}, expected a subclass of Engine")


def compiler_of(text: str) -> Callable[..., object]:
    """Returns the function of "module:name"."""
    found = named(text, "function")
    if not callable(found):
        raise ArgumentError(f"fuzz: function {text!r} is {found!r}, expected what compiles one")
    return found


def named(text: str, what: str) -> Any:
    """Returns the object of "module:name", "module:outer.name" or "file.py:name"."""
    place, _, name = text.rpartition(":")
    found: Any = _file(place, what) if place.endswith(".py") else _module(place, what)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"fuzz: {what} is {text!r}, expected a name that {place!r} has")
        found = getattr(found, part)
    return found


def demand_place(text: str, what: str) -> None:
    """*Err* `ArgumentError` if "module:name" or "file.py:name" names no module or file."""
    place = text.rpartition(":")[0]
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise _no_file(place, what)
        return
    try:
        is_there = importlib.util.find_spec(place) is not None
    except (ModuleNotFoundError, ValueError):  # a parent that is no package, or an invalid name
        is_there = False
    if not is_there:
        raise _no_module(place, what)


def _module(name: str, what: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise _no_module(name, what) from error


def _no_module(name: str, what: str) -> ArgumentError:
    text = f"fuzz: {what} is in module {name!r}, expected one that Python can import"
    return noted(ArgumentError(text), f"looked for in {looked_in()}")


def looked_in() -> str:
    """The folders in which Python searches modules, the working folder first."""
    folders = dict.fromkeys([os.getcwd(), *(path or os.getcwd() for path in sys.path)])
    return ", ".join(folders)


def _no_file(path: str, what: str) -> ArgumentError:
    text = f"fuzz: {what} is in file {path!r}, expected one that exists"
    return noted(ArgumentError(text), f"looked for {Path(path).absolute()}")


def _file(path: str, what: str) -> ModuleType:
    file = Path(path).absolute()
    spec = importlib.util.spec_from_file_location(f"fuzzed_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise _no_file(path, what)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))  # so that it can import its neighbors, as when it is run
    spec.loader.exec_module(module)
    return module
