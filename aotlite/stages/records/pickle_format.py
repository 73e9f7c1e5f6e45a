"""The version of pickled metadata, which each pickle of a record carries, and what refuses others.

The version stands before everything else of a record, so that a pickle of another version is
refused before any class of it is looked up. Pickles made before there were versions are of
version 0. Rule: META-26. Spec: `specs/rules/meta.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.errors import FormatError

VERSION = 1
"""Raised with each change of the fields, the names or the modules of what is pickled."""


class _Format:
    """What stands in a pickle for `VERSION`: reading it back compares."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return checked_format, (VERSION,)


FORMAT = _Format()
"""Shared by the records of one pickle, in which it stands once."""


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
    """The record of a class with the values of its fields, in order."""
    record = object.__new__(kind)
    for field, value in zip(attrs.fields(kind), values, strict=True):
        object.__setattr__(record, field.name, value)
    return record
