"""One call of a compiled function: its flat arguments, ndarrays as tensors, and its results.

Used for calls that are not lists of tensors and numbers as they stand: containers, keyword
arguments, ndarrays, and the first call of each kind. Rules: GEN-7, DUP-5, ALI-1.
Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.functions import from_numpy
from aotlite.eager.observed import Observed
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.eager.wrappers import is_wrapper, leaves_of
from aotlite.stages.leaves import check_leaf
from aotlite.trees import dict_orders, flattened


@attrs.frozen(eq=False)
class Call:
    """Flat arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: list[Any]
    """The leaves as the caller passed them."""
    leaves: list[Any]
    """The leaves, with tensors for ndarrays."""
    spec: Any
    form: Any
    """What calls that share entries have in common: containers, keys and their order."""

    @property
    def is_flat(self) -> bool:
        """Whether the leaves are the positional arguments themselves."""
        return (
            not self.kwargs
            and len(self.args) == len(self.leaves)
            and all(a is leaf for a, leaf in zip(self.args, self.given, strict=True))
        )

    @property
    def has_arrays(self) -> bool:
        """Whether some argument is an ndarray."""
        return self.given is not self.leaves

    def tensors(self) -> list[tuple[int, Tensor]]:
        """(leaf index, tensor) of tensor and ndarray arguments.

        Raises ArgumentError for a leaf of an unknown kind (GEN-7), and for a tensor without data.
        """
        found = []
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                if leaf.storage.buffer is None and not (is_wrapper(leaf) and _is_whole(leaf)):
                    raise leaf.storage.no_data("compile")
                found.append((index, leaf))
            elif not isinstance(leaf, Observed):
                check_leaf(leaf, self._path(index))
        return found

    def _path(self, index: int) -> str:
        whole: Any = (self.args, self.kwargs)
        which, *rest = optree.tree_paths(whole, none_is_leaf=True)[index]
        name = f"{rest[0]}" if which == 0 else f"{rest[0]!r}"
        return name + "".join(f"[{key!r}]" for key in rest[1:])


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call with these arguments."""
    whole: Any = (args, kwargs)
    given: list[Any]
    given, spec = flattened(whole, "the arguments")
    leaves = given
    if any(isinstance(leaf, np.ndarray) for leaf in given):
        wrapped = _Wrapped()
        leaves = [wrapped.tensor(x) if isinstance(x, np.ndarray) else x for x in given]
    # Specs of dicts are equal whatever the order of their keys, which a function can see.
    return Call(args, kwargs, given, leaves, spec, (spec, dict_orders(whole)))


def _is_whole(wrapper: Tensor) -> bool:
    """Whether a wrapper is one of tensors with data, and none of a capture."""
    return wrapper.storage.capture is None and all(
        each.storage.buffer is not None for each in leaves_of(wrapper)
    )


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


def results_for_caller(result: Any, call: Call) -> Any:
    """The result with ndarrays where the caller passed ndarrays.

    A result that is an ndarray argument is that array; where every tensor argument is an ndarray,
    all results are ndarrays.
    """
    if not call.has_arrays:
        return result
    pairs = zip(call.leaves, call.given, strict=True)
    arrays = {id(mine): theirs for mine, theirs in pairs if mine is not theirs}
    only_arrays = not any(isinstance(leaf, (Tensor, Observed)) for leaf in call.given)

    def shown(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) in arrays:
                return arrays[id(value)]
            if only_arrays and not value.requires_grad:
                return value.numpy()
        return value

    return optree.tree_map(shown, result, none_is_leaf=True)
