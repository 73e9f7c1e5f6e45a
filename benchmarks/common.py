"""The common parts of benchmarks: the machine in words, tables that paste into Markdown."""

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
"""The compared libraries by import name; any may be missing."""

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
"""The environment of all measurements: one thread, as inputs have eight elements."""


def is_installed(peer: str) -> bool:
    """Whether a library can be imported, without importing it."""
    return importlib.util.find_spec(peer) is not None


def installed_peers(wanted: Sequence[str], console: Console) -> list[str]:
    """Returns the installed peers; prints a line for each missing one."""
    for peer in wanted:
        if not is_installed(peer):
            console.print(f"{peer} is not installed: its columns are left out")
    return [peer for peer in wanted if is_installed(peer)]


def machine() -> Iterator[str]:
    """Returns lines about the machine."""
    yield f"{_processor()}, {os.cpu_count()} CPUs, {platform.platform()}"
    versions = [f"Python {platform.python_version()}"]
    for name in ("numpy", *PEERS):
        if is_installed(name):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    yield ", ".join(versions)
    yield f"OPENBLAS_CORETYPE {os.environ.get('OPENBLAS_CORETYPE', 'not set')}, one thread"


def _processor() -> str:
    """The processor's name, if the system has /proc/cpuinfo."""
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


def machine_console() -> Console:
    """A wide console on which the lines about the machine are printed already."""
    console = wide_console()
    for line in machine():
        console.print(line)
    return console


def progress() -> Progress:
    """A progress bar on standard error, which is erased at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
