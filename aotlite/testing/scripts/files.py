"""Whole files: imports, inputs, the function, the check. `Program.to_script` and `to_pytest`."""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

from aotlite.ir.errors import ArgumentError
from aotlite.testing.programs.steps import Call, ProgramData
from aotlite.testing.scripts.block import (
    Block,
    body_block,
    origin,
    parameters,
    setup_block,
)
from aotlite.testing.scripts.language import AotliteLanguage, Language, text_of

TAB = "    "


def script_file(program: ProgramData, *, compile: str | None = None, **options: object) -> str:
    """A file that calls the program's function eagerly and compiled, and asserts equal effects.

    `compile` is the "module:name" of another compile function; it gets `options`.
    """
    imports, checks = _checks(program, compile, options)
    parts = [*functions(program, AotliteLanguage()), "\n".join(checks)]
    return "\n\n\n".join(["\n".join(imports), *parts]) + "\n"


def pytest_file(
    program: ProgramData, name: str, *, compile: str | None = None, **options: object
) -> str:
    """A file with one test function of this name, for pytest."""
    if not name.isidentifier():
        raise ArgumentError(f"to_pytest: the name is {name!r}, expected an identifier")
    imports, checks = _checks(program, compile, options)
    body = "\n\n".join([*functions(program, AotliteLanguage()), "\n".join(checks)])
    return "\n".join(imports) + f"\n\n\ndef {name}() -> None:\n" + textwrap.indent(body, TAB) + "\n"


# ---------------------------------------------------------------------------------- the functions
def functions(program: ProgramData, language: Language) -> list[str]:
    """The functions that make inputs, and `f`."""
    made = [inputs_text(program, i, language) for i in range(len(program.calls))]
    return [*made, function_text(program, language)]


def inputs_name(number: int) -> str:
    return "inputs" if not number else f"inputs_{number + 1}"


def inputs_text(
    program: ProgramData, number: int, language: Language, *, pair: bool | None = None
) -> str:
    """The function that makes the arguments of a call, for `assert_same_effects`.

    With `pair` True it returns the tuple of arguments and a list of the other values; with False,
    the tuple alone.
    """
    block, call = setup_block(program, number, language), program.calls[number]
    args, rest = list(map(block.text, call.args)), list(_others(block, call))
    given = f"({', '.join(args)}{',' if len(args) == 1 else ''})"
    if pair is None:
        also = f"Inputs({given}, also=[{', '.join(rest)}])"
        ending = also if rest else ", ".join(args) or "()"
    else:
        ending = f"{given}, [{', '.join(rest)}]" if pair else given
    return _definition(inputs_name(number), [], [*block.lines, f"return {ending}"])


def _others(block: Block, call: Call) -> Iterator[str]:
    """Returns the values of a setup that are no arguments."""
    given = {origin(call.setup, arg) for arg in call.args}
    for place, value in enumerate(block.values):
        name = f"${place}"
        if origin(call.setup, name) == name and name not in given:
            yield value


def function_text(program: ProgramData, language: Language) -> str:
    block = body_block(program, language)
    results = ", ".join(block.text(value) for value in program.results)
    return _definition("f", parameters(program), [*block.lines, f"return [{results}]"])


def _definition(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    whole = [text for line in lines for text in _wrapped(line)]
    return "\n".join([f"def {name}({', '.join(parameters)}):", *(TAB + line for line in whole)])


def _wrapped(line: str) -> list[str]:
    """A line of at most 92 characters; a long list of numbers is several lines."""
    code, mark, comment = line.partition("  # ")
    lines = textwrap.wrap(
        code, 92, subsequent_indent=TAB, break_long_words=False, break_on_hyphens=False
    )
    return [*lines[:-1], f"{lines[-1]}{mark}{comment}"]


# ------------------------------------------------------------------------------------- the checks
def _checks(
    program: ProgramData, compile: str | None, options: dict[str, object]
) -> tuple[list[str], list[str]]:
    """The imports, and the lines that compile and compare."""
    names = ["assert_same_effects"]
    if any(
        "Inputs(" in inputs_text(program, i, AotliteLanguage()) for i in range(len(program.calls))
    ):
        names.insert(0, "Inputs")
    imports = ["import aotlite as al", f"from aotlite.testing import {', '.join(names)}"]
    function = "al.compile"
    if compile is not None:
        module, _, function = compile.partition(":")
        if not (function.isidentifier() and module):
            raise ArgumentError(
                f"to_script: compile is {compile!r}, expected the place of a function that can be "
                'imported, "module:name"'
            )
        imports.insert(1, f"from {module} import {function}")
    words, more = _options(options)
    made = f"{function}({', '.join(['f', *words])})"
    if len(program.calls) == 1:
        return imports + more, [_check(program, 0, made)]
    lines = [_check(program, i, "compiled") for i in range(len(program.calls))]
    return imports + more, [f"compiled = {made}", *lines]


def _check(program: ProgramData, number: int, compiled: str) -> str:
    call = program.calls[number]
    words = ["f", compiled, inputs_name(number)]
    words += [] if call.grad else ["grad=False"]
    words += [f"write={text_of(call.write)}"] if call.write else []
    return f"assert_same_effects({', '.join(words)})"


PLAIN = (str, int, float, bool, type(None))


def _options(options: dict[str, object]) -> tuple[list[str], list[str]]:
    """Options as keyword arguments, and the imports that they need."""
    words, imports = [], []
    for name, value in options.items():
        text = text_of(value)
        if not isinstance(value, PLAIN):
            is_function = isinstance(value, FunctionType)
            thing: Any = value if is_function else type(value)
            text = str(thing.__name__) if is_function else repr(value)
            _expect_importable(name, thing, text)
            imports.append(f"from {thing.__module__} import {thing.__name__}")
        words.append(f"{name}={text}")
    return words, imports


def _expect_importable(name: str, thing: Any, text: str) -> None:
    """Raises `ArgumentError` if a script cannot import an option's value."""
    known: str = thing.__name__
    found = getattr(importlib.import_module(thing.__module__), known, None)
    if found is not thing or not re.match(rf"{known}(\(|$)", text):
        raise ArgumentError(
            f"to_script: option {name} is {text}, expected a function of a module, or a value "
            "whose repr makes it"
        )
