"""Written inputs with overlapping elements, or with gaps that as_strided reads.

    x = base.expand(3, 2); x[0].mul_(2)      # writes one row of memory, seen in all three

A pure value of shape (3, 2) has six elements, and the write would change two of them. So the root
of the group is the input's memory as a flat tensor, and the input an as_strided view of that.
Used by stage 6 alone, before its first node. Rules: FUN-9, FUN-11.
Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from aotlite.eager.base.tape.view_chain import ViewStep, chain_of, overlaps_itself
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.s6_functionalize.alias_values import AliasValues
from aotlite.stages.s6_functionalize.aliases import Alias, Group


def unfold_inputs(values: AliasValues, graph: Graph) -> None:
    """Makes the alias of each such input a view of its flat memory."""
    for node in graph.placeholders:
        if node in values.storages.written and _needs_memory(values, node):
            _memory_of(values, node)


def _needs_memory(values: AliasValues, node: Node) -> bool:
    """Whether two elements share memory, or as_strided is called on an input with gaps."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    return overlaps_itself(meta) or node in values.storages.windowed and not meta.dense


def _memory_of(values: AliasValues, node: Node) -> None:
    """Emits the flat memory of an input, and makes its alias a view of that."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    values.build.source = node
    flat = values.build.emit(AS_STRIDED, (node, (meta.span,), (1,), 0))
    held: TensorMeta = flat.meta  # type: ignore[assignment]
    step = ViewStep(AS_STRIDED, (meta.shape, meta.stride, 0), held, meta)
    values.env[node] = Alias(Group(held, flat), chain_of(step), 0, meta)
