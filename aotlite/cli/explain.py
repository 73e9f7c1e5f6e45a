"""`aotlite explain FILE.py:function`: prints the graph of each stage, and its records as sentences.

It imports the file, compiles the function for arguments described by `--arg` and `--kwarg` without
running it, and prints the result of `aotlite.inspect.stages_of`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import attrs

from aotlite.api import CompiledFunction
from aotlite.cli.arguments import value_from_text
from aotlite.inspect import Stages, stages_of
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.pipeline.options import make_options

_NO_SYMBOLS = "# No size is a symbol: {} (docs/limits.md, limits of sizes as symbols)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite explain`."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help="the function to explain")
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="VALUE",
        help="the next positional argument: 'f32[4,3]', 'f32[3,3] requires_grad', "
        "'i64[2,3][1,2]' (sizes, strides), 'f32[4,3] dynamic=0' (size 0 is marked as a symbol), or "
        "a Python literal",
    )
    parser.add_argument(
        "--kwarg", action="append", default=[], metavar="NAME=VALUE", help="a keyword argument"
    )
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="each size of each argument is a symbol, and each int, as with "
        "compile(dynamic=True); the stage 'conditions' says for which sizes the graphs are right",
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help="print only: capture, analyze, convention, joint, functionalize, simplify, "
        "partition, conditions (of sizes that are symbols), forward or backward",
    )


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite explain`: prints the stages."""
    print(_explained(args))


def _explained(args: argparse.Namespace) -> str:
    positional = [value_from_text(text) for text in args.arg]
    named = dict(_named(text) for text in args.kwarg)
    path, name = _split(args.target)
    with _importable(path):
        function = _function(_loaded(path), path, name)
        if args.dynamic:
            function = _of_all_sizes(function)
        with _blaming(f"{name} raised", "a function that runs on the given arguments", path):
            stages = stages_of(function, *positional, **named)
    text = str(stages if args.stage is None else stages.record(args.stage))
    why = _why_no_symbols(stages) if args.dynamic else None
    return text if why is None else f"{text}\n\n{_NO_SYMBOLS.format(why)}"


def _why_no_symbols(stages: Stages) -> str | None:
    """Why no size is a symbol; None if one is."""
    made = [each.made for each in stages if each.name == "8 partition, conditions"]
    if any(each.symbols for each in made):
        return None
    return "; ".join([why for each in made for why in each.refused]) or "no argument has one"


def _of_all_sizes(function: Callable[..., object]) -> CompiledFunction:
    """The function with symbols for all sizes; of a compiled one the other options are kept."""
    if not isinstance(function, CompiledFunction):
        return CompiledFunction(function, make_options(dynamic=True))
    return CompiledFunction(function.function, attrs.evolve(function.options, dynamic=True))


def _named(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ArgumentError(f"explain: --kwarg is {text!r}, expected NAME=VALUE")
    return name, value_from_text(value, f"--kwarg {name}")


# ---------------------------------------------------------------------------------- the function
def _split(target: str) -> tuple[str, str]:
    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise ArgumentError(f"explain: the target is {target!r}, expected FILE.py:FUNCTION")
    if os.path.isdir(path):
        raise ArgumentError(f"explain: {path!r} is a folder, expected a Python file")
    if not os.path.isfile(path):
        raise ArgumentError(f"explain: the file {path!r} does not exist, expected a Python file")
    return path, name


@contextmanager
def _importable(path: str) -> Iterator[None]:
    """Puts the file's folder first on the path for a block, as when Python runs the file."""
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _loaded(path: str) -> ModuleType:
    name = f"explained_{os.path.splitext(os.path.basename(path))[0]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"explain: the file is {path!r}, expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    with _blaming(f"importing {path!r} raised", "a file that can be imported", path):
        spec.loader.exec_module(module)
    return module


def _function(module: ModuleType, path: str, name: str) -> Callable[..., object]:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise noted(
                ArgumentError(f"explain: {path!r} has no {name!r}, expected a function in it"),
                _known(module, name),
            )
        found = getattr(found, part)
    if not callable(found):
        kind = type(found).__name__
        raise ArgumentError(f"explain: {name!r} in {path!r} is of type {kind}, expected a function")
    return found


def _known(module: ModuleType, name: str) -> str:
    functions = [
        key
        for key, value in vars(module).items()
        if isinstance(value, (FunctionType, CompiledFunction))
        and value.__module__ == module.__name__
    ]
    near = difflib.get_close_matches(name, functions, 1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Functions there: {', '.join(functions)}." if functions else "It defines no function."


@contextmanager
def _blaming(what: str, expected: str, path: str) -> Iterator[None]:
    """Turns errors and exits of the user's code into ArgumentErrors with the line that raised."""
    try:
        yield
    except AotliteError as error:
        if not any(path in note for note in getattr(error, "__notes__", ())):
            noted(error, _line(error, path))
        raise
    except (Exception, SystemExit) as error:
        first, *rest = traceback.format_exception_only(error)
        message = f"explain: {what} {first.strip()}, expected {expected}"
        raise noted(ArgumentError(message), *map(str.rstrip, rest), _line(error, path)) from error


def _line(error: BaseException, path: str) -> str | None:
    """Returns the innermost line of the file in the error's traceback."""
    absolute = os.path.abspath(path)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.abspath(frame.filename) == absolute]
    if not own:
        return None
    frame = own[-1]
    return f"at {path}:{frame.lineno}, in {frame.name}: {frame.line}"
