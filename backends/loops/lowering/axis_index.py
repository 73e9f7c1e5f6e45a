"""The index variables that an op's declaration computes with: affine forms of a kernel's axes.

With i of extent 8, `i - 2` is an AxisIndex, `i < 8` is the constant True, and `i - 2 < 0` becomes
`i < 2`: a bound of a single axis, at which passes and printers can split a loop. Spec:
`specs/lowering.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.backends.loops.analysis.size_proofs import exact_quotient, floor_quotient, reached
from aotlite.ir import dtypes
from aotlite.ir.errors import GraphError
from aotlite.ir.geometry.sizes import Size, maximum, minimum
from aotlite.ir.scalar.expression import Scalar, axis, cast, const, make
from aotlite.ir.symbols.proving import is_proved

_TRUE, _FALSE = const(True, dtypes.bool_), const(False, dtypes.bool_)


@attrs.frozen(eq=False, slots=True)
class AxisIndex:
    """The position start + sum of coefficient * axis, where axis k runs from 0 to extents[k] - 1.

    Sums with ints and indexes, and products with ints, are indexes again. Sums with a Scalar are
    Scalars, and so are quotients and remainders that are not affine.
    """

    extents: tuple[int, ...]
    coefficients: tuple[int, ...]
    start: int = 0

    # --- arithmetic
    def __add__(self, other: Any) -> Any:
        if type(other) is AxisIndex:
            sums = [a + b for a, b in zip(self.coefficients, other.coefficients, strict=True)]
            return AxisIndex(self.extents, tuple(sums), self.start + other.start)
        if type(other) is Scalar:
            return self.scalar + cast(other, dtypes.int64)
        return AxisIndex(self.extents, self.coefficients, self.start + other)

    __radd__ = __add__

    def __neg__(self) -> AxisIndex:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        if type(other) is Scalar:
            return self.scalar - cast(other, dtypes.int64)
        return self + -other

    def __rsub__(self, other: object) -> Any:
        return -self + other

    def __mul__(self, factor: int) -> AxisIndex:
        scaled = tuple([c * factor for c in self.coefficients])
        return AxisIndex(self.extents, scaled, self.start * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Any:
        """Computes as a Scalar where needed. The index must nowhere be negative."""
        low, high = self.range
        first, last = floor_quotient(low, divisor), floor_quotient(high, divisor)
        if first is not None and last is not None and first == last:
            return AxisIndex(self.extents, (0,) * len(self.extents), first)
        parts = [exact_quotient(c, divisor) for c in self.coefficients]
        start = floor_quotient(self.start, divisor)
        if None not in parts and start is not None and is_proved(low >= 0):
            return AxisIndex(self.extents, tuple([c or 0 for c in parts]), start)
        return make("idiv", self._natural(), divisor)

    def __mod__(self, divisor: int) -> Any:
        """Computes as a Scalar where needed. The index must nowhere be negative."""
        low, high = self.range
        first, last = floor_quotient(low, divisor), floor_quotient(high, divisor)
        if first is not None and last is not None and first == last:
            return self - first * divisor
        return make("irem", self._natural(), divisor)

    # --- comparisons
    def __lt__(self, other: object) -> Scalar:
        return _negative(self - other)

    def __le__(self, other: object) -> Scalar:
        return _negative(self - other - 1)

    def __gt__(self, other: object) -> Scalar:
        return _negative(other - self)

    def __ge__(self, other: object) -> Scalar:
        return _negative(other - self - 1)

    def equals(self, other: object) -> Scalar:
        """Returns whether both are the same position, as a Scalar. `==` compares the objects."""
        return _zero(self - other)

    # --- values
    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest position."""
        low = high = self.start
        for coefficient, extent in zip(self.coefficients, self.extents, strict=True):
            least, most = reached(coefficient, 0, extent - 1)
            if type(extent) is int:  # 0 points count as one
                least, most = minimum(least, most), maximum(least, most)
            low, high = low + least, high + most
        return low, high

    @property
    def scalar(self) -> Scalar:
        """The position as an int64."""
        total: Scalar | None = None
        for k, coefficient in enumerate(self.coefficients):
            if coefficient:
                term = axis(k) if coefficient == 1 else axis(k) * coefficient
                total = term if total is None else total + term
        if total is None:
            return const(self.start, dtypes.int64)
        return total + self.start if self.start else total

    def _natural(self) -> Scalar:
        if not is_proved(self.range[0] >= 0):
            raise GraphError(f"loops: {self} is divided and may be negative, expected from 0 on")
        return self.scalar

    def __str__(self) -> str:
        return str(self.scalar)


def points_of(position: object) -> Size:
    """Returns the extent of the axis that a position is; 0 for any other position."""
    if type(position) is AxisIndex and position.start == 0:
        axes = [k for k, coefficient in enumerate(position.coefficients) if coefficient != 0]
        if len(axes) == 1 and position.coefficients[axes[0]] == 1:
            return position.extents[axes[0]]
    return 0


def _negative(form: Any) -> Scalar:
    """Whether the position is below 0."""
    if type(form) is Scalar:
        return form < 0
    low, high = form.range
    if is_proved(high < 0) or is_proved(low >= 0):
        return _TRUE if is_proved(high < 0) else _FALSE
    used = [k for k, c in enumerate(form.coefficients) if c]
    if len(used) != 1 or type(form.coefficients[used[0]]) is not int:
        return form.scalar < 0
    k, c = used[0], form.coefficients[used[0]]
    # c * i + start < 0: a bound of the axis.
    return axis(k) < -(form.start // c) if c > 0 else axis(k) >= form.start // -c + 1


def _zero(form: Any) -> Scalar:
    """Whether the position is 0."""
    if type(form) is Scalar:
        return make("eq", form, 0)
    low, high = form.range
    if low == high == 0:
        return _TRUE
    if is_proved(low > 0) or is_proved(high < 0):
        return _FALSE
    used = [k for k, c in enumerate(form.coefficients) if c]
    if len(used) != 1 or not _is_decided(form, used[0]):
        return make("eq", form.scalar, 0)
    k, c = used[0], form.coefficients[used[0]]
    return _FALSE if form.start % c else make("eq", axis(k), -form.start // c)


def _is_decided(form: AxisIndex, k: int) -> bool:
    """Whether it is known if the axis has a position at which c * i + start is 0."""
    c = form.coefficients[k]
    return type(c) is int and (type(form.start) is int or abs(c) == 1)
