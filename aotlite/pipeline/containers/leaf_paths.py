"""Paths from containers to their leaves, with fields by name, as the user's code reads them.

    batch = Pair(x, {"y": y})        batch.x      batch[1]['y'] is batch.second['y']

Descriptors, errors, signatures and files name arguments and results so. Rules: TRC-8.
Spec: `specs/descriptors.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optree import (
    GetItemEntry,
    NamedTupleEntry,
    PyTreeEntry,
    PyTreeSpec,
    StructSequenceEntry,
    tree_structure,
)


class Field(str):
    """A step of a path that is an attribute: the field of a named tuple or of a dataclass."""

    __slots__ = ()


Path = tuple[Any, ...]
"""Steps: `Field`s, keys of dicts, places in lists."""


def leaf_paths(tree: object) -> list[Path]:
    """The path of each leaf, where None is a leaf.

    >>> import collections
    >>> pair = collections.namedtuple("Pair", "first second")(1, {"y": 2})
    >>> leaf_paths([pair])
    [(0, 'first'), (0, 'second', 'y')]
    """
    return paths_in(tree_structure(tree, none_is_leaf=True))  # type: ignore[arg-type]


def paths_in(spec: PyTreeSpec) -> list[Path]:
    """The path of each leaf of a structure."""
    return [tuple(map(_step, accessor)) for accessor in spec.accessors()]


def _step(each: PyTreeEntry) -> Any:
    if isinstance(each, (NamedTupleEntry, StructSequenceEntry)):
        return Field(each.field)
    is_name = isinstance(each.entry, str) and each.entry.isidentifier()
    return Field(each.entry) if is_name and not isinstance(each, GetItemEntry) else each.entry


def steps_text(steps: Sequence[object]) -> str:
    """The steps behind a name, as Python writes them.

    >>> steps_text((Field("x"), 0, "key"))
    ".x[0]['key']"
    """
    texts = [f".{step!s}" if isinstance(step, Field) else f"[{step!r}]" for step in steps]
    return "".join(texts)
