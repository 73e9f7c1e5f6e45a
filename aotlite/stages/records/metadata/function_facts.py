"""`FunctionFacts`, the facts of stage 2 on a function. Counts are derived from them.

Spec: `specs/s2_analyze.md`. Rules: META-2..META-16.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import SupportsIndex

import attrs

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Family, Output, Part, Result, Role
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.call_effects import GradWrite, RegisteredHook
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.version_counts import CountPlan


# ------------------------------------------------------------------------------- 2 analyze
@attrs.frozen(eq=False, repr=False)
class MemoryStep(Record):
    """An input gets other memory, by `set_` or `resize_` (FUN-18)."""

    window: Alias
    """Its view of the new memory."""
    grows: bool = False
    """Whether its own memory grows, and takes the bytes of the new one."""


class StateStep(Enum):
    """A change of the autograd state of an input, by the method that makes it (FUN-36)."""

    DETACH = "detach_()"
    TRACK = "requires_grad_()"
    UNTRACK = "requires_grad_(False)"


@attrs.frozen(eq=False, repr=False)
class InputMeta(Record):
    """The function's effects on one input (META-2)."""

    role: InputRole
    meta: TensorMeta
    final_meta: TensorMeta
    final_start: int
    """Elements from the entry's first element to the final one's."""
    geometry_steps: ViewChain
    """The geometry ops that lead from the entry geometry to the final one."""
    place: str
    is_leaf: bool
    """As `Tensor.is_leaf` at entry."""
    requires_grad: bool
    """Whether it requires grad at entry."""
    requires_grad_at_exit: bool
    writes_data: bool
    writes_metadata: bool
    under_no_grad: bool
    """Every data write happened with grad mode off."""
    changes_history: bool
    """A data write changed its tape edge: its new value is a differentiable result (META-16)."""
    version_bumps: int
    """The number by which a call raises the version of its storage."""
    through_hidden_alias: bool = False
    """Every data write went through a hidden alias, which its version does not count (FUN-19)."""
    hidden = property(attrgetter("through_hidden_alias"), doc="The name in the release before.")
    changes: tuple[StateStep | MemoryStep, ...] = ()
    """The changes of its autograd state and memory at each call, in order (FUN-18, FUN-36)."""
    shares_outside: bool = False
    """A hidden alias of it was taken: its memory may not move (TEN-5)."""
    extent: tuple[int, int] | None = None
    """Where windows of as_strided show more than it spans: the first element and the one behind the
    last, from its own first one. Written bytes are those of all that is seen (FUN-11)."""
    in_graph: bool = False
    """The compiled graph itself writes its bytes; the runtime gets no new value (META-3)."""
    written_late: bool = False
    """The backward writes it (FUN-31)."""

    @property
    def writes_storage(self) -> bool:
        """Whether it is put onto other memory (FUN-18): `writes_data` speaks of the old."""
        return any(isinstance(c, MemoryStep) and not c.grows for c in self.changes)

    @property
    def resizes_storage(self) -> bool:
        """Whether its memory grows (FUN-18): `writes_data` speaks of what it was before."""
        return any(isinstance(c, MemoryStep) and c.grows for c in self.changes)

    @property
    def writes(self) -> bool:
        """Whether the caller can see a change of bytes or geometry."""
        return self.writes_data or self.writes_metadata


@attrs.frozen(eq=False, repr=False)
class FamilyMeta(Record):
    """Inputs that overlap and are views of one base (SYN-2)."""

    role: Family
    meta: TensorMeta
    """The base."""
    members: tuple[InputRole, ...]
    changes_history: bool
    """A data write changed the base's history, which is one result for all members (SYN-7).

    It has no value of its own; its tangent has the base's geometry."""
    through: InputRole
    """The member that is written."""
    reason: str = ""
    """Why its members could not do without it, had they symbols for sizes; or empty (SYN-12)."""


@attrs.frozen(eq=False, repr=False)
class Plain(Record):
    """A result with a storage of its own: the compiled forward returns it.

    Results that share the storage are rebuilt from this one (`AliasOfOutput`).
    """

    requires_grad: bool
    meta: TensorMeta
    """Its meta as the forward returns it, before `geometry_steps`."""
    version: int = 0
    """The number of writes of its storage in the function."""
    geometry_steps: ViewChain = EMPTY_CHAIN
    """The geometry ops that the object went through; its views were taken before or after them."""
    is_leaf: bool = False
    """The function made it a leaf that requires grad."""
    shares_outside: bool = False
    """A hidden alias of it was taken (TEN-5)."""


@attrs.frozen(eq=False, repr=False)
class IsInput(Record):
    """A result that is an input object itself."""

    role: InputRole


@attrs.frozen(eq=False, repr=False)
class ViewFacts(Record):
    """Facts of a result that is rebuilt as a view (META-5)."""

    chain: ViewChain
    """The views from its source to it (META-11)."""
    kind: CreationKind | None
    requires_grad: bool
    stale: bool = False
    """Its storage was written after it was taken: with a kind, asking for its history raises."""
    keeps_node: bool = False
    """It is stale, and has its old tape node: its base may not require grad any more."""
    under_grad: bool = True
    """Taken with grad mode on."""
    is_dead_end: bool = False
    """It has a tape node, but passes no gradient to the base: a view of a no-grad view (TEN-21)."""
    geometry_steps: ViewChain = EMPTY_CHAIN
    """The geometry ops that the object went through after it was taken."""
    version: int | None = None
    """The writes counted by a storage of its own, which a hidden alias has (TEN-5)."""
    own_history: bool = False
    """Its gradient goes through the compiled backward, and not by its base: the backward of a
    custom function, a hook, or a write after detach() lies between (META-8)."""
    is_leaf: bool = False
    """The function made it a leaf that requires grad."""
    is_inference: bool = False
    """It is a view of an inference tensor, and has no base (TEN-22)."""
    follows_base: bool = False
    """A view of a leaf on memory of a written base: it has the base's history (TEN-23)."""


