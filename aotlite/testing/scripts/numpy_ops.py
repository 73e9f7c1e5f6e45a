"""View ops that NumPy has no function for, as self-contained functions of arrays.

The NumPy engine runs them, and scripts for NumPy contain those that they use, so that each uses
`np` and other functions here alone. A view shares memory and can be written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def as_strided(
    x: np.ndarray, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> np.ndarray:
    """A view of a size; strides, and the offset in the memory of `x`, count elements."""
    steps = [step * x.itemsize for step in stride]
    if offset is not None:
        root = x
        while isinstance(root.base, np.ndarray):
            root = root.base
        x = root.reshape(-1).view(x.dtype)[offset:]
    return np.lib.stride_tricks.as_strided(x, tuple(size), steps)


def clone(x: np.ndarray) -> np.ndarray:
    """A copy; in the layout of `x` if that has no gaps and no overlap, else row-major."""
    span = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)) + x.itemsize
    return x.copy(order="K" if span == x.nbytes else "C")


def as_view(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Another shape of the same memory; raises if that needs a copy."""
    found = x.reshape(tuple(shape))
    if x.size and not np.may_share_memory(found, x):
        raise ValueError(f"view: strides {x.strides} have no view of shape {shape}")
    return found


def expand(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A view in which elements repeat; a size of -1 keeps the present size."""
    new = len(shape) - x.ndim
    sizes = [x.shape[i - new] if size == -1 else size for i, size in enumerate(shape)]
    wide = np.broadcast_to(x, sizes)
    return np.lib.stride_tricks.as_strided(x, wide.shape, wide.strides)


def squeeze(x: np.ndarray, dim: int) -> np.ndarray:
    """A view without a dimension, if its size is 1."""
    return x.squeeze(dim) if x.ndim and x.shape[dim] == 1 else x[...]


def diagonal(x: np.ndarray, offset: int = 0, dim1: int = 0, dim2: int = 1) -> np.ndarray:
    """A diagonal as the last dimension; the view can be written."""
    found = x.diagonal(offset, dim1, dim2)
    found.setflags(write=True)
    return found


def unfold(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
    """Windows of a dimension; the dimension of a window comes last."""
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim, writeable=True)
    return np.moveaxis(np.moveaxis(windows, dim, 0)[::step], 0, dim % x.ndim)


def unflatten(x: np.ndarray, dim: int, sizes: Sequence[int]) -> np.ndarray:
    """One dimension as several."""
    dim %= x.ndim
    known = int(np.prod([size for size in sizes if size != -1]))
    sizes = [x.shape[dim] // known if size == -1 else size for size in sizes]
    return as_view(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def flatten(x: np.ndarray, start: int = 0, end: int = -1) -> np.ndarray:
    """Several dimensions as one; a copy if a view is not possible."""
    if not x.ndim:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    size = int(np.prod(x.shape[start : end + 1]))
    return x.reshape((*x.shape[:start], size, *x.shape[end + 1 :]))


def view_as_real(x: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs."""
    return x[..., None].view(x.real.dtype)


def view_as_complex(x: np.ndarray) -> np.ndarray:
    """Pairs as complex numbers."""
    return x.view(np.result_type(x, np.complex64))[..., 0]


def split_with_sizes(x: np.ndarray, sizes: Sequence[int], dim: int = 0) -> list[np.ndarray]:
    """Parts of these sizes."""
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def split(x: np.ndarray, size: int, dim: int = 0) -> list[np.ndarray]:
    """Parts of one size; the last may be smaller."""
    return np.split(x, range(size, x.shape[dim], size), dim)


def chunk(x: np.ndarray, count: int, dim: int = 0) -> list[np.ndarray]:
    """At most `count` parts of one size; the last may be smaller."""
    return split(x, max(-(-x.shape[dim] // count), 1), dim)


def unbind(x: np.ndarray, dim: int = 0) -> list[np.ndarray]:
    """The slices along a dimension, without it."""
    turned = np.moveaxis(x, dim, 0)
    return [turned[i, ...] for i in range(x.shape[dim])]
