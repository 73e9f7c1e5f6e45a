"""The pipeline of passes on loop programs, in order: fusion, axes, rewrites, schedule.

Input: a program of `lower`; output: few large kernels, with long reductions divided for threads,
vector axes chosen and lanes set. Each pass may be left out: the program means the same without it.
Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from aotlite.backends.loops.passes.axis_order import ordered
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fill_forwarding import with_fills
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.fusion.row_column_reduction import with_columns
from aotlite.backends.loops.passes.sign_analysis import with_signs
from aotlite.backends.loops.passes.split_reductions import split
from aotlite.backends.loops.passes.vectorization import scheduled
from aotlite.backends.loops.program import LoopProgram


def improved(program: LoopProgram, threads: int) -> LoopProgram:
    """Returns the program ready for a printer, for this number of threads."""
    program = canonical(ordered(fused(program)))
    program = with_signs(with_fills(with_columns(program, threads)))
    return scheduled(split(program, threads))
