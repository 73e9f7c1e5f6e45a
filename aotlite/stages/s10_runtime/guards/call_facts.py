"""`ComparedCall`: all that the guards of an entry compare of a call, as data.

An entry's guards are made of the tensors of its first call (`GuardedValues`). An entry that is made
in another process has no such call: the facts of one are kept, and each call for which no entry is
made yet is compared with them. Used by programs in files. Rules: GRD-1, GRD-2, DUP-5.
Spec: `specs/programs.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import shared_memory
from aotlite.eager.tensor_facts import fact_words, facts_of
from aotlite.ir.graph.role import Primal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.symbols.assumption import concrete
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.s10_runtime.guards.failures import GuardFailure
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues
from aotlite.stages.s10_runtime.guards.writer import in_few_words

Names = Mapping[object, str]
"""The names of the flat arguments by number, and of hidden inputs by the names of their roles."""


@attrs.frozen(eq=False, repr=False)
class InputFacts(Record):
    """The facts of one input: those of `TensorFacts`, with the class by its name."""

    role: InputRole
    kind: str
    meta: TensorMeta
    requires_grad: bool
    is_leaf_requiring_grad: bool
    view_kind: CreationKind | None
    has_view_node: bool
    is_stale: bool
    is_leaf_view: bool
    is_on_plain_base: bool
    is_inference: bool
    is_watched_view: bool
    is_on_overlap: bool

    @classmethod
    def of(cls, role: InputRole, tensor: Tensor) -> InputFacts:
        """Those of a tensor."""
        found, kind = facts_of(tensor), type(tensor).__name__
        if isinstance(found, TensorMeta):
            return cls(role, kind, found, False, False, None, *[False] * 7)
        rest = {each.name: getattr(found, each.name) for each in attrs.fields(type(found))}
        return cls(role=role, **{**rest, "kind": kind})

    def __str__(self) -> str:
        return fact_words(self, self.kind, _meta_words(self.meta))


def _meta_words(meta: TensorMeta) -> str:
    return meta_text(meta) if meta.table is not None else str(meta)


@attrs.frozen(eq=False, repr=False)
class ViewFamily(Record):
    """Inputs that are views of one base, on which gradients depend (SYN-2)."""

    members: tuple[InputRole, ...]
    meta: TensorMeta | None
    """The base; None for a tensor that is no view, and no base."""
    chains: tuple[ViewChain, ...]
    are_views: tuple[bool, ...]


@attrs.frozen(eq=False, repr=False)
class ComparedCall(Record):
    """The facts of one call."""

    grad_mode: bool | None
    """None in inference mode."""
    leaves: tuple[object, ...]
    """The flat arguments: plain values, and for a tensor the role of the first place of it."""
    inputs: tuple[InputFacts, ...]
    sharing: object
    """How inputs share memory, where some are written: `shared_memory` (GRD-2); else None."""
    offsets: dict[InputRole, int]
    """Those that the function has read, in elements."""
    views: dict[InputRole, bool]
    """Whether inputs are views, where the function has asked (TEN-23)."""
    storage_bytes: dict[InputRole, int]
    """Of storages that the function resizes."""
    families: tuple[ViewFamily, ...]

    @classmethod
    def of(cls, values: GuardedValues) -> ComparedCall:
        """Those of a call's values."""
        tensors = values.tensors()
        first = {id(tensor): role for role, tensor in reversed(values.arguments.items())}
        written = [place for place, role in enumerate(tensors) if role in values.written]
        asked = written and len(tensors) > 1
        return cls(
            grad_mode=STATE.grad_mode,
            leaves=tuple([first.get(id(x), x) for x in values.leaves]),
            inputs=tuple([InputFacts.of(role, tensor) for role, tensor in tensors.items()]),
            sharing=shared_memory(list(tensors.values()), written) if asked else None,
            offsets={role: tensors[role].offset for role in sorted(values.fixed_offsets, key=str)},
            views=dict(values.fixed_views),
            storage_bytes={role: tensors[role].storage.nbytes() for role in values.fixed_sizes},
            families=_families(values, tensors),
        )

    def at(self, values: Mapping[str, int]) -> ComparedCall:
        """The facts with numbers for symbols, given by name."""
        inputs = [attrs.evolve(each, meta=each.meta.concrete(values)) for each in self.inputs]
        leaves = [concrete(leaf, values) for leaf in self.leaves]
        return attrs.evolve(self, inputs=tuple(inputs), leaves=tuple(leaves))

    def misfit(self, call: ComparedCall, names: Names) -> GuardFailure | None:
        """The first difference of a call; None if an entry made for these facts is valid for it.
        `names` are for the words."""
        return next(self._differences(call, names), None)

    def _differences(self, call: ComparedCall, names: Names) -> Iterator[GuardFailure]:
        if call.grad_mode is not self.grad_mode:
            yield GuardFailure("grad mode", f"{call.grad_mode}", f"{self.grad_mode}")
        for place, (mine, its) in enumerate(zip(self.leaves, call.leaves, strict=True)):
            if not _is_like(mine, its):
                is_own = isinstance(mine, Primal) and mine.index == place
                wanted = "a tensor of its own" if is_own else _words(mine, names)
                yield GuardFailure(names[place], _words(its, names), wanted)
        for one, other in zip(self.inputs, call.inputs, strict=True):
            if one.differences(other):
                yield GuardFailure(_name(one.role, names), str(other), str(one))
        for what, own, found in (
            ("the memory that inputs share", self.sharing, call.sharing),
            ("the offset of an input", self.offsets, call.offsets),
            ("whether inputs are views", self.views, call.views),
            ("the bytes of an input's memory", self.storage_bytes, call.storage_bytes),
        ):
            if own != found:
                inputs = [_name(each.role, names) for each in self.inputs]
                shown = [_facts_words(each, inputs, names) for each in (found, own)]
                yield GuardFailure(what, *shown)
        both = zip(self.families, call.families, strict=False)
        if len(self.families) != len(call.families) or any(_unlike(*pair) for pair in both):
            yield GuardFailure("the base of which inputs are views", "another", "as when captured")