@attrs.frozen(eq=False, repr=False)
class AliasOfInput(Record):
    """A result to be rebuilt from an input by replaying a chain of views (META-6)."""

    role: InputRole
    view: ViewFacts
    changes_before: int = 0
    """The number of the input's changes before it was taken."""
    outdated: bool = False
    """Its memory was written after its history was last asked for."""


@attrs.frozen(eq=False, repr=False)
class AliasOfBase(Record):
    """A result to be rebuilt from intermediate base number `base`."""

    base: int
    view: ViewFacts


@attrs.frozen(eq=False, repr=False)
class AliasOfOutput(Record):
    """A result to be rebuilt from another result, the base of its storage."""

    output: int
    view: ViewFacts


@attrs.frozen(repr=False)
class Repeated(Record):
    """A result that is the same object as an earlier one."""

    output: int


@attrs.frozen(eq=False, repr=False)
class Fixed(Record):
    """A result that is no tensor: a value, or an `ArgumentLeaf`."""

    value: object

    def __repr__(self) -> str:
        return f"Fixed({self.value!r})"


Alias = AliasOfInput | AliasOfBase | AliasOfOutput
OutputMeta = Plain | IsInput | AliasOfInput | AliasOfBase | AliasOfOutput | Repeated | Fixed


@attrs.frozen(eq=False, repr=False)
class BaseMeta(Record):
    """A base that is returned for the results that are its views (META-9)."""

    node: Node | None
    """The node that made the storage; None once the captured graph is freed."""
    meta: TensorMeta
    requires_grad: bool
    witness: int
    """A result of the base's differentiable family: through it the base's tape edge is found."""
    version: int = 0
    """The number of writes of its storage in the function."""
    shares_outside: bool = False
    """A hidden alias of it was taken (TEN-5)."""
    holder: InputRole | None = None
    """The input that gets its memory and history, by `set_` (FUN-18)."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """The record without its node: pickles hold no captured graph (META-26)."""
        return Record.__reduce_ex__(attrs.evolve(self, node=None), protocol)


def role_of_result(
    index: int, total: int, parts: tuple[Part, ...], counts: tuple[str, ...]
) -> Output | Part:
    """The role of result number `index` of so many: the function's own ones, then the values of
    symbols, then the inner tensors of wrappers."""
    own = total - len(parts)
    if index >= own:
        return parts[index - own]
    place = index - own + len(counts)
    return Output(index) if place < 0 else Output(index, counts[place])


@attrs.frozen(eq=False, repr=False)
class FunctionFacts(Record):
    """What a function writes, what its results alias, and what is differentiable.

    `FunctionMeta` adds derived numbers and sentences.
    """

    inputs: tuple[InputMeta, ...]
    outputs: tuple[OutputMeta, ...]
    bases: tuple[BaseMeta, ...]
    tangents: tuple[Result, ...]
    """Differentiable results in order: updated inputs, plain outputs, bases (META-16)."""
    training: bool
    """Whether a backward graph is made (GEN-5); stage 4 adds those that reach no input (TOK-4)."""
    grad_mode_after: bool | None
    """The grad mode after the function; None if it did not change it (META-24)."""
    families: tuple[FamilyMeta, ...] = ()
    count_plan: CountPlan | None = None
    """The version counters of storages, if tensors moved to other memory."""
    parts: tuple[Part, ...] = ()
    """The roles of the last of `outputs`, which are inner tensors of wrappers (SUB-13)."""
    wrappers: Mapping[Role, SubclassMeta] = {}
    """How wrapper inputs, results and bases are rebuilt, by role: `SubclassMeta`s (SUB-3)."""
    grads: tuple[GradWrite, ...] = ()
    """The `.grad`s that a call sets."""
    hooks: tuple[RegisteredHook, ...] = ()
    """The hooks that each call registers."""
    inside: Mapping[int, tuple[int, str]] = {}
    """Which results are parts of other ones that are views: of which, and where, such as `a.b`."""
    failure: str = ""
    """The message that every backward raises, as eager's does (DBL-3); empty if one is possible."""

    computed_sizes: tuple[str, ...] = ()
    """The symbols that depend on values, of which the last results before the parts are the values
    (DYN-5)."""

    def role_of(self, index: int) -> Output | Part:
        """The role of result number `index`."""
        return role_of_result(index, len(self.outputs), self.parts, self.computed_sizes)

    def index_of(self, role: Output | Part) -> int:
        """The number of the result with this role."""
        if isinstance(role, Output):
            return role.index
        return len(self.outputs) - len(self.parts) + self.parts.index(role)

    def input_of(self, role: InputRole) -> InputMeta:
        """The record of the input with this role."""
        return self._by_role[role]

    @cached_property
    def _by_role(self) -> dict[InputRole, InputMeta]:
        return {each.role: each for each in self.inputs}

    @property
    def updated(self) -> tuple[InputMeta, ...]:
        """The inputs whose bytes are written."""
        return tuple(each for each in self.inputs if each.writes_data)
