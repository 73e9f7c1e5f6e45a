"""Printed kernels run under AddressSanitizer, which sees what the header's own checks do not.

Memory of a thread by pointers, and reads behind a buffer by one byte. Long: a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cuda.helpers.hosted import compiler

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler"),
]


def library() -> str:
    """AddressSanitizer's library, of the compiler."""
    command = [str(compiler()), "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("the compiler has no libasan.so")
    return found


def child(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a process says that has the library from its start."""
    options = "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:exitcode=99"
    return subprocess.run(
        [sys.executable, "-m", "tests.backends.cuda.asan_child", str(folder), *arguments],
        env={**os.environ, "LD_PRELOAD": library(), "ASAN_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )


def test_printed_kernels_touch_no_memory_that_is_not_theirs(tmp_path: Path) -> None:
    done = child(tmp_path, "all", "60")
    assert (0, "wrong: []") == (done.returncode, done.stdout.strip()), done.stderr[-4000:]


@pytest.mark.parametrize(
    ("name", "said"),
    [("planted", "stack-buffer-overflow"), ("behind", "heap-buffer-overflow")],
)
def test_a_read_behind_memory_is_seen(name: str, said: str, tmp_path: Path) -> None:
    done = child(tmp_path, name)
    assert 99 == done.returncode and said in done.stderr and f"in {name}" in done.stderr
