"""Matrix products as calls of BLAS, with copies of operands that BLAS cannot read as they lie.

Input: operands (*batch, m, k), (*batch, k, n) and a result (*batch, m, n), whose batch dimensions
broadcast. Output: a `Gemm` step, and kernels around it. Batches are folded into rows where one
matrix multiplies them all: (8, 16, 32) @ (32, 4) is one product of (128, 32) and (32, 4). Spec:
`specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.loops.analysis.size_proofs import is_repeated
from aotlite.backends.loops.program import Gemm, MatrixWindow
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.sizes import Size
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.proving import is_proved


@attrs.define
class _Matrix:
    """The matrices of a batch: their sizes, and strides in elements."""

    operand: Any
    batch: list[int]
    rows: int
    columns: int
    row: int
    column: int

    @property
    def turned(self) -> _Matrix:
        """The transposed matrices, in the same memory."""
        return _Matrix(self.operand, self.batch, self.columns, self.rows, self.column, self.row)

    def window(self) -> MatrixWindow:
        placed = self.operand.placed
        return MatrixWindow(placed.buffer, placed.start, tuple(self.batch), self.row, self.column)


def gemm(k: Any, out: Any, a: object, b: object) -> None:
    """Adds the step out = a b, in the dtype of `out`, which is float32 or float64."""
    shape, n = list(out.shape[:-2]), out.shape[-1]
    if 0 in out.shape:
        return
    left, right = (_readable(k, x, out.shape[:-2], out.dtype) for x in (a, b))
    result = _matrix(out, out.shape[:-2])
    if result.column != 1 and n != 1:  # BLAS writes rows
        left, right, result = right.turned, left.turned, result.turned
    _merge_batch(shape, left, right, result)
    result.row, result.column = _unit(result) or (result.row, result.column)
    windows = (left.window(), right.window(), result.window())
    sizes = (tuple(shape), left.rows, right.columns, left.columns)
    k.add(Gemm(f"{k.name}_{len(k.program.steps)}", *sizes, *windows))


def _matrix(operand: Any, whole: Sequence[Size]) -> _Matrix:
    """Returns the operand with batch dimensions of these sizes. Missing or broadcast ones have
    stride 0."""
    *batch, rows, columns = operand.shape
    missing = [0] * (len(whole) - len(batch))
    sizes = zip(batch, whole[len(missing) :], operand.stride[:-2], strict=True)
    steps = [0 if is_repeated(n, to) else step for n, to, step in sizes]
    return _Matrix(operand, missing + steps, rows, columns, *operand.stride[-2:])


def _readable(k: Any, operand: Any, whole: Sequence[Size], dtype: DType) -> _Matrix:
    """Returns the operand in a layout that BLAS reads: itself, or a copy."""
    stored = k.program.buffers[operand.placed.buffer].dtype
    matrix = _matrix(operand, whole)
    unit = _unit(matrix)
    if unit is None or stored is not dtype:
        repeated = zip(operand.shape, operand.stride, strict=True)
        shape = [1 if step == 0 and n > 0 else n for n, step in repeated]
        shape[-2:] = operand.shape[-2:]
        meta = tensor_meta(tuple(shape), None, dtype)
        matrix = _matrix(k.map(meta, lambda *i: k.cast(operand[i], dtype)), whole)
        unit = _unit(matrix)
    assert unit is not None
    matrix.row, matrix.column = unit
    return matrix


def _unit(matrix: _Matrix) -> tuple[int, int] | None:
    """Returns (row, column) strides of which one is 1 and the other BLAS's leading dimension; None
    if the matrix has no such strides. A dimension of one element may take any stride."""
    rows, columns, row, column = matrix.rows, matrix.columns, matrix.row, matrix.column
    if columns == 1:
        column = 1
    if rows == 1 and column == 1:
        row = columns
    elif rows == 1:
        row = 1
    if column == 1 and is_proved(row >= columns):
        return row, column
    return (row, column) if row == 1 and is_proved(column >= rows) else None


def _merge_batch(shape: list[int], left: _Matrix, right: _Matrix, result: _Matrix) -> None:
    """Simplifies the batch dimensions, in place.

    Drops those of one element, folds the innermost into rows where the right matrix is the same for
    all of them, and merges two that step through memory as one.
    """
    parts = (left, right, result)
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            _drop(shape, axis, parts)
    while shape and right.batch[-1] == 0 and _continues(left) and _continues(result):
        count = shape[-1]
        _drop(shape, -1, parts)
        left.rows *= count
        result.rows *= count
    for axis in reversed(range(1, len(shape))):
        if all(part.batch[axis - 1] == shape[axis] * part.batch[axis] for part in parts):
            shape[axis - 1] *= shape[axis]
            for part in parts:
                part.batch[axis - 1] = part.batch[axis]
            _drop(shape, axis, parts)


def _continues(matrix: _Matrix) -> bool:
    """Whether the next matrix of the batch begins where the row after the last one would."""
    return matrix.column == 1 and matrix.batch[-1] == matrix.rows * matrix.row


def _drop(shape: list[int], axis: int, parts: Sequence[_Matrix]) -> None:
    del shape[axis]
    for part in parts:
        del part.batch[axis]


def product(k: Any, meta: Any, a: Any, b: object, formed: DType) -> Any:
    """Returns the product (*batch, m, k) (*batch, k, n) -> (*batch, m, n), accumulated in `formed`
    and cast to the result's dtype.

    Floats go to BLAS. Products with a dimension of 1, and of integers, become reductions, which
    fuse with their neighbors.
    """
    inner, (m, n) = a.shape[-1], meta.shape[-2:]
    if inner == 0:
        return k.map(meta, lambda *i: 0)
    if not formed.is_floating_point or 1 in (m, n, inner):
        return _summed(k, meta, a, b, formed)
    if meta.dtype is formed:
        out = k.new(meta)
        gemm(k, out, a, b)
        return out
    wide = k.new(tensor_meta(meta.shape, layout.contiguous_strides(meta.shape), formed))
    gemm(k, wide, a, b)
    return k.map(meta, lambda *i: k.cast(wide[i], meta.dtype))


def _summed(k: Any, meta: Any, a: Any, b: Any, formed: DType) -> object:
    inner = a.shape[-1]

    def term(i: Any, j: object) -> Any:
        *batch, row, column = i
        left, right = a.at((*batch, row, j)), b.at((*batch, j, column))
        return k.cast(left, formed) * k.cast(right, formed)

    def rounded(total: object) -> object:
        return k.cast(total, meta.dtype)

    if inner == 1:
        return k.map(meta, lambda *i: rounded(term(i, 0)))
    return k.reduce("sum", meta, (inner,), lambda i, j: term(i, j[0]), finish=rounded)
