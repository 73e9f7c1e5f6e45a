"""Diagonals and triangles: diag, diag_embed, diagflat, trace, tril_indices, triu_indices."""

from __future__ import annotations

from aotlite.ir import dtypes
from aotlite.ir.arrays import NUMPY, Array, Namespace
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.index.positions import INDEX_DTYPES
from aotlite.ir.ops.loops import Loops, LoopTensor


@composite("diag(Tensor self, int diagonal=0) -> Tensor")
def diag(self: Operand, diagonal: int) -> Operand:
    """Of a vector the matrix with it on a diagonal, of a matrix a copy of the diagonal."""
    if len(self.shape) not in (1, 2):
        raise ShapeError(f"diag: the tensor has shape {self.shape}, expected 1 or 2 dimensions")
    if len(self.shape) == 1:
        return diag_embed(self, diagonal, 0, 1)
    seen = self.diagonal(diagonal, 0, 1)
    return seen._do("restride", (1,))


@composite("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
def diag_embed(self: Operand, offset: int, dim1: int, dim2: int) -> Operand:
    """Matrices with the vectors of the last dimension on a diagonal, in new dimensions."""
    rank = len(self.shape) + 1
    if not self.shape:
        raise ShapeError("diag_embed: the tensor has shape (), expected at least 1 dimension")
    first = sizes.wrap_dim(dim1, rank, op="diag_embed")
    second = sizes.wrap_dim(dim2, rank, op="diag_embed")
    if first == second:
        raise ArgumentError(
            f"diag_embed: dimensions are {dim1} and {dim2}, expected two different ones"
        )
    shape = list(self.shape[:-1])
    side = self.shape[-1] + abs(offset)
    for dim in sorted((first, second)):
        shape.insert(dim, side)
    return self.new_zeros(shape).diagonal_scatter(self, offset, first, second)


@composite("diagflat(Tensor self, int offset=0) -> Tensor")
def diagflat(self: Operand, offset: int) -> Operand:
    """The matrix with all elements on a diagonal."""
    return diag(self.reshape((sizes.numel(self.shape),)), offset)


@composite("trace(Tensor self) -> Tensor")
def trace(self: Operand) -> Operand:
    """The sum of the diagonal of a matrix."""
    if len(self.shape) != 2:
        raise ShapeError(f"trace: the tensor has shape {self.shape}, expected 2 dimensions")
    if self.dtype is dtypes.bool_:
        raise DTypeError(f"trace: dtype is {self.dtype}, expected one of numbers")
    return self.diagonal().sum()


# -------------------------------------------------------------------------------- where they are
def _count(row: int, col: int, offset: int) -> int:
    """How many places of a matrix lie on the diagonal or below: row i has i + offset + 1 of them,
    none below 0, and at most `col`.
    """
    return _sum_to(row + offset, col) - _sum_to(offset, col)


def _sum_to(last: int, most: int) -> int:
    """The sum of the numbers from 1 to `last`, each `most` at most."""
    rising = sizes.minimum(sizes.maximum(last, 0), most)
    return rising * (rising + 1) // 2 + sizes.maximum(last - most, 0) * most


def _triangle_indices(name: str) -> PureOp:
    lower = name.startswith("tril")

    def rule(row: int, col: int, offset: int, dtype: DType | None, device: Device) -> TensorMeta:
        for what, size in (("row", row), ("col", col)):
            if size < 0:
                raise ShapeError(f"{name}: argument '{what}' is {size}, expected at least 0")
        if dtype is not None and dtype not in INDEX_DTYPES:
            raise DTypeError(f"{name}: dtype is {dtype}, expected int64 or int32")
        count = _count(row, col, offset) if lower else row * col - _count(row, col, offset - 1)
        return tensor_meta((2, count), None, dtype or dtypes.int64, device or CPU)

    def kernel(
        xp: Namespace,
        meta: TensorMeta,
        row: int,
        col: int,
        offset: int,
        dtype: object,
        device: Device | None,
    ) -> Array:
        if lower:  # columns and rows of which none is taken may be very many
            places = xp.tril_indices(row, offset, min(col, max(row + offset, 0)))
        else:
            places = xp.triu_indices(min(row, max(col - offset, 0)), offset, col)
        return xp.astype(xp.stack(places), meta.dtype.numpy)

    def loops(
        k: Loops, meta: TensorMeta, row: int, col: int, offset: int, *_: object
    ) -> LoopTensor:
        given = (row, col, offset, meta.dtype, None)
        places = k.table(kernel(NUMPY.namespace, meta, *given))
        return k.map(meta, lambda *i: places[i])

    return pure(
        f"{name}(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None) "
        "-> Tensor",
        meta=rule,
        kernel=kernel,
        loops=loops,
        vjp=None,
        cost=Cost.FACTORY,
    )


TRIL_INDICES = _triangle_indices("tril_indices")
TRIU_INDICES = _triangle_indices("triu_indices")
"""(2, count): rows and columns of a triangle of a matrix, in row-major order."""
