"""Collectives are MPI's, where mpi4py and mpich are installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al

SCRIPT = Path(__file__).with_name("mpi_ranks.py")


def launcher() -> str | None:
    """MPI's program that starts ranks: on the path, or beside this Python."""
    beside = Path(sys.executable).with_name("mpiexec")
    return shutil.which("mpiexec") or (str(beside) if beside.exists() else None)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_give_what_mpi_gives(ranks: int) -> None:
    """COL-3: of whole numbers, whose sums are exact in any order."""
    start = launcher()
    if start is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py or mpiexec is not installed")
    rows = np.random.default_rng(ranks).integers(-9, 10, (ranks, 4, 3)).astype(np.float64)
    command = [start, "-n", str(ranks), sys.executable, str(SCRIPT), json.dumps(rows.tolist())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    tensors = [al.from_numpy(row) for row in rows]
    for rank, expected in enumerate(json.loads(done.stdout)):
        for name, value in expected.items():
            assert ours(name, tensors)[rank].tolist() == value, (name, rank)


def ours(name: str, tensors: list[Any]) -> Any:
    collective, _, op = name.partition(" ")
    if op:
        return getattr(al, collective)(tensors, op=op)
    more = {"broadcast": (len(tensors) - 1,)}.get(collective, ())
    return getattr(al, collective)(tensors, *more)
