"""The tests for devices, as `benchmarks/gpu.py` runs them: in processes that may lack optree.

Imported as a plugin of pytest's, by its workers too, before any of them imports aotlite.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import optree_stand_in

optree_stand_in.install()

ROOT = Path(__file__).parent.parent
TESTS = ("tests/cuda", "tests/backends/cuda/test_device.py")
WORKERS = 8
"""CuPy's kernels and ours are compiled at first use, which takes a core."""


def tested(seconds: float, tests: Sequence[str] = TESTS) -> dict[str, Any]:
    """What pytest says of tests for devices; an error where it says that not all is well."""
    command = [sys.executable, "-m", "pytest", "-p", __name__]
    command += ["-q", "-m", "gpu", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(min(os.cpu_count() or 1, WORKERS)), "--dist", "worksteal"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(seconds, 1),
        )
    except subprocess.TimeoutExpired as error:
        return {"left out": "out of time", "so far": _text(error.stdout).strip()[-200:]}
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    found: dict[str, Any] = {"result": lines[-1:], "failed": failed[:50]}
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        found["error"] = f"pytest gives {done.returncode}: {' '.join(said[-1:])}"[:400]
    return found


def _text(output: str | bytes | None) -> str:
    """What a process that was stopped has said; Python gives it undecoded."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
