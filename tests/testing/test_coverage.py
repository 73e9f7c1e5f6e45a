"""The counts of a table's cells: what is full, what is rare, how they are kept and added up."""

from __future__ import annotations

import doctest
from collections import Counter
from random import Random

import pytest

from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.testing import Coverage
from aotlite.testing.coverage import cells, counts
from aotlite.testing.coverage.cells import CELLS, POSSIBLE, cells_of
from aotlite.testing.coverage.counts import ALIASING, Table
from tests.testing.helpers.examples import program

OWN = Table(
    {"order": ["row", "column"], "write": ["add", "fill", "none"]},
    lambda cell: "columns are not filled" if cell == ("column", "fill") else None,
)
RAISES = program(
    [["alias", ["$0"]], ["fill_", ["$1", 3]], ["view", ["$1", [7]]]],
    ["$1"],
    {"setup": [["make", [1, [2], "float64", False]]], "args": ["$0"]},
)


def test_the_examples_of_the_docstrings_run() -> None:
    assert doctest.testmod(cells).failed == doctest.testmod(counts).failed == 0


def test_the_table_of_aliasing_has_the_cells_and_numbers_of_the_watcher() -> None:
    assert (CELLS, POSSIBLE) == (ALIASING.cells, ALIASING.possible)


def test_a_program_counts_once_for_a_cell_that_two_calls_hit() -> None:
    call = {"setup": [["make", [1, [2], "float64", False]]], "args": ["$0"]}
    twice = program([["alias", ["$0"]], ["fill_", ["$1", 3]]], ["$1"], call, call)
    counted = Coverage()
    counted.add(twice)
    assert {1} == set(counted.hits.values())
    assert ("alias", "fill", "view of an input", "alone") in {CELLS[n] for n in counted.hits}


def test_a_call_that_raises_hits_nothing() -> None:
    assert set() == cells_of(RAISES)


def test_full_rarest_and_least_are_of_possible_cells_only() -> None:
    counted = Coverage(OWN)
    for _ in range(2):
        counted.add([0, 1, 0])
    counted.add([5])
    assert (1, 3, 2) == (counted.hits[5], counted.programs, counted.hits[0])
    assert (3, 2, 0) == (counted.hit(), counted.full(2), counted.least())
    assert [2, 3, 5] == counted.rarest(3)
    assert {2, 3} == set(counted.rarest(2, Random(1)))
    assert Counter({"columns are not filled": 1}) == counted.impossible()
    assert ("write", "fill", 1, 1, 2, 2) in counted.margins(2)


def test_margins_are_shown_as_text() -> None:
    counted = Coverage(OWN)
    counted.add([0])
    lines = counted.markdown(1).splitlines()
    assert "| dimension | name | cells | 1 or more | least | hits |" == lines[0]
    assert "| order | row | 3 | 1 | 0 | 1 |" == lines[2]
    assert 5 == counted.table().row_count == len(lines) - 2


def test_counts_are_added_and_kept() -> None:
    one, other = Coverage(OWN), Coverage(OWN)
    one.add([0, 1])
    other.add_hits([(1, 3), (2, 1)], 3)
    one.merge(other)
    assert (4, {0: 1, 1: 4, 2: 1}) == (one.programs, dict(one.hits))
    assert one == Coverage.from_json(one.to_json(), OWN)


def test_cells_are_found_by_their_names() -> None:
    assert (0, 2) == tuple(OWN.matching("row", "any"))[::2]
    assert (3, 5) == OWN.matching("column", "any")
    with pytest.raises(ArgumentError, match="cell: the names are .*, expected one each of order"):
        OWN.matching("row")
    with pytest.raises(ArgumentError, match="cell: the write is 'mul', expected any or one of add"):
        OWN.matching("row", "mul")


def test_what_does_not_fit_the_table_is_refused() -> None:
    counted = Coverage(OWN)
    with pytest.raises(ArgumentError, match="cell's number is 6, expected 0 to 5"):
        counted.add([6])
    with pytest.raises(ArgumentError, match="a program is given for a table of one's own"):
        counted.add(RAISES)
    with pytest.raises(ArgumentError, match="the tables have other dimensions"):
        counted.merge(Coverage())
    with pytest.raises(FormatError, match="counts of another table"):
        Coverage.from_json(counted.to_json())
    with pytest.raises(FormatError, match="expected what to_json writes"):
        Coverage.from_json('{"table": 1}')
    assert (0, 0) == (counted.programs, counted.hits.total())
