"""Guards that the inputs share memory as at the first call.

Used by stage 10 alone, for functions that write memory. They are straight-line tests: for inputs
that share no memory, one comparison a pair. Rules: GRD-2, DUP-5.
Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from aotlite.backends.python_source import listed
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import (
    SharedMemory,
    are_apart,
    first_byte,
    foreign_distances,
    foreign_overlaps,
    is_foreign,
    on_one_storage,
    shared_memory,
)
from aotlite.ir.errors import AliasError, noted
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s10_runtime.guards.failures import GuardCheck
from aotlite.stages.s10_runtime.source import MANY, FunctionSource, chain_words

_FEW = 3
"""Up to this number, storages are compared pair by pair; more of them as a set."""

_VIEWS_OF_BASE = "of which base inputs that overlap are views"
_SUBJECT, _EXPECTED = "memory that the inputs share", "as at the first call"


def sharing_check(
    source: FunctionSource,
    tensors: dict[str, Tensor],
    written: Collection[str],
    *,
    sized: bool = False,
) -> Iterator[GuardCheck]:
    """The check of inputs, by the names of their variables; `written` are the written ones.

    Straight-line tests compare all storages and offsets. If some of these do not matter, the
    relations that matter are computed and compared when the tests fail. If inputs are `sized`, they
    are compared in any case: at the same offsets larger tensors may overlap (SYN-12).
    """
    tests = tuple(_tests(source, tensors, written))
    if not tests:
        return
    names, given = list(tensors), list(tensors.values())
    places = [place for place, name in enumerate(names) if name in written]
    alike = " and ".join([each.test for each in tests])
    plan = shared_memory(given, places)
    if sized or len(places) < len(names) - 1 or _some_are_apart(plan[0], plan[1]):
        source.use(shared_memory)
        whole = source.constant(plan, "V", _SUBJECT)
        found = f"shared_memory({listed(names)}, {listed([str(place) for place in places])})"
        if sized:
            source.use(sharing_words)
            shown = f"sharing_words({names}, {found})"
            yield GuardCheck(f"{found} == {whole}", _SUBJECT, shown, sharing_words(names, plan))
            return
        alike = f"(({alike}) or {found} == {whole})"
    yield GuardCheck(alike, _SUBJECT, expected=_EXPECTED, explain=partial(tuple, tests))


def share_memory(tensors: Sequence[Tensor]) -> bool:
    """Whether some of the tensors lie on one storage, or on memory of one ndarray."""
    is_alone = [len(group) == 1 for group in on_one_storage(tensors)]
    return not all(is_alone) or bool(foreign_distances(tensors))


def sharing_words(names: Sequence[str], plan: SharedMemory) -> str:
    """What `shared_memory` found, in words, by the names of variables.

    >>> sharing_words(["a0", "a1"], (((0, 1),), ((0, 1, 8),), ()))
    'one storage of a0, a1; a1 begins 8 bytes behind a0 and overlaps it'
    """
    groups, near, foreign = plan
    words = ["one storage of " + ", ".join([names[k] for k in group]) for group in groups]
    words += [
        f"{names[j]} begins {distance} bytes behind {names[i]} and overlaps it"
        for i, j, distance in (*near, *foreign)
    ]
    return "; ".join(words) or "none"


def view_family_checks(source: FunctionSource, tensors: dict[str, Tensor]) -> Iterator[GuardCheck]:
    """Checks that the same inputs are views of one base, with equal view chains.

    A write to one of them changes the history of the others, through the base (SYN-7).
    """
    families: dict[Any, list[str]] = {}
    for name, tensor in tensors.items():
        families.setdefault(tensor._root or name, []).append(name)
    tests = []
    for one, other in combinations([names[0] for names in families.values()], 2):
        tests.append(f"({one}._root is not {other}._root or {one}._root is None)")
    for first, *others in families.values():
        if others:
            root: Any = tensors[first]._root
            meta = source.constant(root.meta, "M", str(root.meta))
            tests += [f"{name}._root is {first}._root" for name in others]
            tests.append(f"{first}._root.meta is {meta}")
            tests += [_seen_as(source, name, tensors[name]) for name in (first, *others)]
    for test in tests:
        yield GuardCheck(test, _VIEWS_OF_BASE, expected=_EXPECTED)


def _seen_as(source: FunctionSource, name: str, tensor: Tensor) -> str:
    """The test that an input has the same view chain from its base, or is the base itself."""
    chain = source.constant(tensor._chain, "V", chain_words(tensor._chain))
    isnt = "" if tensor._base is None else "not "
    return f"{name}._base is {isnt}None and {name}._chain.is_like({chain})"


def _some_are_apart(
    groups: Collection[tuple[int, ...]], near: Collection[tuple[int, int, int]]
) -> bool:
    """Whether some tensors on one storage do not overlap."""
    return sum(len(group) * (len(group) - 1) // 2 for group in groups) > len(near)


def _tests(
    source: FunctionSource, tensors: dict[str, Tensor], written: Collection[str]
) -> Iterator[GuardCheck]:
    """The tests that the inputs have the same storages and offsets as before, one by one."""
    names, given = list(tensors), list(tensors.values())
    first = []
    for group in on_one_storage(given):
        first.append(names[group[0]])
        counts = any(names[index] in written for index in group)
        for index in group[1:]:
            name, later = names[group[0]], names[index]
            test = f"{later}.storage is {name}.storage"
            yield GuardCheck(test, f"the memory of {later}", expected=f"that of {name}")
            if counts:
                yield _at_distance(name, given[group[0]], later, given[index])
    foreign = foreign_distances(given)
    if foreign:
        source.use(is_foreign)
        test = f"is_foreign({listed(names)}, {source.constant(foreign, 'V', 'shared by ndarrays')})"
        yield GuardCheck(test, "memory that ndarrays share", expected=_EXPECTED)
    if len(first) > 1:
        source.use(are_apart)
        yield GuardCheck(
            _different(first) if foreign else _apart(first), _SUBJECT, expected=_EXPECTED
        )


def _at_distance(name: str, tensor: Tensor, later: str, other: Tensor) -> GuardCheck:
    """The test that an input has the same distance from the start of another on its storage."""
    distance = first_byte(other) - first_byte(tensor)
    sizes = tensor.meta.dtype.itemsize, other.meta.dtype.itemsize
    if sizes[0] == sizes[1]:
        test = f"{later}.offset - {name}.offset == {distance // sizes[0]}"
    else:
        test = f"{later}.offset * {sizes[1]} - {name}.offset * {sizes[0]} == {distance}"
    subject = f"the memory of {later}"
    return GuardCheck(test, subject, expected=f"{distance} bytes from the first of {name}")


def _different(names: list[str]) -> str:
    """The test that the inputs have different storages."""
    storages = [f"{name}.storage" for name in names]
    if len(names) <= _FEW:
        return " and ".join([f"{a} is not {b}" for a, b in combinations(storages, 2)])
    return f"len({{{', '.join(storages)}}}) == {len(names)}"


def _apart(names: list[str]) -> str:
    """The test that the inputs have different storages, and share no ndarray's memory."""
    everything = f"are_apart({', '.join(names)})"
    if len(names) > MANY:
        return everything
    exported = [f"{name}.storage.exported" for name in names]
    few = f"not ({' and '.join(exported)})" if len(names) == 2 else f"{' + '.join(exported)} < 2"
    return f"{_different(names)} and ({few} or {everything})"


def refuse_foreign_overlap(tensors: dict[InputRole, Tensor], meta: FunctionMeta) -> None:
    """Raises AliasError for a written tensor whose memory another storage shares, by an ndarray.

    That is ALI-1. Hidden aliases share a buffer, and are members of one synthetic base.
    """
    roles, given = list(tensors), list(tensors.values())
    for i, j in foreign_overlaps(given):
        one, other = meta.input_of(roles[i]), meta.input_of(roles[j])
        if given[i].storage.buffer is given[j].storage.buffer:
            continue
        if one.writes_data or other.writes_data or one.written_late or other.written_late:
            raise noted(
                AliasError(
                    f"compile: {one.place} and {other.place} overlap in memory, by "
                    "ndarrays, and one of them is written, expected written inputs that overlap no "
                    "other input"
                ),
                "Pass one tensor, and take the views inside the function. (ALI-1)",
            )
