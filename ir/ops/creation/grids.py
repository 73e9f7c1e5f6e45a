"""Grids of vectors: meshgrid, cartesian_prod."""

from __future__ import annotations

from typing import Any

from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand


@composite(is_method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Each vector as a view of all vectors' common shape, in which it varies along one dimension.

    With `indexing` "xy" the first two dimensions are swapped.
    """
    vectors = _vectors(tensors)
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: argument 'indexing' is {indexing!r}, expected 'ij' or 'xy'")
    for v in vectors:
        if v.dtype is not vectors[0].dtype:
            raise DTypeError(f"meshgrid: dtypes are {vectors[0].dtype} and {v.dtype}, expected one")
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1::-1]
    shape = [v.numel() for v in vectors]
    grids = []
    for i, v in enumerate(vectors):
        column = [size if dim == i else 1 for dim, size in enumerate(shape)]
        grids.append(v.view(column).expand(shape))
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def _vectors(tensors: tuple[Operand, ...]) -> list[Operand]:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if not tensors:
        raise ArgumentError("meshgrid: no tensors are given, expected at least one")
    for t in tensors:
        if not hasattr(t, "meta"):
            raise ArgumentError(f"meshgrid: an argument is {t!r}, expected a tensor")
        if len(t.shape) > 1:
            raise ShapeError(
                f"meshgrid: a tensor has shape {t.shape}, expected at most 1 dimension"
            )
    return list(tensors)


@composite(is_method=False)
def cartesian_prod(*tensors: Any) -> Any:
    """Every combination of the vectors' elements: (count, number of vectors); one vector is
    returned itself."""
    for t in tensors:
        if len(t.shape) != 1:
            raise ShapeError(f"cartesian_prod: a tensor has shape {t.shape}, expected 1 dimension")
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors)
    flat = tuple([grid.reshape((grid.numel(),)) for grid in grids])
    return flat[0]._apply(OPS["stack"], (flat, 1))
