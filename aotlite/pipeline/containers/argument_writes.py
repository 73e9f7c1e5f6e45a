"""Writes of a function to lists and dicts among its arguments: each call does them again.

    def step(x, log):                 traced:    step(fake, [])        the copy becomes [fake]
        log.append(x * 2)             captured:  results WrittenContainers(None, [x * 2])
                                      at a call: the graph runs, then log[:] = [x * 2]

A capture calls the function with copies of the containers. The contents of a copy that has changed
become further results, and each call puts them into the caller's container, which stays the same
object. What the function puts back where it was, or elsewhere in its arguments, is the caller's own
object. Used by `arguments` and `api`. Rule: GEN-14. Spec: `specs/rules/gen.md`.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np
import optree

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.array_stand_in import is_stand_in
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.stages.records.guards.snapshots import PLAIN

Path = tuple[Any, ...]
"""Keys and indices from (args, kwargs) to a container."""

_DICTS = (dict, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, collections.deque)
_WRITABLE = frozenset((*_DICTS, *_SEQUENCES))
_LEAVES = (*PLAIN, Tensor, TrackedObject)
_LEAF_TYPES = frozenset((*PLAIN, Tensor))
_RESULTS = (*_LEAVES, SymInt, SymBool, SymFloat, SizeFloat)


# ------------------------------------------------------------------------------ while it is traced
@attrs.define(eq=False, repr=False)
class ArgumentCopies:
    """The containers that a traced function is called with, and what they held before."""

    _held: dict[int, tuple[Path, Any, tuple[Any, ...]]]
    """By `id` the path, the container, and its keys and values."""

    @classmethod
    def of(cls, args: object, kwargs: object) -> ArgumentCopies:
        """The containers in the arguments of one call."""
        return cls({id(found[1]): found for found in _containers(args, kwargs)})

    def with_writes(
        self, result: object, shared: frozenset[Path], reached: frozenset[Path]
    ) -> object:
        """The result of the function; `WrittenContainers` if it has changed a container.

        Raises UnsupportedError for a change that no call can do again; `shared` lie in several
        places, `reached` are variables of the function, too.
        """
        changed = [each for each in self._held.values() if not _is_same(_content(each[1]), each[2])]
        if not changed:
            return result
        for path, value, _ in changed:
            if type(value) not in _WRITABLE:
                raise _refused(path, value, "keep what changes in a list or dict, or return it")
            for paths, where in ((shared, "passed in another place"), (reached, "a variable")):
                if path in paths:
                    raise _refused(path, value, f"pass a copy: the same object is {where}, too")
        self._check_made(changed[0][:2], result, [value for _, value, _ in changed])
        contents = collections.OrderedDict[Any, Any]()
        for path, value, _ in changed:
            keys, values = _content(value)  # type: ignore[misc]
            place = path, keys if isinstance(value, dict) else None
            contents[place] = self._marked(list(values))
            self._check(path, value, contents[place])
        return WrittenContainers(self._marked(result), contents)

    def _check_made(self, at: tuple[Path, Any], result: object, changed: list[Any]) -> None:
        """Raises UnsupportedError for a key that only a capture has, and for a list or dict that
        the function has made and put into two places: a call makes two of it."""
        met: set[int] = set()
        stack: list[Any] = [result, *[each for value in changed for each in _content(value)[1]]]  # type: ignore[index]
        keys = [key for value in changed for key in _content(value)[0]]  # type: ignore[index]
        while stack:
            value = stack.pop()
            content = None if self._is_given(value) else _content(value)
            if content is None:
                continue
            if type(value) in _WRITABLE:
                if id(value) in met:
                    raise _refused(*at, "put a copy into one of two places: a new one is in both")
                met.add(id(value))
            keys += content[0]
            stack += content[1]
        if any(map(_is_of_capture, keys)):
            raise _refused(*at, "use numbers as keys, int(x.shape[0]) for a size; no tensors")

    def refuse_writes(self, advice: str) -> None:
        """Raises UnsupportedError if the function has changed a container."""
        for path, value, content in self._held.values():
            if not _is_same(_content(value), content):
                raise _refused(path, value, advice)

    def _marked(self, tree: Any) -> Any:
        """The tree with a `GivenContainer` for each container of the arguments in it."""
        leaves, spec = optree.tree_flatten(tree, self._is_given, none_is_leaf=True)
        if not any(map(self._is_given, leaves)):
            return tree
        return optree.tree_unflatten(spec, [self._mark(leaf) for leaf in leaves])

    def _mark(self, value: object) -> object:
        if not self._is_given(value):
            return value
        return GivenContainer({self._held[id(value)][0]: ()})

    def _is_given(self, value: object) -> bool:
        return id(value) in self._held

    def _check(self, path: Path, owner: object, content: Any) -> None:
        for leaf in optree.tree_leaves(content, none_is_leaf=True):
            if not (isinstance(leaf, _RESULTS) or is_stand_in(leaf)):
                what = f"an object of type {type(leaf).__name__}"
                raise _refused(path, owner, f"put it there outside: {what} is no result of a graph")


def shared_containers(args: object, kwargs: object) -> frozenset[Path]:
    """The paths of lists and dicts that lie in several places of the arguments.

    >>> log = []
    >>> sorted(shared_containers((log, [log], []), {}))
    [(0, 0), (0, 1, 0)]
    """
    if not _has_shared(args, kwargs):
        return frozenset()
    paths: dict[int, list[Path]] = {}
    for path, value, _ in _containers(args, kwargs):
        if type(value) in _WRITABLE:
            paths.setdefault(id(value), []).append(path)
    return frozenset([path for found in paths.values() if len(found) > 1 for path in found])


def containers_by_id(args: object, kwargs: object) -> dict[Path, int]:
    """The lists and dicts in arguments: the `id` of each, by its path."""
    found = _containers(args, kwargs)
    return {path: id(value) for path, value, _ in found if type(value) in _WRITABLE}


def _has_shared(args: Any, kwargs: Any) -> bool:
    """Whether there are such; asked for each call with containers."""
    met: set[int] = set()
    levels: list[Any] = [args, kwargs.values()]
    for level in levels:  # grows while it is walked
        for value in [each for each in level if type(each) not in _LEAF_TYPES]:
            kind = type(value)
            if kind in _WRITABLE:
                if id(value) in met:
                    return True
                met.add(id(value))
                levels.append(value.values() if kind in _DICTS else value)
            elif not isinstance(value, (*_LEAVES, np.ndarray)):
                levels.append(value if isinstance(value, tuple) else _children(value) or ())
    return False


def _containers(args: object, kwargs: object) -> Iterator[tuple[Path, Any, tuple[Any, ...]]]:
    """The containers in arguments, with path and content. A function gets args and kwargs anew."""
    stack: list[tuple[Path, Any]] = [((0,), args), ((1,), kwargs)]
    while stack:
        path, value = stack.pop()
        content = _content(value)
        if content is not None:
            if len(path) > 1:
                yield path, value, content
            stack += [((*path, key), each) for key, each in zip(*content, strict=True)]


def _content(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """The keys and values of a container of optree's; None for a leaf."""
    if isinstance(value, _LEAVES) or is_stand_in(value):
        return None
    if type(value) in _DICTS:
        return tuple(value), tuple(value.values())
    if type(value) in _SEQUENCES or isinstance(value, tuple):
        return tuple(range(len(value))), tuple(value)
    inner = _children(value)
    return None if inner is None else (tuple(range(len(inner))), inner)


