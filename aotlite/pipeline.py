"""The journey of a function, stage by stage: the file to read first.

    1 capture        the function runs once on fake tensors; an imperative graph and a tape come out
    2 analyze        what it does to its inputs, what its results alias, what is differentiable
    3 convention     how the compiled code is called
    4 joint          the tape is continued: forward and backward in one imperative graph
    6 functionalize  no op writes any more
    7 simplify       dead code and common subexpressions; then the user's passes
    8 partition      a forward and a backward graph, and what is saved between them
    9 lower          a backend makes each of them callable
    10 runtime       the entry that calls them and puts every side effect back

Stage 5 (desugar) belongs to wrapper subclasses, which are not built yet. Each stage is one function
with typed input and output; stages never import each other. Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.role import Hidden, Primal
from aotlite.ir.verify import verify
from aotlite.options import Options
from aotlite.stages.compiled_backward import plan_backward
from aotlite.stages.decompose import decompose
from aotlite.stages.facts import Captured, FunctionMeta, Partition
from aotlite.stages.s1_capture import capture
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.s3_convention import convention
from aotlite.stages.s4_joint import joint
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s9_lower import lower
from aotlite.stages.s10_runtime import CompiledEntry
from aotlite.verification import StageRunner


@attrs.frozen(eq=False)
class Request:
    """What is to be compiled: a function, and the call that shows it its arguments."""

    function: Callable[..., Any]
    """Where places of hidden inputs are searched."""
    call: Callable[[list[Any]], Any]
    """Calls the function with flat arguments."""
    leaves: Sequence[Any]
    tensors: Sequence[tuple[int, Tensor]]
    flatten: Callable[[Any], list[Any]]
    name: str


@attrs.frozen(eq=False)
class Compiled:
    """A compiled entry, and what its reuse must check."""

    entry: CompiledEntry
    meta: FunctionMeta
    guards: tuple[Any, ...]
    hidden: tuple[Tensor, ...]
    """The hidden inputs of this first call, in order."""
    fixed_offsets: frozenset[Primal | Hidden]
    partition: Partition


def compile_once(request: Request, options: Options) -> Compiled:
    """Takes a function through all stages. The garbage collector rests meanwhile."""
    with _collector_paused():
        journey = _Journey(options)
        captured = journey.capture(request)
        try:
            return journey.rest(captured)
        finally:
            captured.recorder.close()


class _Journey:
    """One compilation: runs each stage, then checks, runs and shows what it made."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.runner = StageRunner() if options.verify >= 2 else None
        self.stage = {**_STAGES, **options.stages}
        self.observers = [o for o in (options.observer, _dumper(options)) if o is not None]

    def capture(self, request: Request) -> Captured:
        captured: Captured = self.stage["capture"](
            request.function,
            request.call,
            request.leaves,
            request.tensors,
            request.flatten,
            request.name,
        )
        self._check("1 capture", captured.graph)
        return captured

    def rest(self, captured: Captured) -> Compiled:
        meta: FunctionMeta = self.stage["analyze"](captured)
        self._show("2 analyze", meta)
        calling = self.stage["convention"](captured, meta)
        self._show("3 convention", calling)
        both = self.stage["joint"](captured, meta)
        if self.runner is not None:
            self.runner.start(captured, meta)
        self._check("4 joint", both.graph)
        self._compare("4 joint", both.graph)
        pure = self.stage["functionalize"](both.graph)
        self._check("6 functionalize", pure, functional=True)
        self._compare("6 functionalize", pure)
        simple = self.stage["simplify"](self._decomposed(pure))
        self._check("7 simplify", simple, functional=True)
        self._compare("7 simplify", simple)
        for each in self.options.passes:
            simple = self._apply(each, simple)
        partition = self._partition(meta, simple)
        return self._assembled(captured, meta, calling, both, partition)

    def _decomposed(self, graph: Graph) -> Graph:
        """The graph without ops of the table; a decomposition that is wrong names itself."""
        table = self.options.decompositions
        if not table:
            return graph
        if self.runner is not None:
            for op in table:
                alone = decompose(graph, {op: table[op]})
                self._compare(f"decomposition of {op.name!r}", alone, exact=False)
        result = decompose(graph, table)
        self._check("7 decompose", result, functional=True)
        self._compare("7 decompose", result, exact=False)
        return result

    def _apply(self, each: Callable[[Graph], Graph], graph: Graph) -> Graph:
        name = f"pass {getattr(each, '__name__', each)!r}"
        result = each(graph)
        if not isinstance(result, Graph):
            raise ArgumentError(f"{name}: it returned {result!r}, expected a Graph")
        if result.output_roles != graph.output_roles:
            raise ArgumentError(f"{name}: it changed the roles of the outputs, expected the same")
        self._check(name, result, functional=True)
        self._compare(name, result, exact=False)
        return result

    def _partition(self, meta: FunctionMeta, graph: Graph) -> Partition:
        if not meta.training:
            whole = Partition(graph, None, ())
            self._show("8 partition", whole)
            return whole
        chosen = self.options.partition or self.stage["partition"]
        partition = chosen(graph)
        if not isinstance(partition, Partition):
            raise ArgumentError(
                f"partition: {chosen!r} returned {partition!r}, expected a Partition"
            )
        _check_partition(graph, partition)
        self._show("8 partition", partition)
        self._check("8 partition, forward", partition.forward, functional=True)
        if partition.backward is not None:
            self._check("8 partition, backward", partition.backward, functional=True)
        if self.runner is not None:
            self.runner.compare_partition(partition)
        return partition

    def _assembled(
        self, captured: Captured, meta: FunctionMeta, calling: Any, both: Any, partition: Partition
    ) -> Compiled:
        options = self.options
        lowering = self.stage["lower"]
        forward, backward = partition.forward, partition.backward
        for graph in (forward, backward):
            _forget_origins(graph)
        run = lowering(forward, options.fw_compiler or options.backend)
        compiler = options.bw_compiler or options.backend
        plan = plan_backward(backward, partial(lowering, backend=compiler), both)
        recorder = captured.recorder
        reals = {given.role: recorder.real_of(given.fake) for given in captured.inputs}
        meta = attrs.evolve(meta, bases=tuple(attrs.evolve(b, node=None) for b in meta.bases))
        entry = CompiledEntry(
            meta, calling.inputs, calling.consumed, forward, run, partition.saved, plan
        )
        return Compiled(
            entry,
            meta,
            tuple(recorder.guards),
            tuple(reals[role] for role in calling.hidden),
            frozenset(recorder.offset_read),
            partition,
        )

    # --- checking and showing
    def _check(self, stage: str, graph: Graph, *, functional: bool = False) -> None:
        self._show(stage, graph)
        if self.options.verify >= 1:
            verify(graph, functional=functional, stage=stage)

    def _compare(self, stage: str, graph: Graph, *, exact: bool = True) -> None:
        if self.runner is not None:
            self.runner.compare(stage, graph, exact=exact)

    def _show(self, stage: str, made: Any) -> None:
        for observer in self.observers:
            observer(stage, made)


