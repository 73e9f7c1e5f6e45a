"""`AliasValues` maps the values of the imperative graph to nodes of the pure one.

Used by stage 6 for every operand that it reads. Reading a stale alias emits nodes: pending writes
are scattered into the root's value, and the alias's view chain is replayed on it. Until then a
write emits no scatter. Rules: FUN-6, FUN-7, FUN-12, FUN-34, FUN-35.
Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep
from aotlite.ir.geometry import layout
from aotlite.ir.graph import Copy, Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.views.view_ops import AS_STRIDED, VIEW
from aotlite.stages.s6_functionalize.aliases import SAME, Alias, Group, Storages
from aotlite.stages.shared.memory.extents import from_root


@attrs.define(eq=False, repr=False)
class AliasValues:
    """The values of one run.
    `env` maps a value to its `Alias` if its storage is written or read by as_strided, else to its
    new node. A value that keeps its node is not in `env`."""

    graph: Graph
    build: Builder = attrs.field(init=False)
    storages: Storages = attrs.field(init=False)
    env: dict[Node, Any] = attrs.field(factory=dict)
    memo: dict[tuple[Node, Any, tuple[Any, ...]], Node] = attrs.field(factory=dict)
    copies: list[Copy] = attrs.field(factory=list)
    views: dict[ViewStep, Node] = attrs.field(factory=dict)
    """For each step of a chain, the program's view op: its location is used (FUN-35)."""

    def __attrs_post_init__(self) -> None:
        self.build = Builder(self.graph.name)
        self.storages = Storages(self.graph)

    def alias(self, node: Node) -> Alias:
        """The alias of a value; a new group on the first call for the root of a storage."""
        found = self.env.get(node, node)
        if type(found) is not Alias:
            meta: TensorMeta = node.meta  # type: ignore[assignment]
            found = self.env[node] = Alias(Group(meta, found), EMPTY_CHAIN, 0, meta, found, 0)
        return found

    def read(self, argument: object) -> Any:
        """The argument with nodes replaced by their current values; itself if none changes."""
        if type(argument) is Node:
            found = self.env.get(argument, argument)
            return self.sync(found) if type(found) is Alias else found
        if type(argument) is tuple:
            read = [self.read(item) for item in argument]
            return argument if all(map(is_, read, argument)) else tuple(read)
        return argument

    def sync(self, alias: Alias) -> Node:
        """The alias's current value; writes still pending are folded in first (FUN-6)."""
        group = alias.group
        if alias.value is None or alias.seen != group.version:
            if group.last is not None and group.last[0] is alias.chain:  # what was just written
                return group.last[1]
            self.fold(group)
            alias.value = self.replay(group, alias.chain)
            alias.seen = group.version
        return alias.value

    # --- replay of views
    def replay(self, group: Group, chain: ViewChain) -> Node:
        value = group.value
        for step in chain:
            if step.op is AS_STRIDED:
                value, step = from_root(self.exact(group.value, group.meta), step)
            if step.op not in SAME:
                value = self.memoized(value, step)
        return value

    def memoized(self, value: Node, step: ViewStep) -> Node:
        value = self.viewable(value, step)
        key = (value, step.op, step.args)
        found = self.memo.get(key)
        if found is None:
            reader = self.build.source
            self.build.source = self.views.get(step, reader)  # FUN-35
            found = self.memo[key] = self.shown(step.op, (value, *step.args))
            self.build.source = reader
        return found

    def shown(self, op: ViewOp, args: tuple[object, ...]) -> Node:
        """Emits a view. A copy in its place gets strides of which views can be taken."""
        found = self.build.emit(op.shown, args)
        if op.shown is op:
            return found
        stride = op.result(args)[0].stride
        meta: TensorMeta = found.meta  # type: ignore[assignment]
        if layout.same_order(meta.shape, meta.stride, stride) and 0 not in stride:
            return found
        return self.copy(found, stride, "views of it are taken, which eager's strides allow")

    # --- pending writes
    def fold(self, group: Group) -> None:
        """Scatters pending writes into the root's value, by the inverses of their chains (FUN-7).
        Note [View inverses] in `view_inverses.py`."""
        reader = self.build.source
        for chain, value, writer in group.pending:
            self.build.source = writer
            # The bits of a sum depend on the strides: the root keeps eager's (FUN-12).
            group.value = self.in_layout(self.put(group, chain, value), group.meta)
        self.build.source = reader
        group.pending = []

    def put(self, group: Group, chain: ViewChain, value: Node) -> Node:
        steps = [step for step in chain if step.op not in SAME]
        is_window = steps[0].op is AS_STRIDED
        parents = [self.exact(group.value, group.meta) if is_window else group.value]
        for step in steps[:-1]:
            parents.append(self.memoized(parents[-1], step))
        for step, parent in zip(reversed(steps), reversed(parents), strict=True):
            value = step.op.put(
                Proxy(self.build, parent), Proxy(self.build, value), *step.args
            ).node
            if step.op.recasts:  # by copies of bytes, which lie contiguously
                value = self.in_layout(value, parent.meta)  # type: ignore[arg-type]
        return value

    # --- strides
    def viewable(self, value: Node, step: ViewStep) -> Node:
        """The value in strides that allow the view: in eager's, if its own do not (FUN-12)."""
        if type(step.op) is ViewOp and step.op.recasts:  # it asks for the last stride
            return self.exact(value, step.operand)
        if step.op is VIEW:
            own: TensorMeta = value.meta  # type: ignore[assignment]
            if layout.view_strides(own.shape, own.stride, step.result.shape) is None:
                return self.exact(value, step.operand)
        return value

    def exact(self, value: Node, eager: Any) -> Node:
        """The value in eager's exact strides, which its reader speaks of (FUN-12)."""
        if value.meta.stride == eager.stride:  # type: ignore[union-attr]
            return value
        key = (value, RESTRIDE, (eager.stride,))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.copy(value, eager.stride, "its reader speaks of strides")
        return found

    def in_layout(self, value: Node, eager: TensorMeta) -> Node:
        """The value with dimensions in the memory order of the written tensor in eager (FUN-12)."""
        meta: TensorMeta = value.meta  # type: ignore[assignment]
        if layout.lies_like(meta.shape, meta.stride, eager.stride):
            return value
        stride = layout.packed_like(eager.shape, eager.stride)
        return self.copy(value, stride, "the tensor that is written lies so in memory")

    def copy(self, value: Node, stride: tuple[int, ...] | None, reason: str) -> Node:
        """Emits a copy in these strides, or in the value's own; notes it with its reason."""
        op, args = (CLONE, (value,)) if stride is None else (RESTRIDE, (value, stride))
        copy = self.build.emit(op, args)
        self.copies.append(Copy(copy, reason))
        return copy
