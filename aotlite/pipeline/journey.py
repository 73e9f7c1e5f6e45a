"""The journey of a function, stage by stage: the file to read first.

    1 capture        the function runs once on fake tensors; an imperative graph and a tape come out
    2 analyze        what it does to its inputs, what its results alias, what is differentiable
    3 convention     how the compiled code is called
    4 joint          the tape is continued: forward and backward in one imperative graph
    5 desugar        tensors made of tensors are taken out: their parts are left
    6 functionalize  no op writes any more
    7 simplify       dead code and common subexpressions; then the user's passes
    8 partition      a forward and a backward graph, and what is saved between them
    9 lower          a backend makes each of them callable
    10 runtime       the entry that calls them and puts every side effect back

Each stage is one function with typed input and output; stages never import each other.
Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import attrs

from aotlite.eager.refusals import raising_refusals
from aotlite.eager.state import outside_regions
from aotlite.eager.tensor import Tensor
from aotlite.ir.collector import collector_paused
from aotlite.ir.effects import same_effects
from aotlite.ir.graph import Graph
from aotlite.ir.verify import verify
from aotlite.options import PARTITIONERS, Options
from aotlite.partition import min_cut_rematerialization_partition
from aotlite.pipeline.derivatives import NOT_LINEAR, HigherOrders
from aotlite.pipeline.observers import Dump
from aotlite.pipeline.reanalysis import check_metadata
from aotlite.pipeline.user_code import apply_pass, call_partitioner, pass_name, static_roles, told
from aotlite.pipeline.verification import StageRunner
from aotlite.stages import NAMES
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.records.joint import Joint
from aotlite.stages.records.partition import Partition
from aotlite.stages.s1_capture import abandon, capture
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.s2_analyze.subclass_parts import with_parts
from aotlite.stages.s3_convention import convention
from aotlite.stages.s3_convention.synthetic_bases import with_bases
from aotlite.stages.s4_joint import joint
from aotlite.stages.s4_joint.backward_mutations import widened
from aotlite.stages.s5_desugar import desugar
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import normalisations, opened, simplify
from aotlite.stages.s7_simplify.decompositions import decompose
from aotlite.stages.s7_simplify.linearity import is_linear
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s8_partition.closing_copies import with_closing_copies
from aotlite.stages.s8_partition.double_backward_saves import Reads, with_kept
from aotlite.stages.s8_partition.saved_tensor_hooks import with_inlined_hooks
from aotlite.stages.s8_partition.subclass_reads import inputs_read, is_read
from aotlite.stages.s9_lower import lower
from aotlite.stages.s9_lower.reported_strides import with_reported_strides
from aotlite.stages.s10_runtime import runtime
from aotlite.stages.s10_runtime.backward.planning import plan_backward
from aotlite.stages.s10_runtime.entry import CompiledEntry
from aotlite.stages.s10_runtime.guards.guarded_values import world_of
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.shared.effect_tokens import LiftedBackend, unlifted_partition
from aotlite.stages.shared.no_backward import why_no_backward
from aotlite.stages.shared.value_numbering import Numbering as Values

_NUMBERS = itertools.count(1)
"""GEN-9: compilations are numbered through the process."""


@runtime_checkable
class Numbering(Protocol):
    """An observer that wants to know the number of the compilation that it is shown."""

    number: int


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
    result_spec: Callable[[], Any]
    """The containers of the results, once they have been flattened."""
    name: str


@attrs.frozen(eq=False)
class Compiled:
    """A compiled entry, and what it was made of."""

    number: int
    """Of the compilation: entries, dumps and tracebacks are told apart by it (GEN-9)."""
    entry: CompiledEntry
    meta: FunctionMeta
    partition: Partition


def compile_once(request: Request, options: Options) -> Compiled:
    """Takes a function through all stages. The garbage collector rests meanwhile."""
    with collector_paused(), outside_regions():
        journey = _Journey(options)
        captured = journey.capture(request)
        try:
            with raising_refusals(captured.recorder):
                compiled = journey.rest(captured, request)
        except BaseException:
            abandon(captured.recorder)
            raise
        captured.recorder.close()
        return compiled


class _Journey:
    """One compilation: runs each stage, then checks, runs and shows what it made."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.number = next(_NUMBERS)
        self.runner = StageRunner() if options.verify >= 2 else None
        self.reads = Reads.OPERANDS if options.decompositions else Reads.FORMULAS
        """What derivatives of the backward may read."""
        self.linear = True
        self.stage = {**STAGES, **options.stages}
        self.observers = [o for o in (options.observer, _dumper(options)) if o is not None]
        for observer in self.observers:
            if isinstance(observer, Numbering):
                observer.number = self.number

    def capture(self, request: Request) -> Captured:
        captured: Captured = self.stage["capture"](
            request.function,
            request.call,
            request.leaves,
            request.tensors,
            request.flatten,
            request.name,
        )
        return captured

    def rest(self, captured: Captured, request: Request) -> Compiled:
        self._check("1 capture", captured.graph)
        captured, meta = with_parts(captured, self.stage["analyze"])
        hooks = tuple([hook for hook, _ in captured.hooks])
        meta = attrs.evolve(meta, grads=captured.grads, hooks=hooks)
        if self.runner is not None and not meta.wrappers:
            check_metadata(captured, meta)
        calling, both, meta = self._joint(captured, meta)
        if both.memory or both.late_inputs or captured.recorder.streams.inputs:
            captured, meta = widened(captured, meta, both)
            calling = self.stage["convention"](captured, meta)
        if meta.wrappers:
            self._check("4 joint", both.graph)
        may_read = _may_read(captured, both)
        both = self.stage["desugar"](captured, both)
        whole = with_bases(both.graph, calling.bases)
        if self.runner is not None:
            self.runner.start(captured, meta, calling.bases)
        stage = "5 desugar" if meta.wrappers else "4 joint"
        self._check(stage, whole)
        self._compare(stage, whole)
        pure = self.stage["functionalize"](whole)
        self._check("6 functionalize", pure, functional=True, of=whole)
        self._compare("6 functionalize", pure)
        decomposed = self._decomposed(pure)
        simple = self.stage["simplify"](decomposed)
        self._check("7 simplify", simple, functional=True, of=pure)
        self._compare("7 simplify", simple)
        plain = simple
        for each in self.options.passes:
            simple = self._apply(each, simple)
        if meta.training and not meta.failure:
            told = attrs.evolve(self._opened(simple), exported=_exported(captured))
            partition = self._partition(told)
            if both.runs_user_code or told.nodes != plain.nodes:
                self.reads = Reads.OPERANDS
            if captured.recorder.wrapped or both.memory:
                self.reads = Reads.ANYTHING
            users = both.runs_user_code or captured.recorder.wrapped
            self.linear = not users or is_linear(plain)
            if both.taped is not None:
                requires = {each.role for each in meta.inputs if each.requires_grad}
                keep = partial(
                    with_kept, numbering=Values(), given={}, reads=self.reads, may_read=may_read
                )
                whole = simple if self.options.passes else decomposed
                if told.nodes != simple.nodes:
                    whole = opened(whole)
                partition = keep(
                    partition, whole, requires=requires.__contains__, exported=told.exported
                )
            partition = self._packed(partition)
        else:
            whole = default_partition(simple).forward if meta.training else simple
            partition, meta = self._whole(meta, whole)
        partition = self._unlifted(partition, calling.tokens)
        world = world_of(request.leaves, captured, meta, calling, partition)
        partition, run = self._lowered_forward(meta, partition)
        plan = self._lowered(meta, calling, both, partition, run)
        entry: CompiledEntry = self.stage["runtime"](
            RuntimePlan(
                name=request.name,
                number=self.number,
                world=world,
                result_spec=request.result_spec(),
                **plan,
            )
        )
        return Compiled(self.number, entry, plan["meta"], partition)

    def _joint(self, captured: Captured, meta: FunctionMeta) -> tuple[Any, Joint, FunctionMeta]:
        """Convention, joint graph, and metadata that say whether a backward is made of it.

        Metadata are shown when that is known, or as they are where a stage raises.
        """
        calling = None
        try:
            calling = self.stage["convention"](captured, meta)
            both = self.stage["joint"](captured, meta)
            captured.recorder.around.numbers.check(captured.recorder)  # by users' backwards
            meta = attrs.evolve(meta, training=both.has_backward, failure=_failure(both))
        finally:
            self._show("2 analyze", meta)
            if calling is not None:
                self._show("3 convention", calling)
        return calling, both, meta

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
        result = apply_pass(each, graph)
        self._check(pass_name(each), result, functional=True)
        self._compare(pass_name(each), result, exact=False)
        return result

    def _opened(self, graph: Graph) -> Graph:
        """The graph as it is cut for a backend that fuses (PART-38)."""
        if self.options.cuts_for_fusion() and normalisations(graph):
            return self._apply(opened, graph)
        return graph

    def _whole(self, meta: FunctionMeta, graph: Graph) -> tuple[Partition, FunctionMeta]:
        """A graph without backward; it may write its inputs itself (FUN-21)."""
        kept = self.options.keeps_writes()
        if kept:
            graph, meta = with_closing_copies(graph, meta)
        whole = Partition(graph, None, (), why_no_backward(meta) or "")
        self._show("8 partition", whole)
        if kept:
            self._show("8 partition, forward", graph)
        if kept and self.options.verify >= 1:
            verify(graph, functional=True, closing_copies=True, stage="8 partition, forward")
        return whole, meta

    def _partition(self, graph: Graph) -> Partition:
        chosen = _partitioner(self.options) or self.stage["partition"]
        ours = chosen is default_partition
        partition = default_partition(graph) if ours else call_partitioner(chosen, graph)
        self._show("8 partition", partition)
        self._check("8 partition, forward", partition.forward, functional=True)
        if partition.backward is not None:
            self._check("8 partition, backward", partition.backward, functional=True)
        if self.runner is not None:
            self.runner.compare_partition(partition)
        return partition

    def _packed(self, partition: Partition) -> Partition:
        """The partition with saved-tensor hooks that are part of it (SAV-7)."""
        hooks, mode = self.options.saved_hooks, self.options.saved_hooks_mode
        if hooks is None:
            return partition
        static = static_roles(partition.forward, self.options.num_params_buffers)
        packed = with_inlined_hooks(partition, hooks, mode, static)
        self._show("8 partition, packed", packed)
        for half in (packed.forward, packed.backward):
            if half is not None:
                self._check("8 partition, packed", half, functional=True)
        return packed

    def _unlifted(self, partition: Partition, tokens: Sequence[Any]) -> Partition:
        """The partition with chains of tokens that begin and end within its halves (TOK-3)."""
        inner = unlifted_partition(partition, tokens)
        for name, half in (("forward", inner.forward), ("backward", inner.backward)):
            if inner is not partition and half is not None:
                stage = f"8 partition, {name} unlifted"
                self._show(stage, half)
                if self.options.verify >= 1:
                    verify(half, functional=True, closing_copies=True, stage=stage)
        return inner

    def _told(self, backend: Any, partition: Partition) -> Any:
        """The backend, told of its inputs, and asked for graphs of the form that is wanted."""
        knowing = told(backend, self.options.num_params_buffers, partition)
        return knowing if self.options.unlift_tokens else LiftedBackend(knowing)

    def _lowered_forward(self, meta: FunctionMeta, partition: Partition) -> tuple[Partition, Any]:
        """The compiled forward, and the halves with the layouts that it says it gives (SAV-6)."""
        for graph in (partition.forward, partition.backward):
            _forget_origins(graph)
        backend = self.options.forward_backend(training=meta.training)
        run = self.stage["lower"](partition.forward, self._told(backend, partition))
        self._show_kernels("forward", run)
        return with_reported_strides(backend.name, partition, run), run

    def _lowered(
        self, meta: FunctionMeta, calling: Any, both: Any, partition: Partition, run: Any
    ) -> dict[str, Any]:
        """What the run-time function calls, and what it knows of it."""
        options = self.options
        lowering = self.stage["lower"]
        forward, backward = partition.forward, partition.backward
        compiler = self._told(options.backward_backend(), partition)
        fast = options.fast_paths
        compact = fast and hasattr(run, "compact") and getattr(compiler, "is_compact", False)
        lower_backward = self._shown(partial(lowering, backend=compiler))
        leaves = {i.role for i in meta.inputs if fast and i.is_leaf and i.requires_grad}
        plan = plan_backward(
            backward,
            lower_backward,
            both,
            leaves,
            meta.families,
            is_compact=compact,
            lent=partition.lent,
            guarded=partition.guarded,
            **self._orders(both, calling, partition, is_compact=compact),
        )
        return {
            "meta": attrs.evolve(meta, bases=tuple(attrs.evolve(b, node=None) for b in meta.bases)),
            "inputs": calling.inputs,
            "bases": calling.bases,
            "consumed": calling.consumed,
            "sets_generator": calling.sets_generator,
            "forward": forward,
            "run": run,
            "is_compact": compact,
            "fast_paths": fast,
            "backward": plan and attrs.evolve(plan, number=self.number),
        }

    def _orders(
        self, both: Any, calling: Any, partition: Partition, *, is_compact: bool
    ) -> dict[str, Any]:
        """How the backward is differentiated, or why it is not; what anomaly mode looks at."""
        if self.options.saved_hooks is not None:
            return {"why": "Its saved values are packed by hooks in the graph (SAV-7)."}
        if both.taped is None:
            what = "has effects, draws, writes memory, or passes hooks of results"
            return {"why": f"Its backward {what}."}
        alone = copy.copy(self)
        alone.runner = None  # which compares with the first order
        higher = HigherOrders(alone, calling.bases, self.reads, is_compact)
        inside = higher.inside(both.taped, partition, {}, both.reads)
        if partition.backward is None:
            return {"inside": inside}
        orders = higher.of(both.taped, partition, {}, both.reads, splits=self.linear)
        why = "" if self.linear else NOT_LINEAR
        return {"orders": orders, "splits": self.linear, "why": why, "inside": inside}

    # --- checking and showing
    def _shown(self, lower_backward: Callable[[Graph], Any]) -> Callable[[Graph], Any]:
        """The lowering of a backward, which runs later, and shows what it gives."""
        if not self.observers:
            return lower_backward

        def lower_and_show(graph: Graph) -> Any:
            run = lower_backward(graph)
            self._show_kernels("backward", run)
            return run

        return lower_and_show

    def _show_kernels(self, half: str, run: Any) -> None:
        kernels = getattr(run, "kernels", None)
        if kernels is not None:
            self._show(f"9 lower, {half}_kernels", kernels)

    def _check(
        self, stage: str, graph: Graph, *, functional: bool = False, of: Graph | None = None
    ) -> None:
        """Verifies what a stage made; its effects are those of the graph `of` (TOK-6)."""
        self._show(stage, graph)
        if of is not None:
            same_effects(stage, of, graph)
        if self.options.verify >= 1:
            verify(graph, functional=functional, stage=stage)

    def _compare(self, stage: str, graph: Graph, *, exact: bool = True) -> None:
        if self.runner is not None:
            self.runner.compare(stage, graph, exact=exact)

    def _show(self, stage: str, made: Any) -> None:
        for observer in self.observers:
            observer(stage, made)


