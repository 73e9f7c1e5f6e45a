"""What kernels are written for: the sizes of a GPU that decide how work is divided.

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Target:
    """A kind of GPU, as its compute capability and its driver describe it."""

    architecture: str
    """As NVRTC names it: "sm_90"."""
    multiprocessors: int
    threads: int = 2048
    """Most threads that a multiprocessor holds at once."""
    registers: int = 65536
    """32-bit registers of a multiprocessor."""
    shared: int = 48 << 10
    """Bytes of shared memory that a block may have."""
    cache: int = 4 << 20
    """Bytes of the cache that all multiprocessors share."""


A100 = Target("sm_80", 108, shared=163 << 10, cache=40 << 20)
H100 = Target("sm_90", 132, shared=227 << 10, cache=50 << 20)
