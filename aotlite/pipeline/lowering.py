"""Stage 9 with what options put around it: which backend compiles what, and what it is told.

Input: a `Partition`. Output: what the run-time function calls, and the plan of its backward, whose
graph is lowered when it first runs. Rules: LOW-5, LOW-7, SAV-6, BOX-1. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.options import Options
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.user_code import told
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.records.joint import Joint
from aotlite.stages.records.partition import Partition
from aotlite.stages.s9_lower.reported_strides import with_reported_strides
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.backward.planning import plan_backward
from aotlite.stages.shared.effect_tokens import LiftedBackend


def told_backend(backend: Any, partition: Partition, compilation: Compilation) -> Any:
    """The backend, told of its inputs, and asked for graphs of the form that is wanted."""
    options = compilation.options
    knowing = told(backend, options.num_params_buffers, partition)
    return knowing if options.unlift_tokens else LiftedBackend(knowing)


def backward_compiler(partition: Partition, compilation: Compilation) -> Any:
    """The backend of a partition's backward, told of its inputs."""
    return told_backend(compilation.options.backward_backend(), partition, compilation)


def lowered_forward(
    partition: Partition, meta: FunctionMeta, compilation: Compilation
) -> tuple[Partition, Any]:
    """The halves with the layouts that the compiled forward says it gives (SAV-6), and it."""
    for graph in (partition.forward, partition.backward):
        _forget_origins(graph)
    backend = compilation.options.forward_backend(training=meta.training)
    compiler = told_backend(backend, partition, compilation)
    run = compilation.stages["lower"](partition.forward, compiler)
    compilation.observers.show_kernels("forward", run)
    return with_reported_strides(backend.name, partition, run), run


def is_compact(run: Any, compiler: Any, options: Options) -> bool:
    """Whether forward and backward are called by their compact faces (`backends.values`)."""
    is_asked = options.fast_paths and hasattr(run, "compact")
    return is_asked and getattr(compiler, "is_compact", False)


def planned_backward(
    partition: Partition,
    meta: FunctionMeta,
    both: Joint,
    compiler: Any,
    compilation: Compilation,
    **orders: Any,
) -> BackwardPlan | None:
    """The plan of a partition's backward; `orders` are those of `derivatives.orders_of`."""
    fast, lower = compilation.options.fast_paths, compilation.stages["lower"]
    plan = plan_backward(
        partition.backward,
        compilation.observers.shown(partial(lower, backend=compiler)),
        both,
        {i.role for i in meta.inputs if fast and i.is_leaf and i.requires_grad},
        meta.families,
        lent=partition.lent,
        guarded=partition.guarded,
        **orders,
    )
    return plan and attrs.evolve(plan, number=compilation.number)


def _forget_origins(graph: Graph | None) -> None:
    """Nodes that stay alive let go of the graphs of earlier stages."""
    for node in () if graph is None else graph.nodes:
        node.origin = None
