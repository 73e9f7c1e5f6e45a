"""Metas of inputs with symbolic sizes and strides (DYN-1, DYN-7). Ground floor.

Spec: `specs/symbols.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from aotlite.ir.geometry.sizes import (
    Shape,
    Size,
    Stride,
    always_same,
    asks_first,
    at_least_one,
    same_shape,
)
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["always_same_meta", "same_meta", "symbolic_meta", "symbolic_strides"]

_FROM_TWO: Mapping[int, tuple[int, int | None]] = MappingProxyType({})


def symbolic_meta(
    table: SymbolTable,
    meta: TensorMeta,
    source: str,
    dims: Collection[int] | None = None,
    ranges: Mapping[int, tuple[int, int | None]] = _FROM_TWO,
) -> TensorMeta:
    """The meta with symbols for the sizes of `dims` (default: all).

    `ranges` gives (lower, upper) of a dimension's size, by default (2, None). A size below its
    range stays a number.

    >>> symbolic_meta(SymbolTable(), tensor_meta((2, 3), (1, 2)), "x", (0,))
    f32[s0, 3][1, s0]
    >>> symbolic_meta(SymbolTable(), tensor_meta((1, 3, 1)), "x", ranges={0: (0, None), 1: (0, 9)})
    f32[s0, s1, 1]
    """
    shape = tuple(
        [
            _size(table, size, f"{source}.shape[{dim}]", *ranges.get(dim, (2, None)))
            if dims is None or dim in dims
            else size
            for dim, size in enumerate(meta.shape)
        ]
    )
    stride = symbolic_strides(shape, meta.shape, meta.stride)
    return tensor_meta(shape, stride, meta.dtype, meta.device)


def _size(table: SymbolTable, hint: int, source: str, lower: int, upper: int | None) -> Size:
    size: Size = table.size(hint, source, lower=lower, upper=upper)
    return size


# Note [strides beside sizes of 0 and 1]
#     x = ones(1, 5).t()         # f32[5, 1][1, 5], and with 4 for 1: f32[5, 4][1, 5]
#     y = ones(5, 1).t()         # f32[1, 5][1, 1], and with 4 for 1: f32[4, 5][1, 4]
# A size of 1 leaves open which dimension is the inner one of two with the same stride. In a tensor
# without overlap it is the one of size 1: so the strides of x become (1, s0), and those of y
# (1, s0) as well. Of two dimensions of size 1 the later is the inner one, as in contiguous tensors.
# What a dimension of size 0 or 1 reaches replaces what was reached before: that has its number.
def symbolic_strides(
    shape: Shape,
    hints: Shape,
    stride: Stride,
    gaps: Mapping[int, tuple[int, int, int, int]] = MappingProxyType({}),
) -> Stride:
    """The strides of a shape with symbols, from the concrete strides and the hints of the sizes.

    A stride that equals size * stride of another dimension becomes that product: `f32[s0, s1]` has
    the strides (s1, 1). A size that may be 0 counts as `max(size, 1)`. Any other stride stays a
    number, which the guards of the input check, unless `gaps` has (of, factor, rest, less) for it:
    then it is (factor * size + rest) times the stride of dimension `of`, with that dimension's
    size, and `less` below that. In terms of its own size it counts elements.
    """
    reached: dict[int, Size] = {0: 0, 1: 1}
    found: list[Size] = list(stride)
    for dim in sorted(range(len(stride)), key=lambda dim: (stride[dim], hints[dim] > 1, -dim)):
        found[dim] = reached.get(stride[dim], stride[dim])
        if dim in gaps and stride[dim] not in reached:
            of, factor, rest, less = gaps[dim]
            found[dim] = (factor * shape[of] + rest) * (1 if of == dim else found[of]) - less
            if less:
                found[dim] = at_least_one(found[dim])
        size = shape[dim]
        may_be_0 = type(size) is int or asks_first((size,))
        after = (at_least_one(size) if may_be_0 else size) * found[dim]
        if hints[dim] > 1:
            reached.setdefault(hints[dim] * stride[dim], after)
        elif stride[dim]:
            reached[stride[dim]] = after
    return tuple(found)


def same_meta(a: TensorMeta, b: TensorMeta) -> bool:
    """Whether two metas are equal. Of symbols that may be equal it is asked, and assumed: metas are
    one object if they are equal, but not if they are found to be so.

    >>> table = SymbolTable()
    >>> a, b = (symbolic_meta(table, tensor_meta((6,)), name) for name in "xy")
    >>> a is b, same_meta(a, b), [each.text for each in table.log]
    (False, True, ['s0 == s1'])
    """
    if a is b:
        return True
    alike = a.dtype is b.dtype and a.device == b.device and same_shape(a.shape, b.shape)
    return alike and same_shape(a.stride, b.stride)


def always_same_meta(a: object, b: object) -> bool:
    """Whether two metas, or tuples of them, are equal for all values of symbols that the
    assumptions of their table admit; logs none.

    What a rule gave before an assumption may be in another form after it: of `f32[s0, s1]` with
    elements the strides `(max(1, s1), 1)` are `(s1, 1)`.
    """
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(always_same_meta, a, b))
    if not isinstance(a, TensorMeta) or not isinstance(b, TensorMeta):
        return False
    alike = a.dtype is b.dtype and a.device == b.device and always_same(a.shape, b.shape)
    return alike and always_same(a.stride, b.stride)
