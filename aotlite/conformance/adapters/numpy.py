"""NumPy as the conformance suite sees it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.witnesses.call_source import along


class NumPy(Adapter):
    """NumPy's ndarrays. Strides are counted in elements here, in bytes there."""

    name, version = "numpy", np.__version__

    from_list = lambda self, values, dtype: np.array(values, dtype)
    zeros = lambda self, shape, dtype: np.zeros(shape, dtype)
    to_list = lambda self, a: a.tolist()
    shape = lambda self, a: a.shape
    strides = lambda self, a: tuple(step // a.itemsize for step in a.strides)
    dtype = lambda self, a: a.dtype.name
    data_pointer = lambda self, a: a.ctypes.data
    shares_memory = lambda self, a, b: np.shares_memory(a, b)
    is_writable = lambda self, a: a.flags.writeable

    view = lambda self, a, shape: a.reshape(shape, copy=False)
    reshape = lambda self, a, shape: a.reshape(shape)
    flatten = lambda self, a: a.reshape(-1)
    transpose = lambda self, a, dim0, dim1: a.swapaxes(dim0, dim1)
    permute = lambda self, a, dims: a.transpose(dims)
    expand = lambda self, a, shape: np.broadcast_to(a, shape)
    select = lambda self, a, dim, index: a[along(dim, index, ...)]
    narrow = lambda self, a, dim, start, length: a[along(dim, slice(start, start + length))]
    slice = lambda self, a, dim, start, stop, step: a[along(dim, slice(start, stop, step))]
    flip = lambda self, a, dim: np.flip(a, dim)
    squeeze = lambda self, a, dim: a.squeeze(dim)
    unsqueeze = lambda self, a, dim: np.expand_dims(a, dim)
    diagonal = lambda self, a: a.diagonal()
    unfold = lambda self, a, dim, size, step: sliding_window_view(a, size, dim)[
        along(dim, slice(None, None, step))
    ]
    as_strided = lambda self, a, shape, strides, offset: as_strided(
        a[offset:], shape, [step * a.itemsize for step in strides]
    )
    split = lambda self, a, size, dim: np.split(a, range(size, a.shape[dim], size), dim)
    unbind = lambda self, a, dim: np.unstack(a, axis=dim)
    view_dtype = lambda self, a, dtype: a.view(dtype)
    real = lambda self, a: a.real
    imag = lambda self, a: a.imag
    getitem = lambda self, a, key: a[key]
    pick = lambda self, a, places: a[places]
    pick_mask = lambda self, a, mask: a[mask]

    def setitem(self, a: Any, key: object, value: Any) -> None:
        a[key] = value

    def unsqueeze_(self, a: Any, dim: int) -> None:
        a.shape = np.expand_dims(a, dim).shape

    put = lambda self, a, places, value: operator.setitem(a, places, value)
    put_mask = lambda self, a, mask, value: operator.setitem(a, mask, value)
    copy_ = lambda self, a, b: np.copyto(a, b, casting="unsafe")
    fill_ = lambda self, a, number: a.fill(number)
    add_ = lambda self, a, b: np.add(a, b, out=a)
    mul_ = lambda self, a, b: np.multiply(a, b, out=a)
    put_add = lambda self, a, places, value: np.add.at(a, places, value)
    add_out = lambda self, a, b, out: np.add(a, b, out=out)
    sum_out = lambda self, a, dim, out: np.sum(a, axis=dim, out=out)
    cumsum_out = lambda self, a, dim, out: np.cumsum(a, axis=dim, out=out)
    matmul_out = lambda self, a, b, out: np.matmul(a, b, out=out)

    def frozen(self, values: list[object], dtype: str) -> np.ndarray:
        a = np.array(values, dtype)
        a.flags.writeable = False
        return a

    add = lambda self, a, b: np.add(a, b)
    mul = lambda self, a, b: np.multiply(a, b)
    neg = lambda self, a: np.negative(a)
    sum = lambda self, a, dim: np.sum(a, axis=dim)
    sort = lambda self, a: np.sort(a)
    concat = lambda self, parts, dim: np.concat(parts, dim)
    clone = lambda self, a: a.copy()
    asarray = lambda self, a, copy: np.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: a.astype(dtype, copy=copy)
    reshape_copy = lambda self, a, shape, copy: a.reshape(shape, copy=copy)
    contiguous = lambda self, a: np.asarray(a, order="C")
    from_numpy = lambda self, a: np.asarray(a)
    to_numpy = lambda self, a: np.asarray(a)
    convert = lambda self, a: np.asarray(a)
    from_dlpack = lambda self, a: np.from_dlpack(a)
    from_buffer = lambda self, buffer, dtype: np.frombuffer(buffer, dtype)