_STAGES: dict[str, Callable[..., Any]] = {
    "capture": capture,
    "analyze": analyze,
    "convention": convention,
    "joint": joint,
    "functionalize": functionalize,
    "simplify": simplify,
    "partition": default_partition,
    "lower": lower,
}


def _check_partition(joint_graph: Graph, partition: Partition) -> None:
    """PART-8: the halves together give every result and gradient of the joint graph."""
    given = list(partition.forward.output_roles)
    if partition.backward is not None:
        given += partition.backward.output_roles
    for role in joint_graph.output_roles:
        if role not in given:
            raise noted(
                ArgumentError(
                    f"partition: the output {role} of the joint graph is in neither half, expected "
                    "every output to be in one"
                ),
                "A partitioner returns aotlite.partition.cut(graph, saved), or keeps all outputs.",
            )


def _forget_origins(graph: Graph | None) -> None:
    """Nodes that stay alive let go of the graphs of earlier stages."""
    for node in () if graph is None else graph.nodes:
        node.origin = None


def _dumper(options: Options) -> Callable[[str, Any], None] | None:
    if options.dump is None:
        return None
    from aotlite.inspect import dump_to

    return dump_to(options.dump)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The cyclic collector is the largest cost of a compilation that builds many objects."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


__all__ = ["AotliteError", "Compiled", "Request", "compile_once"]
