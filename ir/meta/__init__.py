"""`TensorMeta`: shape, strides, dtype and device of a tensor, interned.

Ground floor. A meta has no storage offset. So all rows `x[i]` of a tensor have the same meta
object, which caches and guards compare by identity
(`specs/decisions/0002-offset-outside-meta.md`). Spec: `specs/meta.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, float32
from aotlite.ir.errors import OutOfMemoryError, ShapeError, noted
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable, table_of


@attrs.frozen(eq=False, repr=False, init=False)
class TensorMeta:
    """Shape, strides (in elements), dtype and device. Equal metas are the same object.

    Sizes and strides may be symbolic (`f32[s0, 3]`).

    >>> tensor_meta((2, 3)) is tensor_meta((2, 3))
    True
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: DType
    device: Device
    numel: int
    span: int
    """Elements from the first to the last one in memory, both counted; 0 if empty."""
    contiguous: bool
    table: SymbolTable | None
    """That of its symbols; None without any."""

    def __init__(
        self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType, device: Device
    ) -> None:
        put = object.__setattr__
        put(self, "shape", shape)
        put(self, "stride", stride)
        put(self, "dtype", dtype)
        put(self, "device", device)
        put(self, "numel", sizes.numel(shape))
        put(self, "table", table_of((*shape, *stride)))
        if self.table is None:
            put(self, "span", layout.span(shape, stride))
            put(self, "contiguous", layout.is_contiguous(shape, stride))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """`span` and `contiguous` of symbolic sizes: computed, with assumptions, on demand."""
            found = _ON_DEMAND.get(name)
            if found is None:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            table, key = self.table, (found, self)
            assert table is not None
            if table.is_passing:
                return found(self.shape, self.stride)
            if key not in table.cache:  # which may forget what the answer assumes
                table.cache[key] = sizes.needed(found, self.shape, self.stride)
            return table.cache[key]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, not of the span."""
        return self.numel * self.dtype.itemsize

    @property
    def dense(self) -> bool:
        """Every element of the span is an element of the tensor, once."""
        return layout.is_dense(self.shape, self.stride)

    def with_stride(self, stride: Sequence[int]) -> TensorMeta:
        """The meta of the same shape, dtype and device with these strides (elements)."""
        return _intern(self.shape, tuple(stride), self.dtype, self.device)

    def with_dtype(self, dtype: DType) -> TensorMeta:
        """The meta of the same geometry with this dtype."""
        return _intern(self.shape, self.stride, dtype, self.device)

    def as_contiguous(self, shape: Sequence[int] | None = None) -> TensorMeta:
        """The contiguous meta of this shape (default: its own), same dtype and device."""
        shape = self.shape if shape is None else tuple(shape)
        return tensor_meta(shape, None, self.dtype, self.device)

    def of_sizes(self, shape: tuple[int, ...], stride: tuple[int, ...]) -> TensorMeta:
        """The meta of this shape and these strides, with its dtype and device."""
        return _intern(shape, stride, self.dtype, self.device)

    def concrete(self, values: Mapping[str, int]) -> TensorMeta:
        """The meta with its symbols replaced by these values, by name."""
        if self.table is None:
            return self
        shape, stride = concrete(self.shape, values), concrete(self.stride, values)
        return _intern(shape, stride, self.dtype, self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_meta, (self.shape, self.stride, self.dtype, self.device)

    def __repr__(self) -> str:
        """`f32[4, 3]`, with the strides where they are not the contiguous ones."""
        text = f"{self.dtype.short}[{', '.join(map(str, self.shape))}]"
        text += layout.strides_text(self.shape, self.stride)
        return text if self.device is CPU else f"{text}@{self.device}"


_ON_DEMAND = {"span": layout.span, "contiguous": layout.is_contiguous}
_INTERNED: dict[tuple[Any, ...], TensorMeta] = {}
MOST_DIMENSIONS = 64
"""The most dimensions of NumPy's arrays, and of operands of PyTorch's ops."""
MOST_BYTES = 2**63 - 1
"""The most bytes that 64-bit addresses and NumPy's arrays allow."""
MOST_MEMORY = 2**56
"""The most bytes of a dense tensor: more than a process can address, yet so few that the sizes of a
kernel's scratch arrays do not overflow."""


