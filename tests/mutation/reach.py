"""The lines of the deciding code that each case executes, recorded once for all mutants.

A case that does not execute the statement of a mutant cannot fail for it. Each case is traced in a
fork of a process that has imported everything, as caches of one case would hide lines of the next.
Cases that fail without a mutant, or are slow, are left out of the pool, and named.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import inspect
import json
import os
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

import attrs

from tests.mutation.limits import Hang, at_most, limit
from tests.mutation.targets import FILES, ROOT

SLOWEST = 8.0
"""The most seconds of a case in the pool."""

Lines = dict[str, set[int]]


def digest() -> str:
    """The digest of the deciding code, of whose files the record has lines."""
    found = hashlib.sha256()
    for file in FILES:
        found.update((ROOT / file).read_bytes())
    return found.hexdigest()[:16]


@attrs.define
class Reach:
    """The record."""

    digest: str
    seconds: dict[str, float]
    """Passing case -> seconds, without the share of the tracing."""
    failed: dict[str, str]
    """Case -> the reason why it is not used."""
    lines: dict[str, dict[int, list[str]]]
    """File -> line -> the cases that execute it."""

    def cases_of(self, file: str, first: int, last: int) -> list[str]:
        """The cases that execute one of these lines; all cases, if a line runs at import."""
        lines = self.lines.get(file, {})
        span = range(first, last + 1)
        found = dict.fromkeys(case for line in span for case in lines.get(line, ()))
        if not found and not at_import(file).isdisjoint(span):
            return list(self.seconds)
        return list(found)

    def only(self, names: list[str], but: str | None) -> Reach:
        """The record of these cases, without those whose names begin with `but`."""
        seconds = {
            name: self.seconds[name]
            for name in names
            if name in self.seconds and (but is None or not name.startswith(but))
        }
        lines = {
            file: {
                line: [case for case in cases if case in seconds] for line, cases in found.items()
            }
            for file, found in self.lines.items()
        }
        return Reach(self.digest, seconds, {}, lines)

    def save(self, path: Path) -> None:
        """Writes the record."""
        names = {case: i for i, case in enumerate(self.seconds)}
        lines = {
            file: {line: [names[case] for case in cases] for line, cases in found.items()}
            for file, found in self.lines.items()
        }
        whole = {**attrs.asdict(self, recurse=False), "lines": lines}
        path.write_bytes(gzip.compress(json.dumps(whole).encode(), 5))


def load(path: Path) -> Reach:
    """The record of a file; ValueError if it is of other code."""
    whole = json.loads(gzip.decompress(path.read_bytes()))
    if whole["digest"] != digest():
        raise ValueError(f"{path}: the record is of other code, expected one of this: record again")
    names = list(whole["seconds"])
    lines = {
        file: {int(line): [names[i] for i in cases] for line, cases in found.items()}
        for file, found in whole["lines"].items()
    }
    return Reach(**{**whole, "lines": lines})


# ------------------------------------------------------------------------------------- the tracing
@contextmanager
def traced() -> Iterator[Lines]:
    """Collects the lines of the deciding code that a block executes."""
    wanted = {str(ROOT / file): file for file in FILES}
    found: Lines = defaultdict(set)

    def enter(frame: Any, event: str, _: Any) -> Any:
        file = wanted.get(frame.f_code.co_filename)
        if file is None:
            return None
        lines = found[file]

        def step(frame: Any, event: str, _: Any) -> Any:
            lines.add(frame.f_lineno)
            return step

        return step(frame, event, None)

    sys.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(None)


def in_child(action: Callable[[], Any]) -> Any:
    """Returns the result of a function in a fork; None if the fork dies."""
    return begun(action)()


def begun(action: Callable[[], Any]) -> Callable[[], Any]:
    """Runs a function in a fork; returns a function that waits for its result (None if it dies)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as file:
                pickle.dump(action(), file)
        finally:
            os._exit(0)
    os.close(write)

    def result() -> Any:
        with os.fdopen(read, "rb") as file:
            sent = file.read()
        os.waitpid(child, 0)
        return pickle.loads(sent) if sent else None

    return result


