"""A program's CUDA text compiled for the CPU, and its kernels as launchers take them.

Part of the driver that needs no GPU. Spec: `specs/cuda_host.md`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from aotlite.backends.cuda import hosting
from aotlite.backends.cuda.emit import Launch, Printed

FLAGS = (*hosting.FLAGS, "-O0")


def library_of(printed: Printed, flags: Sequence[str] = ()) -> bytes:
    """The shared library of a text, with an entry for each of its kernels."""
    arguments = {launch.name: len(launch.buffers) for launch in printed.launches}
    with tempfile.TemporaryDirectory() as folder:
        made = hosting.compiled(printed.text, arguments, Path(folder), "-O0", *flags)
        return made.read_bytes()


class HostLibrary:
    """A library that is loaded; its kernels run when they are launched."""

    def __init__(self, path: str, order: int) -> None:
        self.library = hosting.HostLibrary(Path(path))
        self.order = order

    def run(self, launch: Launch, arguments: Sequence[int]) -> None:
        """Runs a kernel on memory at these addresses. Raises what the execution model reports."""
        shared = getattr(launch, "shared", 0)
        self.library.launch(
            launch.name, arguments, launch.blocks, launch.threads, shared=shared, order=self.order
        )
