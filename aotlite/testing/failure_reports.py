"""The file that a failed test leaves: a script of its shrunk program, or the report of a law.

Place: below `plugin`, which imports it when the first such test fails.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from aotlite.ir.errors import ArgumentError
from aotlite.ir.filesystem import atomic_files
from aotlite.testing.alias_printer import drawing
from aotlite.testing.programs.program import Program

LONGEST = 120
"""The most characters of a file name."""


def stored(item: pytest.Item, error: Any, has_program: bool) -> str:
    """Stores the program or law of an error. Returns the section for the test's report."""
    config = item.config
    folder = config.rootpath / config.getoption("--aotlite-scripts")
    if not has_program:
        file, text = folder / f"{file_name(item.nodeid)}.txt", str(error.report)
        more = ""
    else:
        small = _smallest(error, config.getoption("--aotlite-shrink"))
        file = folder / f"{file_name(item.nodeid)}.py"
        text, more = script_of(small, error), f"\n{drawn(small)}\n"
    atomic_files.write(file.parent, file.name, text)
    return f"stored in {_relative(file, config.rootpath)}:\n\n{text}{more}"


def file_name(nodeid: str) -> str:
    """A name for the files of a test.

    >>> file_name("tests/test_a.py::test_b[x-1]")
    'tests_test_a.py_test_b_x-1'
    """
    name = re.sub(r"[^\w.-]+", "_", nodeid).strip("_")
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}_{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"
    return name


def _smallest(error: Any, seconds: float) -> Program:
    if seconds > 0 and hasattr(error, "smallest"):
        small: Program = error.smallest(seconds)
        return small
    whole: Program = error.program
    return whole


def script_of(program: Program, error: object) -> str:
    """Returns the script of a program, with the differences as comments."""
    check = getattr(error, "check", None)
    found = [str(error)] if check is None else check(program)
    lines = "".join(f"# {line[:200]}\n" for text in found[:5] for line in text.splitlines())
    options = getattr(error, "options", {})
    try:
        text = program.to_script(**options)
    except ArgumentError as unspoken:  # an option that no import can name
        lines += f"# {unspoken}\n"
        text = program.to_script()
    return f"{lines}{text}"


def drawn(program: Program) -> str:
    """The picture of a program's memory, or the reason why it cannot be drawn."""
    try:
        return drawing(program)
    except Exception as error:  # a program of another library, or one that does not run
        return f"no drawing: {type(error).__name__}: {error}"


def _relative(file: Path, root: Path) -> str:
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
