"""Rows of parametrized tests of which the usual run takes some, and `pytest -m long` all others.

For tests of a whole table, where a fault of the mechanism shows in many rows. A table that is one
parameter is thinned by `thinned`; rows of several parameters by the marker `thinned(every)`, which
leaves each value of the short parameters in the usual run.
"""

import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def thinned(values: Iterable[Any], every: int = 2) -> list[Any]:
    """Each value as a row; all but every second one (or third, ...) are long."""
    return [
        pytest.param(value, marks=[pytest.mark.long] if number % every else [])
        for number, value in enumerate(values)
    ]


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Marks as long the rows that a test's marker `thinned` leaves out of the usual run."""
    tables: dict[object, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("long"):
            continue
        if item.get_closest_marker("thinned") and hasattr(item, "callspec"):
            tables.setdefault((item.parent, item.originalname), []).append(item)  # type: ignore[attr-defined]
    for rows in tables.values():
        every = rows[0].get_closest_marker("thinned").args[0]
        kept = set(chosen([(row.name, values_of(row)) for row in rows], every))
        for row in rows:
            if row.name not in kept:
                row.add_marker("long")


def values_of(row: Any) -> dict[str, int]:
    """The parameters of a row, each by its place in the table that it is from."""
    found: dict[str, int] = {}
    for mark in row.iter_markers("parametrize"):
        names = mark.args[0]
        first = names.split(",")[0].strip() if isinstance(names, str) else names[0]
        found[first] = row.callspec.indices[first]
    return found


def chosen(rows: list[tuple[str, dict[str, int]]], every: int) -> Iterator[str]:
    """The names of the rows of the usual run: about one of `every`, by a digest of their names, and
    those without which a value of a parameter that has few of them would not occur."""
    values: dict[str, set[Hashable]] = {}
    for _, row in rows:
        for parameter, value in row.items():
            values.setdefault(parameter, set()).add(value)
    ordered = sorted(rows, key=lambda row: zlib.crc32(row[0].encode()))
    few = [parameter for parameter, found in values.items() if len(found) * every <= len(rows)]
    share, missing = -(-len(rows) // every), {(name, v) for name in few for v in values[name]}
    for number, (name, row) in enumerate(ordered):
        shows = missing & {*row.items()}
        if number < share or shows:
            missing -= shows
            yield name


def first(values: Sequence[T], count: int) -> list[Any]:
    """Two rows: the first `count` values, of the usual run, and all others, which are long."""
    return [
        pytest.param(values[:count], id="first"),
        pytest.param(values[count:], marks=pytest.mark.long, id="others"),
    ]
