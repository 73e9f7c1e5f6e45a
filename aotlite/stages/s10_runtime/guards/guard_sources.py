"""`GuardedValues`: the values from which an entry's guards are made.

Used by the pipeline. Rules: GRD-1 to GRD-4. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, Hidden, Part, Primal, part_suffix
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.assumption import concrete
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.guards.guard_records import Guard, hidden_places
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s10_runtime.guards.overlap import refuse_foreign_overlap
from aotlite.stages.shared.memory.view_families import is_of_its_own


@attrs.frozen(eq=False, repr=False)
class GuardedFacts:
    """The facts that guards check, apart from the tensors of a call."""

    inputs: tuple[InputRole, ...]
    guards: tuple[Guard, ...]
    offset_read: frozenset[InputRole]
    sizes: dict[InputRole, int]
    """The bytes of storages that the function resizes."""
    viewed: frozenset[InputRole]
    """The inputs of which the function has read whether they are views."""
    hooks: tuple[Callable[..., object], ...]

    @classmethod
    def of(cls, captured: Captured, meta: FunctionMeta) -> GuardedFacts:
        """Those of a captured function."""
        recorder, sizes = captured.recorder, captured.recorder.sizes
        return cls(
            tuple([given.role for given in captured.inputs]),
            (*recorder.guards, *(() if sizes is None else sizes.floats.guards())),
            frozenset(recorder.offset_read),
            dict(recorder.changes.sizes),
            frozenset(recorder.changes.viewed),
            tuple([function for _, function in captured.hooks]),
        )

    def at(self, values: Mapping[str, int]) -> GuardedFacts:
        """The facts with numbers for symbols, given by name."""
        sizes = {role: concrete(size, values) for role, size in self.sizes.items()}
        return attrs.evolve(self, sizes=sizes)

    def of_prefix(self) -> GuardedFacts:
        """Those of a part of the function that writes nothing."""
        return attrs.evolve(self, sizes={}, hooks=())

    def tensors(self, leaves: Sequence[Any]) -> dict[Any, Tensor]:
        """The tensors of a call by role: arguments, hidden inputs, and parts of these."""
        places = hidden_places(self.guards)

        def found(role: Any) -> Any:
            if isinstance(role, Primal):
                return leaves[role.index]
            if isinstance(role, Hidden):
                return places[role.index].resolve(list(leaves))
            return getattr(found(role.of), role.attr)

        return {role: found(role) for role in self.inputs}

    def values(
        self,
        leaves: Sequence[object],
        reals: dict[InputRole, Tensor],
        meta: FunctionMeta,
        bases: Sequence[BaseInput],
        partition: Partition,
    ) -> GuardedValues:
        """The values for the guards, where `reals` are the tensors of a call by role.
        Raises AliasError for inputs that share foreign memory."""
        refuse_foreign_overlap(reals, meta)
        return GuardedValues(
            leaves=tuple(leaves),
            arguments={role: real for role, real in reals.items() if isinstance(role, Primal)},
            parts={role: real for role, real in reals.items() if isinstance(role, Part)},
            wrappers={role: each for role, each in meta.wrappers.items() if role in reals},
            hidden=tuple(real for role, real in reals.items() if isinstance(role, Hidden)),
            guards=self.guards,
            fixed_offsets=self.offset_read,
            fixed_sizes=self.sizes,
            fixed_views={role: reals[role]._base is not None for role in self.viewed},
            written=frozenset(
                each.role
                for each in meta.inputs
                if each.writes or each.version_bumps or each.written_late
            ),
            needed={
                each.role: (reals[each.role].offset + each.extent[1]) * each.meta.dtype.itemsize
                for each in meta.inputs
                if each.extent is not None
            },
            view_family_members=_view_family_members(meta, reals, bases, partition.backward),
            hooks=self.hooks,
        )


def guarded_values_of(
    leaves: Sequence[object],
    captured: Captured,
    meta: FunctionMeta,
    bases: Sequence[BaseInput],
    partition: Partition,
) -> GuardedValues:
    """The values for the guards of the call that was captured.
    Raises AliasError for inputs that share foreign memory."""
    real_of = captured.recorder.real_of
    reals = {given.role: real_of(given.fake) for given in captured.inputs}
    return GuardedFacts.of(captured, meta).values(leaves, reals, meta, bases, partition)


def _view_family_members(
    meta: FunctionMeta,
    reals: Mapping[InputRole, Tensor],
    bases: Sequence[BaseInput],
    backward: Graph | None,
) -> tuple[Any, ...]:
    """Inputs whose gradients depend on how they are views of one base."""
    if backward is None:
        return ()
    merged = [
        role
        for roles in [[member.role for member in base.members] for base in bases]
        if _may_share_histories(meta, reals, roles)
        for role in roles
    ]
    reached = {role.of for role, meta in backward.output_metas_with(Gradient) if meta is not None}
    for family in meta.families:
        if family.changes_history or family.role in reached:
            merged += family.members
    return tuple(dict.fromkeys(merged))


def _may_share_histories(
    meta: FunctionMeta, reals: Mapping[InputRole, Tensor], roles: Collection[InputRole]
) -> bool:
    """Whether it matters for gradients if these inputs, of which one is written, are views of one
    base. It does not where no write has a history, and each is a leaf or has one of its own."""
    if any(role in family.members for family in meta.families for role in roles):
        return True
    return any(
        each.changes_history
        or each.changes
        or each.writes_metadata
        or not (each.is_leaf or is_of_its_own(reals[each.role]))
        for each in map(meta.input_of, roles)
    )


@attrs.frozen(eq=False, repr=False)
class GuardedValues:
    """The tensors of the first call, and the objects outside that the function read."""

    leaves: Sequence[Any]
    """The flat arguments, tensors for ndarrays."""
    arguments: dict[InputRole, Tensor]
    """The distinct tensor arguments by the role of their first place."""
    hidden: tuple[Tensor, ...]
    parts: dict[InputRole, Tensor]
    """The distinct inner tensors of wrappers."""
    wrappers: dict[InputRole, SubclassMeta]
    """How each wrapper is rebuilt, also those that are parts."""
    guards: tuple[object, ...]
    fixed_offsets: frozenset[InputRole]
    fixed_sizes: dict[InputRole, int]
    """The bytes of storages that the function resizes."""
    fixed_views: dict[InputRole, bool]
    """Whether inputs are views, for inputs whose autograd state changes (TEN-23)."""
    written: frozenset[InputRole]
    """Inputs on written storages: they must share memory as at the first call (GRD-2)."""
    needed: dict[InputRole, int]
    """The bytes that the storage must have, for inputs whose span `as_strided` exceeds."""
    view_family_members: tuple[InputRole, ...]
    """Inputs whose gradients depend on how they are views of one base (SYN-2)."""
    hooks: tuple[Any, ...]
    """The functions that each call registers as hooks (HOOK-1)."""
    sized: Mapping[InputRole, TensorMeta | None] = {}
    """For a text that serves many sizes: the inputs of other sizes in other calls, with their metas
    with symbols; None for an int (DYN-41)."""

    def tensors(self) -> dict[InputRole, Tensor]:
        """All inputs by role."""
        hidden: dict[InputRole, Tensor] = {Hidden(i): t for i, t in enumerate(self.hidden)}
        return {**self.arguments, **hidden, **self.parts}


def name_of(role: InputRole) -> str:
    """The variable of an input in a run-time function."""
    if isinstance(role, Part):
        return f"{name_of(role.of)}{part_suffix(role.attr)}"  # type: ignore[arg-type]
    return f"a{role.index}" if isinstance(role, Primal) else f"h{role.index}"
