"""Runs of one op on fresh memory, and comparisons of memory; all laws of ops share them."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite import from_numpy
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir import dtypes
from aotlite.ir.geometry import layout
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import (
    DataOp,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    ViewOp,
    Vjp,
)
from aotlite.testing.laws.samples.sample import Sample

MARGIN = 2
"""The number of elements before and after each tensor, in which a stray write shows."""


# ------------------------------------------------------------------------------------ arguments
def tensor_of(array: np.ndarray, *, margin: int = MARGIN) -> Tensor:
    """A tensor with a copy of the array in a new storage, in the same layout."""
    dtype = dtypes.from_numpy(array.dtype)
    stride = tuple(step // array.itemsize for step in array.strides)
    meta = tensor_meta(array.shape, stride, dtype)
    span = layout.span(array.shape, stride)
    memory_ = np.ones(span + 2 * margin, array.dtype).view(np.uint8)
    tensor = Tensor(Storage(memory_), meta, margin)
    tensor.array[...] = array
    return tensor


def tight_tensor_of(array: np.ndarray) -> Tensor:
    """A tensor on a NumPy array that owns its memory, which a kernel could return by mistake."""
    if not layout.is_dense(array.shape, tuple(step // array.itemsize for step in array.strides)):
        return tensor_of(array)
    return from_numpy(np.copy(array, order="K"))


def bound(op: Op, sample: Sample, make: object = tensor_of) -> tuple[Any, ...]:
    """The canonical arguments of a sample with a fresh tensor for each array."""
    values = {key: _tensors(value, make) for key, value in sample.kwargs.items()}
    return op.bind(tuple(_tensors(value, make) for value in sample.args), values)


def _tensors(value: object, make: Any) -> object:
    if isinstance(value, np.ndarray):
        return make(value)
    return tuple(_tensors(item, make) for item in value) if isinstance(value, tuple) else value


def tensors_in(value: object) -> list[Tensor]:
    """The tensors of an argument tuple or a result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


# -------------------------------------------------------------------------------------- running
def run(op: Op, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The results of the eager engine, always as a tuple."""
    return tuple(tensors_in(dispatch(op, args)))


def kernel_op(op: Op) -> PureOp | DataOp | None:
    """The op whose kernel computes the values of `op`; None for a view or geometry op."""
    match op:
        case PureOp() | DataOp():
            return op
        case InplaceOp() | RandomOp():
            return op.functional
    return None


def vjp_of(op: Op) -> Vjp | None:
    """The gradient formulas that differentiate this op's results."""
    match op:
        case PureOp() | ViewOp() | MultiViewOp() | DataOp():
            return op.vjp
        case InplaceOp():
            return op.functional.vjp
        case GeometryOp():
            return op.view.vjp
    return None


def has_gradient(op: Op) -> bool:
    """Whether some operand has a gradient formula."""
    return vjp_of(op) is not None


def changes_first(op: Op) -> bool:
    """Whether the op changes its first operand and returns it."""
    return isinstance(op, (InplaceOp, GeometryOp))


def with_kernel(op: PureOp | DataOp, kernel: Any) -> PureOp | DataOp:
    """A copy of the op with another kernel."""
    return attrs.evolve(op, kernel=kernel)


def is_viewing(op: Op) -> bool:
    return isinstance(op, (ViewOp, MultiViewOp))


# ------------------------------------------------------------------------------------ comparison
def bits(array: object) -> bytes:
    """The bytes of the elements in row-major order."""
    return np.ascontiguousarray(array).tobytes()


def same_bits(a: object, b: object) -> bool:
    """Whether shape, dtype and each byte agree; all nans are equal."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if bits(a) == bits(b):
        return True
    if not (dtypes.from_numpy(a.dtype).is_floating_point or a.dtype.kind == "c"):
        return False
    nans = np.isnan(a) & np.isnan(b)
    return bits(np.where(nans, 0, a)) == bits(np.where(nans, 0, b))


def close(a: object, b: object, tolerance: float) -> bool:
    """Whether two arrays agree within `tolerance` times the largest of their values, at least 1."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    finite = np.abs(np.where(np.isfinite(a), a, 0))
    scale = max(1.0, float(np.max(finite, initial=0)))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def addresses(tensor: Tensor) -> np.ndarray:
    """The offset in the storage of each element of the tensor, in elements."""
    meta = tensor.meta
    places = np.full(meta.shape, tensor.offset, np.int64)
    for dim, (size, step) in enumerate(zip(meta.shape, meta.stride, strict=True)):
        line = np.arange(size, dtype=np.int64) * step
        places = places + line.reshape([-1 if i == dim else 1 for i in range(len(meta.shape))])
    return places


def memory(tensor: Tensor) -> np.ndarray:
    """The bytes of the tensor's whole storage."""
    buffer = tensor.storage.buffer
    assert isinstance(buffer, np.ndarray)
    return (
        buffer.reshape(-1).view(np.uint8)
        if buffer.flags.c_contiguous
        else buffer.copy("C").view("u1")
    )


def elements(tensor: Tensor) -> np.ndarray:
    """A copy of the tensor's values."""
    return np.array(tensor.array)


def cotangents(outs: tuple[Tensor, ...]) -> list[np.ndarray]:
    """Fixed weights below 1, all different and not zero: one array for each result."""
    return [
        np.cos(np.arange(out.numel(), dtype=np.float64) * 1.3 + 0.5 + k).reshape(out.shape)
        for k, out in enumerate(outs)
    ]