# Note [interned metas]
#     (x[0] * x[1], x[2] * x[3])
# The four rows have the same meta object. So the second product finds the result of the first one's
# meta rule in a cache that compares keys by identity, and guards compare with `is`. That is why
# this function alone makes metas. Metas with symbols are interned in the table of their symbols: a
# global dict would keep s0 of a trace alive after the trace.
def _intern(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType, device: Device
) -> TensorMeta:
    key = (shape, stride, dtype, device)
    found = _INTERNED.get(key)
    if found is None:
        if len(shape) > MOST_DIMENSIONS:
            raise ShapeError(
                f"shape: there are {len(shape)} dimensions, expected at most {MOST_DIMENSIONS}"
            )
        # Metas with symbols live as long as the table of these.
        table = table_of((*shape, *stride))
        if table is None:
            _check_room(shape, stride, dtype)
        interned = _INTERNED if table is None else table.cache
        found = interned.get(key)
        if found is None:
            found = interned.setdefault(key, TensorMeta(shape, stride, dtype, device))
    return found


def _check_room(shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType) -> None:
    """Raises ShapeError where the bytes of the elements, or of their span, exceed 63 bits.

    Raises OutOfMemoryError for a dense tensor of more than 2**56 bytes. Sizes of 0 count as 1, as
    in NumPy.
    """
    count, reach = 1, 1
    for size, step in zip(shape, stride, strict=True):
        count *= size or 1
        reach += max(size - 1, 0) * step
    most = max(count, reach, *stride) * dtype.itemsize
    if count == reach and MOST_MEMORY < most <= MOST_BYTES:
        raise OutOfMemoryError(
            f"memory: {most} bytes are asked for, expected at most 2**56, which a process addresses"
        )
    if most > MOST_BYTES:
        sizes_text = ", ".join(map(_number_text, shape))
        raise noted(
            ShapeError(
                f"shape: {dtype.short}[{sizes_text}] is of {_number_text(most)} bytes, expected at "
                "most 2**63 - 1"
            ),
            "Bytes of all elements, as if each had memory of its own, and of all that the strides "
            "span. (META-33)",
        )


def _number_text(number: int) -> str:
    bits = number.bit_length()
    return str(number) if bits <= 256 else f"an int of {bits} bits"


def table_in(values: Iterable[object]) -> SymbolTable | None:
    """The table of the first symbol among these sizes, metas and tuples of them; None if none."""
    for value in values:
        found = table_in(value) if type(value) is tuple else getattr(value, "table", None)
        if found is not None:
            return found
    return None


def tensor_meta(
    shape: Sequence[int],
    stride: Sequence[int] | None = None,
    dtype: DType = float32,
    device: Device = CPU,
) -> TensorMeta:
    """The meta with this shape, stride, dtype and device; contiguous where `stride` is None.

    >>> tensor_meta((2, 3), (1, 2))
    f32[2, 3][1, 2]
    """
    shape = tuple(shape)
    stride = layout.contiguous_strides(shape) if stride is None else tuple(stride)
    return _intern(shape, stride, dtype, device)


@attrs.frozen
class Outline:
    """All of a meta but the sizes: of a result whose shape depends on values (`nonzero`).

    >>> Outline(2, float32).meta((3, 1))
    f32[3, 1]
    """

    ndim: int
    dtype: DType
    device: Device = attrs.field(default=CPU, kw_only=True)
    strides: Callable[[sizes.Shape], sizes.Stride] = attrs.field(
        default=layout.contiguous_strides, kw_only=True
    )
    """The strides of a result of this shape."""

    def meta(self, shape: Sequence[int]) -> TensorMeta:
        """The meta of a result with this shape."""
        shape = tuple(shape)
        return tensor_meta(shape, self.strides(shape), self.dtype, self.device)
