"""The tests of a run-time function that its inputs share memory as they did at the first call.

Used by stage 10 alone, for functions that write something. Straight-line tests: of inputs that
share nothing, as most do, they cost a comparison a pair. Rules: GRD-2, DUP-5.
Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from aotlite.eager.sharing import (
    are_apart,
    first_byte,
    foreign_overlaps,
    is_foreign,
    on_one_storage,
)
from aotlite.eager.tensor import Tensor
from aotlite.stages.s10_source import MANY, Source, listed

_FEW = 3
"""So many storages are compared pair by pair; more, as a set."""

Test = tuple[str, str, str]
"""An expression, what it is about, and what is expected."""


def sharing_tests(source: Source, tensors: dict[str, Tensor]) -> Iterator[Test]:
    """The tests for inputs, by the names of their variables."""
    names, given = list(tensors), list(tensors.values())
    first = []
    for group in on_one_storage(given):
        first.append(names[group[0]])
        for index in group[1:]:
            yield from _on_storage_of(names[group[0]], given[group[0]], names[index], given[index])
    foreign = tuple(foreign_overlaps(given))
    expected = "as at the first call"
    if foreign:
        source.use(is_foreign)
        test = f"is_foreign({listed(names)}, {source.constant(foreign, 'V', 'shared by ndarrays')})"
        yield test, "memory that ndarrays share", expected
    if len(first) > 1:
        source.use(are_apart)
        apart = _different(first) if foreign else _apart(first)
        yield apart, "memory that the inputs share", expected


def _on_storage_of(name: str, tensor: Tensor, later: str, other: Tensor) -> Iterator[Test]:
    """That one input starts where it did from the start of another, on its storage."""
    subject = f"the memory of {later}"
    yield f"{later}.storage is {name}.storage", subject, f"that of {name}"
    distance = first_byte(other) - first_byte(tensor)
    sizes = tensor.meta.dtype.itemsize, other.meta.dtype.itemsize
    if sizes[0] == sizes[1]:
        test = f"{later}.offset - {name}.offset == {distance // sizes[0]}"
    else:
        test = f"{later}.offset * {sizes[1]} - {name}.offset * {sizes[0]} == {distance}"
    yield test, subject, f"{distance} bytes from the first of {name}"


def _different(names: list[str]) -> str:
    """That the inputs are on different storages."""
    storages = [f"{name}.storage" for name in names]
    if len(names) <= _FEW:
        return " and ".join([f"{a} is not {b}" for a, b in combinations(storages, 2)])
    return f"len({{{', '.join(storages)}}}) == {len(names)}"


def _apart(names: list[str]) -> str:
    """That they are, and that no ndarray leads from one to another."""
    everything = f"are_apart({', '.join(names)})"
    if len(names) > MANY:
        return everything
    exported = [f"{name}.storage.exported" for name in names]
    few = f"not ({' and '.join(exported)})" if len(names) == 2 else f"{' + '.join(exported)} < 2"
    return f"{_different(names)} and ({few} or {everything})"
