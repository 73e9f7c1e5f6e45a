"""Stage 2, analyze: what the function does to its inputs and what its results alias.

Input: `Captured`. Output: the frozen `FunctionMeta`. Reads the imperative graph, and of the fakes
their autograd state; changes nothing. Rules: META-2..META-16, GEN-5. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of, is_stale
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import IntermediateBase, MutatedInput
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.records.capture import Captured, CapturedInput, InputRole
from aotlite.stages.records.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    BaseMeta,
    FamilyMeta,
    Fixed,
    InputMeta,
    IsInput,
    MemoryStep,
    OutputMeta,
    Plain,
    Repeated,
    ViewFacts,
)
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.s2_analyze.mutation_order import MutationOrder, count_plan, refuse_grown
from aotlite.stages.s2_analyze.storage_resize import check_growths
from aotlite.stages.s2_analyze.unsupported import (
    refuse_history,
    refuse_hooks_of_leaf,
    refuse_late,
    refuse_leaf_window,
    refuse_lost_base,
    refuse_overlap_with_history,
    refuse_reach_with_history,
    refuse_view_of_moved_kin,
)
from aotlite.stages.shared.tape_queries import follows_base, has_own_history, is_dead_end
from aotlite.stages.shared.user_frames import describe
from aotlite.stages.shared.view_analysis import ViewAnalysis, ViewOf, behind, is_hidden


def analyze(captured: Captured) -> FunctionMeta:
    """The metadata of a captured function.

    Raises AliasError, before anything ran, for inputs that overlap while one of them is written.
    """
    seen = ViewAnalysis(captured.graph)
    inputs = _Inputs(captured, seen)
    metas = tuple(inputs.metas())
    refuse_late(captured, metas)
    refuse_reach_with_history(captured, metas)
    families = tuple(_families(captured, metas))
    refuse_overlap_with_history(metas, families)
    changes = captured.recorder.changes
    check_growths(changes.growths, captured.graph.nodes, captured.results, tuple(changes.puts))
    timeline = MutationOrder(captured.recorder.changes, captured.graph.nodes)
    results = _Outputs(captured, seen, timeline)
    outputs = results.all()
    metas = tuple(_with_changes(inputs, metas, results, outputs))
    bases = tuple(results.bases)
    tangents = tuple(_tangents(metas, families, captured, outputs, bases))
    any_input = any(each.requires_grad or each.requires_grad_at_exit for each in metas)
    after = captured.grad_mode_after
    return FunctionMeta(
        inputs=metas,
        outputs=outputs,
        bases=bases,
        tangents=tangents,
        training=bool(tangents) and any_input and any(s.entries for s in captured.sources),
        grad_mode_after=after if after != captured.grad_mode_before else None,
        families=families,
        count_plan=count_plan(captured, outputs, metas),
        parts=captured.parts,
    )


def _tangents(
    inputs: tuple[InputMeta, ...],
    families: tuple[FamilyMeta, ...],
    captured: Captured,
    outputs: tuple[OutputMeta, ...],
    bases: tuple[BaseMeta, ...],
) -> Iterator[ResultRole]:
    """META-16: updated inputs, plain outputs, bases, where a gradient can arrive.

    A family stands where its first member does (SYN-7).
    """
    first = {f.members[0]: f.role for f in families if f.changes_history}
    for each in inputs:
        if each.changes_history:
            yield MutatedInput(each.role)
        if each.role in first:
            yield MutatedInput(first[each.role])
    for index, output in enumerate(outputs):
        if isinstance(output, Plain):
            if output.requires_grad and not output.is_leaf:
                yield captured.role_of(index)
        elif isinstance(output, Alias) and output.view.own_history:
            yield captured.role_of(index)
    for index, base in enumerate(bases):
        if base.requires_grad:
            yield IntermediateBase(index)


def _families(captured: Captured, metas: tuple[InputMeta, ...]) -> Iterator[FamilyMeta]:
    """The families, with the member through which each is written, if one is.

    A leaf that requires grad is not, where a history changes.
    """
    written = [m.role for m in metas if m.writes_data and not (m.is_leaf and m.requires_grad)]
    for family in captured.families:
        root, members = family.root, tuple(family.members)
        changes = _is_written(root.node, family.entry)
        through = next((role for role in members if role in written), members[0])
        yield FamilyMeta(family.role, root.meta, members, changes, through)


# --------------------------------------------------------------------------------------- inputs
class _Inputs:
    """Collects the writes to each input."""

    def __init__(self, captured: Captured, seen: ViewAnalysis) -> None:
        self.captured = captured
        self.seen = seen
        self.kin = {role for family in captured.families for role in family.members}
        self.writes: dict[Node, list[Node]] = {}
        self.last: dict[Node, Node] = {}
        for node in captured.graph.nodes:
            if type(node.target) is InplaceOp or type(node.target) is GeometryOp:
                sight = seen[node]
                self.writes.setdefault(sight.root, []).append(node)
                self.last[sight.object] = node

    def metas(self) -> Iterator[InputMeta]:
        for given in self.captured.inputs:
            yield self._meta(given)

    def final(self, node: Node) -> ViewOf:
        """How the object that this value is of is seen in the end."""
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
            hidden=bool(data) and all(is_hidden(self.seen[w].chain) for w in data),
            changes_history=bool(data) and given.role not in self.kin and _root_changed(given),
            version_bumps=given.storage.version,
            shares_outside=given.storage.exported,
            extent=self.captured.reach.get(given.role),
        )


def _with_changes(
    inputs: _Inputs, metas: tuple[InputMeta, ...], results: _Outputs, outputs: Sequence[OutputMeta]
) -> Iterator[InputMeta]:
    """The records with what else is done to the inputs (FUN-18, FUN-36)."""
    shown = {o.role for o in outputs if isinstance(o, AliasOfInput)}
    for given, meta in zip(inputs.captured.inputs, metas, strict=True):
        steps = results.timeline.steps(given, shown=given.role in shown)
        if steps:
            meta = attrs.evolve(
                meta,
                changes=tuple([results.step(s) if isinstance(s, Node) else s for s in steps]),
            )
        last = next((step for step in reversed(steps) if isinstance(step, Node)), None)
        if meta.resizes_storage:  # a history that it has is that of the memory it grew into
            meta = attrs.evolve(meta, changes_history=False)
        yield meta if last is None else _elsewhere(given, meta, inputs.final(last), results, last)


def _elsewhere(
    given: CapturedInput, meta: InputMeta, final: ViewOf, results: _Outputs, put: Node
) -> InputMeta:
    """The record of an input that was put onto other memory: its geometry is told from there."""
    fake = given.fake
    has_history = fake.requires_grad_outside() and not (fake._leaf and fake._node is None)
    kept = not has_history or edge_of(fake) == given.entry
    handed = kept or results.hand_over(given.role, meta, put)
    puts = [each for each in results.timeline.puts.values() if each.role == given.role]
    if not handed or any(each.is_left_behind() for each in puts):
        refuse_history(given)
    moved = final.moves
    return attrs.evolve(meta, writes_metadata=True, final_start=0, geometry_steps=moved)


def _root_changed(given: CapturedInput) -> bool:
    """Whether a data write gave the input's family another history."""
    fake = given.fake
    if fake._kind in RESTRICTED:
        return False  # a write that would change it is refused (TEN-19)
    if fake._root is not None:
        now = fake._root.node
    else:
        now = fake._node or (fake._accumulator if fake._leaf else None)
    return _is_written(now, given.entry)


