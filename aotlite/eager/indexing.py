"""`x[...]` and `x[...] = value`: integers, slices, None and Ellipsis are views (TEN-2)."""

from __future__ import annotations

from typing import Any

from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError, UnsupportedError


def get_item(tensor: Tensor, index: Any) -> Any:
    """The part of `tensor` at `index`: a view, or a copy for one integer tensor as index."""
    items = index if isinstance(index, tuple) else (index,)
    arrays = [item for item in items if isinstance(item, (Tensor, list))]
    if arrays:
        return _gathered(tensor, items, arrays)
    out = tensor
    dim = 0
    for item in _complete(tensor, items):
        if item is None:
            out = out.unsqueeze(dim)
            dim += 1
        elif isinstance(item, slice):
            if item != slice(None):
                step = 1 if item.step is None else item.step
                if step < 1:
                    raise ArgumentError(
                        f"getitem: a slice has step {item.step}, expected at least 1"
                    )
                out = out.slice(dim, _bound(item.start), _bound(item.stop), step)
            dim += 1
        else:
            out = out.select(dim, item)
    return out.alias() if out is tensor else out


def _bound(value: Any) -> int | None:
    return None if value is None else value.__index__()


def _complete(tensor: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """One item for each dimension and None, Ellipsis written out. Raises for what is neither."""
    used = 0
    for item in items:
        if isinstance(item, bool) or not (
            item is None
            or item is Ellipsis
            or isinstance(item, (slice, int))
            or hasattr(item, "__index__")
        ):
            raise ArgumentError(
                f"getitem: an index is {item!r}, expected an integer, slice, None, ... or an "
                "integer tensor"
            )
        used += item is not None and item is not Ellipsis
    if used > tensor.ndim:
        raise IndexOutOfRangeError(
            f"getitem: {used} indices are given for shape {tensor.shape}, expected at most "
            f"{tensor.ndim}"
        )
    if sum(item is Ellipsis for item in items) > 1:
        raise ArgumentError("getitem: ... is given twice, expected once")
    rest = [slice(None)] * (tensor.ndim - used)
    found: list[Any] = []
    for item in items:
        if item is Ellipsis:
            found += rest
            rest = []
        else:
            found.append(item if item is None or isinstance(item, slice) else item.__index__())
    return found + rest


def _gathered(tensor: Tensor, items: tuple[Any, ...], arrays: list[Any]) -> Any:
    """`x[:, index]` with one integer tensor of one dimension."""
    from aotlite.eager.functions import tensor as make

    index = make(arrays[0]) if isinstance(arrays[0], list) else arrays[0]
    plain = [i for i in items if not isinstance(i, (Tensor, list)) and i != slice(None)]
    if len(arrays) > 1 or plain or index.dtype.is_differentiable or index.ndim != 1:
        raise UnsupportedError(
            f"getitem: the index {items!r} mixes tensors in a form that is not known, expected one "
            "integer tensor of one dimension with full slices around it; use gather or where"
        )
    if index.dtype.name == "bool":
        raise UnsupportedError(
            "getitem: the index is a bool tensor, whose number of results depends on data, "
            "expected an integer tensor; use where or masked_fill"
        )
    dim = next(i for i, item in enumerate(items) if isinstance(item, (Tensor, list)))
    return tensor.index_select(dim, index)


def set_item(tensor: Tensor, index: Any, value: Any) -> None:
    """Writes `value`, broadcast and cast, to the part of `tensor` at `index`."""
    items = index if isinstance(index, tuple) else (index,)
    if len(items) == 1 and isinstance(items[0], Tensor) and items[0].dtype.name == "bool":
        _write_where(tensor, items[0], value)
        return
    if any(isinstance(item, (Tensor, list)) for item in items):
        raise UnsupportedError(
            f"setitem: the index {index!r} holds a tensor, expected integers, slices, None and "
            "...; use index_add or where"
        )
    part = get_item(tensor, index)
    if isinstance(value, Tensor):
        while value.ndim > part.ndim and value.shape[0] == 1:  # PyTorch drops leading ones
            value = value.squeeze(0)
        part.copy_(value)
    else:
        part.fill_(value)


def _write_where(tensor: Tensor, mask: Tensor, value: Any) -> None:
    if isinstance(value, Tensor) and value.ndim:
        raise UnsupportedError(
            "setitem: a bool index is given a tensor of values, expected a number; use where"
        )
    if mask.shape != tensor.shape[: mask.ndim]:
        raise ShapeError(f"setitem: the mask has shape {mask.shape}, expected {tensor.shape}")
    for _ in range(tensor.ndim - mask.ndim):
        mask = mask.unsqueeze(-1)
    if isinstance(value, Tensor):
        tensor.copy_(mask.where(value, tensor.clone()))
    else:
        tensor.masked_fill_(mask, value)