def _children(value: Any) -> tuple[Any, ...] | None:
    """The parts of an object of a class that is registered with optree; None for a leaf."""
    inner = optree.tree_leaves(value, lambda each: each is not value, none_is_leaf=True)
    return None if len(inner) == 1 and inner[0] is value else tuple(inner)


def _is_same(now: Any, before: Any) -> bool:
    """Whether a container holds the same objects under the same keys, in order."""
    (keys, values), (old_keys, old_values) = now, before
    return (
        len(values) == len(old_values)
        and all(map(operator.is_, values, old_values))
        and keys == old_keys
        and all(map(operator.is_, map(type, keys), map(type, old_keys)))
    )


def _is_of_capture(key: object) -> bool:
    """Whether a key is a fake tensor or a symbol, or has one."""
    if type(key) is tuple:
        return any(map(_is_of_capture, key))
    return isinstance(key, (Tensor, SymInt, SymBool, SymFloat, SizeFloat))


def _refused(path: Path, value: object, advice: str) -> Exception:
    return noted(
        UnsupportedError(
            f"compile: the function changes {_text(path)}, a {type(value).__name__} among its "
            "arguments, expected a change that each call can do again"
        ),
        f"Instead: {advice}. (GEN-14)",
    )


def _text(path: Path) -> str:
    whole, first, *rest = path
    name = f"argument {first}" if whole == 0 else f"argument {first!r}"
    return name + "".join([f"[{key!r}]" for key in rest])


# ---------------------------------------------------------------------------------- as results
def writes_containers(spec: Any) -> bool:
    """Whether results with this spec have new contents of containers among the arguments."""
    return spec is not None and spec.type is WrittenContainers


class WrittenContainers(NamedTuple):
    """The results of a function, and the new contents of containers among its arguments.

    Named tuples and ordered dicts are containers for optree: all of this is part of the spec, but
    for the contents' leaves, which are results of the graph.
    """

    result: object
    contents: collections.OrderedDict[tuple[Path, tuple[Any, ...] | None], list[object]]
    """By the path of a container, and of a dict its keys in order."""

    def written(self, args: object, kwargs: object) -> object:
        """The results for the caller, whose containers get their new contents."""
        call = args, kwargs
        owners = [_at(call, path) for path, _ in self.contents]  # before anything moves
        values = [_resolved(content, call) for content in self.contents.values()]
        result = _resolved(self.result, call)
        for owner, (_, keys), content in zip(owners, self.contents, values, strict=True):
            _fill(owner, keys, content)
        return result


class GivenContainer(NamedTuple):
    """Stands in results for a container among the arguments, which is the caller's own object."""

    path: dict[Path, tuple[()]]
    """The path as the key of a dict, which is part of the spec."""


def _fill(owner: Any, keys: tuple[Any, ...] | None, content: list[object]) -> None:
    owner.clear()
    if keys is None:
        owner.extend(content)
        return
    for key, value in zip(keys, content, strict=True):
        owner[key] = value


def _at(value: Any, path: Path) -> Any:
    for key in path:
        is_open = isinstance(value, (dict, list, tuple, collections.deque))
        value = value[key] if is_open else (_children(value) or ())[key]
    return value


def _resolved(tree: Any, call: tuple[object, object]) -> Any:
    """The tree with the caller's containers."""
    leaves, spec = optree.tree_flatten(tree, _is_mark, none_is_leaf=True)
    if not any(map(_is_mark, leaves)):
        return tree
    return optree.tree_unflatten(spec, [_at(call, *x.path) if _is_mark(x) else x for x in leaves])


def _is_mark(value: object) -> bool:
    return type(value) is GivenContainer
