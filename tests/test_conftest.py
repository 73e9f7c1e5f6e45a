"""What the conftest counts and times is right with and without workers, and without PyTorch."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.house.slow import MOST

COMPARISONS = """
import pytest

def test_is_no_comparison(): pass

@pytest.mark.torch
def test_passes(): pass

@pytest.mark.torch
def test_fails(): assert False

@pytest.mark.torch
@pytest.mark.xfail
def test_fails_as_expected(): assert False

@pytest.mark.torch
@pytest.mark.skip
def test_is_skipped(): pass

@pytest.mark.torch
def test_skips_itself(): pytest.skip()

def test_uses_the_fixture(torch): pass
"""


def count_comparisons(folder: Path, *options: str, conftest_ending: str = "") -> tuple[int, int]:
    """(ran, skipped) as a run over `COMPARISONS`, under this folder's conftest, prints them."""
    output = run_tests(folder, COMPARISONS, *options, conftest_ending=conftest_ending)
    line = r"^PyTorch comparison tests: (\d+) ran, (\d+) skipped$"
    ((ran, skipped),) = re.findall(line, output, re.MULTILINE)
    return int(ran), int(skipped)


def run_tests(folder: Path, tests: str, *options: str, conftest_ending: str = "") -> str:
    """What a run over these tests prints, under this folder's conftest."""
    conftest = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    folder.joinpath("conftest.py").write_text(conftest + conftest_ending, encoding="utf-8")
    folder.joinpath("test_those.py").write_text(tests, encoding="utf-8")
    markers = "[pytest]\nmarkers =\n    torch\n    slow\n"
    folder.joinpath("pytest.ini").write_text(markers, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pytest", "--import-mode=importlib", *options]
    # That conftest stands elsewhere, and finds `tests` by this.
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    ).stdout


@pytest.mark.slow("starts pytest and its workers")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("options", [("-p", "no:xdist"), ("-n", "0"), ("-n", "2")], ids=" ".join)
def test_comparison_count_is_the_same_however_the_tests_are_run(tmp_path, options):
    with_torch = """
HAS_TORCH = True

@pytest.fixture
def torch(): pass
"""
    assert (4, 2) == count_comparisons(tmp_path, *options, conftest_ending=with_torch)


def test_comparison_count_without_pytorch_is_all_skipped(tmp_path):
    without_torch = "\nHAS_TORCH = False\n"
    assert (0, 6) == count_comparisons(tmp_path, conftest_ending=without_torch)


def test_a_run_without_comparisons_says_that_none_was_selected(tmp_path):
    output = run_tests(tmp_path, COMPARISONS, "-k", "no_comparison")
    assert "PyTorch comparison tests: none selected\n" in output


ROWS = """
import pytest

@pytest.mark.parametrize("n", range(40))
def test_some_fail(n):
    print("row", n)
    if n % 7 == 5:
        pytest.skip("a row")
    assert n % 10 != 3 and n < 38

def test_has_no_rows(): pass

def test_has_none_and_fails(): print("alone"); assert 5 == 4

def test_has_none_and_is_skipped_5(): pytest.skip("alone")

def test_has_none_and_is_5_of_torch(torch): assert torch == "torch"

@pytest.mark.xfail
def test_has_none_and_is_marked_5(): assert False

@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("m", "ab")
def test_all_fail(m, n): assert m == n

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.xfail), 3])
def test_marked(n): assert n != 2

@pytest.mark.parametrize("n", range(20))
def test_uses_a_folder(tmp_path, n): assert not tmp_path.joinpath("a").exists()

@pytest.mark.parametrize("n", range(20))
class TestMethods:
    def test_method(self, n): assert not hasattr(self, "seen"); self.seen = n

@pytest.mark.parametrize("n", range(20))
@pytest.mark.torch
def test_with_torch(torch, n): assert torch == "torch" and n != 4
"""

TORCH = """
HAS_TORCH = True

@pytest.fixture(scope="session")
def torch(): return "torch"
"""


def outcomes(output: str) -> list[str]:
    """Each test of a run with `-rA`: its outcome, its name, why it failed."""
    found = re.findall(r"^(?:PASSED|FAILED|SKIPPED|XFAIL|ERROR) .*$", output, re.MULTILINE)
    return sorted(line for line in found if not line.startswith("PASSED"))


@pytest.mark.slow("starts pytest and its workers")
@pytest.mark.parametrize(
    ("chosen", "workers"),
    [((), "2"), pytest.param(("-k", "5 or a-1 or 4"), "1", marks=pytest.mark.long)],
    ids=["all", "chosen"],
)
def test_rows_that_a_worker_runs_as_one_item_end_as_they_do_apart(tmp_path, chosen, workers):
    options = ("-rA", "--tb=line", *chosen)
    apart = run_tests(tmp_path, ROWS, *options, "-p", "no:xdist", conftest_ending=TORCH)
    joined = run_tests(tmp_path, ROWS, *options, "-n", workers, conftest_ending=TORCH)
    assert [] != outcomes(apart) == outcomes(joined)
    for count in re.findall("^(?:rows|PyTorch).*$", apart, re.MULTILINE):
        assert count in joined.splitlines()


WORK = """
import time
import pytest

def spin():
    start = time.process_time()
    while time.process_time() - start < 0.3: pass

def test_takes_long(): spin()

@pytest.mark.slow("it spins")
def test_takes_long_and_says_so(): spin()

def test_takes_no_time(): pass
"""


@pytest.mark.slow("starts pytest and its workers")
@pytest.mark.parametrize("options", [("-p", "no:xdist"), ("-n", "1")], ids=" ".join)
def test_a_slow_test_that_does_not_say_why_fails_where_there_is_a_limit(tmp_path, options):
    output = run_tests(tmp_path, WORK, "--cpu-limit=0.2", "--cpu-times=times", *options)
    assert "expected at most 0.2 s of a test that does not say why" in output
    assert "3 passed, 1 error" in output
    lines = tmp_path.joinpath("times").read_text("utf-8").splitlines()
    assert 3 == len(lines) and lines[-1].endswith("::test_takes_no_time")
    assert all(float(line.split("\t")[0]) >= 0.25 for line in lines[:2])


def test_without_a_limit_a_test_may_take_as_long_as_it_likes(tmp_path):
    assert "3 passed" in run_tests(tmp_path, WORK, "-p", "no:xdist")


LAWS = """
import pytest
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(st.integers())
def test_of_five(n): print("five", file=open("drawn", "a"))

@pytest.mark.draws(long=7)
@settings(max_examples=5)
@given(st.integers())
def test_of_seven(n): print("seven", file=open("drawn", "a"))

def test_is_no_law(): pass
"""


def test_laws_draw_more_in_the_long_run(tmp_path):
    assert "2 passed, 1 deselected" in run_tests(tmp_path, LAWS, "-m", "long", "-p", "no:xdist")
    drawn = tmp_path.joinpath("drawn").read_text("utf-8").split()
    assert {"five": 30, "seven": 7} == Counter(drawn)


MARK = re.compile(r"^@pytest\.mark\.slow\((.*)\)$", re.MULTILINE)


def test_few_tests_are_slow_and_each_says_why():
    files = Path(__file__).parent.rglob("test_*.py")
    reasons = [why for path in files for why in MARK.findall(path.read_text("utf-8"))]
    reasons.remove('"it spins"')  # of WORK
    assert 1 <= len(reasons) <= MOST
    assert all(why.startswith('"') and len(why) > 10 for why in reasons), reasons
