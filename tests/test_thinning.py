"""Which rows of a table the usual run takes."""

from itertools import product
from types import SimpleNamespace

import pytest

from tests.thinning import chosen, first, mark_long, thinned

ROWS = [
    (f"test[{a}-{b}-{c}]", {"a": a, "b": b, "c": c}) for a, b, c in product(*map(range, (2, 5, 30)))
]


@pytest.mark.parametrize("every", [1, 2, 3, 7, 20])
def test_a_share_of_the_rows_has_each_value_of_each_short_parameter(every):
    kept = set(chosen(ROWS, every))
    assert len(ROWS) / every <= len(kept) <= len(ROWS) / every + 10
    rows = [values for name, values in ROWS if name in kept]
    assert {0, 1} == {row["a"] for row in rows} and {*range(5)} == {row["b"] for row in rows}
    assert len({row["c"] for row in rows}) == 30 or every == 20


def test_the_rows_do_not_depend_on_those_that_are_left_out_of_a_share():
    assert list(chosen(ROWS, 7)) == list(chosen(ROWS[::-1], 7))


def test_a_row_alone_is_taken():
    assert ["test[1]"] == list(chosen([("test[1]", {"a": 1})], 9))


class Row:
    """As much of a row of `test` with the marker as is looked at."""

    parent, originalname = None, "test"

    def __init__(self, number, *marks):
        self.name, self.own = f"test[{number}]", list(marks)
        self.callspec = SimpleNamespace(indices={"n": number})

    def iter_markers(self, name):
        return (mark for mark in self.own if mark.name == name)

    def get_closest_marker(self, name):
        return next(self.iter_markers(name), None)

    def add_marker(self, name):
        self.own.append(SimpleNamespace(name=name))


def test_the_marker_makes_long_what_it_leaves_out():
    table = pytest.mark.parametrize("n", range(12)).mark
    marked = [Row(number, table, pytest.mark.thinned(4).mark) for number in range(12)]
    others = [Row(number, table) for number in range(12)]
    mark_long([*marked, *others])
    assert 3 == sum(row.get_closest_marker("long") is None for row in marked)
    assert all(row.get_closest_marker("long") is None for row in others)


def is_long(row):
    return any(mark.name == "long" for mark in row.marks)


def test_values_that_are_long():
    assert [False, True, True, False] == [
        is_long(row) if hasattr(row, "marks") else row for row in thinned(range(4), 3)
    ]
    usual, rest = first(range(10), 3)
    assert (range(3), range(3, 10)) == (usual.values[0], rest.values[0])
    assert not is_long(usual) and is_long(rest)
