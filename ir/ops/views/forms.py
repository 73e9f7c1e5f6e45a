"""Composites of views: other names and forms of view ops, made of those in `view_ops`, and parts of
a tensor: narrow, split, chunk, tensor_split, hsplit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from aotlite.ir.dtypes import DType
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
)
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number

Given = TypeVar("Given", bound=Operand)


# ---------------------------------------------------------------------------------- reshaping
_INT = frozenset((int,))


@composite(spread=True)
def view(self: Operand, size: Any = None, *, dtype: DType | None = None) -> Operand:
    """A view of this shape (one size may be -1), or of the same bytes in another dtype.

    Raises ShapeError where the strides forbid it.
    """
    if size is None or isinstance(size, (DType, type)):
        return self._do("view_dtype", dtype if size is None else size)
    if type(size) is tuple and _INT.issuperset(map(type, size)):
        return self._run("view", size)
    return self._do("view", size)


@composite("view_as(Tensor self, Tensor other) -> Tensor")
def view_as(self: Operand, other: Operand) -> Operand:
    """A view with the shape of `other`."""
    return self._do("view", other.shape)


@composite("reshape(Tensor self, int[] shape) -> Tensor", spread=True)
def reshape(self: Operand, shape: tuple[int, ...]) -> Operand:
    """A view of this shape where the strides allow one, else a contiguous copy (TEN-2)."""
    meta = self.meta
    wanted = shape
    if not meta.contiguous or -1 in shape or sizes.numel(shape) != meta.numel:
        wanted = sizes.infer_size(shape, meta.numel, op="reshape")
        if layout.view_strides(meta.shape, meta.stride, wanted) is None:
            return self._do("reshape_copy", wanted)
    return self._do("view", wanted)


def in_shape(tensor: Given, shape: Sequence[int]) -> Given:
    """`reshape` for a result that is only read, so that nobody sees whether it shares memory: it is
    a view only where the strides allow one for all sizes, so that nothing is assumed (DYN-4)."""
    meta, wanted = tensor.meta, tuple(shape)
    if not sizes.is_symbolic((*meta.shape, *meta.stride, *wanted)):
        return tensor.reshape(wanted)
    if sizes.unasked(layout.view_strides, meta.shape, meta.stride, wanted) is None:
        return tensor._do("reshape_copy", wanted)
    return tensor._do("view", wanted)


@composite("reshape_as(Tensor self, Tensor other) -> Tensor")
def reshape_as(self: Operand, other: Operand) -> Operand:
    """`reshape` to the shape of `other`."""
    return self.reshape(other.shape)


@composite("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor")
def flatten(self: Operand, start_dim: int, end_dim: int) -> Operand:
    """The dimensions from `start_dim` to `end_dim` merged into one; itself where that is one."""
    if self.ndim == 0:
        return self.reshape(1)
    start = sizes.wrap_dim(start_dim, self.ndim, op="flatten")
    end = sizes.wrap_dim(end_dim, self.ndim, op="flatten")
    if start > end:
        raise ShapeError(f"flatten: start_dim is {start_dim}, expected at most end_dim {end_dim}")
    if start == end:
        return self
    shape = self.shape
    merged = sizes.numel(shape[start : end + 1])
    return self.reshape(shape[:start] + (merged,) + shape[end + 1 :])


@composite("ravel(Tensor self) -> Tensor")
def ravel(self: Operand) -> Operand:
    """One dimension: a view of a contiguous tensor, else of a contiguous copy."""
    return self.contiguous()._do("view", (self.numel(),))


@composite("unflatten(Tensor self, int dim, int[] sizes) -> Tensor")
def unflatten(self: Operand, dim: int, into: tuple[int, ...]) -> Operand:
    """A view in which one dimension is several of these sizes (one may be -1)."""
    at = sizes.wrap_dim(dim, self.ndim, op="unflatten")
    if not self.ndim or not into:
        what = f"argument 'sizes' is {into}" if self.ndim else "the tensor has no dimensions"
        raise ShapeError(f"unflatten: {what}, expected at least one size of a dimension")
    shape = self.shape
    parts = sizes.infer_size(into, shape[at], op="unflatten")
    return self._do("view", shape[:at] + parts + shape[at + 1 :])


# ------------------------------------------------------------------------------ order of dims
@composite("permute(Tensor self, int[] dims) -> Tensor", spread=True)
def permute(self: Operand, dims: tuple[int, ...]) -> Operand:
    """A view with the dimensions in this order."""
    return self._run("permute", dims)


@composite("swapaxes(Tensor self, int axis0, int axis1) -> Tensor", inplace="`transpose_`.")
def swapaxes(self: Operand, axis0: int, axis1: int, end: str = "") -> Operand:
    """`transpose`."""
    return self._do("transpose" + end, axis0, axis1)


@composite("swapdims(Tensor self, int dim0, int dim1) -> Tensor", inplace="`transpose_`.")
def swapdims(self: Operand, dim0: int, dim1: int, end: str = "") -> Operand:
    """`transpose`."""
    return self._do("transpose" + end, dim0, dim1)


@composite("movedim(Tensor self, int[] source, int[] destination) -> Tensor")
def movedim(self: Operand, source: tuple[int, ...], destination: tuple[int, ...]) -> Operand:
    """A view with the dimensions `source` at the places `destination`, the rest in order."""
    return _moved(self, "movedim", source, destination)


@composite("moveaxis(Tensor self, int[] source, int[] destination) -> Tensor")
def moveaxis(self: Operand, source: tuple[int, ...], destination: tuple[int, ...]) -> Operand:
    """`movedim`."""
    return _moved(self, "moveaxis", source, destination)


def _moved(
    self: Operand, name: str, source: tuple[int, ...], destination: tuple[int, ...]
) -> Operand:
    if len(source) != len(destination):
        raise ShapeError(
            f"{name}: source is {source} and destination is {destination}, expected as many "
            "dimensions in both"
        )
    taken = sizes.wrap_dims(source, self.ndim, op=name)
    places = sizes.wrap_dims(destination, self.ndim, op=name)
    if not self.ndim:
        return self._do("alias")
    rest = iter(dim for dim in range(self.ndim) if dim not in taken)
    moved = dict(zip(places, taken, strict=True))
    order = [moved[dim] if dim in moved else next(rest) for dim in range(self.ndim)]
    return self._do("permute", tuple(order))


@composite(is_property=True)
def T(self: Operand) -> Operand:
    """A view with the dimensions reversed."""
    return self._do("permute", tuple(reversed(range(self.ndim))))


@composite(is_property=True)
def mT(self: Operand) -> Operand:
    """A view with the last two dimensions swapped; of a number, the tensor itself."""
    return _matrices(self, "mT")


@composite(is_property=True)
def H(self: Operand) -> Operand:
    """The conjugate transpose of a matrix: a view if it is real (TEN-35)."""
    if self.ndim not in (0, 2):
        raise ShapeError(f"H: the tensor has shape {self.shape}, expected 2 dimensions")
    return _conjugated(_matrices(self, "H"))


@composite(is_property=True)
def mH(self: Operand) -> Operand:
    """The conjugate of `mT`: a view if it is real (TEN-35)."""
    return _conjugated(_matrices(self, "mH"))


@composite("adjoint(Tensor self) -> Tensor")
def adjoint(self: Operand) -> Operand:
    """The conjugate of `mT`: a view if it is real (TEN-35)."""
    return _conjugated(_matrices(self, "adjoint"))


def _matrices(self: Operand, name: str) -> Operand:
    if self.ndim == 1:
        raise ShapeError(f"{name}: the tensor has shape {self.shape}, expected 2 dimensions")
    return self._do("transpose", -2, -1) if self.ndim else self


def _conjugated(value: Operand) -> Operand:
    return value.conj() if value.is_complex() else value


# ---------------------------------------------------------------------------------- repeating
@composite("expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor", spread=True)
def expand(self: Operand, size: tuple[int, ...], implicit: bool) -> Operand:
    """A view in which dimensions of size 1 are repeated (stride 0); -1 keeps a size."""
    return self._run("expand", size)


@composite("expand_as(Tensor self, Tensor other) -> Tensor")
def expand_as(self: Operand, other: Operand) -> Operand:
    """`expand` to the shape of `other`."""
    return self._do("expand", other.shape)


@composite("broadcast_to(Tensor self, int[] size) -> Tensor", spread=True)
def broadcast_to(self: Operand, size: tuple[int, ...]) -> Operand:
    """`expand`."""
    return self._run("expand", size)


@composite(is_method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Operand, ...]:
    """Each tensor expanded to the shape that all broadcast to; itself if it has that shape."""
    if not all(hasattr(t, "meta") for t in tensors):
        raise ArgumentError("broadcast_tensors: an argument is no tensor, expected tensors")
    shape = sizes.broadcast_shapes(*[t.shape for t in tensors], op="broadcast_tensors")
    same = sizes.same_shape
    return tuple(t if same(t.shape, shape) else t._do("expand", shape) for t in tensors)


# ------------------------------------------------------------------------- at least so many dims
@composite(is_method=False)
def atleast_1d(*tensors: Any) -> Operand | tuple[Operand, ...]:
    """The tensor, with a dimension if it has none; of several tensors (or a list), a tuple."""
    return _each(tensors, lambda x: x if x.ndim else x.reshape(1))


@composite(is_method=False)
def atleast_2d(*tensors: Any) -> Operand | tuple[Operand, ...]:
    """The tensor, with dimensions put before those it has, up to two."""

    def wide(x: Operand) -> Operand:
        if x.ndim > 1:
            return x
        return x.unsqueeze(0) if x.ndim else x.reshape(1, 1)

    return _each(tensors, wide)


@composite(is_method=False)
def atleast_3d(*tensors: Any) -> Operand | tuple[Operand, ...]:
    """The tensor, with dimensions put around those it has, up to three."""

    def wide(x: Operand) -> Operand:
        if x.ndim > 2:
            return x
        if x.ndim == 2:
            return x.unsqueeze(-1)
        return x.unsqueeze(0).unsqueeze(-1) if x.ndim else x.reshape(1, 1, 1)

    return _each(tensors, wide)


def _each(
    tensors: tuple[Operand, ...], form: Callable[[Operand], Operand]
) -> Operand | tuple[Operand, ...]:
    if len(tensors) == 1 and not isinstance(tensors[0], (tuple, list)):
        return form(tensors[0])
    given = tensors[0] if len(tensors) == 1 else tensors
    return tuple(form(x) for x in given)


@composite("narrow(Tensor self, int dim, Tensor|Scalar start, int length) -> Tensor")
def narrow(self: Operand, dim: int, start: Operand | Number, length: int) -> Operand:
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
def narrow_copy(self: Operand, dim: int, start: int, length: int) -> Operand:
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
def split(self: Operand, split_size: object, dim: int = 0) -> Operand:
    """Views of parts of a dimension: of one size (the last may be smaller), or of listed sizes."""
    if isinstance(split_size, (tuple, list)):
        return self._do("split_with_sizes", split_size, dim)
    return self._do("split", split_size, dim)


@composite("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
def chunk(self: Operand, chunks: int, dim: int) -> Operand:
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
def tensor_split(self: Operand, indices_or_sections: object, dim: int = 0) -> tuple[Operand, ...]:
    """Slices of a dimension: so many of nearly one size, or ending at the indices (a tensor of
    either is read).
    """
    return _cut(self, indices_or_sections, dim, "tensor_split")


@composite()
def hsplit(self: Operand, indices_or_sections: object) -> tuple[Operand, ...]:
    """`tensor_split` into columns: along dimension 1, or 0 if that is all there is."""
    _needs_dims("hsplit", self, 1)
    return _even(self, indices_or_sections, 0 if self.ndim == 1 else 1, "hsplit")


@composite()
def vsplit(self: Operand, indices_or_sections: object) -> tuple[Operand, ...]:
    """`tensor_split` into rows: along dimension 0."""
    _needs_dims("vsplit", self, 2)
    return _even(self, indices_or_sections, 0, "vsplit")


@composite()
def dsplit(self: Operand, indices_or_sections: object) -> tuple[Operand, ...]:
    """`tensor_split` along dimension 2."""
    _needs_dims("dsplit", self, 3)
    return _even(self, indices_or_sections, 2, "dsplit")


def _needs_dims(name: str, tensor: Operand, least: int) -> None:
    if tensor.ndim < least:
        raise ShapeError(
            f"{name}: the tensor has shape {tensor.shape}, expected at least {least} dimensions"
        )


def _even(self: Operand, where: object, dim: int, name: str) -> tuple[Operand, ...]:
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


def _cut(self: Operand, where: Any, dim: int, name: str) -> tuple[Operand, ...]:
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
    ends = [least * (i + 1) + sizes.minimum(more, i + 1) for i in range(sections)]
    return _slices(self, [0, *ends], dim)


def _at_indices(self: Operand, indices: object, dim: int, name: str) -> tuple[Operand, ...]:
    found = list(indices) if isinstance(indices, (tuple, list)) else [None]
    ends = [sizes.as_size(index) for index in found]
    if any(end is None for end in ends):
        raise ArgumentError(
            f"{name}: argument 'indices_or_sections' is {indices!r}, expected an integer, integers "
            "or a tensor of them"
        )
    return _slices(self, [0, *ends, self.shape[dim]], dim)


def _slices(self: Operand, edges: Sequence[object], dim: int) -> tuple[Operand, ...]:
    return tuple(self._do("slice", dim, start, end, 1) for start, end in pairwise(edges))
