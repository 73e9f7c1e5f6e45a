"""Matrix products by cuBLAS, whose matrices are column-major where ours are row-major.

C = A B by rows is C^T = B^T A^T by columns, so that no operand is copied. Part of CuPy's driver.
Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.cuda.driver.cublas import (
    COMPUTE_32F,
    COMPUTE_32F_TF32,
    COMPUTE_64F,
    DEFAULT,
    Cublas,
)
from aotlite.backends.cuda.driver.driver_protocol import Product
from aotlite.backends.loops.program import Gemm, MatrixWindow
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import BackendError

_KINDS = {
    dtypes.float16: "CUDA_R_16F",
    dtypes.bfloat16: "CUDA_R_16BF",
    dtypes.float32: "CUDA_R_32F",
    dtypes.float64: "CUDA_R_64F",
}
MOST = 2**31 - 1
"""The largest size that cuBLAS takes."""
PLAIN, TURNED = 0, 1
"""cuBLAS's names of a column-major matrix and of its transpose."""


@attrs.frozen
class ColumnMatrix:
    """A matrix as cuBLAS reads it: elements of a column are neighbors."""

    turned: int
    leading: int
    """The leading dimension: elements from one column to the next."""


@attrs.frozen
class ProductCall:
    """One call of cuBLAS: D = X Y, column-major."""

    m: int
    n: int
    k: int
    x: ColumnMatrix
    y: ColumnMatrix
    leading: int
    batch: tuple[int, tuple[int, int, int]]
    """The number of products, and the strides between those of X, Y and D, in elements."""
    starts: tuple[tuple[int, int, int], ...]
    """For each call the starts of X, Y and D, in elements."""
    swapped: bool
    """Whether X is B^T, Y is A^T and D is C^T."""


def arranged(gemm: Gemm) -> ProductCall:
    """Returns the arguments of cuBLAS for a product."""
    by_rows = gemm.c.column == 1
    if by_rows:
        x = _operand(_turned(gemm.b), gemm.n, gemm.k)
        y = _operand(_turned(gemm.a), gemm.k, gemm.m)
        m, n, windows = gemm.n, gemm.m, (gemm.b, gemm.a, gemm.c)
        leading = max(gemm.c.row, m, 1)
    else:
        x, y = _operand(gemm.a, gemm.m, gemm.k), _operand(gemm.b, gemm.k, gemm.n)
        m, n, windows = gemm.m, gemm.n, (gemm.a, gemm.b, gemm.c)
        leading = max(gemm.c.column, m, 1)
    batch, starts = _batches(gemm.batch, [window.batch for window in windows])
    return ProductCall(m, n, gemm.k, x, y, leading, batch, starts, by_rows)


def _turned(window: MatrixWindow) -> MatrixWindow:
    return attrs.evolve(window, row=window.column, column=window.row)


def _operand(window: MatrixWindow, rows: int, columns: int) -> ColumnMatrix:
    if window.row == 1:
        return ColumnMatrix(PLAIN, max(window.column, rows, 1))
    return ColumnMatrix(TURNED, max(window.row, columns, 1))


def _batches(
    extents: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, tuple[int, int, int]], tuple[tuple[int, int, int], ...]]:
    """Returns the batch axes that one call covers, as one axis, and the starts of the calls for the
    other axes."""
    inner, outer = 1, len(extents)
    steps = (0, 0, 0)
    while outer and (inner == 1 or _continues(outer - 1, strides, inner, steps)):
        outer -= 1
        if inner == 1:
            steps = tuple([each[outer] for each in strides])  # type: ignore[assignment]
        inner *= extents[outer]
    places = itertools.product(*[range(n) for n in extents[:outer]])
    a, b, c = strides
    return (inner, steps), tuple([(_at(p, a), _at(p, b), _at(p, c)) for p in places])


def _continues(
    axis: int, strides: Sequence[Sequence[int]], inner: int, steps: Sequence[int]
) -> bool:
    """Whether an axis continues those inside it in all three matrices, so that they are one."""
    return all(each[axis] == inner * step for each, step in zip(strides, steps, strict=True))


def _at(place: Sequence[int], strides: Sequence[int]) -> int:
    return sum([k * step for k, step in zip(place, strides, strict=False)])


def product(runtime: object, cublas: Cublas, gemm: Gemm, dtype: DType, *, tf32: bool) -> Product:
    """Returns a launcher of the product. `runtime` is CuPy's, and names dtypes.

    Raises BackendError for a dtype or a size that cuBLAS does not take.
    """
    if dtype not in _KINDS:
        raise BackendError(f"cuda: a product is of {dtype}, expected {', '.join(map(str, _KINDS))}")
    call, size = arranged(gemm), dtype.itemsize
    count, (step_x, step_y, step_d) = call.batch
    leading_x, leading_y = call.x.leading, call.y.leading
    shape = (call.x.turned, call.y.turned, call.m, call.n, call.k)
    most = max(*shape, leading_x, leading_y, call.leading, count)
    if most > MOST:
        raise BackendError(
            f"cuda: a product has a size or a stride of {most}, expected at most {MOST}"
        )
    kind = getattr(runtime, _KINDS[dtype])
    unit, zero, computed = _numbers(dtype, tf32=tf32)
    first, other = ctypes.addressof(unit), ctypes.addressof(zero)
    starts = [tuple([size * k for k in start]) for start in call.starts]

    def launch(stream: int, a: int, b: int, c: int) -> None:
        x, y = (b, a) if call.swapped else (a, b)
        own = cublas.begin(stream)
        for at_x, at_y, at_d in starts:
            of_x, of_y = (x + at_x, kind, leading_x), (y + at_y, kind, leading_y)
            of_d = (c + at_d, kind, call.leading)
            if count == 1:
                one = (first, *of_x, *of_y, other, *of_d)
                cublas.check(cublas.one(own, *shape, *one, computed, DEFAULT))
            else:
                many = (first, *of_x, step_x, *of_y, step_y, other, *of_d, step_d, count)
                cublas.check(cublas.batched(own, *shape, *many, computed, DEFAULT))

    launch.numbers = unit, zero  # type: ignore[attr-defined]  # cuBLAS is given their addresses
    return launch


def _numbers(dtype: DType, *, tf32: bool) -> tuple[Any, Any, int]:
    """Returns 1 and 0 in the dtype of accumulation, and cuBLAS's name of that dtype."""
    if dtype is dtypes.float64:
        return ctypes.c_double(1), ctypes.c_double(0), COMPUTE_64F
    fast = tf32 and dtype is dtypes.float32
    return ctypes.c_float(1), ctypes.c_float(0), COMPUTE_32F_TF32 if fast else COMPUTE_32F
