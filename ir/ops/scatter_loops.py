"""The loops of `select_scatter` and its like, which replace a part of a copy.

Where a condition on positions decides whether an element is in the part, one kernel selects, which
fuses with the producers of both. Else the part is stored over the copy. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp

Loops = Callable[..., Any]


def stored_over(viewed: ViewOp) -> Loops:
    """The loops of the scatter of a view: copies the whole, then stores the part over it."""

    def loops(k: Any, meta: TensorMeta, whole: Any, part: Any, *args: Any) -> Any:
        seen, start = viewed.rule(meta, *args)
        # A view that sees a place twice may have as many elements and leave others out.
        is_all = seen.numel == meta.numel and seen.dense and meta.dense
        out = k.new(meta) if is_all else k.map(meta, lambda *i: whole[i])
        k.store(out.view(seen.shape, seen.stride, start), lambda *i: part[i])
        return out

    return loops


def select_loops(k: Any, meta: TensorMeta, whole: Any, part: Any, dim: int, index: int) -> Any:
    """Element `index` of a dimension is the part."""
    dim, index = dim % meta.ndim, index % meta.shape[dim]

    def element(*i: Any) -> Any:
        rest = i[:dim] + i[dim + 1 :]
        return k.where(k.inside(i[dim], index, index + 1), part[rest], whole[i])

    return k.map(meta, element)


def slice_loops(viewed: ViewOp) -> Loops:
    """A run of positions of a dimension is the part."""

    def loops(
        k: Any, meta: TensorMeta, whole: Any, part: Any, dim: int, start: Any, end: Any, step: int
    ) -> Any:
        dim = dim % meta.ndim
        first, last = sizes.slice_bounds(start, end, meta.shape[dim])
        if step > 1 and last - first > 1:
            return stored_over(viewed)(k, meta, whole, part, dim, start, end, step)

        def element(*i: Any) -> Any:
            at = (*i[:dim], i[dim] - first, *i[dim + 1 :])
            stop = first + part.shape[dim]
            return k.where(k.inside(i[dim], first, stop), part[at], whole[i])

        return k.map(meta, element)

    return loops


def diagonal_loops(
    k: Any, meta: TensorMeta, whole: Any, part: Any, offset: int, dim1: int, dim2: int
) -> Any:
    """Where two positions are `offset` apart the part is."""
    rows, columns = dim1 % meta.ndim, dim2 % meta.ndim
    if not part.shape[-1]:
        return k.map(meta, lambda *i: whole[i])

    def element(*i: Any) -> Any:
        rest = [x for dim, x in enumerate(i) if dim not in (rows, columns)]
        place = i[rows] if offset >= 0 else i[columns]
        on_it = (i[columns] - i[rows]).equals(offset)
        return k.where(on_it, part[(*rest, place)], whole[i])

    return k.map(meta, element)
