"""The backend `cpu`: graphs as C, compiled by the machine's compiler.

Spec: `specs/cpu_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from aotlite.backends.cpu.compiled_program import execution, key_of_text, text_of
from aotlite.backends.cpu.emit.c_text import ProgramText
from aotlite.backends.cpu.graph_cache import remember, remembered
from aotlite.backends.cpu.graph_key import graph_key
from aotlite.backends.cpu.interpreter_schedule import PATIENCE, InterpreterSchedule
from aotlite.backends.cpu.runtime.result_memory import RESULTS
from aotlite.backends.cpu.runtime.runtime_library import begin_loading
from aotlite.backends.loops.interpreter.program_interpreter import Abandoned, interpreted
from aotlite.backends.loops.program import LoopProgram
from aotlite.backends.loops.program_run import Execute, Kernels, ProgramRun
from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler import failure_reports
from aotlite.backends.native.compiler.toolchain import compiler_problem, find_compiler, is_known
from aotlite.backends.native.libraries.background import in_background
from aotlite.backends.native.warn_once import warn_once
from aotlite.backends.protocol import Run
from aotlite.backends.threads import get_num_threads
from aotlite.ir.arrays.device import CPU as CPU_DEVICE
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta

if TYPE_CHECKING:
    from aotlite.backends.loops import backend as loops
    from aotlite.backends.loops.passes import pass_order as improve
else:  # graphs that are remembered do not need these
    loops = deferred("aotlite.backends.loops.backend")
    improve = deferred("aotlite.backends.loops.passes.pass_order")

T = TypeVar("T")


@attrs.frozen
class CpuBackend:
    """Compiles graphs to C.

    `wait`: whether `compile` returns when the code is there; else calls run on the interpreter
    until it is. `contract`: whether functions (exp, erf, ...) round a sum and its product once;
    without it results are the interpreter's, bit for bit.
    """

    wait: bool = attrs.field(default=True, kw_only=True)
    contract: bool = attrs.field(default=True, kw_only=True)

    name = "cpu"
    is_compact = True
    """What it compiles has a compact face (`backends.calling_convention`)."""
    fuses = True
    trusted = True

    def without_waiting(self) -> CpuBackend:
        """One that compiles in the background."""
        return attrs.evolve(self, wait=False)

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph, which may end with copies into inputs."""
        if not is_of_cpu(graph):
            raise BackendError(
                f"cpu: graph {graph.name} has values on other devices, expected cpu alone; compile "
                "with backend='auto'"
            )
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
            except BackendError as error:
                if self.wait:
                    raise
                failure_reports.forget(error)
        program = _program(graph, threads, clock)
        text = clock.timed("printing", text_of, program)
        kernels = Kernels(lambda: program, *_shown(text, clock))
        make = partial(clock.timed, "C compiler", self._made, key, text)
        if self.wait:
            return _run(graph, text, make(), kernels)
        if self._is_compiled(text):
            try:
                return _run(graph, text, make(), kernels)
            except BackendError as error:  # it did not load, nor what was compiled in its place
                failure_reports.forget(error)
        make = partial(clock.timed, "C compiler", partial(execution, contract=self.contract), text)
        return _in_background(graph, text, program, kernels, make, partial(remember, key, text))

    def _is_compiled(self, text: ProgramText) -> bool:
        """Whether the library is there, as far as that is known without trying a compiler."""
        if not is_known() or find_compiler() is None:
            return False
        return artifact_cache.found(key_of_text(text, contract=self.contract)) is not None

    def _made(self, key: str | None, text: ProgramText) -> Execute:
        """What computes the program, which is remembered from then on."""
        execute = execution(text, contract=self.contract)
        remember(key, text)
        return execute


def _program(graph: Graph, threads: int, clock: _Clock) -> LoopProgram:
    """The program that is printed."""
    program = clock.timed("lowering", loops.program_of, graph)
    return clock.timed("fusing", improve.improved, program, threads)


def _shown(text: ProgramText, clock: _Clock) -> tuple[str, dict[str, float]]:
    return text.printed.text, clock.seconds


def _run(graph: Graph, text: ProgramText, execute: Execute, kernels: Kernels) -> ProgramRun:
    run = ProgramRun(graph, text.program, execute, RESULTS.allocator)
    run.kernels = kernels
    return run


def _in_background(
    graph: Graph,
    text: ProgramText,
    program: LoopProgram,
    kernels: Kernels,
    make: Callable[[], Execute],
    keep: Callable[[], None],
) -> ProgramRun:
    """The run that interprets until what is made is there, which is kept after that."""

    def made() -> Execute | None:
        if failure_reports.given_up() is not None:
            return None
        try:
            execute = make()
        except BackendError as error:
            failure_reports.note(error)
            failure_reports.forget(error)
            raise
        in_background(keep)
        return execute

    job = in_background(made)

    def is_made() -> bool:
        return job.done() and job.exception() is None and job.result() is not None

    interpret = interpreted(program)
    patience = [PATIENCE]

    def until_ready(arrays: list[Any]) -> Any:
        if not job.done():
            sharing = InterpreterSchedule(job, patience[0])

            def stop() -> bool:
                sharing.go_on()
                return is_made()

            try:
                return interpret(arrays, stop, sharing.before_the_last)
            except Abandoned:
                pass  # what was made is faster than the rest of the interpretation
            finally:
                patience[0] = sharing.patience
        if is_made():
            run.use(job.result() or interpret)
        else:
            run.use(interpret)
            _tell_staying(run.graph.name, job.exception())
        return run.execute(arrays)

    run = _run(graph, text, until_ready, kernels)
    return run


def _tell_staying(name: str, error: BaseException | None) -> None:
    """Warns that a graph is not compiled. What is wrong for all graphs is told once."""
    why = problem() if is_known() else None
    if why is not None:
        warn_once(why)
    elif isinstance(error, BackendError):
        failure_reports.tell(error, f"graph {name} stays with the interpreter")
    else:
        warn_once(f"aotlite: {error}; graph {name} stays with the interpreter")


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


def is_of_cpu(graph: Graph) -> bool:
    """Whether all values of a graph are on the CPU."""
    for node in graph.nodes:
        metas = node.meta if type(node.meta) is tuple else (node.meta,)
        if any(type(meta) is TensorMeta and meta.device is not CPU_DEVICE for meta in metas):
            return False
    return True


def problem() -> str | None:
    """The warning where no compiler works, or the one that works is not asked again."""
    why = compiler_problem()
    if why is not None:
        return f"aotlite: {why}; until then graphs run by NumPy"
    return failure_reports.given_up()


CPU: CpuBackend = CpuBackend()
