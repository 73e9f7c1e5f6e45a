"""CuPy as the conformance suite sees it: NumPy's functions on the memory of a CUDA device."""

from __future__ import annotations

import operator
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.libraries import required
from aotlite.conformance.unsupported import Absent
from aotlite.conformance.witnesses.call_source import along
from aotlite.ir.errors import DeviceError

cupy = required("cupy", "aotlite[cuda12]")
tricks = required("cupy.lib.stride_tricks", "aotlite[cuda12]")


class CuPy(Adapter):
    """CuPy's ndarrays. Other libraries' memory is on another device: no method shares it.

    *Err* `DeviceError` if there is no CUDA device.
    """

    name, version = "cupy", cupy.__version__

    def __init__(self) -> None:
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError("conformance: there is no CUDA device, expected one") from error

    from_list = lambda self, values, dtype: cupy.array(values, dtype)
    zeros = lambda self, shape, dtype: cupy.zeros(shape, dtype)
    to_list = lambda self, a: a.tolist()
    shape = lambda self, a: a.shape
    strides = lambda self, a: tuple(step // a.itemsize for step in a.strides)
    dtype = lambda self, a: a.dtype.name
    data_pointer = lambda self, a: a.data.ptr
    shares_memory = lambda self, a, b: bool(cupy.shares_memory(a, b))

    def view(self, a: Any, shape: tuple[int, ...]) -> Any:
        b = a.view()
        b.shape = shape
        return b

    reshape = lambda self, a, shape: a.reshape(shape)
    flatten = lambda self, a: a.reshape(-1)
    transpose = lambda self, a, dim0, dim1: a.swapaxes(dim0, dim1)
    permute = lambda self, a, dims: a.transpose(dims)
    expand = lambda self, a, shape: cupy.broadcast_to(a, shape)
    select = lambda self, a, dim, index: a[along(dim, index, ...)]
    narrow = lambda self, a, dim, start, length: a[along(dim, slice(start, start + length))]
    slice = lambda self, a, dim, start, stop, step: a[along(dim, slice(start, stop, step))]
    flip = lambda self, a, dim: cupy.flip(a, dim)
    squeeze = lambda self, a, dim: a.squeeze(dim)
    unsqueeze = lambda self, a, dim: cupy.expand_dims(a, dim)
    diagonal = lambda self, a: a.diagonal()
    unfold = lambda self, a, dim, size, step: tricks.sliding_window_view(a, size, dim)[
        along(dim, slice(None, None, step))
    ]
    as_strided = lambda self, a, shape, strides, offset: tricks.as_strided(
        a[offset:], shape, [step * a.itemsize for step in strides]
    )
    split = lambda self, a, size, dim: cupy.split(a, list(range(size, a.shape[dim], size)), dim)
    unbind = lambda self, a, dim: [a[along(dim, index, ...)] for index in range(a.shape[dim])]
    view_dtype = lambda self, a, dtype: a.view(dtype)
    real = lambda self, a: a.real
    imag = lambda self, a: a.imag
    getitem = lambda self, a, key: a[key]
    pick = lambda self, a, places: a[places]
    pick_mask = lambda self, a, mask: a[cupy.array(mask)]

    setitem = lambda self, a, key, value: operator.setitem(a, key, value)
    put = lambda self, a, places, value: operator.setitem(a, places, value)
    put_mask = lambda self, a, mask, value: operator.setitem(a, cupy.array(mask), value)
    copy_ = lambda self, a, b: cupy.copyto(a, b, casting="unsafe")
    fill_ = lambda self, a, number: a.fill(number)
    add_ = lambda self, a, b: cupy.add(a, b, out=a)
    mul_ = lambda self, a, b: cupy.multiply(a, b, out=a)
    put_add = lambda self, a, places, value: cupy.add.at(a, cupy.array(places), value)
    add_out = lambda self, a, b, out: cupy.add(a, b, out=out)
    sum_out = lambda self, a, dim, out: cupy.sum(a, axis=dim, out=out)
    cumsum_out = lambda self, a, dim, out: cupy.cumsum(a, axis=dim, out=out)
    matmul_out = lambda self, a, b, out: cupy.matmul(a, b, out=out)

    add = lambda self, a, b: cupy.add(a, b)
    mul = lambda self, a, b: cupy.multiply(a, b)
    neg = lambda self, a: cupy.negative(a)
    sum = lambda self, a, dim: cupy.sum(a, axis=dim)
    sort = lambda self, a: cupy.sort(a)
    concat = lambda self, parts, dim: cupy.concatenate(parts, dim)
    clone = lambda self, a: a.copy()
    asarray = lambda self, a, copy: cupy.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: a.astype(dtype, copy=copy)
    contiguous = lambda self, a: cupy.asarray(a, order="C")
    convert = lambda self, a: cupy.asarray(a)

    def dlpack_to_numpy(self, a: object) -> Any:
        raise Absent("memory of the host")
