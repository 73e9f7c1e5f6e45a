"""Functionalizes an in-place op: its pure form, whose value is pending in the storage's group.

Used by stage 6 for each in-place op. Rules: FUN-4, FUN-5, FUN-7, FUN-12.
Spec: `specs/s6_functionalize.md`. Note [Group and alias] in `aliases.py`.
"""

from __future__ import annotations

from aotlite.ir.geometry.sizes import always_same
from aotlite.ir.graph import Node
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.op import InplaceOp
from aotlite.ir.ops.creation.factories import FULL, can_be_full
from aotlite.ir.ops.elementwise.comparisons import CAST
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.ops.views.view_ops import EXPAND
from aotlite.stages.s6_functionalize.alias_values import AliasValues
from aotlite.stages.s6_functionalize.aliases import SAME, Alias
from aotlite.stages.s6_functionalize.view_inverses import invertible


def add_write(values: AliasValues, node: Node, *, trains: bool) -> None:
    """Registers a write: the new value of the alias, pending until another alias is read.
    `trains`: the graph has a backward, before which the caller may write the source of a copy_."""
    op: InplaceOp = node.target
    alias = values.alias(node.args[0])
    if type(alias.meta.numel) is int and not alias.meta.numel:  # empty views have no inverse
        values.env[node] = alias
        return
    value = values.in_layout(_result(values, op, node, alias), alias.meta)
    if op is COPY_ and trains:
        value = _apart(values, value, values.read(node.args[1]))
    group = alias.group
    chain = invertible(alias.chain, alias.meta, alias.start, alias.group.meta)
    if group.pending and group.pending[-1][0] is chain:
        group.pending.pop()  # the same window is overwritten whole: one scatter, not two
    group.version += 1
    group.last = chain, value
    if all(step.op in SAME for step in reversed(alias.chain)):
        group.value, group.pending = value, []
    else:
        group.pending.append((chain, value, node))
    values.env[node] = Alias(group, alias.chain, alias.start, alias.meta, value, group.version)


def _result(values: AliasValues, op: InplaceOp, node: Node, alias: Alias) -> Node:
    meta = alias.meta
    if op is COPY_:
        source = values.read(node.args[1])
        if source.meta.dtype is not meta.dtype:
            source = values.build.emit(CAST, (source, meta.dtype))
        if not always_same(source.meta.shape, meta.shape):
            source = values.build.emit(EXPAND, (source, meta.shape))
        return source
    if op.overwrites and can_be_full(node.args[1], meta.dtype):
        return values.build.emit(FULL, (meta.shape, node.args[1], meta.dtype, meta.device))
    value = values.build.emit(op.functional, tuple([values.read(a) for a in node.args]))
    if value.meta.dtype is not meta.dtype:  # type: ignore[union-attr]
        value = values.build.emit(CAST, (value, meta.dtype))
    return value


def _apart(values: AliasValues, value: Node, source: Node) -> Node:
    """The value of a `copy_`, on memory of its own: the caller may write the source before the
    backward."""
    if storage_root(value) is not storage_root(source):
        return value
    return values.copy(value, None, "copy_ takes the values that its source has now")
