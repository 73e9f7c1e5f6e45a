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
from aotlite.backends.loops.size_versions import SizedVersions, versions_of
from aotlite.backends.threads import get_num_threads
from aotlite.ir.graph import Graph
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.proving import Demands, proving, untold
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
    ) -> SizedVersions[SizedInterpreter] | None:
        """Returns the run of a graph with symbolic sizes, for all of them. None if a question about
        sizes has no answer for all of them, after `refused` got the reason."""
        table = table_of_graph(graph)

        def made(demands: Demands) -> SizedInterpreter:
            return SizedInterpreter(graph, sized_program(graph, table, demands))

        return versions_of(graph, table, made, self.compile, refused)


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


def table_of_graph(graph: Graph) -> SymbolTable | None:
    """Returns the table of the symbols in metas and arguments of a graph; None without any."""
    return table_in([value for node in graph.nodes for value in (node.meta, *node.args)])


def sized_program(graph: Graph, table: SymbolTable | None, demands: Demands) -> LoopProgram:
    """Returns the fused program of a graph with symbolic sizes, for all that meet what it demands.
    It does not depend on the number of threads. Raises Unproved where there is none."""
    with proving(table, demands=demands):
        return improved(program_of(graph), ANY_THREADS)


LOOPS = LoopsBackend()


def program_of(graph: Graph) -> LoopProgram:
    """Returns the loop program of a pure graph before any pass: about one kernel an op."""
    return lower(expand(graph))
