"""`x[...]` and `x[...] = value`, with PyTorch's rules.

An index is applied in two steps. Integers, slices, None and Ellipsis give a view (TEN-2). Tensors,
lists and bools then select elements of that view, by the op `index`. A mask is turned into integer
indices first, whose number depends on values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.autograd.inplace_writes import check_writable
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor as make
from aotlite.ir import dtypes
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.ops.index.indexing import check_indices, integer_indices, unrepeated
from aotlite.ir.ops.views.view_ops import SELECT, SLICE
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt

MASKS = (dtypes.bool_, dtypes.uint8)
Picks = list[Tensor | None]
"""An index tensor, a mask (of several dimensions), or None for each dimension of the view."""


# ------------------------------------------------------------------------------------- reading
def get_item(tensor: Tensor, index: object) -> Tensor:
    """`tensor[index]`: a view, or a copy if the index has tensors or lists."""
    if type(index) is int and tensor.meta.shape:
        return tensor._apply(SELECT, (tensor, 0, index))
    if type(index) is slice and tensor.meta.shape and _has_only_bounds(index):
        return tensor._apply(SLICE, (tensor, 0, index.start, index.stop, 1))
    part, picks = _part(tensor, _items(index), "getitem")
    if not picks:
        return part.alias() if part is tensor else part
    found, dims = _integers(part, picks, "getitem")
    return part._do("index", found, dims)


_BOUND = frozenset((int, type(None)))


def _has_only_bounds(index: slice) -> bool:
    """Whether a slice has a bound, and no step."""
    types = type(index.start), type(index.stop)
    return index.step is None and _BOUND.issuperset(types) and types != (type(None),) * 2


def _items(index: object) -> tuple[Any, ...]:
    """The index as a tuple of items. A list with lists, slices, ... counts as a tuple."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and any(
        item is None or item is Ellipsis or isinstance(item, (Tensor, list, tuple, range, slice))
        for item in index
    ):
        return tuple(index)
    return (index,)


def _part(tensor: Tensor, items: tuple[object, ...], op: str) -> tuple[Tensor, Picks]:
    """(the view by integers, slices, None and ..., the index tensors for its dimensions)."""
    items = tuple([_as_item(item, op) for item in items])
    used = sum(_width(item) for item in items)
    if used > tensor.ndim:
        raise IndexOutOfRangeError(
            f"{op}: {used} indices are given for shape {tensor.shape}, expected at most "
            f"{tensor.ndim}"
        )
    if sum(item is Ellipsis for item in items) > 1:
        raise ArgumentError(f"{op}: ... is given twice, expected once")
    picks: Picks = []
    part, dim = tensor, 0
    for item in items:
        if item is Ellipsis:
            dim += tensor.ndim - used
        elif item is None:
            part = part.unsqueeze(dim)
            dim += 1
        elif isinstance(item, slice):
            part = _sliced(part, dim, item, op)
            dim += 1
        elif isinstance(item, (bool, Tensor)):
            if isinstance(item, bool) or (not item.shape and item.dtype in MASKS):
                # A new dimension of size 1, which True keeps and False empties.
                part = part.unsqueeze(dim)
                item = part.new_zeros((int(bool(item)),), dtype=dtypes.int64)
            picks += [None] * (dim - _span(picks))
            picks.append(item)
            dim += _width(item)
        else:
            part = part.select(dim, item)
    return part, picks


def _as_item(item: object, op: str) -> object:
    """An item as None, Ellipsis, a slice, a bool, an int, or an index tensor."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, Tensor):
        lone = not item.shape and item.dtype not in MASKS and not item.dtype.is_differentiable
        return item.__index__() if lone else _checked(item, op)
    if isinstance(item, (list, range)) or (isinstance(item, (tuple, np.ndarray)) and np.ndim(item)):
        empty = np.size(item) == 0
        return _checked(make(list(item), dtype=dtypes.int64 if empty else None), op)
    size = sizes.as_size(item)
    if size is None:
        raise ArgumentError(
            f"{op}: an index is {item!r}, expected an integer, slice, None, ..., or a tensor or "
            "list of integers or bools"
        )
    return size


def _checked(index: Tensor, op: str) -> Tensor:
    if index.dtype not in (*MASKS, dtypes.int64, dtypes.int32):
        raise DTypeError(
            f"{op}: an index has dtype {index.dtype}, expected int64, int32, bool or uint8"
        )
    return index


def _width(item: object) -> int:
    """The number of dimensions of the tensor that an item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype in MASKS else 1


def _span(picks: Picks) -> int:
    return sum(1 if pick is None else _width(pick) for pick in picks)


