"""Metas of inputs with symbolic sizes and strides (DYN-1, DYN-7). Ground floor.

Spec: `specs/symbols.md`.
"""

from __future__ import annotations

from collections.abc import Collection

from aotlite.ir.geometry.sizes import Shape, Size, Stride
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["symbolic_meta", "symbolic_strides"]


def symbolic_meta(
    table: SymbolTable, meta: TensorMeta, source: str, dims: Collection[int] | None = None
) -> TensorMeta:
    """The meta with symbols for the sizes of `dims` (default: all), but for sizes 0 and 1.

    >>> symbolic_meta(SymbolTable(), tensor_meta((2, 3), (1, 2)), "x", (0,))
    f32[s0, 3][1, s0]
    """
    shape = tuple(
        table.size(size, f"{source}.shape[{dim}]") if dims is None or dim in dims else size
        for dim, size in enumerate(meta.shape)
    )
    stride = symbolic_strides(shape, meta.shape, meta.stride)
    return tensor_meta(shape, stride, meta.dtype, meta.device)


def symbolic_strides(shape: Shape, hints: Shape, stride: Stride) -> Stride:
    """The strides of a shape with symbols, from the concrete strides and the hints of the sizes.

    A stride that equals size * stride of another dimension becomes that product: `f32[s0, s1]` has
    the strides (s1, 1). Any other stride stays a number, which the guards of the input check.
    """
    reached: dict[int, Size] = {0: 0, 1: 1}
    found: list[Size] = list(stride)
    for dim in sorted(range(len(stride)), key=lambda dim: (stride[dim], -dim)):
        found[dim] = reached.get(stride[dim], stride[dim])
        if hints[dim] > 1:
            reached.setdefault(hints[dim] * stride[dim], shape[dim] * found[dim])
    return tuple(found)
