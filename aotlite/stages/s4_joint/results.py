"""The results of a captured function in the joint graph: final values, tape edges, layouts.

Used by stage 4 alone. Final values are read, by a detach, before the backward is recorded: a hook
in it may write them. Rules: JNT-2, FUN-18. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_root import ViewRoot
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Family, IntermediateBase, MutatedInput, Output, Part, Role
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED, DETACH
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import Plain
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s4_joint.recording_blocks import at_node
from aotlite.stages.shared.gradient_sinks import first_form, whole_edge
from aotlite.stages.shared.memory.extents import extent_view


@attrs.frozen(eq=False, repr=False)
class JointResults:
    """The results of one captured function. The constructor records reads of the final values."""

    captured: Captured
    meta: FunctionMeta
    outputs: list[tuple[Role, Node | None]] = attrs.field(init=False, factory=list)
    """The forward's outputs of the joint graph, in order."""
    _values: dict[Role, Node] = attrs.field(init=False, factory=dict)
    _sources: dict[Role, Any] = attrs.field(init=False)
    """Inputs and families, by role."""

    @_sources.default
    def _by_role(self) -> dict[Role, object]:
        return {source.role: source for source in self.captured.sources}

    def __attrs_post_init__(self) -> None:
        self._read_updated_inputs()
        self._read_results()
        self.outputs.extend(self.captured.recorder.streams.outputs(Phase.FORWARD))

    # --- final values
    def _read_updated_inputs(self) -> None:
        """Reads updated inputs in their geometry at entry.
        After a geometry op (`t_`, `resize_`) the input may not span all elements that were written.
        """
        for each in self.meta.updated:
            node = self._sources[each.role].placeholder
            if each.extent is not None:
                node = self.captured.recorder.add_node(AS_STRIDED, *extent_view(node, each.extent))
            self._read(MutatedInput(each.role), node)

    def _read_results(self) -> None:
        """Reads plain results, whole like updated inputs, and the bases of those that are views."""
        for index, output in enumerate(self.meta.outputs):
            if isinstance(output, Plain):
                value = self.captured.results[index].value
                role = self.meta.role_of(index)
                self._read(role, first_form(value) if output.geometry_steps else value)
        for index, base in enumerate(self.meta.bases):
            assert base.node is not None
            self._read(IntermediateBase(index), base.node)

    def _read(self, role: Role, node: Node) -> None:
        recorder = self.captured.recorder
        if node not in recorder.wrapped.nodes:  # of a wrapper, the parts are read
            with at_node(recorder, node):
                node = recorder.add_node(DETACH, (node,), node.meta)
            self.outputs.append((role, node))
        self._values[role] = node

    # --- the tape edge and the layout of a differentiable result
    def edge(self, result: ResultRole) -> Edge | None:
        """The tape edge at which a result's tangent enters. AutogradError if eager raises one."""
        match result:
            case MutatedInput(Family() as family):
                root: ViewRoot = self._sources[family].root
                return root.edge()
            case MutatedInput(of):
                return whole_edge(self._sources[of].fake)
            case Output() | Part():
                tensor = self.captured.results[self.captured.index_of(result)]
                output = self.meta.outputs[self.captured.index_of(result)]
                moved = isinstance(output, Plain) and output.geometry_steps
                return whole_edge(tensor) if moved else edge_of(tensor)
            case IntermediateBase(index):
                base = self.meta.bases[index]
                if base.holder is not None:
                    return whole_edge(self._sources[base.holder].fake)
                root = self.captured.results[base.witness]._root
                return root.edge()

    def layout(self, result: ResultRole) -> TensorMeta:
        """The meta of a result: that of its final value, or of the view that is rebuilt."""
        if isinstance(result, (Output, Part)) and result not in self._values:
            rebuilt: TensorMeta = self.captured.results[self.captured.index_of(result)].meta
            return rebuilt
        if isinstance(result, MutatedInput) and isinstance(result.of, Family):
            meta: TensorMeta = self._sources[result.of].root.meta
            return meta
        return self._values[result].meta  # type: ignore[return-value]
