"""The tests for devices, as `benchmarks/gpu.py` runs them: in processes that may lack optree.

Imported as a plugin of pytest's, by its workers too, before any of them imports aotlite.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import optree_stand_in

optree_stand_in.install()

from benchmarks.gpu_guard import ended  # noqa: E402

ROOT = Path(__file__).parent.parent
TESTS = (
    "tests/backends/cuda/test_device.py",
    "tests/cuda",
    "tests/conformance/test_conformance_cupy.py",
)
"""The tests for devices, those of aotlite's kernels first."""
WORKERS = 14
"""The number of processes; kernels are compiled at first use, which takes a core."""
ONE = 120
"""The limit of a test in seconds, if a plugin can end it, as a kernel may never end."""
LAST_WORDS = 15.0
"""The seconds for pytest to print its report after an interrupt."""


def tested(seconds: float, tests: Sequence[str] = TESTS, log: Path | None = None) -> dict[str, Any]:
    """Runs the tests for devices; returns pytest's summary, or an error. The log has all output.

    After `seconds` pytest is interrupted, and the failures so far are returned.
    """
    process = subprocess.Popen(
        [*_command(), *tests],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_hears_interrupts,
    )
    late = False
    try:
        try:
            said, _ = process.communicate(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            late = True
            process.send_signal(signal.SIGINT)
            said = _last_words(process)
    finally:
        ended(process)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(said, "utf-8")
    return found_in(said, process.returncode, late=late)


def _hears_interrupts() -> None:
    """What was started in the background of a shell is deaf to them, and so is what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _last_words(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=LAST_WORDS)[0]
    except subprocess.TimeoutExpired as error:
        output: Any = error.stdout or b""
        return output if isinstance(output, str) else output.decode(errors="replace")


def _command() -> Iterator[str]:
    yield from (sys.executable, "-m", "pytest", "-p", __name__, "-q", "-m", "gpu")
    yield from ("-p", "no:cacheprovider", "--tb=short", "-rfE", "--durations=15")
    if importlib.util.find_spec("xdist") is not None:
        workers = min(os.cpu_count() or 1, WORKERS)
        # One by one, as the first ones take longest.
        yield from ("-n", str(workers), "--dist", "load", "--maxschedchunk", "1")
    if importlib.util.find_spec("pytest_timeout") is not None:
        yield from ("--timeout", str(ONE), "--timeout-method", "thread")


def found_in(said: str, code: int, *, late: bool = False) -> dict[str, Any]:
    """The finding of pytest's output."""
    lines = said.strip().splitlines()
    failed = [line[:300] for line in lines if line.startswith(("FAILED", "ERROR"))]
    counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped)", said)
    }
    found: dict[str, Any] = {"result": lines[-1:], **counts}
    if failed:
        found["failures"] = failed[:50]
    if late:
        found["left out"] = "out of time"
    if code and not (late and not failed):
        found["error"] = f"pytest gives {code}: {' '.join(lines[-1:])}"[:400]
    elif not found.get("passed") and not late:
        found["error"] = "no test has passed"
    return found
