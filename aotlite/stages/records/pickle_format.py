"""The version of pickled metadata: each pickle of a record carries it, and others are refused.

The version comes first in a pickled record, so that a pickle of another version is refused before
any of its classes is looked up. Pickles without a version have version 0.
Rule: META-26. Spec: `specs/rules/meta.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.errors import FormatError

VERSION = 1
"""Raised with each change of pickled records: their fields, names or modules."""


class _Format:
    """Stands for `VERSION` in a pickle; unpickling it compares versions."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return checked_format, (VERSION,)


FORMAT = _Format()
"""The one object that all records of a pickle share."""


def checked_format(version: int) -> _Format:
    """`FORMAT`, where `version` is the one of this release. Raises FormatError for another."""
    if version != VERSION:
        raise FormatError(refusal("unpickling: metadata", version))
    return FORMAT


def refusal(what: str, version: int) -> str:
    """The message about a pickle of another version."""
    made = "an earlier" if version == 0 else "another"
    return (
        f"{what} has format version {version!r}, of {made} release, expected {VERSION};"
        " compile the function with this release, and pickle its metadata again"
    )


def restored(
    checked: _Format, kind: type[attrs.AttrsInstance], values: tuple[object, ...]
) -> object:
    """The record of a class with these field values, in order."""
    record = object.__new__(kind)
    for field, value in zip(attrs.fields(kind), values, strict=True):
        object.__setattr__(record, field.name, value)
    return record