def _sliced(part: Tensor, dim: int, item: slice, op: str) -> Tensor:
    if item.start is None and item.stop is None and item.step is None:
        return part
    step = 1 if item.step is None else _bound(item.step, op)
    if step is None or step < 1:
        raise ArgumentError(f"{op}: a slice has step {item.step}, expected at least 1")
    return part.slice(dim, _bound(item.start, op), _bound(item.stop, op), step)


def _bound(value: object, op: str) -> int | None:
    bound = None if value is None else sizes.as_size(value)
    if bound is None and value is not None:
        raise ArgumentError(f"{op}: a bound of a slice is {value!r}, expected an integer or None")
    return bound


def _integers(part: Tensor, picks: Picks, op: str) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    if STATE.recorder is not None:
        check_indices(part, picks, op=op)  # before a count is recorded
    return integer_indices(part, picks, op=op)


# ------------------------------------------------------------------------------------- writing
def set_item(tensor: Tensor, index: object, value: object) -> None:
    """`tensor[index] = value`: writes `value`, broadcast, in place.

    A number is cast to the dtype; so is a tensor where the index gives a view. Where index tensors
    select elements, a tensor must have the same dtype.
    """
    _check_value(tensor, value)
    if type(index) is int and tensor.meta.shape and not isinstance(value, Tensor):
        get_item(tensor, index).fill_(value)
        return
    items = _items(index)
    mask = _only_mask(items)
    if mask is not None and isinstance(value, Tensor):
        check_writable("setitem", tensor, [value])  # which op writes depends on a count
    if mask is not None and _is_one_number(tensor, value):
        _fill_where(tensor, mask, value)
        return
    part, picks = _part(tensor, items, "setitem")
    if not picks:
        if isinstance(value, Tensor):
            part.copy_(_without_leading_ones(value, part.ndim))
        else:
            part.fill_(value)
        return
    found, dims = _integers(part, picks, "setitem")
    is_tensor = isinstance(value, Tensor)
    written = _spread(value, part.ndim, found) if is_tensor else tensor.new_full((), value)
    target = unrepeated(part, dims, found, written)
    target._do("index_put_", found, dims, written, False)


def _check_value(tensor: Tensor, value: object) -> None:
    if isinstance(value, (int, float, np.number, np.bool_, SymInt, SymFloat, SizeFloat, Tensor)):
        return
    if isinstance(value, complex):
        if not tensor.is_complex():
            raise DTypeError(f"setitem: the value is {value!r}, expected a real number")
        return
    raise ArgumentError(f"setitem: the value is {value!r}, expected a number or a tensor")


def _only_mask(items: tuple[object, ...]) -> Tensor | None:
    """The mask if it is the only item of the index; else None."""
    only = items[0] if len(items) == 1 else None
    return only if isinstance(only, Tensor) and only.dtype is dtypes.bool_ else None


def _is_one_number(tensor: Tensor, value: object) -> bool:
    """Whether a value under a mask is one for all places. A size is asked for where it decides
    whether dtypes may differ: one element may as well be written as elements are."""
    if not isinstance(value, Tensor):
        return True
    count = value.numel()
    return sizes.always_equal(count, 1) if value.dtype is tensor.dtype else count == 1


def _spread(value: Any, ndim: int, found: tuple[Any, ...]) -> Any:
    """The value for elements that index tensors select, which broadcasts. Without leading ones, of
    which it may have more than what is selected; one of a size that is no number may stay."""
    selected = ndim - len(found) + max(each.ndim for each in found)
    while value.ndim and (value.ndim > selected or type(value.shape[0]) is int):
        if value.shape[0] != 1:
            break
        value = value.squeeze(0)
    return value


def _fill_where(tensor: Tensor, mask: Tensor, value: object) -> None:
    """Writes a number under a single mask, by `masked_fill_`, as PyTorch does."""
    if mask.shape != tensor.shape[: mask.ndim]:
        raise ShapeError(
            f"setitem: the mask has shape {mask.shape}, expected {tensor.shape[: mask.ndim]}, that "
            "of what it masks"
        )
    for dim in range(mask.ndim, tensor.ndim):
        mask = mask.unsqueeze(-1)
        if tensor.stride(dim) == 0 and tensor.shape[dim] > 1:  # repeated, with one value: TEN-7
            tensor = tensor.narrow(dim, 0, 1)
    tensor.masked_fill_(mask, value.reshape(()) if isinstance(value, Tensor) else value)


def _without_leading_ones(value: Tensor, ndim: int) -> Tensor:
    """The value without leading dimensions of size 1, as in PyTorch."""
    while value.ndim > ndim and value.shape[0] == 1:
        value = value.squeeze(0)
    return value
