"""The target of printed kernels: the sizes of a GPU by which work is divided.

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Target:
    """A kind of GPU."""

    architecture: str
    """NVRTC's name of it: "sm_90"."""
    multiprocessors: int
    threads: int = 2048
    """The most resident threads of a multiprocessor."""
    registers: int = 65536
    """The 32-bit registers of a multiprocessor."""
    shared: int = 48 << 10
    """The most bytes of shared memory of a block."""
    cache: int = 4 << 20
    """The bytes of the second-level cache, which all multiprocessors share."""


A100 = Target("sm_80", 108, shared=163 << 10, cache=40 << 20)
H100 = Target("sm_90", 132, shared=227 << 10, cache=50 << 20)
