"""The count of PyTorch comparisons is right with and without workers, and without PyTorch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    conftest = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    folder.joinpath("conftest.py").write_text(conftest + conftest_ending, encoding="utf-8")
    folder.joinpath("test_comparisons.py").write_text(COMPARISONS, encoding="utf-8")
    folder.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n    torch\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pytest", "--import-mode=importlib", *options]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    line = r"^PyTorch comparison tests: (\d+) ran, (\d+) skipped$"
    ((ran, skipped),) = re.findall(line, run.stdout, re.MULTILINE)
    return int(ran), int(skipped)


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
