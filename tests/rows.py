"""A worker runs up to sixteen rows of a parametrized test, or tests of a file, as one item.

Of 30,000 items most take a few milliseconds, and pytest and its workers spend three more on each:
on fixtures, capturing, three reports and their way to the controller. Items are joined after `-k`,
`-m` and the names given have chosen among them, and only in workers (`-n 2`), so that a row is
chosen, named and repeated as always. A row that fails or is skipped has a report of its own. Where
the processor time of each test is asked for, they stay apart.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

MOST = 16
"""Tests of an item: what one item takes may delay the end of a run by as much."""

SHARED = {"torch"}
"""Fixtures of a session, the only ones that rows which are joined may have beside parameters."""

APART = {"slow", "xfail", "skip", "skipif", "usefixtures"}
"""Markers of tests of which each row stays an item."""


class Rows:
    """Joins rows after collection and runs them."""

    def __init__(self) -> None:
        self.of: dict[pytest.Item, list[Any]] = {}
        """The rows that an item stands for, where there are several."""
        self.ended: dict[pytest.Item, list[tuple[Any, pytest.CallInfo[None]]]] = {}
        """Of the item that is run, the rows that failed or were skipped."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        joined = list(join(items))
        self.of = {rows[0]: rows for rows in joined if len(rows) > 1}
        items[:] = [rows[0] for rows in joined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> object:
        rows = self.of.get(pyfuncitem)
        if rows is None:
            return None
        calls = [(row, run(row, pyfuncitem.funcargs)) for row in rows]
        self.ended[pyfuncitem] = [(row, call) for row, call in calls if call.excinfo is not None]
        return True

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):
        report = yield
        rows = self.of.get(item)
        if rows is None:
            return report
        report.rows = len(rows)
        if call.when != "call" or item not in self.ended:
            return report
        reports = [report_of(row, ended, report) for row, ended in self.ended.pop(item)]
        report.rows -= len(reports)
        # An item of which no row passed has not passed either.
        last = report if report.rows else reports.pop()
        for each in reports:
            item.ihook.pytest_runtest_logreport(report=each)
        return last


def join(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Items one after another that may be run as one, at most `MOST` of them."""
    rows: list[pytest.Item] = []
    function = None
    for item in items:
        own = function_of(item)
        if rows and (own is None or own != function or len(rows) == MOST):
            yield rows
            rows = []
        rows.append(item)
        function = own
    if rows:
        yield rows


def function_of(item: Any) -> object:
    """What items that may be joined have in common; None where this item stays as it is.

    Rows have their function, all other tests the module or class that they stand in.
    """
    if not isinstance(item, pytest.Function) or is_hypothesis_test(item.obj):
        return None
    spec = getattr(item, "callspec", None)
    if spec is not None and spec.marks:
        return None
    if any(mark.name in APART or mark.kwargs.get("indirect") for mark in item.iter_markers()):
        return None
    fixtures = set(item.fixturenames) - set(parameters(item))
    if fixtures - SHARED:
        return None
    compares = item.get_closest_marker("torch") is not None
    return item.parent, compares, fixtures, None if spec is None else item.originalname


def parameters(item: Any) -> dict[str, Any]:
    """The arguments of a row; none of a test without rows."""
    spec = getattr(item, "callspec", None)
    found: dict[str, Any] = {} if spec is None else spec.params
    return found


def run(row: Any, values: dict[str, object]) -> pytest.CallInfo[None]:
    """How the call of one row ends; `values` are those of the item's fixtures."""
    shared = {name: values[name] for name in SHARED & {*row.fixturenames}}
    arguments = {**parameters(row), **shared}
    stop = (KeyboardInterrupt, pytest.exit.Exception)
    return pytest.CallInfo.from_call(lambda: row.obj(**arguments), when="call", reraise=stop)


def report_of(row: Any, call: pytest.CallInfo[None], whole: pytest.TestReport) -> pytest.TestReport:
    """The report of a row under the item's name; in the controller it gets its own (`Names`)."""
    report = row.ihook.pytest_runtest_makereport(item=row, call=call)
    report.sections.extend(whole.sections)
    report.row, report.nodeid, report.rows = report.nodeid, whole.nodeid, 1
    return report


class Names:
    """Gives reports of rows their own names in the controller; xdist wants those of their items."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = getattr(report, "row", report.nodeid)
