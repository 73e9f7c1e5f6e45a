"""The command of the benchmarks that compare with other libraries, row by row."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
from rich.console import Console

from aotlite.cli import number
from benchmarks.common import ONE_THREAD, installed_peers, machine, wide_console
from benchmarks.loops import Action, Medians, measure


@attrs.frozen(kw_only=True)
class Command:
    """The measurements of a benchmark, and its printer."""

    prog: str
    description: str | None
    rows: Mapping[str, Callable[[Sequence[str]], Mapping[str, Action]]]
    """Name -> a function from the peers to the actions of each column."""
    peers: tuple[str, ...]
    report: Callable[[Medians, Console], None]

    def run(self, argv: Sequence[str] | None) -> None:
        """Measures and prints; see `--help`."""
        args = self._parser().parse_args(argv)
        os.environ.update(ONE_THREAD)  # read at the import of a peer, which is later
        console = wide_console()
        peers = [] if args.ours_only else installed_peers(self.peers, console)
        rows = {name: row for name, row in self.rows.items() if name in (args.rows or self.rows)}
        found = measure({name: partial(row, peers) for name, row in rows.items()}, args.rounds)
        for line in machine():
            console.print(line)
        self.report(found, console)
        if args.json:
            text = json.dumps({"machine": list(machine()), "microseconds": found}, indent=1)
            args.json.write_text(text + "\n", "utf-8")

    def _parser(self) -> argparse.ArgumentParser:
        names = list(self.rows)
        parser = argparse.ArgumentParser(prog=self.prog, description=self.description)
        add = parser.add_argument
        add("--rows", action="append", choices=names, metavar="ROW", help=f"of {names}; repeatable")
        add("--rounds", type=number(1), default=15, help="turns of each library")
        add("--ours-only", action="store_true", help=f"without {' and '.join(self.peers)}")
        add("--json", type=Path, metavar="FILE", help="write what was measured there")
        return parser
