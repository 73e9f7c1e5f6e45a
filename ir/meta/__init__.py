"""`TensorMeta`: the physical facts of a strided tensor, interned.

Ground floor. A meta has no storage offset: slices of one tensor that differ in nothing but where
they start share their meta, so that rule caches and guards compare one object by identity
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
    """Shape, stride (elements), dtype and device. Equal metas are the same object.

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

    def __init__(
        self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType, device: Device
    ) -> None:
        put = object.__setattr__
        put(self, "shape", shape)
        put(self, "stride", stride)
        put(self, "dtype", dtype)
        put(self, "device", device)
        put(self, "numel", sizes.numel(shape))
        if not sizes.is_symbolic(shape) and not sizes.is_symbolic(stride):
            put(self, "span", layout.span(shape, stride))
            put(self, "contiguous", layout.is_contiguous(shape, stride))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Of symbolic sizes, what takes assumptions to say: when somebody asks for it."""
            found = _ON_DEMAND.get(name)
            if found is None:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            value = found(self.shape, self.stride)
            object.__setattr__(self, name, value)
            return value

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (not of the span)."""
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

    def concrete(self, values: Mapping[str, int]) -> TensorMeta:
        """The meta where the symbols in it, by name, have these values."""
        shape, stride = concrete(self.shape, values), concrete(self.stride, values)
        return _intern(shape, stride, self.dtype, self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_meta, (self.shape, self.stride, self.dtype, self.device)

    def __repr__(self) -> str:
        """`f32[4, 3]`, with the strides where they are not the contiguous ones."""
        text = f"{self.dtype.short}[{', '.join(map(str, self.shape))}]"
        if not layout.always_contiguous(self.shape, self.stride):
            text += f"[{', '.join(map(str, self.stride))}]"
        return text if self.device is CPU else f"{text}@{self.device}"


_ON_DEMAND = {"span": layout.span, "contiguous": layout.is_contiguous}
_INTERNED: dict[tuple[Any, ...], TensorMeta] = {}
MOST_DIMENSIONS = 64
"""What NumPy's arrays have at most, and what PyTorch's ops take at most."""
MOST_BYTES = 2**63 - 1
"""What an address of 64 bits reaches, and NumPy lets a single array have."""
MOST_MEMORY = 2**56
"""More than any process can address, and so little that sizes of what kernels make besides do not
overflow."""


# Note [interned metas]
#     (x[0] * x[1], x[2] * x[3])
# The four rows have one meta, the same object. So the second product finds what the first one's
# rule gave in a table whose keys are compared by identity, and guards ask `is`. That is why metas
# are made here alone. Those with symbols are kept in their symbols' table: in a global one, s0 of a
# trace would be there when the trace has gone.
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
        # Metas with symbols live as long as their symbols do.
        table = table_of((*shape, *stride))
        if table is None:
            _check_room(shape, stride, dtype)
        interned = _INTERNED if table is None else table.cache
        found = interned.get(key)
        if found is None:
            found = interned.setdefault(key, TensorMeta(shape, stride, dtype, device))
    return found


def _check_room(shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType) -> None:
    """Raises ShapeError where 64 bits do not hold the bytes of the elements, or of their span.

    Sizes of 0 count as 1, as NumPy has it.
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


def table_in(values: Iterable[Any]) -> SymbolTable | None:
    """The table of the symbols in sizes, metas, and tuples of these; None if there are none."""
    for value in values:
        if type(value) is TensorMeta:
            value = (*value.shape, *value.stride)
        found = table_in(value) if type(value) is tuple else table_of((value,))
        if found is not None:
            return found
    return None


def tensor_meta(
    shape: Sequence[int],
    stride: Sequence[int] | None = None,
    dtype: DType = float32,
    device: Device = CPU,
) -> TensorMeta:
    """The meta with these facts; contiguous where no stride is given.

    >>> tensor_meta((2, 3), (1, 2))
    f32[2, 3][1, 2]
    """
    shape = tuple(shape)
    stride = layout.contiguous_strides(shape) if stride is None else tuple(stride)
    return _intern(shape, stride, dtype, device)


@attrs.frozen
class Outline:
    """What is known of a result whose shape depends on values: all but the sizes.

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
        """The meta of a result that turned out to have this shape."""
        shape = tuple(shape)
        return tensor_meta(shape, self.strides(shape), self.dtype, self.device)
