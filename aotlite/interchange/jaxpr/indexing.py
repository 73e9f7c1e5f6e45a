"""Primitives of JAX that take or put elements at computed places: gather, scatter, slices.

The place of each element is computed for each dimension of the operand, as the definition of XLA's
gather says; out of range it is moved into it, or its element is filled or dropped, by the mode.
Spec: `specs/jaxpr.md`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aotlite.interchange.jaxpr.geometry import arange
from aotlite.interchange.jaxpr.pointwise import Lowering, Parameters
from aotlite.ir.dtypes import int64

DROPS = "FILL_OR_DROP"
"""The mode that fills what a gather finds out of range, and drops what a scatter puts there."""


def _along(x: Any, dim: int, rank: int) -> Any:
    """A row of numbers along one dimension of so many."""
    return x.reshape(tuple([-1 if d == dim else 1 for d in range(rank)]))


def _starts(x: Any, starts: tuple[Any, ...], sizes: tuple[int, ...]) -> list[Any]:
    """The places of a window along each dimension, moved into range."""
    found = []
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        most = x.meta.shape[dim] - size
        first = start._do("cast", int64)._do("clamp", 0, most)
        found.append(_along(arange(x, size) + first, dim, len(sizes)))
    return found


def _dynamic_slice(params: Parameters, x: Any, *starts: Any) -> Any:
    sizes = tuple(params["slice_sizes"])
    if not sizes:
        return x
    return x._do("index", tuple(_starts(x, starts, sizes)), tuple(range(len(sizes))))


def _dynamic_update_slice(params: Parameters, x: Any, update: Any, *starts: Any) -> Any:
    sizes = update.meta.shape
    if not sizes:
        return update
    places = tuple(_starts(x, starts, sizes))
    return x._do("index_put", places, tuple(range(len(sizes))), update, False)


def _places(
    operand: Any, indices: Any, sizes: tuple[int, ...], names: Any, drops: bool
) -> tuple[list[Any], Any]:
    """For each dimension of the operand the places, which broadcast to the shape of the slices,
    and which of the slices are in range; None where all are moved into it.

    `names` are (dimensions of windows in the slices, dropped dimensions, batching dimensions of the
    operand, of the indices, which dimension a component of the index is of).
    """
    windows, dropped, batching, index_batching, component_dims = names
    batch_shape = indices.meta.shape[:-1]
    rank = len(batch_shape) + len(windows)
    batch_dims = [dim for dim in range(rank) if dim not in windows]
    kept = [d for d in range(len(sizes)) if d not in dropped and d not in batching]
    inside = None
    found: list[Any] = []
    for dim, size in enumerate(sizes):
        place = arange(operand, 1).reshape((1,) * rank)
        if dim in component_dims:
            component = indices._do("select", len(batch_shape), component_dims.index(dim))
            component = component._do("cast", int64)
            most = operand.meta.shape[dim] - size
            if drops:
                fits = component._do("ge", 0)._do("logical_and", component._do("le", most))
                inside = fits if inside is None else inside._do("logical_and", fits)
            component = component._do("clamp", 0, most)
            shape = dict(zip(batch_dims, batch_shape, strict=True))
            place = place + component.reshape(tuple([shape.get(d, 1) for d in range(rank)]))
        if dim in batching:
            at = batch_dims[index_batching[batching.index(dim)]]
            place = place + _along(arange(operand, operand.meta.shape[dim]), at, rank)
        if dim in kept:
            place = place + _along(arange(operand, size), windows[kept.index(dim)], rank)
        found.append(place)
    if inside is not None:
        shape = dict(zip(batch_dims, batch_shape, strict=True))
        inside = inside.reshape(tuple([shape.get(d, 1) for d in range(rank)]))
    return found, inside


def _gather(params: Parameters, operand: Any, indices: Any) -> Any:
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    names = (
        tuple(numbers.offset_dims),
        tuple(numbers.collapsed_slice_dims),
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
        tuple(numbers.start_index_map),
    )
    drops = params["mode"].name == DROPS
    places, inside = _places(operand, indices, sizes, names, drops)
    if not sizes:
        return operand._do("expand", indices.meta.shape[:-1])
    shape = _shape(indices, names[0], sizes, names[1] + names[2])
    places = [place._do("expand", shape) for place in places]
    found = operand._do("index", tuple(places), tuple(range(len(sizes))))
    if inside is None:
        return found
    fill = params["fill_value"]
    fill = _fill(operand.meta.dtype) if fill is None else fill
    return inside._do("expand", shape)._do("where", found, _number(fill, found))


def _number(value: Any, like: Any) -> Any:
    return like._filled((), np.asarray(value).item(), like.meta.dtype, like.meta.device)


def _fill(dtype: Any) -> Any:
    """What JAX fills with."""
    if dtype.kind > 1:
        return float("nan")
    if dtype.kind == 0:
        return True
    limits = np.iinfo(dtype.numpy)
    return limits.max if dtype.name.startswith("u") else limits.min


def _shape(
    indices: Any, windows: tuple[int, ...], sizes: tuple[int, ...], dropped: tuple[int, ...]
) -> tuple[int, ...]:
    batch = list(indices.meta.shape[:-1])
    kept = [size for dim, size in enumerate(sizes) if dim not in dropped]
    rank = len(batch) + len(windows)
    return tuple([kept[windows.index(d)] if d in windows else batch.pop(0) for d in range(rank)])


def _scatter(reduce: str) -> Lowering:
    def lowering(params: Parameters, operand: Any, indices: Any, updates: Any) -> Any:
        numbers = params["dimension_numbers"]
        windows = tuple(numbers.update_window_dims)
        dropped = tuple(numbers.inserted_window_dims)
        batching = tuple(numbers.operand_batching_dims)
        names = (
            windows,
            dropped,
            batching,
            tuple(numbers.scatter_indices_batching_dims),
            tuple(numbers.scatter_dims_to_operand_dims),
        )
        kept = iter([updates.meta.shape[dim] for dim in windows])
        sizes = tuple(
            [
                1 if d in dropped or d in batching else next(kept)
                for d in range(len(operand.meta.shape))
            ]
        )
        drops = params["mode"].name == DROPS
        places, inside = _places(operand, indices, sizes, names, drops)
        return _put(operand, places, inside, updates, reduce)

    return lowering


def _put(operand: Any, places: list[Any], inside: Any, updates: Any, reduce: str) -> Any:
    """The operand with updates at places: in a row of all its elements, and one more for what is
    dropped."""
    shape, count = operand.meta.shape, math.prod(operand.meta.shape)
    position = arange(operand, 1).reshape((1,) * len(updates.meta.shape))
    step = count
    for size, place in zip(shape, places, strict=True):
        step = step // size if size else 0
        position = position + place * step
    position = position._do("expand", updates.meta.shape)
    if inside is not None:
        beyond = position._filled((), count, int64, operand.meta.device)
        position = inside._do("expand", updates.meta.shape)._do("where", position, beyond)
    index, source = position.reshape((-1,)), updates.reshape((-1,))
    row = operand.reshape((-1,))
    row = row._do("constant_pad_nd", (0, 1), 0)
    if reduce == "set":
        row = row._do("index_copy", 0, index, source)
    elif reduce == "sum":
        row = row._do("index_add", 0, index, source)
    else:
        row = row._do("scatter_reduce", 0, index, source, reduce)
    return row._do("slice", 0, 0, count, 1).reshape(shape)


INDEXING: dict[str, Lowering] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter("set"),
    "scatter-add": _scatter("sum"),
    "scatter-mul": _scatter("prod"),
    "scatter-min": _scatter("amin"),
    "scatter-max": _scatter("amax"),
}
"""Primitive -> its form."""