STAGES: dict[str, Callable[..., Any]] = dict(
    zip(
        NAMES,
        (
            *(capture, analyze, convention, joint, desugar),
            *(functionalize, simplify, default_partition, lower, runtime),
        ),
        strict=True,
    )
)
"""The stages in order, under the names by which `stages=` replaces them."""

_PARTITIONERS = dict(
    zip(PARTITIONERS, (default_partition, min_cut_rematerialization_partition), strict=True)
)


def _partitioner(options: Options) -> Callable[[Graph], Any] | None:
    """What divides joint graphs; None for the stage's own way."""
    chosen = "min_cut" if options.cuts_for_fusion() else options.partition
    return _PARTITIONERS[chosen] if isinstance(chosen, str) else chosen


def _failure(both: Joint) -> str:
    """What every backward raises, as where the function has run them all itself (DBL-3)."""
    is_spent = bool(both.layouts) and both.layouts.keys() <= both.errors.keys()
    return str(next(iter(both.errors.values()))) or "an error" if is_spent else ""


def _may_read(captured: Captured, both: Joint) -> Callable[[Any], bool]:
    """Which inputs derivatives of a backward of wrappers may read, where its formulas tell."""
    wrapped = captured.recorder.wrapped
    if not wrapped or both.memory or both.runs_user_code or both.taped is None:
        return lambda role: True
    return partial(is_read, read=inputs_read(both.graph, captured, wrapped.nodes))


def _exported(captured: Captured) -> frozenset[Any]:
    """Inputs of which an ndarray of the user's shows the memory."""
    real_of = captured.recorder.real_of
    roles = {given.role: real_of(given.fake) for given in captured.inputs}
    return frozenset([role for role, real in roles.items() if real.storage.exported])


def _forget_origins(graph: Graph | None) -> None:
    """Nodes that stay alive let go of the graphs of earlier stages."""
    for node in () if graph is None else graph.nodes:
        node.origin = None


def _dumper(options: Options) -> Callable[[str, Any], None] | None:
    if options.dump is None:
        return None
    return Dump(options.dump)
