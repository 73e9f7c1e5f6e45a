"""One call of a compiled function: flat arguments, the key they are looked up by, and guards.

Rules: GRD-1, GRD-2, DUP-5: a compiled entry is valid for equal metadata, an equal pattern of shared
objects and overlapping storages, equal numbers, and equal things read outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.autograd.history import is_leaf_family
from aotlite.eager.functions import from_numpy
from aotlite.eager.observed import Observed
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage, no_data
from aotlite.eager.tensor import Tensor
from aotlite.ir.role import Hidden, Primal
from aotlite.pipeline import Compiled
from aotlite.stages.histories import is_stale
from aotlite.stages.places import Place
from aotlite.stages.recorder import (
    HiddenPlace,
    NoGradient,
    PlainValue,
    SamePlace,
    check_leaf,
    frozen_value,
)

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
            tuple([signature(tensor) for tensor in hidden]),
            alias_pattern(everything) if hidden else None,
            offsets,
        )


@attrs.frozen(eq=False)
class EntryGuard:
    """What an entry checks beyond the key of the call."""

    places: tuple[HiddenPlace, ...]
    others: tuple[Any, ...]
    signatures: tuple[Any, ...]
    pattern: Any
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
        if isinstance(leaf, Tensor) or type(leaf) is np.ndarray:
            tensor = leaf if isinstance(leaf, Tensor) else wrapped.tensor(leaf)
            if tensor.storage.buffer is None:
                raise no_data("compile")
            tensors.append((index, tensor))
            if first.setdefault(id(tensor), index) == index:
                by_role[Primal(index)] = tensor
            key.append((signature(tensor), type(leaf), first[id(tensor)]))
        elif isinstance(leaf, Observed):
            key.append((type(leaf), first.setdefault(id(leaf), index)))
        else:
            check_leaf(leaf, _path(args, kwargs, index))
            key.append(frozen_value(leaf) if not isinstance(leaf, np.generic) else _number(leaf))
    pattern = alias_pattern(list(by_role.values())) if len(by_role) > 1 else None
    return Call(leaves, spec, tensors, by_role, (spec, tuple(key), pattern, STATE.grad_mode))


def _number(value: np.generic) -> Any:
    return type(value), value.tobytes()


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
            tensor = self.made[id(array)] = from_numpy(array)
            self._share(array, tensor)
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
        if array.flags.writeable == shared.writable:
            tensor.storage = shared
            tensor.offset = start // array.itemsize


def signature(tensor: Tensor) -> Any:
    """What of one tensor a compiled entry depends on; not where it starts in its storage."""
    requires_grad = tensor.requires_grad_outside()
    return (
        type(tensor),
        tensor.meta,
        requires_grad,
        tensor._leaf and tensor._node is None,
        tensor._kind,
        tensor._kind is not None and tensor._node is not None,
        is_stale(tensor),
        requires_grad and tensor._base is not None and is_leaf_family(tensor),
    )


def alias_pattern(tensors: Sequence[Tensor]) -> Any:
    """Which tensors are one object, which share a storage and at what distance; None if none do."""
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    pattern = []
    shared = False
    for index, tensor in enumerate(tensors):
        first = storages.setdefault(id(tensor.storage), index)
        if first != index:
            shared = True
        same = objects.setdefault(id(tensor), index)
        pattern.append((first, tensor.offset - tensors[first].offset, same))
    return tuple(pattern) if shared else None


def guards_hold(guard: EntryGuard, call: Call) -> dict[Role, Tensor] | None:
    """The inputs of this call by role, or None if the entry is not valid for it."""
    leaves = call.leaves
    tensors: dict[Any, Tensor] = dict(call.by_role)
    for each, expected in zip(guard.places, guard.signatures, strict=True):
        tensor = each.place.resolve(leaves)
        if not isinstance(tensor, Tensor) or signature(tensor) != expected:
            return None
        tensors[Hidden(each.index)] = tensor
    if guard.places and alias_pattern(list(tensors.values())) != guard.pattern:
        return None
    for other in guard.others:
        if not _holds(other, leaves, tensors):
            return None
    for role, offset in guard.offsets.items():
        if tensors[role].offset != offset:
            return None
    return tensors


def _holds(guard: Any, leaves: list[Any], tensors: dict[Any, Tensor]) -> bool:
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
