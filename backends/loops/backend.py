"""The backend `loops`: graphs become fused loop programs, which the NumPy interpreter runs.

It needs no compiler, and is the oracle with which compiled kernels are compared. Spec:
`specs/loops.md`.
"""

from __future__ import annotations

from aotlite.backends.calling_convention import Run
from aotlite.backends.loops.interpreter.program_interpreter import interpreted
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.lowering.expansion import expand
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import LoopProgram
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.backends.threads import get_num_threads
from aotlite.ir.graph import Graph


class LoopsBackend:
    """Runs graphs as loop programs on the interpreter."""

    name = "loops"
    fuses = True
    trusted = True

    def __repr__(self) -> str:
        return "LoopsBackend()"

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph, which may end with copies into inputs."""
        program = improved(program_of(graph), get_num_threads())
        return ProgramRun(graph, program, interpreted(program))


LOOPS = LoopsBackend()


def program_of(graph: Graph) -> LoopProgram:
    """Returns the loop program of a pure graph before any pass: about one kernel an op."""
    return lower(expand(graph))
