"""All passes on a program that a GPU is to run.

Input: what `lower` gives; output: a program as the CUDA printer should have it, for a target.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.improve import improved
from aotlite.backends.loops.program import Program


def improved_for(program: Program, target: Target) -> Program:
    """The program with its work divided for a GPU's multiprocessors."""
    return improved(program, target.multiprocessors)
