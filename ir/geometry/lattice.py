"""Short bases of integer lattices: the LLL algorithm of Lenstra, Lenstra and Lovász.

Ground floor, used by `ir/geometry/box_equation.py`. All arithmetic is in integers, and so exact for
numbers of any size. Source: H. Cohen, A Course in Computational Algebraic Number Theory, 2.6.7.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Row", "dot", "reduced"]

Row = list[int]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The scalar product."""
    return sum([x * y for x, y in zip(a, b, strict=True)])


def reduced(rows: Sequence[Row]) -> list[Row]:
    """An LLL-reduced basis, short and nearly orthogonal, of the lattice that `rows` span.

    The rows must be linearly independent.

    >>> reduced([[1, 0, 200], [0, 1, 141]])
    [[-5, 7, -13], [-7, 10, 10]]
    """
    made = _Reduction([list(row) for row in rows])
    made.run()
    return made.rows


class _Reduction:
    """One run of the algorithm, on `rows`, in place.

    Of the rows up to `seen` it knows the Gram-Schmidt coefficients as integers: `d[i]` is the
    determinant of the first i rows' Gram matrix, and `lam[k][j] / d[j + 1]` the coefficient of
    orthogonal row j in row k.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.lam = [[0] * len(rows) for _ in rows]
        self.d = [1, *[0] * len(rows)]
        self.seen = 0

    def run(self) -> None:
        self._look_at(0)
        k = 1
        while k < len(self.rows):
            if k > self.seen:
                self._look_at(k)
            self._subtract(k, k - 1)
            if self._is_out_of_order(k):
                self._swap(k)
                k = max(1, k - 1)
                continue
            for j in range(k - 2, -1, -1):
                self._subtract(k, j)
            k += 1

    def _look_at(self, k: int) -> None:
        """Computes the Gram-Schmidt coefficients of row k."""
        self.seen = k
        lam, d, row = self.lam, self.d, self.rows[k]
        for j in range(k + 1):
            u = int(dot(row, self.rows[j]))
            for i in range(j):
                u = (d[i + 1] * u - lam[k][i] * lam[j][i]) // d[i]
            if j < k:
                lam[k][j] = u
            else:
                d[k + 1] = u

    def _is_out_of_order(self, k: int) -> bool:
        """Whether rows k - 1 and k violate Lovász's condition, with the factor 3/4."""
        d, multiple = self.d, self.lam[k][k - 1]
        return 4 * (d[k + 1] * d[k - 1] + multiple * multiple) < 3 * d[k] * d[k]

    def _subtract(self, k: int, j: int) -> None:
        """Subtracts the multiple of row j from row k that makes row k shortest."""
        lam, unit = self.lam, self.d[j + 1]
        times = (2 * lam[k][j] + unit) // (2 * unit)
        if times:
            self.rows[k] = [a - times * b for a, b in zip(self.rows[k], self.rows[j], strict=True)]
            lam[k][j] -= times * unit
            for i in range(j):
                lam[k][i] -= times * lam[j][i]

    def _swap(self, k: int) -> None:
        """Exchanges rows k and k - 1."""
        rows, lam, d = self.rows, self.lam, self.d
        rows[k], rows[k - 1] = rows[k - 1], rows[k]
        for j in range(k - 1):
            lam[k][j], lam[k - 1][j] = lam[k - 1][j], lam[k][j]
        multiple = lam[k][k - 1]
        shorter = (d[k - 1] * d[k + 1] + multiple * multiple) // d[k]
        for i in range(k + 1, self.seen + 1):
            row, before = lam[i], lam[i][k]
            row[k] = (d[k + 1] * row[k - 1] - multiple * before) // d[k]
            row[k - 1] = (shorter * before + multiple * row[k]) // d[k + 1]
        d[k] = shorter
