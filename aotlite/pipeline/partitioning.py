"""Stage 8 with what options put around it: who partitions, what is packed, what becomes of tokens.

Input: a simplified graph. Output: a `Partition` whose halves stage 9 lowers. Rules: PART-8,
PART-14, SAV-7, TOK-3, FUN-21. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aotlite.ir.deferred import deferred
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Part, Primal
from aotlite.ir.graph.verify import verify
from aotlite.options import Options
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.user_code import applied, call_partitioner
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.records.no_backward import why_no_backward
from aotlite.stages.records.partition import Partition
from aotlite.stages.s7_simplify.normalizations import normalisations, opened
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s8_partition.closing_copies import with_closing_copies
from aotlite.stages.s8_partition.saved_tensor_hooks import with_inlined_hooks
from aotlite.stages.shared.effect_tokens import unlifted_partition

if TYPE_CHECKING:
    from aotlite import partition as partitioners
else:  # most graphs are cut in the default way
    partitioners = deferred("aotlite.partition")


def partitioner(options: Options) -> Callable[[Graph], Any] | None:
    """What divides joint graphs; None for the stage's own way."""
    chosen = "min_cut" if options.cuts_for_fusion() else options.partition
    if not isinstance(chosen, str):
        return chosen
    if chosen == "min_cut":
        return partitioners.min_cut_rematerialization_partition
    return default_partition


def opened_for_fusion(graph: Graph, compilation: Compilation) -> Graph:
    """The graph as it is cut for a backend that fuses (PART-38)."""
    if compilation.options.cuts_for_fusion() and normalisations(graph):
        return applied(opened, graph, compilation)
    return graph


def partitioned(graph: Graph, compilation: Compilation) -> Partition:
    """The halves of a joint graph; what a partitioner of users gives is checked (PART-8)."""
    observers = compilation.observers
    chosen = partitioner(compilation.options) or compilation.stages["partition"]
    ours = chosen is default_partition
    partition = default_partition(graph) if ours else call_partitioner(chosen, graph)
    observers.show("8 partition", partition)
    observers.check("8 partition, forward", partition.forward, functional=True)
    if partition.backward is not None:
        observers.check("8 partition, backward", partition.backward, functional=True)
    if observers.runner is not None:
        observers.runner.compare_partition(partition)
    return partition


def without_backward(
    graph: Graph, meta: FunctionMeta, compilation: Compilation
) -> tuple[Partition, FunctionMeta]:
    """A graph that is the forward alone; it may write its inputs itself (FUN-21)."""
    options, observers = compilation.options, compilation.observers
    graph = default_partition(graph).forward if meta.training else graph
    kept = options.keeps_writes()
    if kept:
        graph, meta = with_closing_copies(graph, meta)
    whole = Partition(graph, None, (), why_no_backward(meta) or "")
    observers.show("8 partition", whole)
    if kept:
        observers.show("8 partition, forward", graph)
    if kept and options.verify >= 1:
        verify(graph, functional=True, closing_copies=True, stage="8 partition, forward")
    return whole, meta


def packed(partition: Partition, compilation: Compilation) -> Partition:
    """The partition with saved-tensor hooks that are part of it (SAV-7)."""
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
    """The inputs of a graph that the first `count` flat arguments are, or are made of (SUB-19)."""
    first = {Primal(index) for index in range(count)}
    roles = [node.role for node in graph.placeholders if node.role is not None]
    return {role for role in roles if (role.whole if isinstance(role, Part) else role) in first}


def unlifted(partition: Partition, tokens: Sequence[Any], compilation: Compilation) -> Partition:
    """The partition with chains of tokens that begin and end within its halves (TOK-3)."""
    inner = unlifted_partition(partition, tokens)
    for name, half in (("forward", inner.forward), ("backward", inner.backward)):
        if inner is not partition and half is not None:
            stage = f"8 partition, {name} unlifted"
            compilation.observers.show(stage, half)
            if compilation.options.verify >= 1:
                verify(half, functional=True, closing_copies=True, stage=stage)
    return inner
