"""The ledger: the file from which a run continues, in JSON lines.

    {"format": "aotlite fuzz", "version": 1, "aotlite": ..., "seed": ..., ...}   its identity
    {"first": 0, "programs": 50, "cells": [[17, 2], ...], "failures": [...], ...}   a chunk
    {"failures": [...]}   failures of earlier chunks, shrunk

Lines are only added, each in one write, by one process at a time, which holds the lock of the file
`<ledger>.lock`. An incomplete last line is dropped, with a note.
"""

from __future__ import annotations

import json
from pathlib import Path

from filelock import FileLock, Timeout

from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.ir.filesystem import trust
from aotlite.testing.coverage.counts import ALIASING
from aotlite.testing.fuzzing.plan import VERSION, Plan
from aotlite.testing.fuzzing.statistics import Tally

FORMAT = "aotlite fuzz"
BEGIN = b'{"format":"aotlite fuzz"'
"""The start of the first line."""


class Ledger:
    """A ledger that is open for writing. Without a path, nothing is written."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        """Reads the present lines into the tally.

        *Err* `FormatError`; `ArgumentError` if another run writes the file.
        """
        self.file = None
        if plan.ledger is None:
            return
        self.lock = FileLock(f"{plan.ledger}.lock")
        try:
            self.file = open(plan.ledger, "a+b", opener=trust.opener)
            self.lock.acquire(blocking=False)
        except Timeout as error:
            self.close()
            raise _wrong(plan.ledger, "being written by another run", "one for each run") from error
        except OSError as error:
            self.close()
            raise _wrong(plan.ledger, f"gives {error}", "a file that can be written") from error
        try:
            end = _read(plan.ledger, plan.identity(), tally)
            self.file.truncate(end)
            if not end:
                self.write(plan.identity())
        except Exception:
            self.close()
            raise

    def write(self, line: dict[str, object]) -> None:
        """Adds a line."""
        if self.file is not None:
            self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            self.file.flush()

    def close(self) -> None:
        """Releases the lock."""
        if self.file is not None:
            self.file.close()
            self.file = None
            self.lock.release()


def read(path: Path, tally: Tally) -> dict[str, object]:
    """Adds a ledger's chunks to a tally, and returns its plan. *Err* `FormatError`."""
    if not path.is_file():
        raise _wrong(path, "no file", "one that a run has written")
    _read(path, None, tally)
    first = path.read_bytes().split(b"\n", 1)[0]
    identity: dict[str, object] = json.loads(first)
    return identity


def _read(path: Path, identity: dict[str, object] | None, tally: Tally) -> int:
    """Adds the lines to the tally; returns the number of bytes of complete lines."""
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        if not lines and rest[: len(BEGIN)] != BEGIN[: len(rest)]:
            # Not a ledger: a user's file, which must not be truncated.
            raise _other_format(path)
        text = f"{path}: its last line was cut off and is dropped: {len(rest)} bytes"
        tally.notes.append(text)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if number > 1:
                tally.add(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _wrong(path, f"damaged in line {number}", "what a run wrote") from error
        if number == 1:
            _check(path, record, identity)
    if not lines and identity is None:
        raise _wrong(path, "without a line", "what a run wrote")
    return sum(len(line) + 1 for line in lines)


def _check(path: Path, record: object, identity: dict[str, object] | None) -> None:
    """Raises `FormatError` unless a header is of this version and table, and of the plan."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise _other_format(path)
    if record.get("version") != VERSION:
        found = record.get("version")
        raise _wrong(path, f"of version {found}", f"version {VERSION}: begin another ledger")
    missing = [name for name in Plan().identity() if name not in record]
    if missing:
        raise _wrong(path, f"without {missing[0]}", "what a run wrote")
    for name, value in (identity or {"table": ALIASING.mark}).items():
        if record.get(name) != value:
            raise _wrong(path, f"of {name} {record.get(name)!r}", f"{value!r}: {_advice(name)}")


def _other_format(path: Path) -> Exception:
    return _wrong(path, "of another format", "what `aotlite fuzz` wrote")


def _advice(name: str) -> str:
    if name in ("aotlite", "table"):
        return "counts of other programs do not add up; begin another ledger"
    return f"give that {name}, or another ledger"


def _wrong(path: Path, got: str, expected: str) -> Exception:
    kind = ArgumentError if got.startswith(("being", "gives")) else FormatError
    return kind(f"fuzz: the ledger {str(path)!r} is {got}, expected {expected}")