# ------------------------------------------------------------------------------------ the recording
def record(chosen: Iterable[str], note: Callable[[int], None] = lambda _: None) -> Reach:
    """Runs cases one by one. To be called in a process that has not imported aotlite."""
    from tests.mutation.families import run, warm_up

    todo = list(chosen)
    _import_all(in_child(lambda: _modules_after(run, todo)) or [])
    warm_up()
    found = Reach(digest(), {}, {}, {})
    for number, case in enumerate(todo):
        _add(found, case, in_child(lambda case=case: _trace(run, case)))  # type: ignore[misc]
        note(number + 1)
    return found


def _import_all(names: list[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _modules_after(run: Callable[[str], None], todo: list[str]) -> list[str]:
    """What running some of the cases imports: by the parent, that its children need not."""
    for case in todo[:: max(1, len(todo) // 40)]:
        try:
            run(case)
        except Exception:  # its failure is recorded in its turn
            continue
    return [name for name in sys.modules if name.startswith(("aotlite", "tests", "numpy", "sympy"))]


def _trace(run: Callable[[str], None], case: str) -> tuple[Lines, float, str | None]:
    limit(20 * SLOWEST)
    start = time.process_time()
    error = None
    with traced() as found:
        try:
            with at_most(4 * SLOWEST):
                run(case)
        except (Exception, Hang) as raised:
            error = f"{type(raised).__name__}: {raised}"[:300]
    seconds = time.process_time() - start
    if error is None and seconds > SLOWEST:
        error = f"slow: {seconds:.1f} s"
    return dict(found), seconds, error


def _add(found: Reach, case: str, traced: tuple[Lines, float, str | None] | None) -> None:
    lines, seconds, error = traced or ({}, 0.0, "its process ended")
    if error is not None:
        found.failed[case] = error
        return
    found.seconds[case] = round(seconds, 4)
    for file, numbers in lines.items():
        by_line = found.lines.setdefault(file, {})
        for number in numbers:
            by_line.setdefault(number, []).append(case)


def merged(parts: list[Reach]) -> Reach:
    """One record of several."""
    whole = parts[0]
    for part in parts[1:]:
        whole.seconds |= part.seconds
        whole.failed |= part.failed
        for file, lines in part.lines.items():
            for line, cases in lines.items():
                whole.lines.setdefault(file, {}).setdefault(line, []).extend(cases)
    return whole


def record_in_parts(chosen: list[str], jobs: int, note: Callable[[int], None]) -> Reach:
    """The record of cases, made by several processes; notes about how many are done."""
    others = [begun(partial(record, chosen[i::jobs])) for i in range(1, jobs)]
    first = record(chosen[::jobs], lambda done: note(done * jobs))
    return merged([first, *(each() for each in others)])


# ------------------------------------------------------------------------------------ the lines
def unreached(known: Reach, file: str) -> dict[int, str]:
    """The lines of functions of a file that no case executes, with their text."""
    text = (ROOT / file).read_text(encoding="utf-8").splitlines()
    inside = {line for code in _codes(file) if _is_function(code) for line in _lines(code)}
    missing = sorted(inside - at_import(file) - set(known.lines.get(file, ())))
    return {number: text[number - 1].strip() for number in missing}


@cache
def at_import(file: str) -> frozenset[int]:
    """The lines of a file that run when it is imported: of the module, and of bodies of classes."""
    codes = [code for code in _codes(file) if not _is_function(code)]
    return frozenset(line for code in codes for line in _lines(code))


def _codes(file: str) -> Iterator[CodeType]:
    stack = [compile((ROOT / file).read_text(encoding="utf-8"), file, "exec")]
    while stack:
        code = stack.pop()
        yield code
        stack += [each for each in code.co_consts if isinstance(each, CodeType)]


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line}
