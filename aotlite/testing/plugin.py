"""The pytest plugin: a test that fails on a program leaves a small script behind.

Where a test raises an exception that carries a program (`ProgramError`, or any whose attribute
`program` is one), the program is made smaller and its script stored, one file a test, and shown in
the report. With Hypothesis that is the example that it ended with. Of a broken law its report is
stored. Nothing is imported, or done, before a test fails. Installed as the entry point `aotlite`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aotlite.testing.programs import Program

LONGEST = 120
"""Characters of a file's name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aotlite", "aotlite: scripts of programs that fail")
    group.addoption(
        "--aotlite-scripts",
        metavar="DIR",
        default=".aotlite/scripts",
        help="where to store the scripts (default: %(default)s in the root folder)",
    )
    group.addoption(
        "--aotlite-shrink",
        metavar="SECONDS",
        type=float,
        default=20.0,
        help="how long to make a program smaller, 0 for not at all (default: %(default)s)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds a section to the report of a test that failed on a program."""
    report = yield
    if call.excinfo is not None and report.failed:
        for error in last_of(call.excinfo.value):
            report.sections.append(("aotlite", _section(item, error)))
            break
    return report


def last_of(error: BaseException | None) -> Iterator[BaseException]:
    """The errors that carry something to store: the last first, those of a group, causes."""
    if error is None:
        return
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from last_of(each)
    if _program_of(error) is not None or _is_of_law(error):
        yield error
    yield from last_of(error.__cause__ or error.__context__)


def _program_of(error: Any) -> Program | None:
    """The program that an error carries; errors of others have attributes of that name, too."""
    programs = sys.modules.get("aotlite.testing.programs")
    found = getattr(error, "program", None)
    # Where the module is not imported, there are no programs.
    return found if programs is not None and isinstance(found, programs.Program) else None


def _is_of_law(error: Any) -> bool:
    laws = sys.modules.get("aotlite.testing.laws.errors")
    return laws is not None and isinstance(error, laws.LawError)


def _section(item: pytest.Item, error: Any) -> str:
    """The section of the report; why there is none, so that the tests go on."""
    try:
        return _stored(item, error)
    except Exception as raised:
        return f"nothing is stored: {type(raised).__name__}: {raised}"


def _stored(item: pytest.Item, error: Any) -> str:
    """Stores what an error carries; the section of the report."""
    from aotlite.ir import written

    config = item.config
    folder = config.rootpath / config.getoption("--aotlite-scripts")
    if _program_of(error) is None:
        file, text = folder / f"{file_name(item.nodeid)}.txt", str(error.report)
        more = ""
    else:
        small = _smallest(error, config.getoption("--aotlite-shrink"))
        file = folder / f"{file_name(item.nodeid)}.py"
        text, more = script_of(small, error), f"\n{drawn(small)}\n"
    written.write(file.parent, file.name, text)
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


def script_of(program: Program, error: Any) -> str:
    """The script of a program, with what was found as comments."""
    from aotlite.ir.errors import ArgumentError

    check = getattr(error, "check", None)
    found = [str(error)] if check is None else check(program)
    lines = "".join(f"# {line[:200]}\n" for text in found[:5] for line in text.splitlines())
    options = getattr(error, "options", {})
    try:
        text = program.to_script(**options)
    except ArgumentError as unspoken:  # an option without a name that can be imported
        lines += f"# {unspoken}\n"
        text = program.to_script()
    return f"{lines}{text}"


def drawn(program: Program) -> str:
    """The picture of a program's memory; why there is none, where it cannot be drawn."""
    from aotlite.testing.drawing import drawing

    try:
        return drawing(program)
    except Exception as error:  # a program of another library, or one that does not run
        return f"no drawing: {type(error).__name__}: {error}"


def _relative(file: Path, root: Path) -> str:
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
