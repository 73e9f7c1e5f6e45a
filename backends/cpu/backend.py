"""The backend `cpu`: graphs as C, compiled by the machine's compiler; and `auto`.

Spec: `specs/cpu_backend.md`.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import attrs

from aotlite.backends.cpu.background import in_background
from aotlite.backends.cpu.executing import execution, text_of
from aotlite.backends.cpu.memory import RESULTS
from aotlite.backends.cpu.runtime import get_num_threads
from aotlite.backends.cpu.toolchain import compiler_problem, find_compiler
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.improve import improved
from aotlite.backends.loops.interpreter import interpreted
from aotlite.backends.loops.running import ProgramRun
from aotlite.backends.protocol import Run
from aotlite.backends.reference import REFERENCE
from aotlite.ir.graph import Graph


@attrs.frozen
class CpuBackend:
    """Compiles graphs to C.

    `wait`: whether `compile` returns when the code is there; else calls run on the interpreter
    until it is. `contract`: whether a product and a sum may be rounded once; without it results are
    the interpreter's, bit for bit.
    """

    wait: bool = attrs.field(default=True, kw_only=True)
    contract: bool = attrs.field(default=True, kw_only=True)

    name = "cpu"
    is_compact = True
    """What it compiles has a compact face (`backends.values`)."""
    fuses = True
    trusted = True

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph, which may end with copies into inputs."""
        program = improved(program_of(graph), get_num_threads())
        text = text_of(program)
        make = partial(execution, text, contract=self.contract)
        if self.wait:
            return ProgramRun(graph, program, make(), RESULTS.allocator)
        interpret = interpreted(program)
        run = ProgramRun(graph, program, interpret, RESULTS.allocator)
        job = in_background(make)

        def until_ready(arrays: list[Any]) -> Any:
            if not job.done():
                return interpret(arrays)
            run.use(job.result())
            return job.result()(arrays)

        run.use(until_ready)
        return run


class AutoBackend:
    """The fastest backend that works here: `cpu`, or the reference without a C compiler."""

    name = "auto"
    is_compact = True
    trusted = True

    @property
    def fuses(self) -> bool:
        return find_compiler() is not None

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph."""
        problem = compiler_problem()
        if problem is None:
            return CPU.compile(graph)
        warnings.warn(f"aotlite: {problem}; until then graphs run op by op", stacklevel=2)
        return REFERENCE.compile(graph)


CPU = CpuBackend()
AUTO = AutoBackend()
