"""Counts the machine instructions of the kernels that a row of `benchmarks.cpu` runs.

    python -m benchmarks.machine_code ROW

It runs the row with an empty disk cache and prints one JSON object, which `benchmarks.against`
reads: for each library that was compiled the number of its instructions. Times of kernels differ by
a third from run to run on a busy machine; their code does not. Needs objdump (binutils).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

INSTRUCTION = re.compile(r"^ +[0-9a-f]+:\t", re.MULTILINE)


def instructions(library: Path) -> int:
    """The machine instructions of a shared library."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return len(INSTRUCTION.findall(found.stdout))


def of_row(row: str) -> dict[str, int]:
    """The instructions by library, named as its graph, of one run of a row."""
    job = {"row": row, "columns": ["aotlite"], "backend": "cpu", "rounds": 1, "check": False}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AOTLITE_CACHE"] = folder
        sys.argv[1:] = [json.dumps(job)]
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_module("benchmarks.kernels.child", run_name="__main__")
        found: Counter[str] = Counter()
        for library in Path(folder).rglob("*.so"):
            found[f"{row}, {library.name.split('.')[0]}: machine code"] += instructions(library)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    print(json.dumps(of_row(*sys.argv[1:])))
