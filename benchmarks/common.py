"""What benchmarks share: the machine in words, tables that paste into Markdown."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PEERS = ("torch", "jax")
"""What is compared with, by the name that is imported; either may be missing."""

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
"""Environment of everything that is measured: threads would only wake up for eight elements."""


def is_installed(peer: str) -> bool:
    """Whether a library can be imported, without importing it."""
    return importlib.util.find_spec(peer) is not None


def installed_peers(wanted: Sequence[str], console: Console) -> list[str]:
    """Those of the peers that are here; a line for each that is not."""
    for peer in wanted:
        if not is_installed(peer):
            console.print(f"{peer} is not installed: its columns are left out")
    return [peer for peer in wanted if is_installed(peer)]


def machine() -> Iterator[str]:
    """Lines that say on what was measured."""
    yield f"{_processor()}, {os.cpu_count()} CPUs, {platform.platform()}"
    versions = [f"Python {platform.python_version()}"]
    for name in ("numpy", *PEERS):
        if is_installed(name):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    yield ", ".join(versions)
    yield f"OPENBLAS_CORETYPE {os.environ.get('OPENBLAS_CORETYPE', 'not set')}, one thread"


def _processor() -> str:
    """The processor's name where the system has it in /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(title: str, *columns: str) -> Table:
    """An empty table that prints as Markdown; all columns but the first are aligned right."""
    made = Table(title=title, box=box.MARKDOWN, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=True)
    return made


def wide_console() -> Console:
    """A console as wide as the tables, so that a file or a pipe gets whole lines."""
    width = Console().width
    return Console(width=max(width, 200), highlight=False)


def progress() -> Progress:
    """A bar on standard error, which leaves nothing behind."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
