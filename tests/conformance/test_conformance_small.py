"""Libraries with few ops, or with odd ones: what they lack is absent, and all of it is reported."""

import os
import time
from pathlib import Path

import pytest

from aotlite import conformance
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.isolation.process import examine
from aotlite.conformance.outcomes import Breaks, Dies, Keeps, Lacks
from tests.conformance.helpers.adapters import Few, Speechless

HERE = "tests.conformance.helpers.adapters"


def outcome(adapter, rule):
    [result] = conformance.check(adapter, rules=[rule]).results
    return result.outcome


def test_what_a_small_library_lacks_it_does_not_break():
    report = conformance.check(Few)
    assert [] == [each.rule for each in report.broken]
    assert {"TEN-2a", "WRT-1", "WRT-16", "COP-1"} <= {each.rule for each in report.kept}


@pytest.mark.parametrize(
    ("rule", "missing"),
    [("OUT-1", "add_out"), ("TEN-9b", "dtype"), ("COP-5", "deepcopy"), ("COP-6", "pickles")],
)
def test_a_rule_that_needs_what_is_not_there_is_absent(rule, missing):
    found = outcome(Few, rule)
    assert isinstance(found, Lacks)
    assert missing in found.missing


def test_an_addition_that_binds_another_object_is_no_write():
    class Fresh(NumPy):
        def iadd(self, a, b):
            return a + b

    found = outcome(Fresh, "WRT-21")
    assert isinstance(found, Keeps)
    assert "`+=` in place" in found.without


def test_a_clone_is_looked_at_without_item_assignment():
    class Sharing(Few):
        clone = lambda self, a: a

    found = outcome(Sharing, "COP-1")
    assert isinstance(found, Breaks)
    assert "the copy after the write to the original" == found.what


def test_nothing_in_the_place_of_an_array_is_a_breach():
    found = outcome(Speechless, "TEN-2b")
    assert isinstance(found, Breaks)
    assert "TypeError: 'NoneType' object is not subscriptable" == found.got
    assert "None[0, ...]  # raises TypeError" == found.lines[-1]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("TEN-2d", "Wordless: (its text cannot be made)"),
        ("TEN-2h", "ValueError: byte \\udc80"),
    ],
)
def test_an_error_without_a_text_that_can_be_printed_is_a_breach(rule, said):
    found = outcome(Speechless, rule)
    assert isinstance(found, Breaks)
    assert (said, True) == (found.got, bool(found.witness().encode()))


def test_what_a_library_has_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_TEST_FORKED", str(tmp_path / "forked"))
    [result] = examine(f"{HERE}:Forking", ["TEN-2i"], seconds=2).results
    assert isinstance(result.outcome, Dies)
    [child] = map(int, (tmp_path / "forked").read_text().split())
    ends = time.monotonic() + 10
    while is_running(child) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not is_running(child)


def is_running(process):
    """Whether a process is there and is no zombie that waits for its parent."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