def _families(values: GuardedValues, tensors: Mapping[InputRole, Any]) -> tuple[ViewFamily, ...]:
    found: dict[Any, list[InputRole]] = {}
    for role in values.view_family_members:
        found.setdefault(tensors[role]._root or role, []).append(role)
    return tuple([_family(roles, tensors) for roles in found.values()])


def _family(roles: list[InputRole], tensors: Mapping[InputRole, Any]) -> ViewFamily:
    root = tensors[roles[0]]._root
    members = [tensors[role] for role in roles]
    return ViewFamily(
        tuple(roles),
        None if root is None else root.meta,
        tuple([each._chain for each in members]),
        tuple([each._base is not None for each in members]),
    )


def _unlike(one: ViewFamily, other: ViewFamily) -> bool:
    if one.members != other.members:
        return True
    if len(one.members) == 1:  # it shares no base
        return False
    chains = zip(one.chains, other.chains, strict=True)
    same = one.meta is other.meta and one.are_views == other.are_views
    return not (same and all(a.is_like(b) for a, b in chains))


def _is_like(mine: object, its: object) -> bool:
    if type(mine) is not type(its):
        return False
    return mine == its and repr(mine) == repr(its) or (mine != mine and its != its)


def _facts_words(facts: Any, inputs: Sequence[str], names: Names) -> str:
    """Facts by role, or `shared_memory`, with the names of inputs."""
    if isinstance(facts, dict):
        return ", ".join([f"{fact} for {_name(role, names)}" for role, fact in facts.items()])
    groups, *pairs = facts or ((),)
    lines = [f"one for {' and '.join([inputs[k] for k in group])}" for group in groups]
    for i, j, distance in (pair for each in pairs for pair in each):
        lines.append(f"{inputs[j]} {distance} bytes behind {inputs[i]}")
    return ", ".join(lines) or "none"


def _words(value: object, names: Names) -> str:
    return f"the tensor {_name(value, names)}" if isinstance(value, Primal) else in_few_words(value)


def _name(role: object, names: Names) -> str:
    return names[role.index] if isinstance(role, Primal) else names.get(f"{role}", f"{role}")
