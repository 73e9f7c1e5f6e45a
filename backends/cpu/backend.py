"""The backend `cpu`: graphs as C, compiled by the machine's compiler; and `auto`.

Spec: `specs/cpu_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import attrs

from aotlite.backends.cpu import store
from aotlite.backends.cpu.background import in_background
from aotlite.backends.cpu.executing import execution, key_of_text, text_of
from aotlite.backends.cpu.graph_keys import graph_key
from aotlite.backends.cpu.memory import RESULTS
from aotlite.backends.cpu.once import tell_once
from aotlite.backends.cpu.printed import Text
from aotlite.backends.cpu.remembered import remember, remembered
from aotlite.backends.cpu.runtime import begin_loading, get_num_threads
from aotlite.backends.cpu.toolchain import compiler_problem, find_compiler
from aotlite.backends.loops.interpreter import interpreted
from aotlite.backends.loops.program import Program
from aotlite.backends.loops.running import Execute, Kernels, ProgramRun
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
        threads = get_num_threads()
        key = clock.timed("key", graph_key, graph, threads)
        text = clock.timed("looking up", remembered, key)
        if text is not None and (self.wait or self._is_compiled(text)):
            kernels = Kernels(partial(_program, graph, threads, clock), *_shown(text, clock))
            try:
                execute = clock.timed("C compiler", execution, text, contract=self.contract)
                return _run(graph, text, execute, kernels)
            except BackendError:
                if self.wait:
                    raise
        program = _program(graph, threads, clock)
        text = clock.timed("printing", text_of, program)
        kernels = Kernels(lambda: program, *_shown(text, clock))
        make = partial(clock.timed, "C compiler", self._made, key, text)
        if self.wait:
            return _run(graph, text, make(), kernels)
        return _in_background(_run(graph, text, interpreted(program), kernels), make)

    def _is_compiled(self, text: Text) -> bool:
        return store.found(key_of_text(text, contract=self.contract)) is not None

    def _made(self, key: str | None, text: Text) -> Execute:
        """What computes the program, which is remembered from then on."""
        execute = execution(text, contract=self.contract)
        remember(key, text)
        return execute


def _program(graph: Graph, threads: int, clock: _Clock) -> Program:
    """The program that is printed."""
    # Graphs that are remembered do not need these.
    from aotlite.backends.loops.backend import program_of
    from aotlite.backends.loops.improve import improved

    program = clock.timed("lowering", program_of, graph)
    return clock.timed("fusing", improved, program, threads)


def _shown(text: Text, clock: _Clock) -> tuple[str, dict[str, float]]:
    return text.printed.text, clock.seconds


def _run(graph: Graph, text: Text, execute: Execute, kernels: Kernels) -> ProgramRun:
    run = ProgramRun(graph, text.program, execute, RESULTS.allocator)
    run.kernels = kernels
    return run


def _in_background(run: ProgramRun, make: Callable[[], Execute]) -> ProgramRun:
    """The run, which computes as it does until what is made is there."""
    interpret = run.execute
    job = in_background(make)

    def until_ready(arrays: list[Any]) -> Any:
        if not job.done():
            return interpret(arrays)
        error = job.exception()
        execute = interpret if error is not None else job.result()
        if error is not None:
            tell_once(f"aotlite: {error}; graph {run.graph.name} stays with the interpreter")
        run.use(execute)
        return execute(arrays)

    run.use(until_ready)
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
