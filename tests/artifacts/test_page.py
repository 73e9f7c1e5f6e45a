"""The examples of specs/artifacts.md, in a process of their own: what is kept depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import aotlite

PAGE = Path(__file__).parents[2] / "specs" / "artifacts.md"
RUN = f"import doctest; doctest.testfile({str(PAGE)!r}, module_relative=False, raise_on_error=True)"


def test_page_shows_what_its_examples_give(tmp_path: Path) -> None:
    path = str(Path(aotlite.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
