"""What the commands of this folder share: options, a folder for the cache, the report."""

from __future__ import annotations

import argparse
import linecache
import os
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol


class Figures(Protocol):
    """What a command has counted."""

    @property
    def wrong(self) -> Sequence[str]:
        """The failures in words."""

    def text(self) -> str:
        """The figures in a line."""


def options(description: str | None, what: str, count: int) -> argparse.ArgumentParser:
    """The options of all commands: how many of `what`, from which seed, how many failures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{what}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="how many failures to print")
    return parser


@contextmanager
def empty_cache(*, in_memory: bool = True) -> Iterator[Path]:
    """A block with a new folder, in which the caches are. Each entry is synced: in memory that
    takes no time of a disk."""
    memory = "/dev/shm" if in_memory and os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        os.environ["AOTLITE_CACHE"] = os.path.join(folder, "kept")
        yield Path(folder)


def run_as_module(text: str, name: str, file: str) -> types.ModuleType:
    """The module of a text that has run, under a name and the path of a file that need not be:
    its functions have sources, which captures read."""
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), module.__dict__)
    return module


def report(figures: Figures, reasons: Counter[str], show: int) -> NoReturn:
    """Prints the figures, the commonest reasons and the first failures, and exits: 1 with any."""
    print(figures.text())
    for reason, count in reasons.most_common(20):
        print(f"  {count} x {reason}")
    for each in figures.wrong[:show]:
        print(f"\nWRONG: {each}")
    raise SystemExit(bool(figures.wrong))
