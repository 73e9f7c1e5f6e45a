"""Counts how often random programs hit each cell of a table, and lists the rarest cells.

`ALIASING` is the table of aliasing; a `Table` may have other dimensions.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

import attrs
import rich.table

from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.testing.coverage import cells
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import VIEWS

ENOUGH = 20
"""The number of programs that should hit each cell."""
ANY = "any"


def _tuples(given: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(names) for name, names in given.items()}


def _possible(cell: tuple[str, ...]) -> str | None:
    """The default `impossible`: all cells can be hit."""
    del cell
    return None


@attrs.frozen(slots=False)
class Table:
    """A table of cells: one name of each dimension, numbered in the order of `itertools.product`.

    `impossible(cell)` says why a cell cannot be hit, None for one that can.

    >>> table = Table({"view": ["t", "select"], "write": ["fill", "copy"]})
    >>> table.cells
    (('t', 'fill'), ('t', 'copy'), ('select', 'fill'), ('select', 'copy'))
    >>> table.matching("any", "copy")
    (1, 3)
    """

    dimensions: Mapping[str, tuple[str, ...]] = attrs.field(converter=_tuples)
    impossible: Callable[[Any], str | None] = _possible

    @cached_property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """All cells."""
        return tuple(product(*self.dimensions.values()))

    @cached_property
    def possible(self) -> tuple[int, ...]:
        """The numbers of the cells that can be hit."""
        return tuple(n for n, cell in enumerate(self.cells) if self.impossible(cell) is None)

    @cached_property
    def mark(self) -> str:
        """A short text that identifies the cells of a table."""
        return f"{zlib.crc32(repr([*self.dimensions.items()]).encode()):08x}"

    def matching(self, *names: str) -> tuple[int, ...]:
        """The numbers of the possible cells with these names; "any" stands for all of a dimension.

        Raises `ArgumentError` for a name that its dimension does not have.
        """
        if len(names) != len(self.dimensions):
            expected = ", ".join(self.dimensions)
            raise ArgumentError(f"cell: the names are {names!r}, expected one each of {expected}")
        for dim, name in zip(self.dimensions, names, strict=True):
            if name != ANY and name not in self.dimensions[dim]:
                known = ", ".join(self.dimensions[dim])
                raise ArgumentError(f"cell: the {dim} is {name!r}, expected any or one of {known}")
        return tuple(n for n in self.possible if _matches(self.cells[n], names))


def _matches(cell: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return all(name in (ANY, own) for own, name in zip(cell, names, strict=True))


ALIASING = Table(
    {
        "view": VIEWS,
        "write": cells.WRITES,
        "output": cells.OUTPUTS,
        "relation": cells.RELATIONS,
    },
    cells.impossible,
)
"""The table of `aotlite.testing.coverage.cells`, with the same numbers."""


@attrs.define
class Coverage:
    """The number of programs that hit each cell of a table.

    >>> from aotlite.testing.generate.random_programs import draw
    >>> coverage = Coverage()
    >>> for seed in range(3):
    ...     coverage.add(draw(seed))
    >>> coverage.programs, coverage.full(1) == coverage.hit()
    (3, True)
    >>> Coverage.from_json(coverage.to_json()) == coverage
    True
    """

    over: Table = ALIASING
    hits: Counter[int] = attrs.field(factory=Counter)
    """By the numbers of cells; a program counts once for a cell."""
    programs: int = 0

    # --- counting
    def add(self, program: Program | Iterable[int]) -> None:
        """Counts a program, which it runs eagerly, or the cells that a program hit."""
        if isinstance(program, Program):
            if self.over is not ALIASING:
                raise ArgumentError(
                    "Coverage.add: a program is given for a table of one's own, expected the "
                    "numbers of the cells that it hit"
                )
            program = cells.cells_of(program)
        found = set(program)
        for number in found:
            self._check(number)
        self.hits.update(found)
        self.programs += 1

    def add_hits(self, hits: Iterable[tuple[int, int]], programs: int) -> None:
        """Counts several programs; `hits` are pairs of the number of a cell and a count."""
        for number, count in hits:
            self._check(number)
            self.hits[number] += count
        self.programs += programs

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.over.cells):
            count = len(self.over.cells)
            raise ArgumentError(f"Coverage: a cell's number is {number}, expected 0 to {count - 1}")

    def merge(self, other: Coverage) -> None:
        """Adds the counts of another `Coverage` of the same table."""
        if other.over.mark != self.over.mark:
            raise ArgumentError(
                "Coverage.merge: the tables have other dimensions, expected those of one table"
            )
        self.hits.update(other.hits)
        self.programs += other.programs

    # --- queries
    def hit(self) -> int:
        """Returns the number of possible cells that were hit."""
        return self.full(1)

    def full(self, enough: int = ENOUGH) -> int:
        """Returns the number of possible cells that at least `enough` programs hit."""
        return sum(self.hits[number] >= enough for number in self.over.possible)

    def least(self) -> int:
        """The number of hits of the rarest possible cell."""
        return min((self.hits[number] for number in self.over.possible), default=0)

    def rarest(self, count: int, rng: Random | None = None) -> list[int]:
        """The numbers of possible cells with the fewest hits; among equals in their order, or in
        that of a random generator."""
        possible = self.over.possible
        order = possible if rng is None else rng.sample(possible, len(possible))
        return sorted(order, key=self.hits.__getitem__)[:count]

    def impossible(self) -> Counter[str]:
        """The reasons why cells are impossible, and the number of cells of each."""
        reasons = map(self.over.impossible, self.over.cells)
        return Counter(reason for reason in reasons if reason is not None)

    # --- tables
    def margins(self, enough: int = ENOUGH) -> list[tuple[str, str, int, int, int, int]]:
        """For each name of each dimension: the possible cells, the full ones, the least hits, all
        hits."""
        found = []
        for place, (dim, names) in enumerate(self.over.dimensions.items()):
            for name in names:
                mine = [n for n in self.over.possible if self.over.cells[n][place] == name]
                hits = [self.hits[number] for number in mine]
                full = sum(each >= enough for each in hits)
                found.append((dim, name, len(hits), full, min(hits, default=0), sum(hits)))
        return found

    def table(self, enough: int = ENOUGH) -> rich.table.Table:
        """The margins as a table for a terminal."""
        shown = rich.table.Table(*self._head(enough))
        for row in self.margins(enough):
            shown.add_row(*map(str, row))
        return shown

    def markdown(self, enough: int = ENOUGH) -> str:
        """The margins as a table in Markdown."""
        rows = [self._head(enough), ["---"] * 6, *self.margins(enough)]
        return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)

    @staticmethod
    def _head(enough: int) -> list[str]:
        return ["dimension", "name", "cells", f"{enough} or more", "least", "hits"]

    # --- storage
    def to_json(self) -> str:
        """One line of JSON, which `from_json` reads."""
        hits = sorted(self.hits.items())
        return json.dumps({"table": self.over.mark, "programs": self.programs, "hits": hits})

    @staticmethod
    def from_json(text: str, over: Table = ALIASING) -> Coverage:
        """Reads the text of `to_json` for this table. Raises `FormatError` for any other text."""
        try:
            read = json.loads(text)
            mark, programs = read["table"], int(read["programs"])
            hits = [(int(number), int(count)) for number, count in read["hits"]]
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(
                f"Coverage.from_json: the text is {text[:60]!r}, expected what to_json writes"
            ) from error
        if mark != over.mark:
            raise FormatError(
                f"Coverage.from_json: the table is {mark}, expected {over.mark}: counts of another "
                "table, or of another version of it, cannot be added; start anew"
            )
        found = Coverage(over)
        found.add_hits(hits, programs)
        return found
