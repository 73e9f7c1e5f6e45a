"""Composites that return parts of a tensor: narrow, split, chunk, tensor_split, hsplit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
)
from aotlite.ir.geometry import sizes
from aotlite.ir.op.composite import composite


@composite("narrow(Tensor self, int dim, Tensor|Scalar start, int length) -> Tensor")
def narrow(self: Any, dim: int, start: Any, length: int) -> Any:
    """A view of `length` elements of a dimension from `start` on (a tensor's value is read)."""
    _needs_dims("narrow", self, 1)
    dim = sizes.wrap_dim(dim, self.ndim, op="narrow")
    size = self.shape[dim]
    begin = _start_of(start)
    if length < 0:
        raise ShapeError(f"narrow: length is {length}, expected at least 0")
    if not -size <= begin <= size:
        raise IndexOutOfRangeError(f"narrow: start is {begin}, expected {-size} to {size}")
    begin = begin + size if begin < 0 else begin
    if length > size - begin:
        raise ShapeError(
            f"narrow: start {begin} with length {length} is outside dimension {dim}, expected an "
            f"end of at most {size}"
        )
    return self._do("slice", dim, begin, begin + length, 1)


@composite("narrow_copy(Tensor self, int dim, int start, int length) -> Tensor")
def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    """`narrow` in memory of its own, contiguous."""
    part = narrow(self, dim, start, length)
    return part._do("restride", part.meta.as_contiguous().stride)


def _start_of(start: Any) -> int:
    value = start
    if hasattr(start, "meta"):
        if start.ndim or start.dtype.is_differentiable:
            raise DTypeError(
                f"narrow: argument 'start' is {start.meta}, expected an integer or a 0-d tensor of "
                "one"
            )
        value = start.item()
    size = sizes.as_size(value)
    if size is None:
        raise ArgumentError(f"narrow: argument 'start' is {value!r}, expected an integer")
    return size


@composite()
def split(self: Any, split_size: Any, dim: int = 0) -> Any:
    """Views of parts of a dimension: of one size (the last may be smaller), or of listed sizes."""
    if isinstance(split_size, (tuple, list)):
        return self._do("split_with_sizes", split_size, dim)
    return self._do("split", split_size, dim)


@composite("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
def chunk(self: Any, chunks: int, dim: int) -> Any:
    """Views of at most `chunks` equal parts (META: recorded as `split`)."""
    if chunks < 1:
        raise ArgumentError(f"chunk: chunks is {chunks}, expected at least 1")
    _needs_dims("chunk", self, 1)
    size = self.shape[sizes.wrap_dim(dim, self.ndim, op="chunk")]
    if size == 0:
        return self._do("split_with_sizes", (0,) * chunks, dim)
    return self._do("split", -(-size // chunks), dim)


# ------------------------------------------------------------------------------- parts as slices
@composite()
def tensor_split(self: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Slices of a dimension: so many of nearly one size, or ending at the indices (a tensor of
    either is read).
    """
    return _cut(self, indices_or_sections, dim, "tensor_split")


@composite()
def hsplit(self: Any, indices_or_sections: Any) -> Any:
    """`tensor_split` into columns: along dimension 1, or 0 if that is all there is."""
    _needs_dims("hsplit", self, 1)
    return _even(self, indices_or_sections, 0 if self.ndim == 1 else 1, "hsplit")


@composite()
def vsplit(self: Any, indices_or_sections: Any) -> Any:
    """`tensor_split` into rows: along dimension 0."""
    _needs_dims("vsplit", self, 2)
    return _even(self, indices_or_sections, 0, "vsplit")


@composite()
def dsplit(self: Any, indices_or_sections: Any) -> Any:
    """`tensor_split` along dimension 2."""
    _needs_dims("dsplit", self, 3)
    return _even(self, indices_or_sections, 2, "dsplit")


def _needs_dims(name: str, tensor: Any, least: int) -> None:
    if tensor.ndim < least:
        raise ShapeError(
            f"{name}: the tensor has shape {tensor.shape}, expected at least {least} dimensions"
        )


def _even(self: Any, where: Any, dim: int, name: str) -> Any:
    sections = sizes.as_size(where)
    if sections is not None and sections > 0 and not _divides(sections, self.shape[dim]):
        raise ArgumentError(
            f"{name}: sections is {sections}, expected a divisor of {self.shape[dim]}, the size of "
            f"dimension {dim}"
        )
    return _cut(self, where, dim, name)


def _divides(sections: int, size: int) -> bool:
    return size % sections == 0


_MOST_PARTS = 2**48
"""The most parts: more tensors than a process can address."""


def _cut(self: Any, where: Any, dim: int, name: str) -> Any:
    _needs_dims(name, self, 1)
    dim = sizes.wrap_dim(dim, self.ndim, op=name)
    if hasattr(where, "meta"):
        if where.ndim > 1 or where.dtype.name != "int64":
            raise DTypeError(f"{name}: the tensor is {where.meta}, expected int64, 0-d or 1-d")
        where = where.tolist()
    sections = sizes.as_size(where)
    if sections is None:
        return _at_indices(self, where, dim, name)
    if sections < 1:
        raise ArgumentError(f"{name}: sections is {sections}, expected at least 1")
    if sections > _MOST_PARTS:
        raise OutOfMemoryError(
            f"{name}: {sections} parts are asked for, expected at most {_MOST_PARTS}"
        )
    least, more = divmod(self.shape[dim], sections)
    ends = [least * (i + 1) + min(i + 1, more) for i in range(sections)]
    return _slices(self, [0, *ends], dim)


def _at_indices(self: Any, indices: Any, dim: int, name: str) -> Any:
    found = list(indices) if isinstance(indices, (tuple, list)) else [None]
    ends = [sizes.as_size(index) for index in found]
    if any(end is None for end in ends):
        raise ArgumentError(
            f"{name}: argument 'indices_or_sections' is {indices!r}, expected an integer, integers "
            "or a tensor of them"
        )
    return _slices(self, [0, *ends, self.shape[dim]], dim)


def _slices(self: Any, edges: list[Any], dim: int) -> tuple[Any, ...]:
    return tuple(self._do("slice", dim, start, end, 1) for start, end in pairwise(edges))
