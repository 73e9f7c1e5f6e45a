"""Flattens the arguments of a call, with tensors in place of ndarrays; rebuilds its results.

Used by `api` for each call that no entry of its flat calls takes: one with containers, keyword
arguments or ndarrays, and one that fails the guards of all. Rules: GEN-7, DUP-5, ALI-1, NDA-2,
NDA-5. Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.array_stand_in import (
    ArrayStandIn,
    is_stand_in,
    refuse_subclass,
    stands_for_scalar,
    tensor_of,
)
from aotlite.eager.creation.interop import from_numpy
from aotlite.eager.subclass.protocol import is_wrapper, leaves_of
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import ArgumentError, noted
from aotlite.pipeline.containers.argument_writes import (
    ArgumentCopies,
    WrittenContainers,
    containers_by_id,
    shared_containers,
)
from aotlite.pipeline.containers.leaf_paths import leaf_paths, steps_text
from aotlite.stages.records.capture import Containers, NumpyResult
from aotlite.stages.records.guards.snapshots import PLAIN, image_of_key


# ---------------------------------------------------------------------------------------- calls
@attrs.frozen(eq=False, repr=False)
class FlatArguments:
    """The flat arguments of one call, and their containers."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    given: list[Any]
    """The leaves as the caller passed them."""
    leaves: list[Any]
    """The leaves, with tensors for ndarrays."""
    spec: Any
    form: Any
    """Containers, dict keys in order, places of ndarrays."""
    key: Any
    """The key of calls that share entries: the form, and which containers are one."""
    shared: frozenset[Any] = frozenset()
    """The paths of containers that are passed in several places (GEN-14)."""
    takes_fakes: bool = False
    """Whether tensors of a fake mode are accepted: an export runs nothing (EXP-18)."""

    @property
    def is_flat(self) -> bool:
        """Whether the leaves are the positional arguments themselves."""
        return (
            not self.kwargs
            and not self.has_arrays
            and len(self.args) == len(self.leaves)
            and all(a is leaf for a, leaf in zip(self.args, self.given, strict=True))
        )

    @property
    def has_arrays(self) -> bool:
        """Whether some argument is an ndarray."""
        return self.given is not self.leaves

    def first_of_array(self) -> list[int | None]:
        """For each leaf the index of the first leaf that is the same ndarray; None for others."""
        first: dict[int, int] = {}
        return [
            first.setdefault(id(leaf), index) if isinstance(leaf, np.ndarray) else None
            for index, leaf in enumerate(self.given)
        ]

    def tensors(self) -> list[tuple[int, Tensor]]:
        """(leaf index, tensor) of tensor and ndarray arguments.

        Raises ArgumentError for a leaf of an unsupported type (GEN-7), or a tensor without data.
        """
        found = []
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                if leaf.storage.buffer is None and not self._accepts(leaf):
                    raise leaf.storage.no_data("compile")
                found.append((index, leaf))
            elif not isinstance(leaf, TrackedObject):
                check_leaf(leaf, _path((self.args, self.kwargs), index))
        return found

    def _accepts(self, tensor: Tensor) -> bool:
        """Whether a tensor without a buffer is an argument all the same."""
        if is_wrapper(tensor):
            return _is_whole(tensor)
        return self.takes_fakes and getattr(tensor.storage.capture, "is_fake_mode", False)


def call_of(args: tuple[object, ...], kwargs: dict[str, object]) -> FlatArguments:
    """The call with these arguments."""
    whole: Any = (args, kwargs)
    given: list[Any]
    given, spec = flattened(whole, "the arguments")
    leaves = given
    arrays = tuple([i for i, leaf in enumerate(given) if isinstance(leaf, np.ndarray)])
    if arrays:
        for index in arrays:
            if type(given[index]) is not np.ndarray:
                refuse_subclass(given[index], f"argument {_path(whole, index)}")
        wrapped = _Wrapped()
        leaves = [wrapped.tensor(x) if isinstance(x, np.ndarray) else x for x in given]
    # Specs of dicts are equal whatever the order of their keys, which a function can see.
    is_nested = kwargs or any(isinstance(arg, (dict, list, tuple)) for arg in args)
    orders = dict_orders(whole) if is_nested else ()
    # Beside args, kwargs and the pair of both: one container alone lies in one place.
    containers = spec.num_nodes - spec.num_leaves - 3
    shared = shared_containers(args, kwargs) if containers > 1 else frozenset()
    form = spec, orders, arrays
    key = (form, shared) if shared else form
    return FlatArguments(args, kwargs, given, leaves, spec, form, key, shared)


def on_leaves(
    function: Callable[..., object], call: FlatArguments, *, writes: bool = False
) -> Callable[[list[object]], object]:
    """`function` on flat arguments, with an `ArrayStandIn` for each ndarray (NDA-2).

    With `writes`, results may be `WrittenContainers`; without, a function that changes a list or
    dict among its arguments is refused (GEN-14).
    The closure holds no argument: an error raised inside keeps its frame, and with it the closure.
    """
    spec, firsts, shared = call.spec, call.first_of_array(), call.shared
    ids = containers_by_id(call.args, call.kwargs) if writes else {}

    def run(leaves: list[Any]) -> object:
        made: dict[int, ArrayStandIn] = {}
        seen = [
            leaf if first is None else made.setdefault(first, ArrayStandIn(leaf))
            for leaf, first in zip(leaves, firsts, strict=True)
        ]
        args, kwargs = optree.tree_unflatten(spec, seen)
        copies = ArgumentCopies.of(args, kwargs)
        result = function(*args, **kwargs)
        if writes:
            reaches = attrgetter("around.numbers.reaches")(STATE.recorder)
            reached = frozenset([path for path, number in ids.items() if reaches(number)])
            return copies.with_writes(result, shared, reached)
        copies.refuse_writes("return what it puts there, and put it into the container outside")
        return result

    return run


