"""The plugin that finds tests of which no assertion ran."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLANTED = """
def test_over_nothing():
    for number in []:
        assert number > 0

def test_over_something():
    for number in [1]:
        assert number > 0

def helper(number):
    assert number > 0

def test_with_a_helper():
    for number in []:
        assert number
    helper(1)

def test_without():
    pass
"""


def run(*tests, **variables):
    plugin = ("-p", "tests.ran_assertions", "-o", "enable_assertion_pass_hook=true")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *tests],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_of_which_no_assertion_ran_fails(tmp_path):
    path = tmp_path / "test_planted.py"
    path.write_text(PLANTED)
    # Its folder is new, and so are its compiled modules: Python's own need not be made again.
    found = run("--noconftest", "--rootdir", str(tmp_path), str(path))
    assert "test_over_nothing: no assertion ran, expected one at least" in found.stdout
    assert "1 failed, 3 passed" in found.stdout


@pytest.mark.long
def test_of_each_test_an_assertion_runs(tmp_path):
    """Of the folders whose tests are many and quick; all others by hand."""
    cache = str(tmp_path / "cache")
    found = run("tests/ir", "tests/laws", "tests/rules", PYTHONPYCACHEPREFIX=cache)
    assert 0 == found.returncode, found.stdout[-3000:]
