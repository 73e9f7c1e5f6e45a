"""The parent of the child processes in which rules run on a library.

A crash or a hang ends one child, and is the result of one rule; another child goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aotlite.conformance.isolation.messages import unpack
from aotlite.conformance.outcomes import Dies, Faulty, Outcome, Result
from aotlite.conformance.report import Report
from aotlite.conformance.rules import Rule, select
from aotlite.conformance.runner import result_of
from aotlite.ir.errors import ArgumentError, noted

START_SECONDS = 120.0
"""The limit for importing a library, in seconds."""
BEFORE_ANY_CASE = "the start"
PATIENCE = 3
"""The number of rules that a method may end before it counts as absent."""
BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from aotlite.conformance.isolation.child import main
main(sys.argv[2:])
"""
"""The code with which a child starts: it has the parent's module path, then the working folder."""


def examine(
    library: str,
    rules: Sequence[str] | None = None,
    seconds: float = 30.0,
    found: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Runs the rules on a library in child processes, and returns the report.

    `library` is a shipped one's name or `module:Class`. A case of more than `seconds` counts as
    hanging. After a rule that ends the process, a new one goes on with the next rule. `found` is
    called with each result. *Err* `ArgumentError`.
    """
    asked = select(rules)
    outcomes: dict[str, Outcome] = {}
    about = {"name": library, "version": ""}

    def note(rule: Rule, outcome: Outcome) -> None:
        outcomes[rule.id] = outcome
        found(result_of(rule, outcome))

    while left := [rule for rule in asked if rule.id not in outcomes]:
        deadly = deadly_methods(outcomes.values())
        if not_run := _Child(library, deadly, left, seconds).listen(about, note):
            return Report(about["name"], about["version"], (), not_run)
    results = tuple(result_of(rule, outcomes[rule.id]) for rule in asked)
    return Report(about["name"], about["version"], results)


def deadly_methods(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Returns method -> how it ended the process, for those that have ended `PATIENCE` processes.

    >>> deadly_methods([Dies("crashes (signal 11)", "()", "flip")] * 3 + [Dies("hangs", "()")])
    {'flip': 'crashes (signal 11)'}
    """
    deaths = [each for each in outcomes if isinstance(each, Dies) and each.method]
    counts = Counter(each.method for each in deaths)
    return {each.method: each.how for each in deaths if counts[each.method] >= PATIENCE}


class _Child:
    """One child process, its rules, and its messages."""

    def __init__(
        self, library: str, deadly: dict[str, str], rules: Sequence[Rule], seconds: float
    ) -> None:
        path = json.dumps([*sys.path, os.getcwd()])
        command = [sys.executable, "-P", "-c", BOOT, path, library, json.dumps(deadly)]
        self.rules = list(rules)
        self.seconds = seconds
        self.case, self.method = BEFORE_ANY_CASE, ""
        self.process = subprocess.Popen(
            [*command, *(rule.id for rule in rules)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # what it starts is ended with it
        )
        self.said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.errors: list[bytes] = []
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-20:], line]

    def listen(self, about: dict[str, str], note: Callable[[Rule, Outcome], None]) -> str:
        """Records outcomes until the process ends. Returns why the library cannot run, or ''."""
        started = False
        try:
            while True:
                message = self.said.get(timeout=self.seconds if started else START_SECONDS)
                match message:
                    case {"name": name, "version": version}:
                        about.update(name=name, version=version)
                        started = True
                    case {"case": case}:
                        self.case, self.method = case, ""
                    case {"call": method}:
                        self.method = method
                    case {"rule": _, "outcome": outcome}:
                        note(self.rules.pop(0), unpack(outcome))
                        self.case, self.method = BEFORE_ANY_CASE, ""
                    case {"not_run": reason}:
                        return str(reason)
                    case {"refused": reason, "notes": notes}:
                        raise noted(ArgumentError(reason), *notes)
                    case {"done": True}:
                        return ""
                    case None:
                        return self._died(started, note)
        except queue.Empty:
            if not started:
                return f"its import hangs (> {START_SECONDS:g} s)"
            return self._note_death(f"hangs (> {self.seconds:g} s)", note)
        finally:
            self._end()
            self.process.wait()

    def _end(self) -> None:
        """Kills the process and its children (not these on Windows)."""
        if not hasattr(os, "killpg"):
            return self.process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _died(self, started: bool, note: Callable[[Rule, Outcome], None]) -> str:
        """Records the end of a process without a message: during the import, or in a case."""
        status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        if not started:
            last = self.errors[-1].decode(errors="replace").strip() if self.errors else ""
            return f"its import ended with {how}: {last}"
        return self._note_death(f"crashes ({how})", note)

    def _note_death(self, how: str, note: Callable[[Rule, Outcome], None]) -> str:
        """Records a death. It counts against the library only if one of its methods was running."""
        death = Dies(how, self.case, self.method)
        outside = Faulty("outside of every method of the library", how, self.case)
        note(self.rules.pop(0), death if self.method else outside)
        return ""
