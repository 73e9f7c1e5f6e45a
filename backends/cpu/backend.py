"""The backend `cpu`: graphs as C, compiled by the machine's compiler; and `auto`.

Spec: `specs/cpu_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import attrs

from aotlite.backends.cpu.background import in_background
from aotlite.backends.cpu.executing import execution, text_of
from aotlite.backends.cpu.memory import RESULTS
from aotlite.backends.cpu.once import tell_once
from aotlite.backends.cpu.runtime import begin_loading, get_num_threads
from aotlite.backends.cpu.toolchain import compiler_problem, find_compiler
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.improve import improved
from aotlite.backends.loops.interpreter import interpreted
from aotlite.backends.loops.running import Kernels, ProgramRun
from aotlite.backends.protocol import Run
from aotlite.backends.reference import REFERENCE
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph

T = TypeVar("T")


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

    def without_waiting(self) -> CpuBackend:
        """One that compiles in the background."""
        return attrs.evolve(self, wait=False)

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph, which may end with copies into inputs."""
        begin_loading()
        clock = _Clock()
        program = clock.timed("lowering", program_of, graph)
        program = clock.timed("fusing", improved, program, get_num_threads())
        text = clock.timed("printing", text_of, program)
        kernels = Kernels(program, text.printed.text, clock.seconds)
        make = partial(clock.timed, "C compiler", execution, text, contract=self.contract)
        if self.wait:
            run = ProgramRun(graph, program, make(), RESULTS.allocator)
            run.kernels = kernels
            return run
        interpret = interpreted(program)
        run = ProgramRun(graph, program, interpret, RESULTS.allocator)
        job = in_background(make)

        def until_ready(arrays: list[Any]) -> Any:
            if not job.done():
                return interpret(arrays)
            error = job.exception()
            execute = interpret if error is not None else job.result()
            if error is not None:
                tell_once(f"aotlite: {error}; graph {graph.name} stays with the interpreter")
            run.use(execute)
            return execute(arrays)

        run.use(until_ready)
        run.kernels = kernels
        return run


class _Clock:
    """How long each part of a compilation took, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """The result of a call, whose time is noted."""
        begin = perf_counter()
        result = function(*args, **options)
        self.seconds[name] = perf_counter() - begin
        return result


@attrs.frozen
class AutoBackend:
    """The fastest backend that works here: `cpu`, or the reference without a C compiler."""

    wait: bool = attrs.field(default=True, kw_only=True)

    name = "auto"
    is_compact = True
    trusted = True

    def without_waiting(self) -> AutoBackend:
        """One that compiles in the background."""
        return AutoBackend(wait=False)

    @property
    def fuses(self) -> bool:
        return find_compiler() is not None

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph."""
        problem = compiler_problem()
        if problem is None:
            try:
                return (CPU if self.wait else CPU.without_waiting()).compile(graph)
            except BackendError as error:
                problem = str(error)
        tell_once(f"aotlite: {problem}; graphs run op by op, as with backend='reference'")
        return REFERENCE.compile(graph)


CPU = CpuBackend()
AUTO = AutoBackend()