def _path(whole: Any, index: int) -> str:
    """The path of a leaf of (args, kwargs) in error messages."""
    which, *rest = leaf_paths(whole)[index]
    name = f"{rest[0]}" if which == 0 else f"{rest[0]!r}"
    return name + steps_text(rest[1:])


def _is_whole(wrapper: Tensor) -> bool:
    """Whether all parts of a wrapper have data, and it belongs to no capture."""
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
            shared.exported = True
        if array.flags.writeable == shared.writable:
            tensor.storage = shared
            tensor.offset = start // array.itemsize


def check_leaf(leaf: Tensor, path: str) -> None:
    """Raises ArgumentError for an argument that is neither a graph input nor guardable (GEN-7)."""
    if not isinstance(leaf, (*PLAIN, Tensor, np.ndarray, np.generic, TrackedObject)):
        raise noted(
            ArgumentError(
                f"compile: argument {path} is {leaf!r} of type {type(leaf).__name__}, expected a "
                "tensor, ndarray, number, bool, str, None, Module or optimizer"
            ),
            "Pass its tensors instead, or register its type as a pytree with optree. (GEN-7)",
        )


# ------------------------------------------------------------------------------------- results
def flat_results(result: object) -> tuple[list[object], Containers]:
    """The flat results, with tensors for `ArrayStandIn`s, and their containers."""
    leaves, spec = flattened(result, "the results")
    bare = [tensor_of(leaf) if is_stand_in(leaf) else leaf for leaf in leaves]
    return bare, Containers(spec, tuple([_numpy_result(leaf) for leaf in leaves]))


def _numpy_result(leaf: Tensor) -> NumpyResult | None:
    if not is_stand_in(leaf):
        return None
    return NumpyResult.SCALAR if stands_for_scalar(leaf) else NumpyResult.ARRAY


def results_for_caller(
    result: Any, call: FlatArguments, kinds: tuple[NumpyResult | None, ...]
) -> object:
    """The result with ndarrays and NumPy scalars where the function returned such (NDA-5). The
    caller's containers are written as the function has written their copies (GEN-14).

    A returned ndarray argument is that very array; results that are one object stay one object.
    """
    if call.has_arrays and any(kinds):
        result = _with_arrays(result, call, kinds)
    if type(result) is WrittenContainers:
        return result.written(call.args, call.kwargs)
    return result


def _with_arrays(result: Any, call: FlatArguments, kinds: tuple[NumpyResult | None, ...]) -> object:
    pairs = zip(call.leaves, call.given, strict=True)
    shown = {id(mine): theirs for mine, theirs in pairs if mine is not theirs}
    leaves, spec = optree.tree_flatten(result, none_is_leaf=True)
    for place, kind in enumerate(kinds):
        if kind is not None:
            value = leaves[place]
            if id(value) not in shown:
                array = value.numpy()
                shown[id(value)] = array if kind is NumpyResult.ARRAY else array[()]
            leaves[place] = shown[id(value)]
    return optree.tree_unflatten(spec, leaves)


# ------------------------------------------------------------------------------------- containers
def flattened(tree: Any, what: str) -> tuple[list[Any], Any]:
    """The leaves of nested containers, None among them, and the optree spec.

    Raises ArgumentError, naming `what`, for containers that contain themselves or are nested
    deeper than optree supports.

    >>> flattened({"a": [1, None]}, "the arguments")[0]
    [1, None]
    """
    try:
        leaves, form = optree.tree_flatten(tree, none_is_leaf=True)
    except RecursionError:
        how = "contain themselves" if contains_itself(tree) else "are nested too deep for optree"
        raise ArgumentError(
            f"compile: {what} {how}, expected lists, tuples and dicts in finite nesting"
        ) from None
    return leaves, form


def contains_itself(tree: object) -> bool:
    """Whether a list, tuple or dict contains itself, at any depth.

    >>> loop = []
    >>> loop.append(loop)
    >>> contains_itself(loop), contains_itself([[], []])
    (True, False)
    """
    above: set[int] = set()
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        value, left = stack.pop()
        if left:
            above.discard(id(value))
        elif isinstance(value, (list, tuple, dict)):
            if id(value) in above:
                return True
            above.add(id(value))
            stack.append((value, True))
            items = value.values() if isinstance(value, dict) else value
            stack.extend((item, False) for item in items)
    return False


def dict_orders(tree: Any) -> tuple[object, ...]:
    """The keys of every dict in nested containers, in order: optree specs ignore the order.

    >>> dict_orders(({"b": 1, "a": {}},))
    (((<class 'str'>, 'b'), (<class 'str'>, 'a')),)
    """
    found = []
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value:
                keys = [(str, k) if type(k) is str else image_of_key(k) for k in value]
                found.append(tuple(keys))
                stack.extend(reversed(value.values()))
        elif type(value) in (list, tuple):
            stack.extend(reversed(value))
    return tuple(found)