def _is_written(node: TapeNode | None, entry: Edge | None) -> bool:
    """Whether a write made the node, and no change of who is a leaf (FUN-36)."""
    if node is None or type(node) is AccumulateGrad:
        return False
    return entry is None or node is not entry[0]


# -------------------------------------------------------------------------------------- outputs
class _Outputs:
    """Decides the kind of each result, first match wins (META-7)."""

    def __init__(self, captured: Captured, seen: ViewAnalysis, timeline: MutationOrder) -> None:
        self.captured = captured
        self.seen = seen
        self.timeline = timeline
        self.results = captured.results
        self.first = _first_places(self.results)
        self.sharing: dict[Node, list[int]] = {}
        """For each storage, by the node that made it, the places of the distinct results on it."""
        self.made: dict[Node, int] = {}
        """The place of the result, if there is one, that is the object which made the storage."""
        for index in self.first.values():
            sight = seen[self.results[index].value]
            self.sharing.setdefault(sight.root, []).append(index)
            given = captured.recorder.input_of(self.results[index])
            if sight.object is sight.root and given is None:
                self.made[sight.root] = index
        self.inputs = {given.placeholder: given for given in captured.inputs}
        self.bases: list[BaseMeta] = []
        self.base_of: dict[Node, int] = {}

        self.put_onto = {seen[value].root for value in timeline.puts}
        for value in timeline.puts:
            self.sharing.setdefault(seen[value].root, [])

    def all(self) -> tuple[OutputMeta, ...]:
        for index, result in enumerate(self.results):
            refuse_hooks_of_leaf(index, result)
        return tuple([self._kind(index, result) for index, result in enumerate(self.results)])

    def step(self, value: Node) -> MemoryStep:
        """What is done to an input that gets this value, on other memory (FUN-18)."""
        return MemoryStep(self._window(value), self.timeline.puts[value].grows)

    def hand_over(self, role: InputRole, meta: InputMeta, put: Node) -> bool:
        """Whether an input is put onto the whole of a base, whose history then is the input's."""
        last = meta.changes[-1]
        window = last.window if isinstance(last, MemoryStep) else None
        whole = all(step.op.cuts_history for step in self.seen[put].chain)
        if not isinstance(window, AliasOfBase) or not whole:
            return False
        base = self.bases[window.base]
        if base.requires_grad or base.holder is not None:
            return False
        self.bases[window.base] = attrs.evolve(base, requires_grad=True, holder=role)
        return True

    def _window(self, value: Node) -> Alias:
        sight = self.seen[value]
        if not self.timeline.puts[value].grows:
            refuse_grown(self.timeline, value)
        counted = self.timeline.puts[value].storage.version
        version = counted if is_hidden(sight.chain) else None
        view = ViewFacts(chain=sight.chain, kind=None, requires_grad=False, version=version)
        if sight.root in self.inputs:
            return AliasOfInput(self.inputs[sight.root].role, view)
        return self._alias(sight, view)

    def _after_put(self, index: int, result: Tensor, put: Node) -> OutputMeta:
        """A view of an input that was put onto other memory before (META-7)."""
        sight = self.seen[result.value]
        role = self.timeline.puts[put].role
        sight = attrs.evolve(sight, chain=behind(sight.chain, self.seen[put]))
        view = self._view(index, result, sight)
        view = attrs.evolve(view, chain=behind(view.chain, self.seen[put]))
        return self._of_input(role, result, view)

    def _of_input(self, role: InputRole, result: Tensor, view: ViewFacts) -> AliasOfInput:
        """A result that is rebuilt from an input as it was when the view was taken."""
        if role not in self.timeline.of:
            return AliasOfInput(role, view)
        outdated = result._root is not None and result._seen != result.storage.version
        return AliasOfInput(role, view, self.timeline.before(role, result.value), outdated)

    def _kind(self, index: int, result: object) -> OutputMeta:
        if not isinstance(result, Tensor):
            return Fixed(result)
        earlier = self.first[id(result)]
        if earlier != index:
            return Repeated(earlier)
        given = self.captured.recorder.input_of(result)
        if given is not None:
            return IsInput(given.role)
        sight = self.seen[result.value]
        base = result._base
        if id(base) in self.first and id(base) in self.captured.recorder.changes.moved:
            refuse_lost_base(index, self.first[id(base)], result)
        put = self.timeline.put(result.value)
        if put is not None:
            return self._after_put(index, result, put)
        if sight.root in self.inputs:
            self._check_kin(index, result, self.inputs[sight.root])
            self._check_leaf_window(index, self.inputs[sight.root])
            role = self.inputs[sight.root].role
            return self._of_input(role, result, self._view(index, result, sight))
        if sight.object is sight.root:
            return _plain(result, sight.root.meta, sight.moves)  # type: ignore[arg-type]
        shared = len(self.sharing[sight.root]) > 1 or sight.root in self.put_onto
        if shared or result._kind is not None or has_own_history(result):
            return self._alias(sight, self._view(index, result, sight))
        return _plain(result, result.meta, EMPTY_CHAIN)

    def _check_kin(self, index: int, result: Tensor, given: CapturedInput) -> None:
        left = given.role in {put.role for put in self.timeline.puts.values() if not put.grows}
        if left and given.family is not None and result.requires_grad_outside():
            refuse_view_of_moved_kin(index, result, given.place)

    def _view(self, index: int, result: Tensor, sight: ViewOf) -> ViewFacts:
        """What is said of every result that is rebuilt as a view."""
        is_leaf = result._leaf and result._node is None
        return ViewFacts(
            own_history=self._own_history(index, result, sight),
            is_leaf=is_leaf,
            chain=self.seen[sight.object].chain,
            kind=result._kind,
            requires_grad=result.requires_grad_outside(),
            stale=is_stale(result),
            keeps_node=is_stale(result) and result._node is not None,
            is_inference=result.is_inference(),
            under_grad=self._under_grad(result, sight),
            is_dead_end=is_dead_end(result),
            follows_base=self._is_of_leaf(sight) and follows_base(result),
            geometry_steps=sight.moves,
            version=result.storage.version if is_hidden(sight.chain) else None,
        )

    def _alias(self, sight: ViewOf, view: ViewFacts) -> Alias:
        output = self.made.get(sight.root)
        if output is not None:
            return AliasOfOutput(output, view)
        base = self.base_of.get(sight.root)
        if base is None:
            base = self.base_of[sight.root] = len(self.bases)
            self.bases.append(self._base(sight))
        return AliasOfBase(base, view)

    def _base(self, sight: ViewOf) -> BaseMeta:
        meta: TensorMeta = sight.root.meta  # type: ignore[assignment]
        version, exported = 0, False
        for output in self.sharing[sight.root]:
            other = self.results[output]
            if not is_hidden(self.seen[other.value].chain):
                version = other.storage.version
            exported = exported or other.storage.exported
            if not _detached(self.seen[other.value].chain):
                root = other._root
                requires_grad = root is not None and root.requires_grad
                return BaseMeta(sight.root, meta, requires_grad, output, version, exported)
        return BaseMeta(sight.root, meta, False, -1, version, exported)

    def _check_leaf_window(self, index: int, given: CapturedInput) -> None:
        """A view of the leaf's new window, rebuilt from its old one, would sum what overlaps."""
        last = self.seen[given.fake.value]
        if given.is_leaf and given.requires_grad and any(s.op is AS_STRIDED for s in last.moves):
            refuse_leaf_window(index, given)

    def _own_history(self, index: int, result: Tensor, sight: ViewOf) -> bool:
        """Whether the gradient of a rebuilt result goes through the compiled backward (META-8)."""
        if not result.requires_grad_outside() or result._leaf and result._node is None:
            return False
        if has_own_history(result):
            return True
        family = result._root
        if _detached(sight.chain):
            if sight.chain[-1].op.cuts_history:  # its history is that of writes, seen or not yet
                return True
            how = None if self._is_of_detached(sight) else "a view of what detach() gave"
        else:
            of_a_leaf = family is not None and not family.requires_grad and result._node is not None
            given = self.inputs.get(sight.root)
            taken = given is not None and given.role in self.timeline.of  # rebuilt as it was taken
            if taken or self._is_of_leaf(sight):
                of_a_leaf = False
            how = "a view of a view made a leaf" if of_a_leaf else None
        if how is not None:
            raise noted(
                UnsupportedError(
                    f"analyze: output {index} is {how}, shares memory with another tensor and has "
                    "a history of its own, expected one history for one memory"
                ),
                describe(result.value.location),
                "Return a clone() of it, or what it is a view of, too. (META-8)",
            )
        return False

    def _under_grad(self, result: Tensor, sight: ViewOf) -> bool:
        """Whether grad mode was on, so that the view has its source's history.

        A view of a leaf that does not require grad was taken through one made under no_grad.
        """
        taken = result._kind is not CreationKind.NO_GRAD or result._node is not None
        return taken and (result.requires_grad_outside() or not self._is_of_leaf(sight))

    def _is_of_leaf(self, sight: ViewOf) -> bool:
        given = self.inputs.get(sight.root)
        return given is not None and given.fake._leaf

    def _is_of_detached(self, sight: ViewOf) -> bool:
        """Whether what detach() gave is a result, of which this is then a view like any other."""
        made = [self.seen[self.results[i].value] for i in self.sharing[sight.root]]
        last = [step for step in sight.chain if step.op.cuts_history][-1]
        return any(other.chain and other.chain[-1] is last for other in made)


def _first_places(results: tuple[Any, ...]) -> dict[int, int]:
    """The first place of each tensor among the results, by its id."""
    first: dict[int, int] = {}
    for index, result in enumerate(results):
        if isinstance(result, Tensor):
            first.setdefault(id(result), index)
    return first


def _detached(chain: ViewChain) -> bool:
    return any(step.op.cuts_history for step in chain)


def _plain(result: Tensor, meta: TensorMeta, steps: ViewChain) -> Plain:
    """The record of a result that the forward returns with this meta, before these geometry ops."""
    is_leaf = result._leaf and result._node is None
    storage = result.storage
    grad = result.requires_grad_outside()
    return Plain(grad, meta, storage.version, steps, is_leaf, storage.exported)
