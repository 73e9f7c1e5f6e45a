"""Stage 9 under the options: chooses the backend of each half and annotates its inputs.

Input: a `Partition`. Output: the compiled forward, and a `BackwardPlan`, whose graph is lowered
when a backward first runs. Rules: LOW-5, LOW-7, SAV-6, BOX-1. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aotlite.backends.functions import ArrayFunctionBackend
from aotlite.backends.protocol import Backend
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Primal, Saved
from aotlite.pipeline.partitioning import static_roles
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.kernels import Instance, SizedBackend, with_sizes
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s9_lower.output_strides import with_reported_strides
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.backward.plan_builder import plan_backward
from aotlite.stages.shared.effect_tokens import LiftedBackend


def compiler_of(backend: Backend, partition: Partition, compilation: Compilation) -> Backend:
    """The backend for a partition: it knows the static inputs, and takes graphs with or without
    tokens as `unlift_tokens` says (TOK-2)."""
    knowing = with_static_inputs(backend, compilation.options.num_params_buffers, partition)
    return knowing if compilation.options.unlift_tokens else LiftedBackend(knowing)


def with_static_inputs(backend: Backend, count: int, partition: Partition) -> Backend:
    """The backend with facts on the inputs of its graphs.
    Static inputs are the same memory at every call: the first `count` flat arguments, and saved
    values on their memory (LOW-7). Donated ones are saved values that the backward may overwrite
    (SAV-4). A backend with a method `of_size` is given the batch size alone."""
    if not isinstance(backend, ArrayFunctionBackend):
        of_size = getattr(backend, "of_size", None)
        found: Backend = backend if of_size is None else of_size(_first_size(partition, count))
        return found
    static = static_roles(partition.forward, count)
    saved = [
        Saved(i)
        for i, value in enumerate(partition.saved)
        if value.owner in static and not value.copied_on_write
    ]
    return backend.with_marked_inputs(frozenset([*static, *saved]), frozenset(partition.donated))


def _first_size(partition: Partition, count: int) -> int | None:
    """Dimension 0 of the first tensor argument that is not static and has one: the batch size."""
    static = static_roles(partition.forward, count)
    for node in partition.forward.placeholders:
        role, meta = node.role, node.meta
        if isinstance(role, Primal) and role not in static and meta.shape:  # type: ignore[union-attr]
            size: int = meta.shape[0]  # type: ignore[union-attr]
            return size
    return None


def backward_compiler(
    partition: Partition, compilation: Compilation, sized: Instance | None = None
) -> Backend:
    """The backend of a partition's backward: `bw_compiler`, else `backend`."""
    backend = compilation.options.backward_backend()
    return with_sizes(compiler_of(backend, partition, compilation), sized)


def lowered_forward(
    partition: Partition, meta: FunctionMeta, compilation: Compilation, sized: Instance | None
) -> tuple[Partition, Any]:
    """The compiled forward, and the partition with the strides that it reports (SAV-6).
    A backend may choose the strides of what it returns; the backward then expects those.
    An instance of a size region has kernels for all sizes, `sized`, if the backend makes such."""
    for graph in (partition.forward, partition.backward):
        forget_origins(graph)
    backend = compilation.options.forward_backend(training=meta.training)
    compiler = with_sizes(compiler_of(backend, partition, compilation), sized)
    run = compilation.stages["lower"](partition.forward, compiler)
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
    """Clears `origin` of all nodes: the graphs of earlier stages can be freed (PIP-6)."""
    for node in () if graph is None else graph.nodes:
        node.origin = None
