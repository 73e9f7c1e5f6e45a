"""Calls whose operands are as large as one likes, in hardly any memory: dimensions of stride 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.geometry import layout
from aotlite.ir.meta import tensor_meta
from aotlite.testing.laws.samples.sample import Sample

Path = tuple[int, ...]
Dims = tuple[int, ...]
Choice = dict[Path, Dims]
"""Which dimensions of which arrays, by their places among the arguments."""


def window_of(array: np.ndarray) -> Tensor:
    """A tensor laid out like the array, on memory that holds each element once."""
    stride = tuple(step // array.itemsize for step in array.strides)
    once = array[tuple(slice(None) if step else slice(0, 1) for step in stride)]
    memory = np.zeros(max(1, layout.span(array.shape, stride)), array.dtype)
    if array.size:
        np.ndarray(once.shape, array.dtype, memory, 0, once.strides)[...] = once
    meta = tensor_meta(array.shape, stride, dtypes.from_numpy(array.dtype))
    return Tensor(Storage(memory.view(np.uint8)), meta, 0)


def stretched(sample: Sample, size: int) -> Iterator[Sample]:
    """Calls in which dimensions of the operands have `size` elements, each of them the first.

    One dimension of one operand; those that have one size; those in one place, from the front and
    from the back. Not all of them are calls that the op takes.
    """
    seen = []
    for choice in _choices(sample.args):
        if choice and choice not in seen:
            seen.append(choice)
            args: Any = sample.args
            for path, dims in choice.items():
                args = _replaced(args, path, _stretch(_at(args, path), dims, size))
            yield Sample(args, sample.kwargs)


def _choices(args: tuple[Any, ...]) -> Iterator[Choice]:
    ranks: dict[Path, int] = {path: _at(args, path).ndim for path in _paths(args)}
    shapes = {path: _at(args, path).shape for path in ranks}
    for path, rank in ranks.items():
        for dim in range(rank):
            yield {path: (dim,)}
    for size in sorted({size for shape in shapes.values() for size in shape}):
        where = {p: tuple(d for d, n in enumerate(s) if n == size) for p, s in shapes.items()}
        if all(len(dims) < 2 for dims in where.values()):
            yield {path: dims for path, dims in where.items() if dims}
    for dim in range(max(ranks.values(), default=0)):
        yield {path: (dim,) for path, rank in ranks.items() if dim < rank}
        yield {path: (rank - 1 - dim,) for path, rank in ranks.items() if dim < rank}


def _stretch(array: np.ndarray, dims: Dims, size: int) -> np.ndarray:
    once = array[tuple(slice(0, 1) if d in dims else slice(None) for d in range(array.ndim))]
    shape = [size if d in dims else n for d, n in enumerate(once.shape)]
    strides = [0 if d in dims else step for d, step in enumerate(once.strides)]
    return np.lib.stride_tricks.as_strided(once, shape, strides)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, np.ndarray):
        yield path
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _paths(item, (*path, i))


def _at(value: Any, path: Path) -> Any:
    for i in path:
        value = value[i]
    return value


def _replaced(value: tuple[Any, ...], path: Path, new: Any) -> Any:
    if not path:
        return new
    i = path[0]
    return (*value[:i], _replaced(value[i], path[1:], new), *value[i + 1 :])
