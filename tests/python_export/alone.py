"""Trains the demo's step in another Python, which has NumPy alone, and compares the losses.

    python -m venv /tmp/alone && /tmp/alone/bin/pip install numpy
    python -m tests.python_export.alone /tmp/alone/bin/python --steps 20

Prints the packages of that Python and the largest difference; exit status 1 if it exceeds 1e-5.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import aotlite as al
from aotlite.cli.digits import EAGER, Session, step
from aotlite.data import load_digits

TRAIN = """
import importlib.metadata, importlib.util, json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import digits_step
data = np.load(sys.argv[1] + "/batches.npz")
count = len(data) // 2
losses = [digits_step.step(data[f"x{i}"], data[f"y{i}"]).item() for i in range(count)]
packages = sorted(each.name for each in importlib.metadata.distributions())
print(json.dumps([losses, packages, importlib.util.find_spec("aotlite") is None]))
"""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    session = Session(EAGER, load_digits(), 0, 64)
    batches = [batch for batch, _ in zip(session.epoch(), range(given.steps), strict=False)]
    twin = session.twin(EAGER)
    arrays = {f"x{i}": images.numpy() for i, (images, _) in enumerate(batches)}
    arrays |= {f"y{i}": labels.numpy() for i, (_, labels) in enumerate(batches)}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "digits_step.py")
        al.compile(step).to_python(path, args=(twin.model, twin.optimizer, *batches[0]))
        np.savez(Path(folder) / "batches.npz", **arrays)  # type: ignore[arg-type]
        command = [given.python, "-I", "-c", TRAIN, folder]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    losses, packages, is_alone = json.loads(run.stdout)
    expected = [step(twin.model, twin.optimizer, *batch).item() for batch in batches]
    largest = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
    print(f"packages: {', '.join(packages)}; aotlite is {'absent' if is_alone else 'there'}")
    print(f"{len(losses)} steps; the last loss is {losses[-1]:.6f}, expected {expected[-1]:.6f}")
    print(f"largest relative difference {largest:.1e}")
    return int(largest > 1e-5 or not is_alone)


if __name__ == "__main__":
    sys.exit(main())
