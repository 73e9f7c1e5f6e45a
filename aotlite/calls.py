"""One call of a compiled function: flat arguments, the key they are looked up by, and guards.

Rules: GRD-1, GRD-2, DUP-5: a compiled entry is valid for equal metadata, an equal pattern of shared
objects and overlapping storages, equal numbers, and equal things read outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.facts import facts_of
from aotlite.eager.functions import from_numpy
from aotlite.eager.observed import Observed
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage, no_data
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AliasError, noted
from aotlite.ir.role import Hidden, Primal
from aotlite.pipeline import Compiled
from aotlite.stages.frozen import frozen_value
from aotlite.stages.guards import (
    HiddenPlace,
    NoGradient,
    PlainValue,
    SamePlace,
    Surroundings,
)
from aotlite.stages.places import Place
from aotlite.stages.recorder import check_leaf

Role = Primal | Hidden


@attrs.frozen(eq=False)
class Call:
    """Flat arguments of one call."""

    leaves: list[Any]
    spec: Any
    tensors: list[tuple[int, Tensor]]
    """(leaf index, tensor) of tensor and ndarray arguments."""
    by_role: dict[Any, Tensor]
    """The distinct tensors, by the role of their first place."""
    key: Any

    def guard_of(self, compiled: Compiled) -> EntryGuard:
        """What another call with this key must still satisfy."""
        hidden = compiled.hidden
        everything = [*self.by_role.values(), *hidden]
        offsets = {
            role: tensor.offset
            for role, tensor in _all_roles(self, hidden).items()
            if role in compiled.fixed_offsets
        }
        return EntryGuard(
            tuple([g for g in compiled.guards if isinstance(g, HiddenPlace)]),
            tuple([g for g in compiled.guards if not isinstance(g, HiddenPlace)]),
            tuple([facts_of(tensor) for tensor in hidden]),
            alias_pattern(everything),
            any(each.version_bumps for each in compiled.meta.inputs),
            offsets,
        )


@attrs.frozen(eq=False)
class EntryGuard:
    """What an entry checks beyond the key of the call."""

    places: tuple[HiddenPlace, ...]
    others: tuple[Any, ...]
    signatures: tuple[Any, ...]
    pattern: Any
    writes: bool
    """Something is written: which inputs share memory, and how, must be as it was (GRD-2)."""
    offsets: dict[Any, int]


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call with these arguments. Raises ArgumentError for a leaf of an unknown kind (GEN-7)."""
    whole: Any = (args, kwargs)
    leaves: list[Any]
    leaves, spec = optree.tree_flatten(whole, none_is_leaf=True)
    tensors: list[tuple[int, Tensor]] = []
    by_role: dict[Any, Tensor] = {}
    first: dict[int, int] = {}
    key: list[Any] = []
    wrapped = _Wrapped()
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, (Tensor, np.ndarray)):
            tensor = leaf if isinstance(leaf, Tensor) else wrapped.tensor(leaf)
            if tensor.storage.buffer is None:
                raise no_data("compile")
            tensors.append((index, tensor))
            if first.setdefault(id(tensor), index) == index:
                by_role[Primal(index)] = tensor
            key.append((facts_of(tensor), type(leaf), first[id(tensor)]))
        elif isinstance(leaf, Observed):
            key.append((type(leaf), first.setdefault(id(leaf), index)))
        else:
            check_leaf(leaf, _path(args, kwargs, index))
            key.append(frozen_value(leaf))
    # Specs of dicts are equal whatever the order of their keys, which a function can see.
    form = (spec, dict_orders(whole), tuple(key), STATE.grad_mode)
    return Call(leaves, spec, tensors, by_role, form)


def dict_orders(value: Any) -> Any:
    """The order of keys of every dict in nested containers; None where there is none."""
    if isinstance(value, dict):
        items = value.items()
        return tuple([(type(key), key, dict_orders(item)) for key, item in items]) or None
    if type(value) in (list, tuple):
        found = [dict_orders(item) for item in value]
        return tuple(found) if any(item is not None for item in found) else None
    return None


def _path(args: Any, kwargs: Any, index: int) -> str:
    whole: Any = (args, kwargs)
    paths = optree.tree_paths(whole, none_is_leaf=True)
    which, *rest = paths[index]
    name = f"{rest[0]}" if which == 0 else f"{rest[0]!r}"
    return name + "".join(f"[{key!r}]" for key in rest[1:])


class _Wrapped:
    """Tensors over the ndarrays of one call; arrays of one owner share a storage."""

    def __init__(self) -> None:
        self.made: dict[int, Tensor] = {}
        self.storages: dict[int, Storage] = {}

    def tensor(self, array: np.ndarray) -> Tensor:
        tensor = self.made.get(id(array))
        if tensor is None:
            plain = array if type(array) is np.ndarray else array.view(np.ndarray)
            tensor = self.made[id(array)] = from_numpy(plain)
            self._share(plain, tensor)
        return tensor

    def _share(self, array: np.ndarray, tensor: Tensor) -> None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if owner is array and id(owner) not in self.storages:
            self.storages[id(owner)] = tensor.storage
            return
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        if not owner.flags.c_contiguous or start % array.itemsize or owner.dtype.kind == "V":
            return
        shared = self.storages.get(id(owner))
        if shared is None:
            shared = self.storages[id(owner)] = Storage(owner, writable=owner.flags.writeable)
            shared.exported = True
        if array.flags.writeable == shared.writable:
            tensor.storage = shared
            tensor.offset = start // array.itemsize


