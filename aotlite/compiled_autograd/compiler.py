"""`CompiledAutograd`: runs backwards by compiled programs, which are cached by the tape's topology.

    roots, sinks ──> Matcher.match (recent programs) ──hit──> run
                     look_at(tape).key in programs?  ──yes──> follow the program
                     record ──> functionalize ──> simplify ──> lower ──> run, cache

Rules: CAG-1, CAG-5, CAG-6, CAG-16, CAG-17, CAG-21. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.compiled_autograd.dynamic.templates import Templates
from aotlite.compiled_autograd.execution import Program, Tape, TapeRun, order_of
from aotlite.compiled_autograd.fast_path.matcher import MISS, Matcher, look_again
from aotlite.compiled_autograd.one_tape.cache import OneTapes
from aotlite.compiled_autograd.one_tape.derivatives import TapesWithHistory
from aotlite.compiled_autograd.one_tape.program import NotOneGraph, OneTape
from aotlite.compiled_autograd.recompile_reasons import why
from aotlite.compiled_autograd.structure import (
    Roots,
    TapeStructure,
    alike,
    look_at,
    shares_gradients,
)
from aotlite.eager.autograd.engine import BackwardPass, run_backward
from aotlite.eager.base.modes import STATE, TapeCompiler, backward_task, eager_mode
from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.collector import collector_paused
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import ArgumentError, GuardError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.verify import verify
from aotlite.ir.logs import NO_COMPILATION, current_id, is_heard, timed, within
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.logs import call_events
from aotlite.pipeline.logs.loggers import TAPE, refresh
from aotlite.pipeline.logs.stage_events import emit_artifact
from aotlite.pipeline.observers import Dump, show_to
from aotlite.pipeline.options import Options, make_options
from aotlite.pipeline.size_regions.kernels import Instance, SizedKernels, with_sizes
from aotlite.pipeline.size_regions.region import PROOF_SECONDS
from aotlite.pipeline.user_code import apply_pass, pass_name
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s9_lower import lower
from aotlite.stages.shared.effect_tokens import unlifted

if TYPE_CHECKING:
    from aotlite.ir.symbols import validation
else:  # for templates alone
    validation = deferred("aotlite.ir.symbols.validation")

LOG = logging.getLogger("aotlite.compiled_autograd")


class _Suspended(threading.local):
    """Per thread: the compilers that running backwards have suspended, outermost first (CAG-24)."""

    def __init__(self) -> None:
        self.tapes: list[TapeCompiler | None] = []


SUSPENDED = _Suspended()
_NUMBERS = itertools.count(1)
"""Numbers of captured tapes, unique in the process (GEN-9)."""
_GRAPHS = itertools.count(1)
"""Numbers of their graphs, as observers and dumps get them."""
_RECENT = 8
"""How many recent programs are tried by their matchers first."""
_MOST_PROGRAMS = 256
"""The largest number of cached programs; the oldest is dropped."""
_MOST_REASONS = 64
_MOST_NOTES = 3


@attrs.define(eq=False)
class Counters:
    """Counts of backwards, by what happened to them (CAG-21)."""

    calls: int = 0
    """All backwards."""
    hits: int = 0
    """Backwards whose topology was cached."""
    resized: int = 0
    """Backwards whose topology was cached for other sizes: no formula ran, since the templates with
    symbolic sizes served them (CAG-5)."""
    captures: int = 0
    """Tapes that were recorded, with symbols or without."""
    branches: int = 0
    """Continuations after a hook or users' Python that were recorded later."""
    whole: int = 0
    """Backwards with calls that were one graph to their end, with `hooks="call"` (CAG-25)."""
    compiles: int = 0
    """Graphs of which a backend made kernels: one size each, or one for all sizes of a template."""
    skipped: int = 0
    """Backwards that the engine ran: in anomaly mode, which checks each node (CAG-17); where the
    tape saved a leaf's `.grad`; and where tapes of the same ops were captured too often."""


HOOKS = ("segments", "call")
"""The values of `hooks=`."""


def checked_hooks(hooks: object) -> str:
    """The way in which hooks are called. Raises ArgumentError if there is none of this name."""
    if hooks not in HOOKS:
        raise ArgumentError(
            f"compiled_autograd: hooks is {hooks!r}, expected {' or '.join(map(repr, HOOKS))}"
        )
    return str(hooks)


