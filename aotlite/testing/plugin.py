"""The pytest plugin: a test that fails on a program leaves a small script behind.

Where a test raises an exception that carries a program (`ProgramError`, or any whose attribute
`program` is one), the program is made smaller and its script stored, one file a test, and shown in
the report. With Hypothesis that is the example that it ended with. Of a broken law its report is
stored, by `failure_reports`. Nothing is imported, or done, before a test fails. Installed as the
entry point `aotlite`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import Any

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
    """The errors that carry something to store: the last first, those of a group, causes."""
    if error is None:
        return
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from last_of(each)
    if _has_program(error) or _is_of_law(error):
        yield error
    yield from last_of(error.__cause__ or error.__context__)


def _has_program(error: Any) -> bool:
    """Whether an error has a program; errors of others have attributes of that name, too."""
    programs = sys.modules.get("aotlite.testing.programs.program")
    # Where the module is not imported, there are no programs.
    return programs is not None and isinstance(getattr(error, "program", None), programs.Program)


def _is_of_law(error: Any) -> bool:
    laws = sys.modules.get("aotlite.testing.laws.errors")
    return laws is not None and isinstance(error, laws.LawError)


def _section(item: pytest.Item, error: Any) -> str:
    """The section of the report; why there is none, so that the tests go on."""
    try:
        failure_reports = import_module("aotlite.testing.failure_reports")
        return str(failure_reports.stored(item, error, _has_program(error)))
    except Exception as raised:
        return f"nothing is stored: {type(raised).__name__}: {raised}"