def alias_pattern(tensors: Sequence[Tensor]) -> Any:
    """Which tensors share a storage, at what distance, and which memory from outside is shared.

    None if nothing is. Two storages can lie on one memory where NumPy's arrays lead there.
    """
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    pattern = []
    shared = False
    for index, tensor in enumerate(tensors):
        first = storages.setdefault(id(tensor.storage), index)
        shared = shared or first != index
        same = objects.setdefault(id(tensor), index)
        pattern.append((first, tensor.offset - tensors[first].offset, same))
    foreign = tuple(foreign_overlaps(tensors))
    return (tuple(pattern) if shared else None, foreign) if shared or foreign else None


def foreign_overlaps(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Pairs of tensors on different storages whose memory overlaps, by bounds.

    Only memory that is also an ndarray's can do that.
    """
    exported = [(i, t) for i, t in enumerate(tensors) if t.storage.exported]
    for k, (i, a) in enumerate(exported):
        for j, b in exported[k + 1 :]:
            if a.storage is not b.storage and np.may_share_memory(a.array, b.array):
                yield i, j


def refuse_foreign_overlap(call: Call, compiled: Compiled) -> None:
    """ALI-1 for memory that different storages lie on, as ndarrays can lead to.

    Raises AliasError where one of the tensors is written.
    """
    everything = [*call.by_role.values(), *compiled.hidden]
    metas = [compiled.meta.input_of(role) for role in _all_roles(call, compiled.hidden)]
    for i, j in foreign_overlaps(everything):
        if metas[i].writes_data or metas[j].writes_data:
            raise noted(
                AliasError(
                    f"compile: {metas[i].place} and {metas[j].place} overlap in memory, by "
                    "ndarrays, and one of them is written, expected written inputs that overlap no "
                    "other input"
                ),
                "Pass one tensor, and take the views inside the function. (ALI-1)",
            )


def guards_hold(guard: EntryGuard, call: Call) -> dict[Role, Tensor] | None:
    """The inputs of this call by role, or None if the entry is not valid for it."""
    leaves = call.leaves
    tensors: dict[Any, Tensor] = dict(call.by_role)
    for each, expected in zip(guard.places, guard.signatures, strict=True):
        tensor = each.place.resolve(leaves)
        if not isinstance(tensor, Tensor) or facts_of(tensor) is not expected:
            return None
        tensors[Hidden(each.index)] = tensor
    if guard.writes and alias_pattern(list(tensors.values())) != guard.pattern:
        return None
    for other in guard.others:
        if not _holds(other, call, tensors):
            return None
    for role, offset in guard.offsets.items():
        if tensors[role].offset != offset:
            return None
    return tensors


def _holds(guard: Any, call: Call, tensors: dict[Any, Tensor]) -> bool:
    leaves = call.leaves
    if isinstance(guard, Surroundings):
        return guard.changed(leaves, list(call.by_role.values())) is None
    place: Place = guard.place
    value = place.resolve(leaves)
    match guard:
        case PlainValue():
            return bool(frozen_value(value) == guard.frozen)
        case SamePlace():
            return value is tensors[guard.role]
        case NoGradient():
            return value is None
    return False


def what_changed(guard: EntryGuard, call: Call) -> str:
    """The place of the first thing that is not as the entry was compiled for, for a message."""
    for other in guard.others:
        if isinstance(other, Surroundings):
            place = other.changed(call.leaves, list(call.by_role.values()))
            if place is not None:
                return str(place)
        elif isinstance(other, PlainValue):
            if frozen_value(other.place.resolve(call.leaves)) != other.frozen:
                return str(other.place)
    return "something that it reads"


def _all_roles(call: Call, hidden: Sequence[Tensor]) -> dict[Any, Tensor]:
    return {**call.by_role, **{Hidden(i): tensor for i, tensor in enumerate(hidden)}}


def results_for_caller(flat: list[Any], call: Call) -> list[Any]:
    """Results with ndarrays where the caller passed ndarrays.

    A result that is an ndarray argument is that array; where every tensor argument is an ndarray,
    all results are ndarrays.
    """
    arrays = {
        id(t): call.leaves[i] for i, t in call.tensors if not isinstance(call.leaves[i], Tensor)
    }
    if not arrays:
        return flat
    only_arrays = not any(isinstance(leaf, (Tensor, Observed)) for leaf in call.leaves)
    found = []
    for value in flat:
        if isinstance(value, Tensor):
            if id(value) in arrays:
                value = arrays[id(value)]
            elif only_arrays and not value.requires_grad:
                value = value.numpy()
        found.append(value)
    return found
