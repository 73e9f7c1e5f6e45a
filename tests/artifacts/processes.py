"""Processes that compile one program with one cache, one after the other or at once.

`python -m tests.artifacts.processes --count 8 --rounds 5` starts so many at once on an empty cache,
and checks that all agree, that one entry is left, and that a later process finds it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs

PROGRAM = """
import aotlite as al
from tests.artifacts.looked_up import cached, outcomes

SCALE = {scale}

class Net(al.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = al.nn.Parameter(al.full((3,), 2.0))
    def forward(self, x):
        return (x * self.w * SCALE).sum()

model, x = Net(), al.tensor([1.0, 2.0, 3.0])
with outcomes() as found:
    loss = cached(model)(x)
loss.backward()
print(*found, loss.item(), model.w.grad.tolist())
"""
RESULT = "24.0 [2.0, 4.0, 6.0]"
"""The end of the line that the program prints for a scale of 2."""


@attrs.frozen
class Started:
    """Starts the program in processes with the cache of one folder."""

    folder: Path

    def process(self, scale: float = 2.0, hash_seed: str = "0") -> subprocess.Popen[str]:
        """A process that has been started."""
        path = self.folder / "program.py"
        path.write_text(PROGRAM.format(scale=scale))
        root = str(Path(__file__).parents[2])
        before = os.environ.get("PYTHONPATH", "")
        environment = {
            **os.environ,
            "AOTLITE_CACHE": str(self.folder / "cache"),
            "PYTHONPATH": os.pathsep.join([each for each in (before, root) if each]),
            "PYTHONHASHSEED": hash_seed,
        }
        command = [sys.executable, str(path)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def check_at_once(self, count: int) -> None:
        """Starts so many at once, and checks what they print and leave."""
        for process in [self.process() for _ in range(count)]:
            assert said(process).endswith(RESULT)
        kept = (self.folder / "cache" / "artifacts").glob("*/*.json")
        assert 1 == len([file for file in kept if "outcome" not in file.name])
        assert f"hit {RESULT}" == said(self.process(hash_seed="1"))


def said(process: subprocess.Popen[str]) -> str:
    """What a process printed, when it has ended well."""
    text, _ = process.communicate(timeout=300)
    assert 0 == process.returncode
    return text.strip()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            Started(Path(folder)).check_at_once(args.count)
        print(f"round {number + 1}: {args.count} processes agree, and left one entry", flush=True)


if __name__ == "__main__":
    main()
