"""Classifies each result: an input, an alias of an input or intermediate, or new memory.

The records are `IsInput`, `AliasOfInput`, `AliasOfOutput`, `AliasOfBase`, `Plain`, and so on.
Used by stage 2 alone. Rules: META-5..META-15. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

import attrs

from aotlite.eager.autograd.differentiable_views import is_stale
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    BaseMeta,
    Fixed,
    IsInput,
    OutputMeta,
    Plain,
    Repeated,
    ViewFacts,
)
from aotlite.stages.s2_analyze.mutation_order import MutationOrder
from aotlite.stages.s2_analyze.unsupported import (
    refuse_hooks_of_leaf,
    refuse_leaf_window,
    refuse_lost_base,
    refuse_view_in_moved_family,
)
from aotlite.stages.shared.memory.view_analysis import (
    ViewAnalysis,
    ViewOf,
    is_through_hidden_alias,
    rest_of_chain,
)
from aotlite.stages.shared.tape_queries import follows_base, has_own_history, is_dead_end
from aotlite.stages.shared.user_frames import describe


# Note [aliases of results and bases]
#     def f(x): y = x * 2; return y[0], y[1]
# In eager both results share one storage: a write to one raises the version of the other, and their
# gradients meet in y. Two returned tensors would be two storages. So the graph returns y itself, an
# intermediate base, and the runtime replays `select` on it. One view alone (`return y[0]`) is
# returned as it is: nobody can tell. Stage 4 finds the base's tape edge through `witness`, a result
# in y's view family, since any of them may have been written.
@attrs.define(eq=False, repr=False)
class OutputAnalysis:
    """Classifies each result; the first match wins (META-7).
    Note [aliases of results and bases]."""

    captured: Captured
    seen: ViewAnalysis
    timeline: MutationOrder
    first: dict[int, int] = attrs.field(init=False)
    sharing: dict[Node, list[int]] = attrs.field(factory=dict)
    """By the node that made a storage: the indices of the distinct results on it."""
    made: dict[Node, int] = attrs.field(factory=dict)
    """By the node that made a storage: the result that is this first object, if one is."""
    inputs: dict[Node, CapturedInput] = attrs.field(init=False)
    bases: list[BaseMeta] = attrs.field(factory=list)
    base_of: dict[Node, int] = attrs.field(factory=dict)
    put_onto: set[Node] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.first = _first_places(self.captured.results)
        for index in self.first.values():
            sight = self.seen[self.captured.results[index].value]
            self.sharing.setdefault(sight.root, []).append(index)
            given = self.captured.recorder.input_of(self.captured.results[index])
            if sight.object is sight.root and given is None:
                self.made[sight.root] = index
        self.inputs = {given.placeholder: given for given in self.captured.inputs}
        self.put_onto = {self.seen[value].root for value in self.timeline.puts}
        for value in self.timeline.puts:
            self.sharing.setdefault(self.seen[value].root, [])

    def all(self) -> tuple[OutputMeta, ...]:
        for index, result in enumerate(self.captured.results):
            refuse_hooks_of_leaf(index, result)
        return tuple(
            [self._kind(index, result) for index, result in enumerate(self.captured.results)]
        )

    def _after_put(self, index: int, result: Tensor, put: Node) -> OutputMeta:
        """The record of a view of an input that `set_` had moved before (META-7)."""
        sight = self.seen[result.value]
        role = self.timeline.puts[put].role
        sight = attrs.evolve(sight, chain=rest_of_chain(sight.chain, self.seen[put]))
        view = self._view(index, result, sight)
        view = attrs.evolve(view, chain=rest_of_chain(view.chain, self.seen[put]))
        return self._of_input(role, result, view)

    def _of_input(self, role: InputRole, result: Tensor, view: ViewFacts) -> AliasOfInput:
        """The record of a view of an input, with the input's changes before it was taken."""
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
            self._check_family(index, result, self.inputs[sight.root])
            self._check_leaf_window(index, self.inputs[sight.root])
            role = self.inputs[sight.root].role
            return self._of_input(role, result, self._view(index, result, sight))
        if sight.object is sight.root:
            return _plain(result, sight.root.meta, sight.moves)  # type: ignore[arg-type]
        shared = len(self.sharing[sight.root]) > 1 or sight.root in self.put_onto
        if shared or result._kind is not None or has_own_history(result):
            return self.alias(sight, self._view(index, result, sight))
        return _plain(result, result.meta, EMPTY_CHAIN)

    def _check_family(self, index: int, result: Tensor, given: CapturedInput) -> None:
        left = given.role in {put.role for put in self.timeline.puts.values() if not put.grows}
        if left and given.family is not None and result.requires_grad_outside():
            refuse_view_in_moved_family(index, result, given.place)

    def _view(self, index: int, result: Tensor, sight: ViewOf) -> ViewFacts:
        """The facts by which the runtime rebuilds a result as a view."""
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
            follows_base=self._is_of_leaf(sight)
            and follows_base(result, self.inputs[sight.root].fake),
            geometry_steps=sight.moves,
            version=result.storage.version if is_through_hidden_alias(sight.chain) else None,
        )

    def alias(self, sight: ViewOf, view: ViewFacts) -> Alias:
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
            other = self.captured.results[output]
            if not is_through_hidden_alias(self.seen[other.value].chain):
                version = other.storage.version
            exported = exported or other.storage.exported
            if not _detached(self.seen[other.value].chain):
                root = other._root
                requires_grad = root is not None and root.requires_grad
                return BaseMeta(sight.root, meta, requires_grad, output, version, exported)
        return BaseMeta(sight.root, meta, False, -1, version, exported)

    def _check_leaf_window(self, index: int, given: CapturedInput) -> None:
        """Refuses a view of a leaf after `as_strided_`.
        Rebuilt from the leaf's geometry at entry, its gradient would be summed where it overlaps.
        """
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
            if sight.chain[-1].op.cuts_history:  # detach(): its history is that of later writes
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
                    "a history of its own, expected one history for tensors that share memory"
                ),
                describe(result.value.location),
                "Return a clone() of it, or what it is a view of, too. (META-8)",
            )
        return False

    def _under_grad(self, result: Tensor, sight: ViewOf) -> bool:
        """Whether grad mode was on when the view was taken, so that it has its source's history.
        A view of a leaf, if it does not require grad, goes back to a view made under no_grad."""
        taken = result._kind is not CreationKind.NO_GRAD or result._node is not None
        return taken and (result.requires_grad_outside() or not self._is_of_leaf(sight))

    def _is_of_leaf(self, sight: ViewOf) -> bool:
        given = self.inputs.get(sight.root)
        return given is not None and given.fake._leaf

    def _is_of_detached(self, sight: ViewOf) -> bool:
        """Whether the result of `detach()` is a result too: then this is a plain view of it."""
        made = [self.seen[self.captured.results[i].value] for i in self.sharing[sight.root]]
        last = [step for step in sight.chain if step.op.cuts_history][-1]
        return any(other.chain and other.chain[-1] is last for other in made)


def _first_places(results: tuple[object, ...]) -> dict[int, int]:
    """The first index of each tensor among the results, by its id."""
    first: dict[int, int] = {}
    for index, result in enumerate(results):
        if isinstance(result, Tensor):
            first.setdefault(id(result), index)
    return first


def _detached(chain: ViewChain) -> bool:
    return any(step.op.cuts_history for step in chain)


def _plain(result: Tensor, meta: TensorMeta, steps: ViewChain) -> Plain:
    """The record of a result that the forward returns with `meta`; the runtime then replays the
    geometry ops `steps` on it."""
    is_leaf = result._leaf and result._node is None
    storage = result.storage
    grad = result.requires_grad_outside()
    return Plain(grad, meta, storage.version, steps, is_leaf, storage.exported)
