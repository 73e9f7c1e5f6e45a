"""The pytest plugin: what a failing test leaves behind."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotlite.testing import Program
from aotlite.testing.failure_reports import file_name
from aotlite.testing.plugin import last_of

pytest_plugins = "pytester"

WRONG = """
    import aotlite as al
    import aotlite.pipeline.options
    from aotlite.testing import Call, Program, check_program

    aotlite.pipeline.options.DEFAULT_BACKEND = "reference"  # as in tests: each program is run once

    CALL = Call([["make", [3, [2, 3], "float64", True]], ["mul", ["$0", 1]], ["t", ["$1"]]], ["$2"])
    PROGRAM = Program(
        [["neg", ["$0"]], ["select", ["$0", 0, 0]], ["square", ["$1"]]], ["$3", "$2", "$1"], [CALL]
    )

    def copies(function, **options):
        compiled = al.compile(function, **options)
        return lambda *args: [r.clone() for r in compiled(*args)]

    def check(program):
        check_program(program, compile=copies)
"""
TESTS = f"""{WRONG}
    from hypothesis import Phase, given, settings, strategies as st
    from aotlite.testing.laws.errors import LawError

    def test_views():
        check(PROGRAM)

    def test_nothing_is_wrong():
        check_program(PROGRAM)

    PHASES = (Phase.generate, Phase.shrink)

    @settings(database=None, deadline=None, max_examples=20, phases=PHASES)
    @given(st.integers(1, 40), st.integers(0, 5))
    def test_hypothesis(size, unused):
        call = Call([["make", [0, [size], "float64", False]]], ["$0"])
        check(Program([["alias", ["$0"]]] + [["neg", ["$0"]]] * unused, ["$1"], [call]))

    def test_law():
        error = LawError("a law", "what it claims", "mul breaks it")
        error.add_note("on a sample")
        raise error

    def test_local():
        call = Call([["make", [0, [1], "float64", False]]], ["$0"])
        small = Program([["alias", ["$0"]]], ["$1"], [call])
        check_program(small, compile=lambda function: copies(function))
"""
SCRIPT = """\
def inputs():
    x = al.tensor([[-3.0, 2.0], [4.0, -2.0]], dtype=al.float64)
    return x


def f(x):
    view = x.select(1, 0)
    return [view]


assert_same_effects(f, copies(f), inputs)
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Runs a folder's tests in a process of its own, with the plugin."""
    installed = importlib.metadata.entry_points(group="pytest11", name="aotlite")
    plugin = [] if installed else ["-p", "aotlite.testing.plugin"]
    return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *args)


def stored(folder: Path) -> dict[str, str]:
    """The files of a folder."""
    return {file.name: file.read_text() for file in folder.iterdir()}


@pytest.mark.slow("shrinks programs in a pytest of its own")
def test_failing_tests_leave_the_smallest_scripts(pytester: pytest.Pytester) -> None:
    """Of a test by Hypothesis one file is left, of the last and smallest example."""
    pytester.makepyfile(test_it=TESTS)
    result = run(pytester)
    result.assert_outcomes(failed=4, passed=1)
    folder = pytester.path / ".aotlite" / "scripts"
    files = stored(folder)
    assert 4 == len(files)
    text = files["test_it.py_test_views.py"]
    assert text.endswith(SCRIPT)
    assert text.startswith("# call 0: ")
    result.stdout.re_match_lines([r"-* aotlite -*", r"stored in \.aotlite/scripts/test_it\.py_tes"])
    assert SCRIPT in result.stdout.str()
    result.stdout.re_match_lines([r" *memory 1: 4 of float64", r" *x +0 +1 +2 +3 +argument 0.*"])
    last = files["test_it.py_test_hypothesis.py"]
    assert "x = al.tensor([-3.0], dtype=al.float64)" in last
    assert "neg" not in last
    law = files["test_it.py_test_law.txt"]
    assert "a law (what it claims): mul breaks it\non a sample" == law
    local = files["test_it.py_test_local.py"]
    assert "# to_script: compile is 'test_it:test_local.<locals>.<lambda>', expected" in local
    assert "assert_same_effects(f, al.compile(f), inputs" in local
    _expect_to_fail_again(folder / "test_it.py_test_views.py")


def _expect_to_fail_again(script: Path) -> None:
    path = {**os.environ, "PYTHONPATH": f"{script.parents[2]}:{os.environ.get('PYTHONPATH', '')}"}
    again = subprocess.run([sys.executable, script], capture_output=True, text=True, env=path)
    assert again.returncode == 1
    assert "Difference: assert_same_effects: compiled differs from eager" in again.stderr


@pytest.mark.slow("starts workers of pytest")
def test_workers_of_xdist_store_scripts_where_asked_for(pytester: pytest.Pytester) -> None:
    """Without shrinking, the program is the one that failed."""
    pytester.makepyfile(test_it=TESTS)
    result = run(
        pytester, "-n", "1", "--aotlite-scripts", "here", "--aotlite-shrink", "0", "-k", "views"
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"stored in here/test_it\.py_test_views\.py"])
    assert "square()" in stored(pytester.path / "here")["test_it.py_test_views.py"]


def test_errors_of_groups_and_causes_are_found() -> None:
    class Carrying(Exception):
        program = Program([], [], [])

    inner = Carrying()
    outer = RuntimeError()
    outer.__cause__ = inner
    assert [inner] == list(last_of(outer))
    assert [inner] == list(last_of(ExceptionGroup("two", [ValueError(), inner])))
    assert [] == list(last_of(ValueError()))


def test_errors_of_others_and_errors_while_storing_end_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=f"""{WRONG}
    class Others(Exception):
        program, law = "ls -l", 9

    def test_others():
        raise Others()

    def test_views():
        check(PROGRAM)

    def test_after_them():
        pass
    """
    )
    (pytester.path / "taken").write_text("")
    result = run(pytester, "--aotlite-scripts", "taken", "--aotlite-shrink", "0")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.re_match_lines([r"nothing is stored: (FileExists|NotADirectory)Error: "])


def test_nothing_is_imported_before_a_test_fails() -> None:
    code = (
        "import sys, aotlite.testing.plugin; heavy = {'numpy', 'aotlite.pipeline', 'hypothesis'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_names_of_files_are_short_and_of_one_test() -> None:
    long = "tests/test_a.py::test_b[" + "x" * 300
    assert len(file_name(long)) < 140
    assert file_name(long) != file_name(long + "y")
    assert "a.py_b_c" == file_name("a.py::b[c]")
