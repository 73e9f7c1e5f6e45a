"""Written inputs whose places in memory count: two elements in one place, or gaps in between.

Used by stage 6 alone, before its first node. Rules: FUN-9, FUN-11.
Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from aotlite.eager.base.tape.view_chain import ViewStep, chain_of
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.s6_functionalize.alias_values import AliasValues
from aotlite.stages.s6_functionalize.aliases import Alias, Group


def unfold_inputs(values: AliasValues, graph: Graph) -> None:
    """Makes each such input a window on its memory."""
    for node in graph.placeholders:
        if node in values.storages.written and _needs_memory(values, node):
            _memory_of(values, node)


def _needs_memory(values: AliasValues, node: Node) -> bool:
    """Whether places in memory count: two elements in one, or as_strided on one with gaps."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    return _repeats(meta) or not meta.dense and node in values.storages.windowed


def _memory_of(values: AliasValues, node: Node) -> None:
    """Makes a written input a window on its memory, which holds each element once."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    values.build.source = node
    flat = values.build.emit(AS_STRIDED, (node, (meta.span,), (1,), 0))
    held: TensorMeta = flat.meta  # type: ignore[assignment]
    step = ViewStep(AS_STRIDED, (meta.shape, meta.stride, 0), held, meta)
    values.env[node] = Alias(Group(held, flat), chain_of(step), 0, meta)


def _repeats(meta: TensorMeta) -> bool:
    return not meta.dense and has_internal_overlap(meta.shape, meta.stride)
