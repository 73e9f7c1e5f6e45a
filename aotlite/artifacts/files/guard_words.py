"""Guards as plain data, and as guards again: each is made anew of the values that a call finds.

A kept entry compares objects of its own process. So the snapshot of a guard is not kept, but its
access path: the read set says that the value there is as it was, and a new snapshot is taken.
Rule: CACHE-5. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotlite.artifacts.reads.access_path_words import path_of, words_of_path
from aotlite.artifacts.reads.value_images import NoImage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.role import Hidden, Primal
from aotlite.stages.records.guards import guard_records as kinds
from aotlite.stages.records.guards.snapshots import COMPOUND, snapshot_of, snapshot_of_all


def words_of_guards(guards: Sequence[object]) -> list[Any]:
    """Guards as plain data. Raises NoImage."""
    return [_words(guard) for guard in guards]


def _words(guard: object) -> list[Any]:
    match guard:
        case kinds.HiddenInputGuard(index, place):
            return ["hidden", index, words_of_path(place)]
        case kinds.SameTensorGuard(place, role):
            return ["same", words_of_path(place), words_of_role(role)]
        case kinds.ValueGuard(place):
            return ["value", words_of_path(place)]
        case kinds.GradAttributeGuard(place, is_so):
            return ["grad", words_of_path(place), is_so]
        case kinds.NoHooksGuard(role):
            return ["hooks", words_of_role(role)]
        case kinds.EnvironmentGuard(places, roles):
            where = [words_of_path(place) for place in places]
            return ["environment", where, [words_of_role(role) for role in roles]]
    raise NoImage(f"a guard of the kind {type(guard).__name__}")


def words_of_role(role: object) -> list[Any]:
    """The role of an input as plain data. Raises NoImage for a part of a wrapper."""
    match role:
        case Primal(index):
            return ["primal", index]
        case Hidden(index, place) if not role.is_number:
            return ["hidden", index, place]
    raise NoImage(f"an input {role}, a part of a wrapper or a number")


def role_of(words: Any) -> Primal | Hidden:
    """The role of these words. Raises ValueError."""
    match words:
        case ["primal", int(index)]:
            return Primal(index)
        case ["hidden", int(index), str(place)]:
            return Hidden(index, place)
    raise ValueError(f"the role {words!r}")


def guards_of(words: Sequence[Any], function: object, leaves: list[Any]) -> tuple[kinds.Guard, ...]:
    """The guards of these words, made of the values that this call finds. Raises ValueError, and
    what a step of a path raises where other objects lie there."""
    made = [_without_tensors(each, function, leaves) for each in words]
    hidden = {each.index: each.place for each in made if isinstance(each, kinds.HiddenInputGuard)}
    tensors: Mapping[int, Any] = {index: at.resolve(leaves) for index, at in hidden.items()}
    found = []
    for each, guard in zip(words, made, strict=True):
        if guard is None:
            guard = _environment(each, function, leaves, tensors)
        found.append(guard)
    return tuple(found)


def _without_tensors(words: Any, function: object, leaves: list[Any]) -> Any:
    match words:
        case ["hidden", int(index), path]:
            return kinds.HiddenInputGuard(index, path_of(path, function))
        case ["same", path, role]:
            return kinds.SameTensorGuard(path_of(path, function), role_of(role))
        case ["value", path]:
            place = path_of(path, function)
            return kinds.ValueGuard(place, snapshot_of(place.resolve(leaves), deep=True))
        case ["grad", path, bool(is_so)]:
            return kinds.GradAttributeGuard(path_of(path, function), is_so)
        case ["hooks", role]:
            return kinds.NoHooksGuard(role_of(role))
        case ["environment", _, _]:
            return None
    raise ValueError(f"the guard {words!r}")


def _environment(
    words: Any, function: object, leaves: list[Any], hidden: Mapping[int, Any]
) -> kinds.EnvironmentGuard:
    _, paths, names = words
    places = tuple([path_of(path, function) for path in paths])
    roles = tuple([role_of(role) for role in names])
    tensors = [leaves[r.index] if isinstance(r, Primal) else hidden[r.index] for r in roles]
    if not all(isinstance(each, Tensor) for each in tensors):
        raise ValueError("an environment of inputs that are no tensors")
    values = [place.resolve(leaves) for place in places]
    if not all(isinstance(value, COMPOUND) for value in values):
        # What was no container when it was read, and is one now, was not read: it counts alone.
        kept = [(p, v) for p, v in zip(places, values, strict=True) if isinstance(v, COMPOUND)]
        places, values = tuple([p for p, _ in kept]), [v for _, v in kept]
    return kinds.EnvironmentGuard(places, roles, snapshot_of_all(values, tensors, deep=True))
