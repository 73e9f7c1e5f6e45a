"""Stride algebra: the strides that results get, and the views that strides allow.

Ground floor: imports `aotlite.ir.geometry.sizes` only. Strides count elements and are never
negative. Strides are observable, so every function gives exactly PyTorch's answer for strided
tensors, dense, broadcast or empty (TEN-1, TEN-2). Comparisons are ordered such that symbolic sizes
need the fewest assumptions: sizes are compared only where strides do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TypeAlias

from aotlite.ir.geometry.single_element import is_any, is_several, where
from aotlite.ir.geometry.sizes import (
    Shape,
    Size,
    Stride,
    always_equal,
    always_same,
    asks_first,
    at_least_one,
    hint_of,
    is_symbolic,
    needed,
    needless,
    numel,
    same_shape,
)
from aotlite.ir.symbols.assumption import Texts, marked_strides
from aotlite.ir.symbols.table import SymbolTable, table_of

__all__ = [
    "Layout",
    "always_contiguous",
    "channels_last_strides",
    "clone_strides",
    "contiguous_strides",
    "elementwise_strides",
    "is_channels_last",
    "is_contiguous",
    "is_dense",
    "lies_like",
    "packed_like",
    "permutation_of",
    "same_order",
    "span",
    "strides_text",
    "view_strides",
]

Layout: TypeAlias = tuple[Shape, Stride]

# Dimensions from the innermost to the outermost, by rank.
_CHANNELS_LAST = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def contiguous_strides(shape: Shape) -> Stride:
    """The row-major strides of a shape; a dimension of size 0 counts as 1.

    >>> contiguous_strides((2, 3, 4)), contiguous_strides((2, 0, 4))
    ((12, 4, 1), (4, 4, 1))
    """
    table = table_of(shape)
    if table is not None:
        return _symbolic_strides(shape, table)
    return _packed(shape, range(len(shape) - 1, -1, -1))


def _symbolic_strides(shape: Shape, table: SymbolTable) -> Stride:
    """`contiguous_strides` of a shape with symbols, which their table keeps if they are the same
    whatever is assumed by now: layers repeat."""
    innermost_first = range(len(shape) - 1, -1, -1)
    if not table.weakest:
        return _packed(shape, innermost_first)
    key = _symbolic_strides, *map(id, shape)  # of a shape that is kept, too
    found = table.cache.get(key)
    if found is None:
        found = table.cache[key] = shape, _packed(shape, innermost_first)
    stride: Stride = found[1]
    return stride


def channels_last_strides(shape: Shape) -> Stride:
    """The channels-last strides of a shape of rank 4 or 5: dimension 1 is innermost.

    >>> channels_last_strides((2, 3, 4, 5))
    (60, 1, 15, 3)
    """
    stride = [1] * len(shape)
    step: Size = 1
    for dim in _CHANNELS_LAST[len(shape)]:
        stride[dim] = step
        step *= shape[dim]  # not at_least_one: here PyTorch lets a size 0 give strides 0
    return tuple(stride)


def _packed(shape: Shape, innermost_first: Sequence[int]) -> Stride:
    stride = [1] * len(shape)
    step: Size = 1
    for dim in innermost_first:
        size = shape[dim]
        stride[dim] = step
        step *= max(size, 1) if type(size) is int else at_least_one(size)
    return tuple(stride)


def is_contiguous(shape: Shape, stride: Stride) -> bool:
    """Whether the elements lie in row-major order without gaps; an empty tensor's do.

    >>> is_contiguous((2, 1, 3), (3, 77, 1))
    True
    """
    if is_symbolic(shape):
        if always_contiguous(shape, stride):
            return True
        if asks_first(shape):
            return needed(is_contiguous, shape, stride)
    packed = _is_packed(shape, stride, range(len(shape) - 1, -1, -1))
    return packed or bool(numel(shape) == 0)


def always_contiguous(shape: Shape, stride: Stride) -> bool:
    """Whether `is_contiguous` holds for all values of the symbols; logs no assumption."""
    if not is_symbolic((*shape, *stride)):
        return is_contiguous(shape, stride)
    wanted = contiguous_strides(shape)
    if len(stride) == len(shape) and all(map(is_, stride, wanted)):
        return True
    wide = [dim for dim, size in enumerate(shape) if not always_equal(size, 1)]
    return always_same([stride[dim] for dim in wide], [wanted[dim] for dim in wide])


def strides_text(shape: Shape, stride: Stride) -> str:
    """The strides as the text of a meta has them: nothing where they are the contiguous ones. Where
    the text has numbers for symbols, or gets them later, these decide."""
    table = table_of((*shape, *stride))
    text = f"[{', '.join(map(str, stride))}]"
    if table is not None and table.texts is Texts.HINTS:
        shape, stride = tuple(map(hint_of, shape)), tuple(map(hint_of, stride))
        return "" if is_contiguous(shape, stride) else text
    if always_contiguous(shape, stride):
        return ""
    later = table is not None and table.texts is Texts.PLACES
    return marked_strides(text) if later else text


def is_channels_last(shape: Shape, stride: Stride) -> bool:
    """Whether the elements lie in channels-last order (rank 4 or 5) without gaps.

    >>> is_channels_last((2, 3, 4, 5), (60, 1, 15, 3))
    True
    """
    order = _CHANNELS_LAST.get(len(shape))
    return order is not None and _is_packed(shape, stride, order)


def _is_packed(shape: Shape, stride: Stride, innermost_first: Sequence[int]) -> bool:
    expected: Size = 1
    for dim in innermost_first:
        size = shape[dim]
        if stride[dim] != expected and size != 1:
            return False
        expected *= size
    return True


def is_dense(shape: Shape, stride: Stride) -> bool:
    """Whether each address of the span belongs to exactly one element, in whatever order.

    >>> is_dense((2, 3), (1, 2)), is_dense((2, 3), (6, 2)), is_dense((3,), (0,))
    (True, False, False)
    """
    if is_symbolic(shape):
        if always_contiguous(shape, stride):
            return True
        if asks_first(shape):
            return needed(is_dense, shape, stride)
    if numel(shape) == 0:
        return True
    wide = [dim for dim, size in enumerate(shape) if size != 1]
    return _is_packed(shape, stride, sorted(wide, key=stride.__getitem__))


def span(shape: Shape, stride: Stride) -> Size:
    """The number of elements from the first to the last address, both counted; 0 if empty.

    >>> span((2, 3), (10, 2)), span((2, 0), (1, 1))
    (15, 0)
    """
    reach: Size = 1
    for size, step in zip(shape, stride, strict=True):
        if size == 0:
            return 0
        reach += (size - 1) * step
    return reach


def view_strides(shape: Shape, stride: Stride, new_shape: Shape) -> Stride | None:
    """The strides of a view with `new_shape`; None where only a copy has that shape.

    `new_shape` has the same number of elements. Dimensions are merged or split only within a run of
    dimensions that are evenly spaced in memory, as PyTorch's `computeStride` does.

    >>> view_strides((4, 3), (3, 1), (2, 2, 3)), view_strides((4, 3), (1, 4), (12,))
    ((6, 3, 1), None)
    """
    if not shape:
        return (1,) * len(new_shape)
    if is_symbolic(shape):
        if always_same(stride, contiguous_strides(shape)):
            return contiguous_strides(new_shape)  # for empty tensors too: needs no assumption
        if asks_first(shape):
            return needed(view_strides, shape, stride, new_shape)
    if numel(shape) == 0:
        return stride if same_shape(shape, new_shape) else contiguous_strides(new_shape)
    result: list[Size] = [0] * len(new_shape)
    new_dim = len(new_shape)
    *inner_runs, outermost = _even_runs(shape, stride)
    for count, step in inner_runs:
        filled: Size = 1
        while new_dim and (filled < count or new_shape[new_dim - 1] == 1):
            new_dim -= 1
            result[new_dim] = filled * step
            filled *= new_shape[new_dim]
        if filled != count:
            return None
    # The rest of the new shape has as many elements as the last run: needs no comparison.
    step = outermost[1]
    for dim in reversed(range(new_dim)):
        result[dim] = step
        step *= new_shape[dim]
    if is_symbolic(shape):  # of an empty tensor the strides are other ones
        return where(is_any(numel(shape)), tuple(result), contiguous_strides(new_shape))
    return tuple(result)


def _even_runs(shape: Shape, stride: Stride) -> list[tuple[Size, Size]]:
    """(elements, stride) of each maximal run of evenly spaced dimensions, innermost run first."""
    runs = []
    count, step = shape[-1], stride[-1]
    for dim in range(len(shape) - 2, -1, -1):
        if stride[dim] != count * step and shape[dim] != 1:
            runs.append((count, step))
            count, step = 1, stride[dim]
        count *= shape[dim]
    return [*runs, (count, step)]


def elementwise_strides(operand_layouts: Sequence[Layout], shape: Shape) -> Stride:
    """The strides of a pointwise op's result of this (broadcast) shape, as TensorIterator's.

    Operands of one shape that are all contiguous, all channels-last, or all have the same dense
    strides pass that on. Otherwise the dimensions are ordered by the operands' strides and packed.
    A Python number that PyTorch wraps into a 0-d tensor (`a + 1`) counts as an operand with the
    layout `((), ())`: where layouts are ambiguous it makes a difference.

    >>> elementwise_strides([((2, 3), (1, 2)), ((2, 3), (1, 2))], (2, 3))
    (1, 2)
    >>> elementwise_strides([((2, 3), (1, 2)), ((3,), (1,))], (2, 3))
    (1, 2)
    """
    common = _agreed_strides(operand_layouts, shape)
    if common is not None:
        return common
    strides = [_broadcast_stride(layout, shape) for layout in operand_layouts]
    return _iteration_strides(shape, strides)


def _agreed_strides(layouts: Sequence[Layout], shape: Shape) -> Stride | None:
    """TensorIterator's fast setup: the strides that all operands agree on; None if there are none.

    The order of the tests decides ambiguous layouts. As in PyTorch, channels-last counts for rank 4
    only.
    """
    if not all(same_shape(layout[0], shape) for layout in layouts):
        return None
    if all(is_contiguous(*layout) for layout in layouts):
        return contiguous_strides(shape)
    if len(shape) == 4 and all(is_channels_last(*layout) for layout in layouts):
        return channels_last_strides(shape)
    first = layouts[0][1]
    if is_dense(shape, first) and all(same_shape(stride, first) for _, stride in layouts):
        return first
    return None


def _broadcast_stride(layout: Layout, shape: Shape) -> Stride:
    sizes, stride = layout
    lead = len(shape) - len(sizes)
    return (0,) * lead + tuple(
        0 if size is not shape[dim] and size == 1 and shape[dim] != 1 else step
        for dim, (size, step) in enumerate(zip(sizes, stride, strict=True), lead)
    )


def _iteration_strides(shape: Shape, strides: Sequence[Stride]) -> Stride:
    order = _iteration_order(shape, strides)
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    result = [0] * len(shape)
    step: Size = 1
    for dim in order:
        result[dim] = step
        step *= shape[dim]  # not at_least_one: here TensorIterator lets a size 0 give strides 0
    return tuple(result)


def _iteration_order(shape: Shape, strides: Sequence[Stride]) -> list[int]:
    """The dimensions innermost first, by TensorIterator's insertion sort.

    Another sort could give another order: the comparison is not transitive where strides are 0.
    """
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        moving = start
        for other in range(start - 1, -1, -1):
            verdict = _compare(order[other], order[moving], shape, strides)
            if verdict < 0:
                break
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
    return order


def _compare(inner: int, outer: int, shape: Shape, strides: Sequence[Stride]) -> int:
    """1 if the two dims must swap, -1 if they must not, 0 if no operand decides."""
    for stride in strides:
        a, b = stride[inner], stride[outer]
        if a == 0 or b == 0:
            continue
        if a < b:
            return -1
        if b < a or shape[outer] < shape[inner]:
            return 1
    return 0


def clone_strides(shape: Shape, stride: Stride) -> Stride:
    """The strides of a copy that preserves the format, as `torch.empty_like`.

    >>> clone_strides((2, 3), (1, 2)), clone_strides((2, 3), (1, 4)), clone_strides((2, 3), (1, 0))
    ((1, 2), (1, 2), (3, 1))
    """
    if is_dense(shape, stride):
        return stride
    packed = _packed(shape, _iteration_order(shape, [stride]))
    if not is_symbolic(shape):
        return packed
    return where(is_several(numel(shape)), packed, stride)  # one element, or none, is dense


def permutation_of(shape: Shape, stride: Stride) -> tuple[int, ...]:
    """The dimensions ordered from the outermost in memory to the innermost.

    Dimensions that strides do not order keep their position.

    >>> permutation_of((2, 3, 4), (12, 1, 3)), permutation_of((2, 3), (3, 1))
    ((0, 2, 1), (0, 1))
    """
    return tuple(reversed(_iteration_order(shape, [stride])))


def same_order(shape: Shape, stride_a: Stride, stride_b: Stride) -> bool:
    """Whether both strides order the dimensions alike, so that elements have the same order.

    Dimensions of size 1 and gaps do not matter; equal strides are ordered by position.

    >>> same_order((2, 1, 3), (3, 9, 1), (30, 1, 2)), same_order((2, 3), (3, 1), (1, 2))
    (True, False)
    """
    if is_symbolic(shape) and asks_first((*shape, *stride_a, *stride_b)):
        return needed(same_order, shape, stride_a, stride_b)
    if numel(shape) == 0:
        return True
    wide = [dim for dim, size in enumerate(shape) if size != 1]
    return _ranked(wide, stride_a) == _ranked(wide, stride_b)


def lies_like(shape: Shape, stride: Stride, other: Stride) -> bool:
    """Whether elements lie without gaps, in the order in which other strides have them; for
    symbols, whether that is so for all their values. Logs no assumption.

    >>> lies_like((2, 3), (3, 1), (30, 1)), lies_like((2, 3), (3, 1), (1, 2))
    (True, False)
    """
    if not is_symbolic((*shape, *stride, *other)):
        return is_dense(shape, stride) and same_order(shape, stride, other)
    return needless(_lies_like, shape, stride, other) is True


def _lies_like(shape: Shape, stride: Stride, other: Stride) -> bool:
    return is_dense(shape, stride) and same_order(shape, stride, other)


def packed_like(shape: Shape, stride: Stride) -> Stride:
    """Strides without gaps that order the dimensions as these do: `clone_strides`, but with fewer
    assumptions about symbols, as those along sizes of 1 may be others.

    >>> packed_like((2, 3), (1, 4)), packed_like((1, 3), (7, 1))
    ((1, 2), (7, 1))
    """
    for function in (clone_strides, _packed_in_order):
        found = needless(function, shape, stride)
        if found is not None:
            return found
    return clone_strides(shape, stride)


def _packed_in_order(shape: Shape, stride: Stride) -> Stride:
    return _packed(shape, _iteration_order(shape, [stride]))


def _ranked(dims: list[int], stride: Stride) -> list[int]:
    return sorted(dims, key=lambda dim: (-stride[dim], dim))
