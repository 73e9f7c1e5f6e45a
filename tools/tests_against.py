"""Runs tests of this checkout against the library of another commit.

`python tools/tests_against.py COMMIT TEST ...` prints for each test whether it passes with either
library: a test of a mended fault fails with the commit's and passes with this one's. The library's
folders are the commit's, all others this checkout's, in a temporary folder. Options of pytest
(`-k`, `-m long`) follow the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from source_files import PACKAGES, ROOT

RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
SHARED = ("setup.cfg", "README.md", "tests", "examples", "benchmarks", "specs", "docs", "tools")
"""The folders and files that tests read besides the library, from this checkout."""


def main() -> int:
    """0 if each test fails against the commit's library and passes against this one; else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the commit whose library the tests are run against")
    parser.add_argument("tests", nargs="+", metavar="TEST", help="a test as pytest names it")
    given, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        _lay_out(given.commit, Path(folder))
        rows = [
            (test, _counts(Path(folder), test, options), _counts(ROOT, test, options))
            for test in given.tests
        ]
    for test, there, here in rows:
        print(f"{test}: {given.commit[:7]}: {_told(there)}; here: {_told(here)}")
    return int(not all(_fails(there) and _passes(here) for _, there, here in rows))


def _lay_out(commit: str, folder: Path) -> None:
    """The commit's library and this checkout's other folders, in a folder."""
    archive = subprocess.run(
        ["git", "archive", commit, *PACKAGES], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    path = folder / "library.tar"
    path.write_bytes(archive)
    with tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
    path.unlink()
    for name in SHARED:
        # Copies: pytest would follow links back to the checkout and test that.
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def _counts(folder: Path, test: str, options: list[str]) -> dict[str, int]:
    """Outcome -> how many tests had it; an error while tests were collected is one."""
    plain = ("-q", "-rA", "--tb=no", "-p", "no:cacheprovider")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, test, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    counts: dict[str, int] = {}
    for line in run.stdout.splitlines():
        if match := RESULT.match(line):
            counts[match[1]] = counts.get(match[1], 0) + 1
    return counts


def _told(counts: dict[str, int]) -> str:
    told = [f"{count} {outcome.lower()}" for outcome, count in sorted(counts.items())]
    return ", ".join(told) or "nothing ran"


def _fails(counts: dict[str, int]) -> bool:
    return bool(counts.keys() & {"FAILED", "ERROR"})


def _passes(counts: dict[str, int]) -> bool:
    return "PASSED" in counts and not _fails(counts)


if __name__ == "__main__":
    sys.exit(main())
