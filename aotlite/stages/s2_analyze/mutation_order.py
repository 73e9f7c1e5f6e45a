"""The order of metadata mutations (`set_`, `detach_`, ..) relative to views and writes.

A result that is a view of an input is rebuilt from the input as it was when the view was taken: so
many of its changes are done before. Stage 1 records the changes (`s1_capture/metadata_mutations`).
Rules: FUN-18, FUN-36, TEN-26. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import IntermediateBase, Result
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfOutput,
    InputMeta,
    OutputMeta,
    Plain,
    StateStep,
)
from aotlite.stages.records.trace import MetadataTrace, StorageCounts
from aotlite.stages.records.version_counts import CountPlan
from aotlite.stages.shared.memory.owners import windows_of
from aotlite.stages.shared.user_frames import describe


class MutationOrder:
    """The metadata mutations of a capture, and their places among the nodes."""

    def __init__(self, changes: MetadataTrace, nodes: tuple[Node, ...]) -> None:
        self.of = changes.of
        self.puts = changes.puts
        self._nodes = nodes

    @cached_property
    def _places(self) -> dict[Node, int]:
        calls = [node for node in self._nodes if node.op != "placeholder"]
        return {node: i for i, node in enumerate(calls)}

    def before(self, role: InputRole, view: Node) -> int:
        """The number of the input's changes before `view` was taken.

        Of a view of a view the first one counts: both have its storage and history.
        """
        changes = self.of.get(role)
        if not changes:
            return 0
        way = [node for node in self._way(view) if _is_view(node) and node not in self.puts]
        place = min([self._places[node] for node in way])
        return sum(change.position <= place for change in changes)

    def put(self, value: Node) -> Node | None:
        """The value that an input got by `set_`, if `value` is a view of it; else None."""
        last = value
        for node in self._way(value):
            last = node
        return last if last in self.puts else None

    def _way(self, node: Node) -> Iterator[Node]:
        """`node` and its operands through views and writes, back to a `set_` or a new storage."""
        while node.op == "call":
            yield node
            op = node.target
            if node in self.puts:
                return
            if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
                node = node.args[0].args[0]
            elif isinstance(op, (ViewOp, InplaceOp, GeometryOp)):
                node = node.args[0]
            else:
                return

    def steps(self, given: CapturedInput, *, shown: bool) -> tuple[StateStep | Node, ...]:
        """The changes that each call makes to the input; only their net effect where no result is
        a view that was taken in between (FUN-36).
        """
        steps = tuple([change.step for change in self.of.get(given.role, ())])
        states = tuple([step for step in steps if isinstance(step, StateStep)])
        return steps if shown or len(states) < len(steps) else _net(states, given)


def _net(steps: tuple[StateStep, ...], given: CapturedInput) -> tuple[StateStep, ...]:
    first = (StateStep.DETACH,) if StateStep.DETACH in steps else ()
    if not steps or not first and _is_as_it_was(given):
        return ()
    return first if steps[-1] in first else (*first, steps[-1])


def _is_as_it_was(given: CapturedInput) -> bool:
    """Whether the input's autograd state is that at entry."""
    fake = given.fake
    if given.requires_grad != fake.requires_grad_outside():
        return False
    if not given.requires_grad or given.is_leaf:
        return fake._node is None
    return given.entry is not None and fake._node is given.entry[0]


def _is_view(node: Node) -> bool:
    return isinstance(node.target, ViewOp) or node.target is GETITEM


def refuse_grown(timeline: MutationOrder, value: Node) -> None:
    """Raises where `set_` moves an input to a storage that `resize_` made grow."""
    source = timeline.put(value.args[0])
    if source is not None and timeline.puts[source].grows:
        raise noted(
            UnsupportedError(
                "analyze: set_ moves an input to a storage that resize_ made grow, expected a "
                "storage that does not grow in the same call"
            ),
            describe(value.location),
            "Call one of the two outside of the compiled function. (FUN-18)",
        )


def count_plan(
    captured: Captured, outputs: Sequence[OutputMeta], inputs: Sequence[InputMeta]
) -> CountPlan | None:
    """How version counters follow from those at entry, where `set_` was called; None elsewhere."""
    counts: StorageCounts = captured.recorder.changes.counts
    if not counts.steps:
        return None
    owners: dict[int, Any] = {id(given.storage): given.role for given in captured.inputs}
    pairs = enumerate(zip(captured.results, outputs, strict=True))
    seen = [(i, r.storage, o) for i, (r, o) in pairs if isinstance(r, Tensor)]
    seen += [(-1, storage, window) for window, storage in windows_of(captured, inputs)]
    for index, storage, output in seen:
        owner = _owner(captured, index, output)
        if owner is not None:
            owners.setdefault(id(storage), owner)
    found = tuple([owners.get(id(storage)) for storage in counts.storages])
    totals = tuple([storage.version for storage in counts.storages])
    return CountPlan(found, tuple(counts.steps), counts.rest(), totals)


def _owner(captured: Captured, index: int, output: OutputMeta) -> Result | None:
    """The role of the result or base that owns the storage of result `index`; None for others."""
    match output:
        case Plain():
            return captured.role_of(index)
        case AliasOfBase(base, view) if view.version is None:
            return IntermediateBase(base)
        case AliasOfOutput(of, view) if view.version is None:
            return captured.role_of(of)
    return None
