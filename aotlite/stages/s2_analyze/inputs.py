"""The mutations of each input: of its data, its geometry, its history.

Used by stage 2 alone. Rules: META-2..META-4, FUN-17, FUN-19, FUN-20. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from aotlite.ir.graph import Node
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import InputMeta
from aotlite.stages.shared.memory.view_analysis import ViewAnalysis, ViewOf, is_through_hidden_alias
from aotlite.stages.shared.tape_queries import root_changed


@attrs.define(eq=False, repr=False)
class InputAnalysis:
    """Collects the writes to each storage of the graph, and makes the records of inputs."""

    captured: Captured
    seen: ViewAnalysis
    members: set[InputRole] = attrs.field(init=False)
    writes: dict[Node, list[Node]] = attrs.field(factory=dict)
    last: dict[Node, Node] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.members = {role for family in self.captured.families for role in family.members}
        for node in self.captured.graph.nodes:
            if type(node.target) is InplaceOp or type(node.target) is GeometryOp:
                sight = self.seen[node]
                self.writes.setdefault(sight.root, []).append(node)
                self.last[sight.object] = node

    def metas(self) -> Iterator[InputMeta]:
        for given in self.captured.inputs:
            yield self._meta(given)

    def final(self, node: Node) -> ViewOf:
        """The view of the Python object `node` after its last in-place op."""
        return self.seen[self.last.get(node, node)]

    def _meta(self, given: CapturedInput) -> InputMeta:
        node = given.placeholder
        data = [w for w in self.writes.get(node, ()) if isinstance(w.target, InplaceOp)]
        final = self.final(node)
        fake = given.fake
        moved = fake.meta is not given.entry_meta or fake.offset != given.entry_offset
        return InputMeta(
            role=given.role,
            meta=given.entry_meta,
            final_meta=fake.meta,
            final_start=fake.offset - given.entry_offset,
            geometry_steps=final.moves,
            place=given.place,
            is_leaf=given.is_leaf,
            requires_grad=given.requires_grad,
            requires_grad_at_exit=fake.requires_grad_outside(),
            writes_data=bool(data),
            writes_metadata=moved,
            under_no_grad=bool(data) and not any(w.grad_mode for w in data),
            through_hidden_alias=bool(data)
            and all(is_through_hidden_alias(self.seen[w].chain) for w in data),
            changes_history=bool(data) and given.role not in self.members and root_changed(given),
            version_bumps=given.storage.version,
            shares_outside=given.storage.exported,
            extent=self.captured.reach.get(given.role),
        )
