"""The backend `cpu`: from a graph to a callable, through caches, lowering, fusion, C and a library.

    key of the graph -> cached C text? --yes--> compile or find -> load
                                       --no---> lower -> fuse -> print C -> compile or find -> load
                                                -> remember the C text

In the background (`wait=False`) the interpreter runs calls until the library is there. Spec:
`specs/cpu_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.code_cache import kept_code
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
from aotlite.backends.native.compiler.compiler_failure import CompilerFailure
from aotlite.backends.native.compiler.toolchain import compiler_problem, find_compiler, is_known
from aotlite.backends.native.libraries.background import in_background
from aotlite.backends.native.warn_once import warn_once
from aotlite.backends.protocol import SizedRun
from aotlite.backends.threads import get_num_threads
from aotlite.ir.arrays.device import CPU as CPU_DEVICE
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.logs import looked_up
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.proving import Demands, untold

if TYPE_CHECKING:
    from aotlite.backends.cpu import sized_program as sized
    from aotlite.backends.loops import backend as loops
    from aotlite.backends.loops import size_versions as versions
    from aotlite.backends.loops.passes import pass_order as improve
else:  # a graph found in the cache needs neither
    sized = deferred("aotlite.backends.cpu.sized_program")
    loops = deferred("aotlite.backends.loops.backend")
    versions = deferred("aotlite.backends.loops.size_versions")
    improve = deferred("aotlite.backends.loops.passes.pass_order")

T = TypeVar("T")


@attrs.frozen
class CpuBackend:
    """Compiles graphs to C.

    `wait`: `compile` returns when the library is loaded. Otherwise it returns at once, and calls
    run on the interpreter until then. `contract`: functions (exp, erf, ...) use fma where the CPU
    has it; without it results are the interpreter's, bit for bit.
    """

    wait: bool = attrs.field(default=True, kw_only=True)
    contract: bool = attrs.field(default=True, kw_only=True)

    name = "cpu"
    fuses = True
    trusted = True

    def without_waiting(self) -> CpuBackend:
        """Returns this backend, with compilation in the background."""
        return attrs.evolve(self, wait=False)

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph, which may end with copies into inputs."""
        _require_cpu(graph)
        begin_loading()
        clock = _Clock()
        threads = get_num_threads()
        key = clock.timed("key", graph_key, graph, threads)
        text = clock.timed("looking up", remembered, key)
        looked_up("graph", graph.name, found=text is not None)
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
            written: list[ProgramRun] = []

            def write() -> None:
                written.append(_run(graph, text, _not_compiled, kernels))

            execute = make(write)
            if not written:  # another thread, or the cache, had the library
                write()
            written[0].use(execute)
            return written[0]
        if self._is_compiled(text):
            try:
                return _run(graph, text, make(), kernels)
            except BackendError as error:  # neither it nor a library compiled anew has loaded
                failure_reports.forget(error)
        make = partial(clock.timed, "C compiler", partial(execution, contract=self.contract), text)
        return _in_background(graph, text, program, kernels, make, partial(remember, key, text))

    def compile_sized(
        self, graph: Graph, refused: Callable[[str], None] = untold
    ) -> SizedRun | None:
        """Returns the run of a graph with symbolic sizes, compiled once for all of them. None if a
        question about sizes has no answer for all of them, or the text is too long for the compiler
        (CC-26), after `refused` got the reason."""
        _require_cpu(graph)
        begin_loading()
        table = loops.table_of_graph(graph)

        def made(demands: Demands) -> sized.SizedProgramRun:
            program = loops.sized_program(graph, table, demands)
            text = sized.sized_text(program, table, demands)
            return sized.SizedProgramRun(graph, text, contract=self.contract)

        try:
            return versions.versions_of(graph, table, made, self.compile, refused)
        except CompilerFailure as error:
            if not error.too_long:
                raise
            failure_reports.note(error)
            failure_reports.forget(error)
            refused(str(error))
            return None

    def _is_compiled(self, text: ProgramText) -> bool:
        """Whether the cache has the library. False where that is not known without trying a
        compiler."""
        if not is_known() or find_compiler() is None:
            return False
        return artifact_cache.found(key_of_text(text, contract=self.contract)) is not None

    def _made(
        self, key: str | None, text: ProgramText, meanwhile: Callable[[], None] | None = None
    ) -> Execute:
        """Compiles and loads the program, and adds the graph to the cache. `meanwhile` is called
        while a compiler runs."""
        execute = execution(text, contract=self.contract, meanwhile=meanwhile)
        remember(key, text)
        return execute


def _program(graph: Graph, threads: int, clock: _Clock) -> LoopProgram:
    """Returns the fused program of a graph."""
    program = clock.timed("lowering", loops.program_of, graph)
    return clock.timed("fusing", improve.improved, program, threads)


def _shown(text: ProgramText, clock: _Clock) -> tuple[str, dict[str, float]]:
    return text.printed.text, clock.seconds


def _run(graph: Graph, text: ProgramText, execute: Execute, kernels: Kernels) -> ProgramRun:
    run = ProgramRun(graph, text.program, execute, RESULTS.allocator, kept_code)
    run.kernels = kernels
    return run


def _not_compiled(arrays: list[object]) -> object:
    """Stands for the program in a run that is written while a compiler runs."""
    raise AssertionError("the program is not compiled yet")


def _in_background(
    graph: Graph,
    text: ProgramText,
    program: LoopProgram,
    kernels: Kernels,
    make: Callable[[], Execute],
    keep: Callable[[], None],
) -> ProgramRun:
    """Returns a run that interprets until `make` has returned in the background, and then computes
    with its result. `keep` adds the graph to the cache after that."""

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

    def until_ready(arrays: list[object]) -> object:
        if not job.done():
            sharing = InterpreterSchedule(job, patience[0])

            def stop() -> bool:
                sharing.go_on()
                return is_made()

            try:
                return interpret(arrays, stop, sharing.before_the_last)
            except Abandoned:
                pass  # the library is there: it computes all from the start
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
    """Warns that a graph stays with the interpreter. A problem of all graphs is told once."""
    why = problem() if is_known() else None
    if why is not None:
        warn_once(why)
    elif isinstance(error, BackendError):
        failure_reports.tell(error, f"graph {name} stays with the interpreter")
    else:
        warn_once(f"aotlite: {error}; graph {name} stays with the interpreter")


class _Clock:
    """A clock for the parts of a compilation, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., T], *args: object, **options: object) -> T:
        """Returns the result of a call and notes its time under `name`."""
        begin = perf_counter()
        result = function(*args, **options)
        self.seconds[name] = perf_counter() - begin
        return result


def _require_cpu(graph: Graph) -> None:
    if not is_of_cpu(graph):
        raise BackendError(
            f"cpu: graph {graph.name} has values on other devices, expected cpu alone; compile "
            "with backend='auto'"
        )


def is_of_cpu(graph: Graph) -> bool:
    """Whether all values of a graph lie on the CPU."""
    if graph.header is not None:
        return True
    for node in graph.nodes:
        metas = node.meta if type(node.meta) is tuple else (node.meta,)
        if any(type(meta) is TensorMeta and meta.device is not CPU_DEVICE for meta in metas):
            return False
    return True


def problem() -> str | None:
    """Returns the warning for a machine without a working compiler, or whose compiler failed so
    often that it is not asked again; else None."""
    why = compiler_problem()
    if why is not None:
        return f"aotlite: {why}; until then graphs run by NumPy"
    return failure_reports.given_up()


CPU: CpuBackend = CpuBackend()
