"""All passes on loop programs, in order.

Input: what `lower` gives; output: a program of few good kernels, in which reductions of few long
rows are divided, vector axes chosen and lanes set. Spec: `specs/fusion.md`.
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
    """The program as a printer should have it, for so many threads."""
    program = canonical(ordered(fused(program)))
    program = with_signs(with_fills(with_columns(program, threads)))
    return scheduled(split(program, threads))
