"""An array library of Python lists, with the least functions that the eager engine needs.

A buffer is a `Memory`, an array a strided window onto one. NumPy's dtype objects serve as names of
dtypes only: `aotlite.ir.arrays` asks for no more. Not fast, and not meant to be.
"""

from __future__ import annotations

import itertools
import math
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np

from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import from_numpy
from aotlite.ir.geometry.layout import contiguous_strides
from aotlite.ir.geometry.sizes import broadcast_shapes


class Memory(list):
    """A buffer: Python numbers, and the bytes they would take."""

    def __init__(self, items, itemsize):
        super().__init__(items)
        self.nbytes = len(self) * itemsize


class ListArray:
    """A window onto a memory."""

    def __init__(self, memory, dtype, shape, stride, offset=0):
        self.memory, self.dtype, self.offset = memory, dtype, offset
        self.shape, self.stride = tuple(shape), tuple(stride)

    def places(self):
        """The index in memory of each element, in row-major order."""
        for index in itertools.product(*map(range, self.shape)):
            yield self.offset + sum(map(operator.mul, index, self.stride))

    def values(self):
        return [self.memory[place] for place in self.places()]

    def tolist(self):
        if not self.shape:
            return self.memory[self.offset]
        rows = range(self.shape[0])
        return [
            self.window(self.shape[1:], self.stride[1:], i * self.stride[0]).tolist() for i in rows
        ]

    def window(self, shape, stride, start=0):
        return ListArray(self.memory, self.dtype, shape, stride, self.offset + start)

    def __getitem__(self, part):
        (size,), (step,) = self.shape, self.stride
        chosen = range(size)[part]
        return self.window((len(chosen),), (step * chosen.step,), step * chosen.start)

    def __add__(self, other):
        return elementwise(operator.add)(self, other)

    def __mul__(self, other):
        return elementwise(operator.mul)(self, other)

    def __rshift__(self, other):
        return elementwise(operator.rshift)(self, other)

    def __and__(self, other):
        return elementwise(operator.and_)(self, other)

    def __xor__(self, other):
        return elementwise(operator.xor)(self, other)


def new(values, dtype, shape):
    """A contiguous array of these values, converted to the dtype."""
    kind = {"b": bool, "f": float, "c": complex}.get(dtype.kind, int)
    memory = Memory(map(kind, values), dtype.itemsize)
    return ListArray(memory, dtype, shape, contiguous_strides(tuple(shape)))


def broadcast_to(a, shape):
    lead = len(shape) - len(a.shape)
    pairs = zip(a.shape, a.stride, shape[lead:], strict=True)
    return a.window(shape, (0,) * lead + tuple(step if n == m else 0 for n, step, m in pairs))


def elementwise(function, to=None):
    """A pointwise function of arrays and numbers; `to`: the dtype of its result."""

    def apply(*operands):
        arrays = [a for a in operands if isinstance(a, ListArray)]
        shape = broadcast_shapes(*[a.shape for a in arrays])
        count = math.prod(shape)
        columns = [
            broadcast_to(a, shape).values() if isinstance(a, ListArray) else [a] * count
            for a in operands
        ]
        return new(map(function, *columns), to or arrays[-1].dtype, shape)

    return apply


def matmul(a, b):
    (rows, inner), columns = a.shape, b.shape[1]
    x, y = a.tolist(), b.tolist()
    cells = itertools.product(range(rows), range(columns))
    sums = [sum(x[i][k] * y[k][j] for k in range(inner)) for i, j in cells]
    return new(sums, a.dtype, (rows, columns))


def total(a, axis=None, dtype=None, keepdims=False):
    axes = range(len(a.shape)) if axis is None else axis
    shape = tuple(1 if i in axes else n for i, n in enumerate(a.shape))
    found = new([0] * math.prod(shape), a.dtype, shape)
    steps = broadcast_to(found, a.shape)
    for place, value in zip(steps.places(), a.values(), strict=True):
        found.memory[place] += value
    kept = tuple(n for i, n in enumerate(shape) if keepdims or i not in axes)
    return found.window(kept, contiguous_strides(kept))


def add_at(target, index, source):
    for (place,), value in zip(index.reshaped(), source.values(), strict=True):
        target.memory[place] += value


def stack(arrays, axis):
    """One-dimensional arrays as the columns of a matrix."""
    assert axis == 1
    rows = zip(*[a.values() for a in arrays], strict=True)
    values = list(itertools.chain.from_iterable(rows))
    return new(values, arrays[0].dtype, (len(values) // len(arrays), len(arrays)))


def reshape(a, shape):
    known = -math.prod(shape)
    shape = tuple(len(a.values()) // known if n == -1 else n for n in shape)
    return new(a.values(), a.dtype, shape)


NAMESPACE = SimpleNamespace(
    add=elementwise(operator.add),
    subtract=elementwise(operator.sub),
    multiply=elementwise(operator.mul),
    negative=elementwise(operator.neg),
    where=elementwise(lambda c, a, b: a if c else b),
    astype=lambda a, dtype: new(a.values(), dtype, a.shape),
    full=lambda shape, value, dtype: new([value] * math.prod(shape), dtype, shape),
    zeros=lambda shape, dtype: new([0] * math.prod(shape), dtype, shape),
    arange=lambda stop, dtype: new(range(stop), dtype, (stop,)),
    stack=stack,
    uint64=np.dtype("uint64"),
    float32=np.dtype("float32"),
    reshape=reshape,
    broadcast_to=broadcast_to,
    matmul=matmul,
    sum=total,
)


class ListArrays:
    """An `ArrayBackend` in pure Python."""

    name = "lists"
    namespace: Any = NAMESPACE

    def allocate(self, size, dtype):
        return Memory([None] * size, dtype.itemsize)

    def strided(self, buffer, dtype, shape, stride, offset):
        return ListArray(buffer, dtype.numpy, shape, stride, offset)

    def copy(self, destination, source):
        source = source if isinstance(source, ListArray) else from_nested(source, destination.dtype)
        values = broadcast_to(source, destination.shape).values()
        converted = new(values, destination.dtype, destination.shape).memory
        for place, value in zip(destination.places(), converted, strict=True):
            destination.memory[place] = value

    def quiet(self, function, *args):
        return function(*args)

    def quieted(self, function):
        return function

    def fresh_function(self, name):
        return None

    def adopt(self, result, meta):
        buffer = self.allocate(meta.span, meta.dtype)
        self.copy(
            self.strided(buffer, from_numpy(result.dtype), meta.shape, meta.stride, 0), result
        )
        return buffer


def from_nested(source, dtype):
    """An array of nested lists, of a number, or of what can list itself."""
    nested = source.tolist() if hasattr(source, "tolist") else source
    shape = []
    level = nested
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    values = [nested]
    for _ in shape:
        values = list(itertools.chain.from_iterable(values))
    return new(values, dtype, shape)


LISTS = Device("lists", ListArrays())