def _said(notes: list[str]) -> str:
    """The first few notes, joined: a tape may have one for each parameter."""
    more = [f"{len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else []
    return "; ".join([*notes[:_MOST_NOTES], *more])


class CompiledAutograd:
    """A cache of compiled tapes, for one compiler; `compiled_autograd.enable` activates it."""

    def __init__(
        self, options: Options, compiler: object = None, *, hooks: str = "segments"
    ) -> None:
        self.options = options
        self.ones = OneTapes() if checked_hooks(hooks) == "call" else None
        """The tapes that are one graph, with `hooks="call"` (CAG-25)."""
        self.counters = Counters()
        self.reasons: deque[str] = deque(maxlen=_MOST_REASONS)
        """Why each of the last captures was needed, as a sentence."""
        self.fallbacks: Counter[str] = Counter()
        """Why backwards were not one graph with `hooks="call"`, or not to their end (CAG-27)."""
        self.called: Counter[str] = Counter()
        """Why nodes are called in captured graphs, and not recorded, with `hooks="call"` (CAG-30).
        """
        self._compiler = compiler
        """Kept alive, since caches are keyed by its id."""
        dumper = None if options.dump is None else Dump(options.dump)
        self._observers = [each for each in (options.observer, dumper) if each is not None]
        self._programs: dict[Hashable, Program] = {}
        self._templates, self._derivatives = Templates(), TapesWithHistory()
        self._alike: Counter[Hashable] = Counter()
        """The number of captures of tapes with the same ops."""
        self._recent: tuple[Matcher, ...] = ()
        self._last: TapeStructure | None = None
        """The structure of the tape captured last, without its nodes."""

    @classmethod
    def of(
        cls, compiler: object = None, *, hooks: str = "segments", **options: Any
    ) -> CompiledAutograd:
        """A new, empty cache for `enable`."""
        return cls(make_options(backend=compiler, **options), compiler, hooks=hooks)

    def __repr__(self) -> str:
        return f"<CompiledAutograd {self.options.backend.name}: {self.counters}>"

    @property
    def graphs(self) -> list[Graph]:
        """The pure graphs of tapes that are one graph, then those of all segments, in the order of
        their captures."""
        whole = [] if self.ones is None else self.ones.graphs()
        return whole + [
            graph for program in list(self._programs.values()) for graph in program.graphs()
        ]

    def forget(self) -> None:
        """Empties the cache and resets the counters."""
        self._programs, self._recent, self._last = {}, (), None
        self._templates, self._alike = Templates(), Counter()
        self._derivatives = TapesWithHistory()
        self.ones = None if self.ones is None else OneTapes()
        self.counters = Counters()
        self.reasons.clear()
        self.fallbacks.clear()
        self.called.clear()

    # --- running
    def run(
        self,
        roots: Roots,
        sinks: Sequence[Edge | None] | None,
        accumulate: bool,
        retain: bool,
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Runs a backward from these roots, as `engine.run_backward` does; the sinks' gradients."""
        mode, outer = STATE.grad_mode, SUSPENDED.tapes
        outer.append(STATE.tapes)
        STATE.tapes, STATE.grad_mode = (
            None,
            create_graph,
        )  # backwards in hooks run on the engine (CAG-24)
        try:
            self.counters.calls += 1
            if looks := eager_mode():
                self.counters.skipped += 1
                LOG.info("left to the engine: %s looks at each node or op", looks)
                return run_backward(
                    roots,
                    sinks=sinks,
                    accumulate=accumulate,
                    retain_graph=retain,
                    create_graph=create_graph,
                )
            if create_graph:
                return self._with_history(roots, sinks, accumulate=accumulate)
            with backward_task():
                return self._run(roots, sinks, accumulate=accumulate, retain=retain)
        finally:
            STATE.grad_mode, STATE.tapes = mode, outer.pop()

    def _run(
        self, roots: Roots, sinks: Sequence[Edge | None] | None, *, accumulate: bool, retain: bool
    ) -> list[Tensor | None]:
        changes = HookChanges.count
        for matcher in self._recent:
            if self.ones is not None and matcher.whole is None:
                continue  # its tape may be one graph
            found = matcher.match(roots, sinks, accumulate, retain)
            if found is not MISS:
                self.counters.hits += 1
                if matcher is not self._recent[0]:
                    self._note(matcher)
                if matcher.whole is not None:
                    return found
                look = look_again(found, matcher.look)
                tape = Tape(look, roots, sinks, accumulate, retain, changes)
                return self._follow(tape, matcher.program)
        look = look_at(roots, sinks, accumulate=accumulate)
        tape = Tape(look, roots, sinks, accumulate, retain, changes)
        if accumulate and shares_gradients(look, roots):
            LOG.info("left to the engine: a leaf's .grad is memory that the tape reads")
            return self._left(tape)
        if self.ones is not None:
            whole = self.ones.run(tape, self, self._templates)
            if whole is not None:
                return whole
        program = self._programs.get(look.key)
        if program is None:
            return self._left(tape) if self._is_endless(look) else self._capture(tape)
        self.counters.hits += 1
        known = [m.program for m in self._recent if m.is_typed is STATE.wrappers]
        if program not in known:
            self._note(Matcher(tape, program))
        return self._follow(tape, program)

    def _with_history(
        self, roots: Roots, sinks: Sequence[Edge | None] | None, *, accumulate: bool
    ) -> list[Tensor | None]:
        """A backward with `create_graph=True`: as one function, or by the engine (CAG-16)."""
        look = look_at(roots, sinks, accumulate=accumulate)
        tape = Tape(look, roots, sinks, accumulate, True, HookChanges.count)
        try:
            if accumulate and shares_gradients(look, roots):
                raise NotOneGraph("create_graph=True: a leaf's .grad is memory that the tape reads")
            found = self._derivatives.run(tape, self, self.options)
        except NotOneGraph as reason:
            self.counters.skipped += 1
            self.fallbacks[str(reason)] += 1
            LOG.info("left to the engine: %s", reason)
            return run_backward(
                roots, sinks=sinks, accumulate=accumulate, retain_graph=True, create_graph=True
            )
        self.counters.whole += 1
        return found

    def _follow(self, tape: Tape, program: Program) -> list[Tensor | None]:
        run = TapeRun(tape, self, self._templates)
        try:
            return run.follow(program)
        finally:
            if run.branches:
                self.counters.branches += run.branches
                self._tell(f"tape {program.number}: what came behind a hook was not seen before")

    def _is_endless(self, look: TapeStructure) -> bool:
        """Whether tapes of these ops have reached `recompile_limit`; warns or raises then."""
        count, most = self._alike[alike(look)], self.options.recompile_limit
        if count < most:
            return False
        times = f"tapes of the same ops were captured {most} times, the last one since"
        if self.options.recompile_limit_is_error:
            raise noted(
                GuardError(
                    f"compiled_autograd: {times} {why(look, self._last)}, expected at most {most} "
                    "(recompile_limit)"
                ),
                "A number that changes at each step can be a tensor. (CAG-6)",
            )
        if count == most:
            LOG.warning(
                "%s %s; others of them are left to the engine. A number that changes at each step "
                "can be a tensor.",
                times,
                why(look, self._last),
            )
            self._alike[alike(look)] += 1  # it is said once
        return True

    def _left(self, tape: Tape) -> list[Tensor | None]:
        self.counters.skipped += 1
        return BackwardPass(tape.sinks_to_fill(), tape.retain)._pass(tape.roots)

    def _capture(self, tape: Tape) -> list[Tensor | None]:
        look, number = tape.look, next(_NUMBERS)
        reason = why(look, self._last)
        seen = attrs.evolve(look, nodes=[], number={}, forms=list(look.forms))
        run = TapeRun(tape, self, self._templates)
        order = order_of(look, tape.roots)
        refresh()
        silent = not self.options.enable_log
        try:
            with (
                collector_paused(),  # all that is made is kept
                within(f"{TAPE}{number}", is_silent=silent),
                timed("tape", nodes=len(seen.forms), reason=reason),
            ):
                first = run.record(order, 0)
        finally:
            what = f"tape {number} of {len(seen.forms)} nodes: "
            if run.is_recorded or not run.is_remade:
                self.counters.captures += 1
                self._alike[alike(seen)] += 1
                self._tell(what + _said(run.notes or [reason]))
                self._last = seen
            else:
                self.counters.resized += 1
                LOG.info("%sit is known for other sizes", what)
        programs = self._programs
        if len(programs) >= _MOST_PROGRAMS:
            programs.pop(next(iter(programs)), None)
        programs[look.key] = Program(number, order, first)
        return run.collected

    def capture_one(self, tape: Tape, record: Callable[[], OneTape]) -> OneTape:
        """Records a tape as one graph, and counts the capture (CAG-25). Raises NotOneGraph."""
        look, number = tape.look, next(_NUMBERS)
        if self._alike[alike(look)] >= self.options.recompile_limit:
            raise NotOneGraph("tapes of the same ops were captured too often")
        reason = why(look, self._last)
        seen = attrs.evolve(look, nodes=[], number={}, forms=list(look.forms))
        refresh()
        with (
            collector_paused(),
            within(f"{TAPE}{number}", is_silent=not self.options.enable_log),
            timed("tape", nodes=len(seen.forms), reason=reason),
        ):
            one = record()
        self.called.update(one.called.values())
        self.counters.captures += 1
        self._alike[alike(seen)] += 1
        self._tell(f"tape {number} of {len(seen.forms)} nodes: {reason}")
        self._last = seen
        return one

    def count_one(self, reason: str) -> None:
        """Counts a backward that was one graph; or one that was not, if there is a reason."""
        if not reason:
            self.counters.whole += 1
            return
        self.fallbacks[reason] += 1
        LOG.info("not one graph to its end: %s", reason)

    def _tell(self, reason: str) -> None:
        self.reasons.append(reason)
        LOG.info("captured %s", reason)

    def _note(self, matcher: Matcher) -> None:
        """Moves a matcher to the front of the recent ones."""
        rest = [each for each in self._recent if each.program is not matcher.program]
        self._recent = (matcher, *rest[: _RECENT - 1])

    # --- compiling
    def pure(self, graph: Graph) -> Graph:
        """Stages 6, 7 and passes for a recorded graph, with symbols or without."""
        number, here = next(_GRAPHS), current_id()  # none where a captured tape goes on
        with (
            collector_paused(),
            within(f"{TAPE}graph-{number}" if here == NO_COMPILATION else here),
        ):
            for observer in self._observers:
                if hasattr(observer, "number"):
                    observer.number = number
            self._check("1 capture", graph, functional=False)
            pure = self._stage("functionalize", functionalize)(graph)
            simple: Graph = self._stage("simplify", simplify)(pure)
            self._check("7 simplify", simple)
            for each in self.options.passes:
                simple = apply_pass(each, simple)
                self._check(pass_name(each), simple)
            return unlifted(simple)

    def lowered(self, graph: Graph, sized: Instance | None) -> Run:
        """Stage 9 for a pure graph: of the kernels for all sizes, or of its own."""
        if sized is None:
            self.counters.compiles += 1
        with collector_paused():
            backend = with_sizes(self.options.backend, sized)
            run: Run = self._stage("lower", lower)(graph, backend)
            return run

    def prove(self, table: SymbolTable) -> None:
        """Raises GuardError if a template used a fact that its assumptions do not imply."""
        if self.options.verify:
            validation.validate(table, time_limit=PROOF_SECONDS)

    def sized(self, graph: Graph, table: SymbolTable) -> SizedKernels | None:
        """The kernels of a pure graph for all sizes; None where each size has its own."""
        kernels = SizedKernels(graph, SymbolicSizes({}, table))
        with collector_paused():
            if kernels.of(self.options.backend) is None:
                LOG.info("each size has its own kernels: %s", kernels.why_not[-1])
                return None
        self.counters.compiles += 1
        return kernels

    def _stage(self, name: str, own: Callable[..., object]) -> Callable[..., Any]:
        """A stage, or its replacement in `stages=`."""
        return self.options.stages.get(name, own)

    def _check(self, stage: str, graph: Graph, *, functional: bool = True) -> None:
        for observer in (*self._observers, emit_artifact) if is_heard() else self._observers:
            show_to(observer, stage, graph)
        if self.options.verify >= 1:
            verify(graph, functional=functional, stage=stage)


call_events.starts(CompiledAutograd, "run", "tape_call")
