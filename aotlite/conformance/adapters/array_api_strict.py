"""array-api-strict, the strict implementation of the Array API standard, as the suite sees it."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.libraries import required
from aotlite.conformance.witnesses.call_source import along

xp = required("array_api_strict", "aotlite[conformance]")


class ArrayAPIStrict(Adapter):
    """Arrays without strides or addresses: only writes show whether memory is shared."""

    name, version = "array-api-strict", xp.__version__

    from_list = lambda self, values, dtype: xp.asarray(values, dtype=getattr(xp, dtype))
    zeros = lambda self, shape, dtype: xp.zeros(shape, dtype=getattr(xp, dtype))
    to_list = lambda self, a: np.asarray(a).tolist()
    shape = lambda self, a: a.shape
    dtype = lambda self, a: np.asarray(a).dtype.name

    view = lambda self, a, shape: xp.reshape(a, shape, copy=False)
    reshape = lambda self, a, shape: xp.reshape(a, shape)
    flatten = lambda self, a: xp.reshape(a, (-1,))
    transpose = lambda self, a, dim0, dim1: xp.moveaxis(a, (dim0, dim1), (dim1, dim0))
    permute = lambda self, a, dims: xp.permute_dims(a, dims)
    expand = lambda self, a, shape: xp.broadcast_to(a, shape)
    select = lambda self, a, dim, index: a[along(dim, index, ...)]
    narrow = lambda self, a, dim, start, length: a[along(dim, slice(start, start + length), ...)]
    slice = lambda self, a, dim, start, stop, step: a[along(dim, slice(start, stop, step), ...)]
    flip = lambda self, a, dim: xp.flip(a, axis=dim)
    squeeze = lambda self, a, dim: xp.squeeze(a, dim)
    unsqueeze = lambda self, a, dim: xp.expand_dims(a, axis=dim)
    unbind = lambda self, a, dim: xp.unstack(a, axis=dim)
    getitem = lambda self, a, key: a[key]
    pick = lambda self, a, places: xp.take(a, xp.asarray(places, dtype=xp.int64), axis=0)
    pick_mask = lambda self, a, mask: a[xp.asarray(mask)]

    def setitem(self, a: Any, key: Any, value: object) -> None:
        a[key] = value

    def put_mask(self, a: Any, mask: list[bool], value: Any) -> None:
        a[xp.asarray(mask)] = value

    def fill_(self, a: Any, number: float) -> None:
        a[...] = number

    def copy_(self, a: Any, b: Any) -> None:
        a[...] = b

    add_ = lambda self, a, b: operator.iadd(a, b)
    mul_ = lambda self, a, b: operator.imul(a, b)

    add = lambda self, a, b: a + b
    mul = lambda self, a, b: a * b
    neg = lambda self, a: -a
    sum = lambda self, a, dim: xp.sum(a, axis=dim)
    sort = lambda self, a: xp.sort(a)
    concat = lambda self, parts, dim: xp.concat(parts, axis=dim)
    clone = lambda self, a: xp.asarray(a, copy=True)
    asarray = lambda self, a, copy: xp.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: xp.astype(a, getattr(xp, dtype), copy=copy)
    reshape_copy = lambda self, a, shape, copy: xp.reshape(a, shape, copy=copy)
    convert = lambda self, a: xp.asarray(a)
    to_numpy = lambda self, a: np.asarray(a)
    from_dlpack = lambda self, a: xp.from_dlpack(a)
