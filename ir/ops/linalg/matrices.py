"""Helpers of linear algebra ops: checks of matrices, layouts of results, errors of libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, LinAlgError, ShapeError
from aotlite.ir.geometry import layout
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.elementwise.pointwise import conj

SOLVED = frozenset((dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128))
"""The dtypes that LAPACK supports."""


def check_matrix(op: str, meta: TensorMeta, name: str = "A") -> None:
    """Raises unless `meta` is that of a matrix, or a batch, of a dtype that LAPACK supports."""
    if len(meta.shape) < 2:
        raise ShapeError(
            f"{op}: argument '{name}' has shape {meta.shape}, expected at least 2 dimensions"
        )
    if meta.dtype not in SOLVED:
        raise DTypeError(
            f"{op}: dtype is {meta.dtype}, expected a floating or complex one of 32 bits or more"
        )


def check_square(op: str, meta: TensorMeta, name: str = "A") -> None:
    """`check_matrix`; also raises unless the matrices are square."""
    check_matrix(op, meta, name)
    if meta.shape[-1] != meta.shape[-2]:
        raise ShapeError(
            f"{op}: argument '{name}' has shape {meta.shape}, expected square matrices"
        )


def by_columns(shape: tuple[int, ...], like: TensorMeta, dtype: DType | None = None) -> TensorMeta:
    """The column-major meta of a new matrix: LAPACK's layout, which PyTorch's results have."""
    *batch, m, n = shape
    strides = layout.contiguous_strides((*batch, n, m))
    columns = (*strides[:-2], strides[-1], strides[-2])
    return tensor_meta(shape, columns, dtype or like.dtype, like.device)


def by_rows(shape: tuple[int, ...], like: TensorMeta, dtype: DType | None = None) -> TensorMeta:
    """A contiguous fresh meta."""
    return tensor_meta(shape, None, dtype or like.dtype, like.device)


def adjoint(value: Operand) -> Operand:
    """The conjugate transpose of an operand."""
    return conj(value).mT


def adjoint_array(xp: Namespace, a: Array) -> Array:
    """The conjugate transpose of an array."""
    turned = xp.matrix_transpose(a)
    return xp.conj(turned) if a.dtype.kind == "c" else turned


def completed(
    op: str, what: str, expected: str, function: Callable[..., object], *args: object
) -> Any:
    """`function(*args)`. Raises LinAlgError where the library finds no such result."""
    try:
        return function(*args)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{op}: {what}, expected {expected}") from error
