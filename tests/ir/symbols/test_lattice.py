"""Reduced bases are bases of the same lattice, and reduced: by exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import Matrix

from aotlite.ir.geometry.lattice import reduced

Rows = list[list[int]]


@st.composite
def bases(draw: Any) -> Rows:
    """Independent rows, as many as columns or fewer, of numbers of any size."""
    columns = draw(st.integers(1, 4))
    count = draw(st.integers(1, columns))
    largest = draw(st.sampled_from((3, 20, 10**6, 10**20)))
    number = st.integers(-largest, largest)
    rows: Rows = [[draw(number) for _ in range(columns)] for _ in range(count)]
    assume(Matrix(rows).rank() == count)
    return rows


def orthogonal(rows: Rows) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Gram and Schmidt's rows, and the multiples of each in those behind it."""
    axes: list[list[Fraction]] = []
    multiples = []
    for row in rows:
        rest = [Fraction(x) for x in row]
        mine = []
        for axis in axes:
            times = product(row, axis) / product(axis, axis)
            mine.append(times)
            rest = [x - times * y for x, y in zip(rest, axis, strict=True)]
        axes.append(rest)
        multiples.append(mine)
    return axes, multiples


def product(a: Any, b: Any) -> Fraction:
    return sum((Fraction(x) * y for x, y in zip(a, b, strict=True)), Fraction(0))


def spans(rows: Rows, vector: list[int]) -> bool:
    """Whether a vector is a sum of whole multiples of the rows."""
    basis = Matrix(rows)
    found = (basis * basis.T).LUsolve(basis * Matrix(vector))
    whole = all(x.is_integer for x in found)
    return whole and list(basis.T * found) == vector


@pytest.mark.rules("ALI-5")
@settings(max_examples=100)
@given(bases())
def test_a_reduced_basis_is_one_of_the_same_lattice_and_short(rows: Rows) -> None:
    """Lenstra's, Lenstra's and Lovász's conditions, with the factor 3/4."""
    before = [list(row) for row in rows]
    found = reduced(rows)
    assert before == rows
    assert len(found) == len(rows)
    assert all(spans(rows, row) for row in found)
    assert all(spans(found, row) for row in rows)
    axes, multiples = orthogonal(found)
    assert all(abs(times) <= Fraction(1, 2) for mine in multiples for times in mine)
    for k in range(1, len(found)):
        before_it, times = product(axes[k - 1], axes[k - 1]), multiples[k][k - 1]
        assert product(axes[k], axes[k]) >= (Fraction(3, 4) - times * times) * before_it
