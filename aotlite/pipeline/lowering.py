"""Stage 9 under the options: chooses the backend of each half and annotates its inputs.

Input: a `Partition`. Output: the compiled forward, and a `BackwardPlan`, whose graph is lowered
when a backward first runs. Rules: LOW-5, LOW-7, SAV-6, BOX-1. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aotlite.backends.calling_convention import Run
from aotlite.backends.protocol import Backend
from aotlite.ir.graph import Graph
from aotlite.pipeline.partitioning import Sizes, compiler_of
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.kernels import Instance, SizedBackend, with_sizes
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s9_lower.output_strides import with_reported_strides
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.backward.plan_builder import plan_backward


def backward_compiler(
    partition: Partition,
    compilation: Compilation,
    sized: Instance | None = None,
    sizes: Sizes = None,
) -> Backend:
    """The backend of a partition's backward: `bw_compiler`, else `backend`."""
    backend = compilation.options.backward_backend()
    return with_sizes(compiler_of(backend, partition, compilation, sizes), sized)


def lowered_forward(
    partition: Partition,
    meta: FunctionMeta,
    compilation: Compilation,
    sized: Instance | None,
    made: Run | None = None,
) -> tuple[Partition, Any]:
    """The compiled forward, and the partition with the strides that it reports (SAV-6).
    A backend may choose the strides of what it returns; the backward then expects those. An
    instance of a size region has kernels for all sizes, `sized`, if the backend makes such, or a
    forward that is `made` already."""
    for graph in (partition.forward, partition.backward):
        forget_origins(graph)
    backend = compilation.options.forward_backend(training=meta.training)
    compiler = with_sizes(compiler_of(backend, partition, compilation), sized)
    run = made or compilation.stages["lower"](partition.forward, compiler)
    compilation.observers.show_kernels("forward", run)
    return with_reported_strides(backend.name, partition, run), run


def planned_backward(
    partition: Partition,
    meta: FunctionMeta,
    both: Joint,
    compiler: Backend,
    compilation: Compilation,
    derivatives: Derivatives,
) -> BackwardPlan | None:
    """The plan of a partition's backward; None without one. `derivatives` are of `orders_of`."""
    fast, lower = compilation.options.fast_paths, compilation.stages["lower"]
    plan = plan_backward(
        partition.backward,
        compilation.observers.shown(partial(lower, backend=compiler)),
        both,
        {i.role for i in meta.inputs if fast and i.is_leaf and i.requires_grad},
        meta.families,
        copied_on_write=partition.copied_on_write,
        byte_checked=partition.byte_checked,
        derivatives=derivatives,
        number=compilation.number,
    )
    return compiler.varied(plan) if isinstance(compiler, SizedBackend) else plan


def forget_origins(graph: Graph | None) -> None:
    """Clears `origin` of all nodes, to free earlier graphs (PIP-6). A file has none (SER-4)."""
    for node in () if graph is None or graph.header is not None else graph.nodes:
        node.origin = None
