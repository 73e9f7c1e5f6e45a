"""The backend `loops`: graphs become fused loop programs, which the NumPy interpreter runs.

It needs no compiler, and is the oracle with which compiled kernels are compared. Spec:
`specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aotlite.backends.calling_convention import Run
from aotlite.backends.loops.interpreter.program_interpreter import interpreted
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.lowering.expansion import expand
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import LoopProgram
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.threads import get_num_threads
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.proving import Unproved, proving, untold
from aotlite.ir.symbols.table import SymbolTable

ANY_THREADS = 4
"""The number of threads for which programs of any size are made."""


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

    def compile_sized(
        self, graph: Graph, refused: Callable[[str], None] = untold
    ) -> SizedInterpreter | None:
        """Returns the run of a graph with symbolic sizes, for all of them. None if a question about
        sizes has no answer for all of them, after `refused` got the reason."""
        table = table_in([node.meta for node in graph.nodes])
        program = sized_program(graph, table, refused)
        return None if program is None else SizedInterpreter(graph, program)


class SizedInterpreter:
    """A loop program with symbolic sizes, which the interpreter runs with numbers put in."""

    def __init__(self, graph: Graph, program: LoopProgram) -> None:
        self.graph = graph
        self.program = program

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols."""
        put = SizesAt(sizes)
        program = put.program(self.program)
        return ProgramRun(put.graph(self.graph), program, interpreted(program))


def sized_program(
    graph: Graph, table: SymbolTable | None, refused: Callable[[str], None]
) -> LoopProgram | None:
    """Returns the fused program of a graph with symbolic sizes; None, after `refused` got the
    reason, where no program is right for all sizes. It does not depend on the number of threads."""
    try:
        with proving(table):
            return improved(program_of(graph), ANY_THREADS)
    except (Unproved, UnsupportedError) as problem:
        refused(unproved(graph, problem))
    return None


def unproved(graph: Graph, problem: Exception) -> str:
    """Returns the reason why a graph has no kernels for all sizes."""
    return f"{graph.name}: kernels for all sizes would have to know {problem}"


LOOPS = LoopsBackend()


def program_of(graph: Graph) -> LoopProgram:
    """Returns the loop program of a pure graph before any pass: about one kernel an op."""
    return lower(expand(graph))
