"""The ten stages in order, from a function to a compiled entry: the file to read first.

    1 capture        the function runs once on fake tensors; gives an imperative graph and a tape
    2 analyze        which inputs it mutates, what its outputs alias, what requires grad
    3 convention     the inputs of the compiled forward, in order
    4 joint          the tape is run on fake tangents: forward and backward in one imperative graph
    5 desugar        wrapper subclasses are replaced by their inner tensors
    6 functionalize  in-place ops are replaced: no op writes any more
    7 simplify       dead code, common subexpressions, needless views and scatters are removed
    8 partition      the joint graph is cut into a forward, a backward, and saved values
    9 lower          a backend compiles the forward; the backward when it first runs
    10 runtime       the entry: guards, the call, and every side effect of the function

Each stage is one function, and none imports another. `compile_once`, `cut_of`, `_analyzed`,
`_convention_and_joint` and `_lowered` call them, and functions for features: `with_parts` (wrapper
results), `widened` (inputs of the backward alone), `with_bases` (inputs that overlap), and those of
`derivatives` (double backward: each training graph is looked at, so that it can be made later).

`compile(stages={"simplify": mine})` replaces a stage by its name in `STAGES`; `partition=` replaces
the eighth; the user's decompositions come before the seventh, the user's passes after it. The graph
of every stage is shown to the observers and verified (`observers`). Where stage 5 has nothing to
replace, the graph that it returns is shown as `4 joint`.

Read next, in this order: `stages/records` (what stages hand on), the `__init__` of each stage,
`request`, `observers`, `user_code`, `partitioning`, `lowering`, `derivatives` (specs/pipeline.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.eager.base.modes import outside_regions
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.ir.collector import collector_paused
from aotlite.ir.symbols.assumption import Texts
from aotlite.pipeline import derivatives, lowering, partitioning, user_code
from aotlite.pipeline.checks.fixed_state import settled
from aotlite.pipeline.checks.reanalysis import check_metadata
from aotlite.pipeline.logs.stage_events import compiling
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import Compilation, CompiledEntry, Request
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region_entries import region_entry, said_in_numbers, show_numbers
from aotlite.stages import NAMES
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.float_guards import facts_of, numbers_of
from aotlite.stages.records.guards.guard_records import hidden_places, reached_arguments
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import computing, running
from aotlite.stages.s1_capture import abandon, capture
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.s2_analyze.subclass_parts import with_parts
from aotlite.stages.s3_convention import convention
from aotlite.stages.s3_convention.synthetic_bases import with_bases
from aotlite.stages.s4_joint import joint
from aotlite.stages.s4_joint.backward_mutations import widened
from aotlite.stages.s5_desugar import desugar
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s9_lower import lower
from aotlite.stages.s10_runtime import runtime
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues, guarded_values_of
from aotlite.stages.s10_runtime.plan import RuntimePlan

T = TypeVar("T")
_TEN = (
    *(capture, analyze, convention, joint, desugar),
    *(functionalize, simplify, default_partition, lower, runtime),
)
STAGES: dict[str, Callable[..., Any]] = dict(zip(NAMES, _TEN, strict=True))
"""The stages in order, under the names by which `stages=` replaces them."""


def compile_once(request: Request, options: Options) -> CompiledEntry:
    """Compiles a request: all ten stages, with the cyclic garbage collector paused (PIP-5).
    Where a stage raises, the recorder is emptied: a stored fake must keep no tensors alive."""
    compilation = Compilation.begin(options, STAGES)
    with collector_paused(), outside_regions(), compiling(request, compilation):
        return traced(request, compilation, _compiled)


def retraced(request: Request, compilation: Compilation, rest: Callable[..., None]) -> None:
    """Runs stages 1 to 8 for the observers, and for `rest`, as at other sizes."""
    with collector_paused(), outside_regions():
        traced(request, compilation, lambda captured, _, how: rest(*cut_of(captured, how)))


def traced(request: Request, compilation: Compilation, rest: Callable[..., T]) -> T:
    captured = request.captured_by(settled(compilation.stages["capture"]))
    try:
        with raising_refusals(captured.recorder):
            made = rest(captured, request, compilation)
    except BaseException as error:
        abandon(captured.recorder)
        said_in_numbers(error, captured.recorder.sizes)
        raise
    captured.recorder.close()
    return made


def _compiled(captured: Captured, request: Request, compilation: Compilation) -> CompiledEntry:
    """Stages 2 to 10, on a captured function."""
    captured, cut = cut_of(captured, compilation)
    if captured.recorder.sizes:
        return region_entry(cut, captured, request, compilation, entry_of, retraced)
    show_numbers(captured, request, compilation)
    request.keep(captured, cut, None)
    of = request.leaves, captured, cut.meta, cut.convention.bases, cut.partition
    return entry_of(compilation, request.name, f"{compilation.number}", cut, guarded_values_of(*of))


def cut_of(captured: Captured, compilation: Compilation) -> tuple[Captured, StageRecords]:
    """Stages 2 to 8: the capture, with the inputs of the backward, and what is left to lower."""
    options, stages, observers = compilation.options, compilation.stages, compilation.observers
    # 2 to 4: the function's metadata, its calling convention, its backward
    captured, meta, calling, both = _analyzed(captured, compilation)
    if captured.recorder.sizes is not None:
        derivatives.take_floats(captured, both)

    # 5 to 7: one graph for forward and backward
    is_read = derivatives.may_read(captured, both)
    both = stages["desugar"](captured, both)
    imperative = with_bases(both.graph, calling.bases)
    if observers.runner is not None:
        observers.runner.start(captured, meta, calling.bases)
    observers.check_and_compare("5 desugar" if meta.wrappers else "4 joint", imperative)
    functional = stages["functionalize"](imperative)
    observers.check_and_compare("6 functionalize", functional, functional=True, of=imperative)
    decomposed = user_code.decomposed(functional, compilation)
    simplified = stages["simplify"](decomposed)
    observers.check_and_compare("7 simplify", simplified, functional=True, of=functional)
    graph = user_code.with_passes(simplified, compilation)

    # 8: one graph for the forward, one for the backward
    derivable = derivatives.Derivable()
    if meta.training and not meta.failure:
        joint_graph = partitioning.decomposed_for_fusion(graph, compilation)
        joint_graph = attrs.evolve(joint_graph, exported=derivatives.exported(captured))
        partition = partitioning.partitioned(joint_graph, compilation)
        derivable = derivatives.Derivable.of(captured, both, options, simplified, joint_graph)
        if both.kept_tape is not None:
            graphs = decomposed, graph, joint_graph
            partition = derivable.with_saves(partition, graphs, meta, is_read)
        partition = partitioning.packed(partition, compilation)
    else:
        partition, meta = partitioning.without_backward(graph, meta, compilation)
    partition = partitioning.unlifted(partition, calling.tokens, compilation)

    meta = attrs.evolve(meta, bases=tuple([attrs.evolve(b, node=None) for b in meta.bases]))
    records = meta, calling, both, partition, derivable
    return captured, StageRecords(*records, captured.containers)


def entry_of(
    compilation: Compilation, name: str, number: str, cut: StageRecords, values: GuardedValues
) -> CompiledEntry:
    """Stages 9 and 10: the entry that runs what stage 8 has cut."""
    partition, run, backward = _lowered(cut, compilation)
    guarded = compilation.stages["runtime"](
        RuntimePlan(
            name=name,
            number=number,
            meta=cut.meta,
            convention=cut.convention,
            forward=partition.forward,
            run=run,
            fast_paths=compilation.options.fast_paths,
            backward=backward,
            result_spec=cut.containers.spec,
            guarded_values=values,
        )
    )
    known = numbers_of(values.leaves, values.guards), facts_of(values.guards)
    made = compilation.number, guarded, cut.meta, partition, cut.containers, *known
    hidden, reached = hidden_places(values.guards), reached_arguments(values.guards)
    return CompiledEntry(*made, convention=cut.convention, hidden=hidden, reached=reached)


def _analyzed(
    captured: Captured, compilation: Compilation
) -> tuple[Captured, FunctionMeta, Convention, Joint]:
    """Stages 2 to 4: the capture with the inputs that only the backward needs, and its facts."""
    compilation.observers.captured(captured)
    captured, meta = with_parts(captured, compilation.stages["analyze"])
    meta = attrs.evolve(meta, grads=captured.grads, hooks=tuple([h for h, _ in captured.hooks]))
    if compilation.observers.runner is not None and not meta.wrappers:
        check_metadata(captured, meta)
    calling, both, meta = _convention_and_joint(captured, meta, compilation)
    if both.backward.memory or both.late_inputs or captured.recorder.streams.inputs:
        captured, meta = widened(captured, meta, both)
        calling = compilation.stages["convention"](captured, meta)
    if meta.wrappers:
        compilation.observers.check("4 joint", both.graph)
    return captured, meta, calling, both


def _convention_and_joint(
    captured: Captured, meta: FunctionMeta, compilation: Compilation
) -> tuple[Convention, Joint, FunctionMeta]:
    """Stages 3 and 4; the metadata with `training` and `failure` as the joint graph decides them.
    Observers see the metadata after that. Where a stage raises, they see it as it is by then."""
    calling = None
    try:
        calling = compilation.stages["convention"](captured, meta)
        with running(captured.recorder.sizes, Texts.PLACES), computing(captured.recorder.sizes):
            both = compilation.stages["joint"](captured, meta)
        captured.recorder.check_numbers()  # the backward of a custom function may read some too
        meta = attrs.evolve(meta, training=both.has_backward, failure=_failure(both))
    finally:
        compilation.observers.show("2 analyze", meta)
        if calling is not None:
            compilation.observers.show("3 convention", calling)
    return calling, both, meta


def _lowered(
    cut: StageRecords, compilation: Compilation
) -> tuple[Partition, Run, BackwardPlan | None]:
    """Stage 9: the partition with reported strides, the compiled forward, and the plan of the
    backward, which is lowered when it runs."""
    meta, both = cut.meta, cut.joint
    forward, backward = cut.instances()
    how = compilation, forward, cut.run
    partition, run = lowering.lowered_forward(cut.partition, meta, *how)
    compiler = lowering.backward_compiler(partition, compilation, backward)
    bases = cut.convention.bases
    rest = cut.derivable, compilation, cut.values
    orders = derivatives.orders_of(both, partition, bases, *rest)
    plan = lowering.planned_backward(partition, meta, both, compiler, compilation, orders)
    return partition, run, plan


def _failure(both: Joint) -> str:
    """The message that every backward raises; empty where some backward is possible (DBL-3).
    A function that calls `backward()` itself, and returns the loss, leaves a spent tape."""
    is_spent = bool(both.layouts) and both.layouts.keys() <= both.backward.errors.keys()
    return str(next(iter(both.backward.errors.values()))) or "an error" if is_spent else ""
