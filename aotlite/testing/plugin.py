"""The pytest plugin: it stores a small script of the program on which a test fails.

If a test raises an exception that carries a program (`ProgramError`, or any with an attribute
`program`), the program is shrunk and its script stored, one file a test, and added to the report.
With Hypothesis it is the last example. For a broken law, its report is stored (`failure_reports`).
Nothing is imported before a test fails. Installed as the entry point `aotlite`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from importlib import import_module

import pytest


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
    """Yields the errors with a program or law: last ones first, members of groups, causes."""
    if error is None:
        return
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from last_of(each)
    if _has_program(error) or _is_of_law(error):
        yield error
    yield from last_of(error.__cause__ or error.__context__)


def _has_program(error: object) -> bool:
    """Whether an error has a program; other errors may have an attribute of that name, too."""
    programs = sys.modules.get("aotlite.testing.programs.program")
    # If the module is not imported, no program exists.
    return programs is not None and isinstance(getattr(error, "program", None), programs.Program)


def _is_of_law(error: object) -> bool:
    laws = sys.modules.get("aotlite.testing.laws.errors")
    return laws is not None and isinstance(error, laws.LawError)


def _section(item: pytest.Item, error: object) -> str:
    """Returns the section of the report; the reason if it fails, so that the tests continue."""
    try:
        failure_reports = import_module("aotlite.testing.failure_reports")
        return str(failure_reports.stored(item, error, _has_program(error)))
    except Exception as raised:
        return f"nothing is stored: {type(raised).__name__}: {raised}"
