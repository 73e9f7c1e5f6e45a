"""Stage 8 under the options: chooses the partitioner, then rewrites the partition it makes.

Input: a simplified graph. Output: a `Partition` whose halves stage 9 lowers. The rewrites: closing
copies (FUN-21), saved-tensor hooks in the graphs (SAV-7), tokens made and sunk inside (TOK-3).
Rules: PIP-3, PART-8, PART-14. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aotlite.backends.protocol import Backend
from aotlite.ir.deferred import deferred
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Part, Primal, Saved
from aotlite.ir.graph.verify import verify
from aotlite.ir.logs import timed
from aotlite.ir.symbols.assumption import concrete
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.user_code import applied, call_partitioner
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.no_backward import why_no_backward
from aotlite.stages.s7_simplify.normalizations import (
    decompose_normalizations,
    normalization_decompositions,
)
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s8_partition.closing_copies import with_closing_copies
from aotlite.stages.s8_partition.saved_tensor_hooks import with_inlined_hooks
from aotlite.stages.shared.effect_tokens import LiftedBackend, unlifted_partition
from aotlite.stages.shared.saved_sizes import with_saved_sizes

if TYPE_CHECKING:
    from aotlite import partition as partitioners
else:  # most graphs are cut in the default way
    partitioners = deferred("aotlite.partition")


def partitioner(options: Options) -> Callable[[Graph], object] | None:
    """The partitioner that the options choose; None where they name none: then stage 8
    runs, which `stages=` may replace.

    A backend that fuses gets min-cut without being asked (`Options.cuts_for_fusion`).
    """
    chosen = "min_cut" if options.cuts_for_fusion() else options.partition
    if not isinstance(chosen, str):
        return chosen
    if chosen == "min_cut":
        return partitioners.min_cut_rematerialization_partition
    return default_partition


def decomposed_for_fusion(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with normalizations decomposed, for a backend that fuses; else itself (PART-38).

    Then the cut can save a softmax's maximum and sum, one number a row, in place of its result.
    """
    if compilation.options.cuts_for_fusion() and normalization_decompositions(graph):
        return applied(decompose_normalizations, graph, compilation)
    return graph


def partitioned(graph: Graph, compilation: Compilation) -> Partition:
    """Cuts a joint graph into a `Partition`; the result of a user's partitioner is checked."""
    observers = compilation.observers
    chosen = partitioner(compilation.options) or compilation.stages["partition"]
    ours = chosen is default_partition
    with timed("stage", stage="partition") as facts:
        partition = default_partition(graph) if ours else call_partitioner(chosen, graph)
        facts["nodes"] = len(graph.calls)
    shown = with_saved_sizes(partition) if observers.observers else partition
    observers.show("8 partition", shown)
    observers.check("8 partition, forward", shown.forward, functional=True)
    if shown.backward is not None:
        observers.check("8 partition, backward", shown.backward, functional=True)
    if observers.runner is not None:
        observers.runner.compare_partition(partition)
    return partition


def without_backward(
    graph: Graph, meta: FunctionMeta, compilation: Compilation
) -> tuple[Partition, FunctionMeta]:
    """The partition of a function without backward: the forward alone, so no partitioner runs.

    Where every backward would raise (`FunctionMeta.failure`), the rest of the joint graph is
    dropped (PIP-3, DBL-3). With `keep_inference_input_mutations` the graph ends in `copy_` ops that
    write the inputs, and the returned metadata says so (FUN-21).
    """
    options, observers = compilation.options, compilation.observers
    graph = default_partition(graph).forward if meta.training else graph
    kept = options.keeps_writes()
    if kept:
        graph, meta = with_closing_copies(graph, meta)
    partition = Partition(graph, None, (), why_no_backward(meta) or "")
    observers.show("8 partition", partition)
    if kept:
        observers.show("8 partition, forward", graph)
    if kept and options.verify >= 1:
        verify(graph, functional=True, closing_copies=True, stage="8 partition, forward")
    return partition, meta


def packed(partition: Partition, compilation: Compilation) -> Partition:
    """The partition with pack hooks in its forward and unpack hooks in its backward (SAV-7).

    Without the option `saved_hooks` the partition itself.
    """
    options = compilation.options
    if options.saved_hooks is None:
        return partition
    static = static_roles(partition.forward, options.num_params_buffers)
    found = with_inlined_hooks(partition, options.saved_hooks, options.saved_hooks_mode, static)
    compilation.observers.show("8 partition, packed", found)
    for half in (found.forward, found.backward):
        if half is not None:
            compilation.observers.check("8 partition, packed", half, functional=True)
    return found


def static_roles(graph: Graph, count: int) -> set[Any]:
    """The roles of the first `count` flat arguments; of wrappers, those of their parts (SUB-19)."""
    first = {Primal(index) for index in range(count)}
    roles = [node.role for node in graph.placeholders if node.role is not None]
    return {role for role in roles if (role.whole if isinstance(role, Part) else role) in first}


def unlifted(partition: Partition, tokens: Sequence[Any], compilation: Compilation) -> Partition:
    """The partition whose halves make and sink their tokens, instead of taking and returning them.

    Rule: TOK-3. `tokens` are the tokens in the calling convention of the forward.
    """
    inner = unlifted_partition(partition, tokens)
    for name, half in (("forward", inner.forward), ("backward", inner.backward)):
        if inner is not partition and half is not None:
            stage = f"8 partition, {name} unlifted"
            compilation.observers.show(stage, half)
            if compilation.options.verify >= 1:
                verify(half, functional=True, closing_copies=True, stage=stage)
    return inner


# ------------------------------------------------------------------------ backends of a partition
Sizes = Mapping[str, int] | None


def compiler_of(
    backend: Backend, partition: Partition, compilation: Compilation, sizes: Sizes = None
) -> Backend:
    """The backend for a partition: it knows the static inputs, and takes graphs with or without
    tokens as `unlift_tokens` says (TOK-2). `sizes` are those of the partition's symbols."""
    count = compilation.options.num_params_buffers
    knowing = with_static_inputs(backend, count, partition, sizes)
    return knowing if compilation.options.unlift_tokens else LiftedBackend(knowing)


def with_static_inputs(
    backend: Backend, count: int, partition: Partition, sizes: Sizes = None
) -> Backend:
    """The backend with facts on the inputs of its graphs.
    Static inputs are the same memory at every call: the first `count` flat arguments, and saved
    values on their memory (LOW-7). Donated ones are saved values that the backward may overwrite
    (SAV-4). A backend with a method `of_size` is given the batch size alone."""
    marked = getattr(backend, "with_marked_inputs", None)
    if marked is None:
        of_size = getattr(backend, "of_size", None)
        if of_size is None:
            return backend
        size = _first_size(partition, count)
        found: Backend = of_size(size if sizes is None else concrete(size, sizes))
        return found
    static = static_roles(partition.forward, count)
    saved = [
        Saved(i)
        for i, value in enumerate(partition.saved)
        if value.owner in static and not value.copied_on_write
    ]
    known: Backend = marked(frozenset([*static, *saved]), frozenset(partition.donated))
    return known


def _first_size(partition: Partition, count: int) -> int | None:
    """Dimension 0 of the first tensor argument that is not static and has one: the batch size."""
    static = static_roles(partition.forward, count)
    for node in partition.forward.placeholders:
        role, meta = node.role, node.meta
        if isinstance(role, Primal) and role not in static and meta.shape:  # type: ignore[union-attr]
            size: int = meta.shape[0]  # type: ignore[union-attr]
            return size
    return None
