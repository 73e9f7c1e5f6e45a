"""The ledger: JSON lines. First the header: version, seed, commit, digest of the code, the sample.

Then a line for each verdict; of two for one mutant the later one counts. An incomplete last line is
left out, and its mutant runs again.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import attrs

from tests.mutation.child import Verdict
from tests.mutation.reach import digest
from tests.mutation.sample import sample
from tests.mutation.sites import Mutant
from tests.mutation.targets import ROOT, STRATA

VERSION = 1


class LedgerError(ValueError):
    """Raised for a ledger that cannot be continued; the message says why, and what to do."""


@attrs.define
class Ledger:
    """The sample, and the present verdicts."""

    path: Path
    header: dict[str, Any]
    mutants: list[Mutant]
    verdicts: dict[str, Verdict] = attrs.field(factory=dict)

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        """Writes a verdict."""
        self.verdicts[mutant.key] = verdict
        with self.path.open("a") as file:
            # First ends an incomplete line, if there is one.
            file.write("\n" + json.dumps({"key": mutant.key, **attrs.asdict(verdict)}) + "\n")

    def missing(self) -> list[Mutant]:
        """The mutants without a verdict."""
        return [mutant for mutant in self.mutants if mutant.key not in self.verdicts]

    def survivors(self) -> list[Mutant]:
        """The mutants that nothing caught."""
        found = [mutant for mutant in self.mutants if mutant.key in self.verdicts]
        return [mutant for mutant in found if not self.verdicts[mutant.key].is_caught]


def begin(path: Path, seed: int, each: int) -> Ledger:
    """A new ledger with a new sample."""
    mutants = sample(seed, each)
    header = {
        "version": VERSION,
        "seed": seed,
        "each": each,
        "commit": _commit(),
        "digest": digest(),
        "mutants": [attrs.asdict(mutant) for mutant in mutants],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(header) + "\n")
    return Ledger(path, header, mutants)


def read(path: Path) -> Ledger:
    """The ledger of a file. Raises LedgerError if it is of other code or another version."""
    lines = [line for line in path.read_text().splitlines() if line]
    header = _parsed(lines[0]) if lines else None
    if header is None or header.get("version") != VERSION:
        raise LedgerError(f"{path}: its header is not of version {VERSION}, expected that: begin")
    if header["digest"] != digest():
        text = f"{path}: it is of other code ({header['commit']}), expected this: check that out"
        raise LedgerError(text + ", or begin another")
    ledger = Ledger(path, header, [Mutant(**each) for each in header["mutants"]])
    for line in lines[1:]:
        found = _parsed(line)
        if found is not None:
            key = found.pop("key")
            ledger.verdicts[key] = Verdict(**found)
    return ledger


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def strata() -> tuple[str, ...]:
    """The names of the strata, in order."""
    return tuple(STRATA)
