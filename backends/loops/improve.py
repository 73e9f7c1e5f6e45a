"""All passes on loop programs, in order.

Input: what `lower` gives; output: a program of few good kernels, in which reductions of few long
rows are divided, vector axes chosen and lanes set. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from aotlite.backends.loops.canonical import canonical
from aotlite.backends.loops.columns import with_columns
from aotlite.backends.loops.filled import with_fills
from aotlite.backends.loops.fuse import fused
from aotlite.backends.loops.order import ordered
from aotlite.backends.loops.program import Program
from aotlite.backends.loops.schedule import scheduled
from aotlite.backends.loops.signs import with_signs
from aotlite.backends.loops.split import split


def improved(program: Program, threads: int) -> Program:
    """The program as a printer should have it, for so many threads."""
    program = canonical(ordered(fused(program)))
    program = with_signs(with_fills(with_columns(program, threads)))
    return scheduled(split(program, threads))
