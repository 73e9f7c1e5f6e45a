"""Flat memory of loops as arrays: windows of it, takes from it, and stores into it.

A buffer is a flat array. A window with the strides of whole dimensions is a reshape and a
transpose; any other is a `take` at computed positions. A store makes a new array.
Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from aotlite.backends.loops.program import Placed
from aotlite.interchange.arrays.target import ArrayTarget, NotPrinted, Value
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.meta import TensorMeta
from aotlite.ir.scalar.expression import Affine

LARGEST = 1 << 20
"""The most positions that a program holds as a constant."""


@attrs.define
class BufferArrays:
    """The buffers of one op's loops."""

    t: ArrayTarget
    flat: dict[int, Value] = attrs.field(factory=dict)
    """The flat array of each buffer that has been written."""
    sizes: dict[int, tuple[int, DType]] = attrs.field(factory=dict)
    """The elements and dtype of each other one."""

    def buffer(self, number: int) -> Value:
        """The flat array of a buffer; of one that nothing has written, zeros."""
        found = self.flat.get(number)
        if found is None:
            size, dtype = self.sizes[number]
            found = self.t.full((size,), 0, dtype)
        return found

    def is_beside(self, number: int, address: Affine, extents: Sequence[int]) -> bool:
        """Whether an affine address leaves the buffer somewhere."""
        reach = [c * (max(n, 1) - 1) for c, n in zip(address.coefficients, extents, strict=True)]
        low = address.start + sum([min(far, 0) for far in reach])
        high = address.start + sum([max(far, 0) for far in reach])
        return low < 0 or high >= self.buffer(number).numel

    def load(self, number: int, address: Affine, extents: Sequence[int]) -> Value:
        """The elements at an affine address, which broadcast over the extents."""
        used = [n if c else 1 for n, c in zip(extents, address.coefficients, strict=True)]
        return window(self.t, self.buffer(number), used, address.coefficients, address.start)

    def take(self, number: int, place: Value, *, is_guarded: bool) -> Value:
        """The elements at computed positions. Those of a branch may be outside: the nearest."""
        flat, t = self.buffer(number), self.t
        if is_guarded and flat.numel:
            last = t.constant(flat.numel - 1, dtypes.int64)
            zero = t.constant(0, dtypes.int64)
            place = t.where(t.primitive("lt", place, zero), zero, place)
            place = t.where(t.primitive("gt", place, last), last, place)
        return t.take(flat, place)

    def store(self, number: int, address: Affine, value: Value) -> None:
        """Replaces the elements at an affine address; of one address the last value stays."""
        flat, t = self.buffer(number), self.t
        coefficients = _steps(value.shape, address.coefficients)
        order = _whole(value.shape, coefficients)
        if order is not None and address.start == 0 and value.numel == flat.numel:
            self.flat[number] = t.reshape(t.transpose(value, order), flat.shape)
            return
        place = _positions(value.shape, coefficients, address.start)
        index = t.constant(place.reshape(-1), dtypes.int64)
        self.flat[number] = t.scatter(flat, index, t.reshape(value, (value.numel,)), None)

    def scatter(self, number: int, place: Value, value: Value, combine: str | None) -> None:
        """Combines values with the elements at computed positions."""
        t = self.t
        flat, count = self.buffer(number), (value.numel,)
        index, values = t.reshape(place, count), t.reshape(value, count)
        self.flat[number] = t.scatter(flat, index, values, combine)

    def read(self, placed: Placed) -> Value:
        """The tensor at a place."""
        meta = placed.meta
        stride = without_few(meta.shape, meta.stride)
        if not meta.numel:
            return self.t.full(meta.shape, 0, meta.dtype)
        return window(self.t, self.buffer(placed.buffer), meta.shape, stride, placed.start)


def in_memory(t: ArrayTarget, value: Value, meta: TensorMeta) -> Value:
    """A tensor's elements as they lie in dense memory."""
    order = _whole(meta.shape, _steps(meta.shape, meta.stride))
    if order is None:
        raise NotPrinted(f"has an operand {meta}, whose memory is not dense")
    return t.reshape(t.transpose(value, order), (value.numel,))


def window(
    t: ArrayTarget, flat: Value, shape: Sequence[int], stride: Sequence[int], start: int
) -> Value:
    """A strided window of flat memory."""
    stride = _steps(shape, stride)
    order = _whole(shape, stride)
    count = math.prod(shape)
    if order is not None and (start, count) != (0, flat.numel) and start + count <= flat.numel:
        flat = t.slice(flat, [start], [start + count])
        start = 0
    if order is not None and start == 0:
        laid = t.reshape(flat, [shape[k] for k in order])
        return t.transpose(laid, np.argsort(order).tolist())
    if count > LARGEST:
        raise NotPrinted(f"reads {count} scattered elements, which no constant holds")
    return t.take(flat, t.constant(_positions(shape, stride, start), dtypes.int64))


def _steps(shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    return [0 if n == 1 else step for n, step in zip(shape, stride, strict=True)]


def _whole(shape: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """The dimensions from the outermost in memory to the innermost, where each element follows the
    one before; None where there are gaps or repeats."""
    if 0 in shape:
        return list(range(len(shape)))
    single = [k for k, n in enumerate(shape) if n == 1]
    order = sorted([k for k, n in enumerate(shape) if n != 1], key=lambda k: (-stride[k], k))
    step = 1
    for k in reversed(order):
        if stride[k] != step:
            return None
        step *= shape[k]
    return single + order


def _positions(shape: Sequence[int], stride: Sequence[int], start: int) -> np.ndarray:
    total = np.full(tuple(shape), start, np.int64)
    for k, step in enumerate(stride):
        line = np.arange(shape[k]) * step
        total += line.reshape([-1 if d == k else 1 for d in range(len(shape))])
    return total
