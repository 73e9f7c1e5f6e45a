"""The dtypes, and PyTorch's type promotion.

Ground floor: imports `aotlite.ir.errors` only. There is one `DType` object per dtype, so that `is`
compares them. Differs from PyTorch in that there is no complex32: a complex number with float16
gives complex64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import ml_dtypes
import numpy as np

from aotlite.ir.errors import DTypeError, noted

__all__ = [
    "BOOL",
    "COMPLEX",
    "DTYPES",
    "FLOATING",
    "INTEGER",
    "DType",
    "Number",
    "advice_on_ndarrays",
    "as_dtype",
    "bfloat16",
    "bool_",
    "by_name",
    "can_cast_in_place",
    "complex64",
    "complex128",
    "default_dtype",
    "dtype_of_scalar",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "int8",
    "int16",
    "int32",
    "int64",
    "promote",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

T = TypeVar("T")
Number: TypeAlias = bool | int | float | complex

BOOL: Final = 0
INTEGER: Final = 1
FLOATING: Final = 2
COMPLEX: Final = 3


class DType:
    """A type of elements: its names, kind, size in bytes, and NumPy dtype.

    Kinds are ordered: BOOL < INTEGER < FLOATING < COMPLEX.

    >>> float32, float32.short, float32.itemsize
    (aotlite.float32, 'f32', 4)
    """

    __slots__ = ("itemsize", "kind", "name", "numpy", "short")

    name: Final[str]
    short: Final[str]
    kind: Final[int]
    itemsize: Final[int]
    numpy: Final[np.dtype[np.generic]]

    def __init__(self, name: str, short: str, kind: int, numpy: type[np.generic]) -> None:
        self.name = name
        self.short = short
        self.kind = kind
        self.numpy = np.dtype(numpy)
        self.itemsize = self.numpy.itemsize

    @property
    def is_floating_point(self) -> bool:
        """Whether the values are real floating-point numbers."""
        return self.kind == FLOATING

    @property
    def is_complex(self) -> bool:
        """Whether the values are complex numbers."""
        return self.kind == COMPLEX

    @property
    def is_differentiable(self) -> bool:
        """Whether a tensor of this dtype can require a gradient."""
        return self.kind >= FLOATING

    @property
    def is_signed(self) -> bool:
        """Whether there are values below zero; complex counts as signed, as in PyTorch."""
        return self.kind >= FLOATING or self.numpy.kind == "i"

    def to_real(self) -> DType:
        """Returns the dtype of the real and of the imaginary part; a real dtype is its own.

        >>> complex64.to_real()
        aotlite.float32
        """
        return _REAL_PART.get(self, self)

    def to_complex(self) -> DType:
        """Returns the complex dtype whose parts hold this one; DTypeError if there is none.

        >>> float64.to_complex(), bfloat16.to_complex()
        (aotlite.complex128, aotlite.complex64)
        """
        if self.kind == COMPLEX:
            return self
        found = _COMPLEX_OF.get(self)
        if found is None:
            known = ", ".join(dtype.name for dtype in _COMPLEX_OF)
            raise DTypeError(f"to_complex: dtype is {self}, expected one of {known}")
        return found

    def __repr__(self) -> str:
        return f"aotlite.{self.name}"

    def __str__(self) -> str:
        return self.name

    # Copies and pickles are the same object: everything compares dtypes by identity.
    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return by_name, (self.name,)


bool_: Final = DType("bool", "b8", BOOL, np.bool_)
uint8: Final = DType("uint8", "u8", INTEGER, np.uint8)
int8: Final = DType("int8", "i8", INTEGER, np.int8)
int16: Final = DType("int16", "i16", INTEGER, np.int16)
int32: Final = DType("int32", "i32", INTEGER, np.int32)
int64: Final = DType("int64", "i64", INTEGER, np.int64)
uint16: Final = DType("uint16", "u16", INTEGER, np.uint16)
uint32: Final = DType("uint32", "u32", INTEGER, np.uint32)
uint64: Final = DType("uint64", "u64", INTEGER, np.uint64)
float16: Final = DType("float16", "f16", FLOATING, np.float16)
bfloat16: Final = DType("bfloat16", "bf16", FLOATING, ml_dtypes.bfloat16)
float32: Final = DType("float32", "f32", FLOATING, np.float32)
float64: Final = DType("float64", "f64", FLOATING, np.float64)
float8_e4m3fn: Final = DType("float8_e4m3fn", "f8e4m3", FLOATING, ml_dtypes.float8_e4m3fn)
float8_e5m2: Final = DType("float8_e5m2", "f8e5m2", FLOATING, ml_dtypes.float8_e5m2)
complex64: Final = DType("complex64", "c64", COMPLEX, np.complex64)
complex128: Final = DType("complex128", "c128", COMPLEX, np.complex128)

DTYPES: Final = tuple(value for value in globals().values() if type(value) is DType)

default_dtype: Final = float32

_BY_NAME: Final = {name: dtype for dtype in DTYPES for name in (dtype.name, dtype.short)}
_BY_NUMPY: Final = {dtype.numpy: dtype for dtype in DTYPES}
_REAL_PART: Final = {complex64: float32, complex128: float64}
_COMPLEX_OF: Final = {
    float16: complex64,
    bfloat16: complex64,
    float32: complex64,
    float64: complex128,
}


def by_name(name: str) -> DType:
    """Returns the dtype with this name, long or short; DTypeError if there is none.

    >>> by_name("float32") is by_name("f32")
    True
    """
    found = _BY_NAME.get(name)
    if found is None:
        known = ", ".join(dtype.name for dtype in DTYPES)
        raise noted(DTypeError(f"by_name: name is {name!r}, expected a dtype"), f"dtypes: {known}")
    return found


def advice_on_ndarrays(value: object) -> str | None:
    """The note for an error about an ndarray, or a list with one, where a tensor is expected; None
    for other values."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(item, np.ndarray) for item in items):
        return "from_numpy(array) is a tensor on the same memory, tensor(array) a copy"
    return None


def from_numpy(numpy: np.dtype[np.generic]) -> DType:
    """Returns the dtype of NumPy arrays of this `np.dtype`; DTypeError if aotlite has none.

    >>> from_numpy(np.dtype("int16"))
    aotlite.int16
    """
    found = _BY_NUMPY.get(numpy)
    if found is None:
        raise _no_such_numpy(numpy)
    return found


def _no_such_numpy(numpy: np.dtype[np.generic]) -> DTypeError:
    if numpy.newbyteorder("=") in _BY_NUMPY:
        error = DTypeError(f"from_numpy: dtype is {numpy!r}, expected native byte order")
        return noted(error, "convert it with array.astype(array.dtype.newbyteorder('='))")
    known = ", ".join(dtype.name for dtype in DTYPES)
    return DTypeError(f"from_numpy: dtype is {numpy!r}, expected one of {known}")


_OF_NUMBER: Final[dict[type, DType]] = {
    bool: bool_,
    int: int64,
    float: default_dtype,
    complex: default_dtype.to_complex(),
}


_OF_TYPE: Final[dict[object, DType]] = {
    bool: bool_,
    int: int64,
    float: float64,
    complex: complex128,
}


def as_dtype(value: T) -> T | DType:
    """The dtype that a Python type stands for as an argument `dtype`; other values are returned.

    As in PyTorch, `float` stands for float64, although a tensor made of floats has the default
    dtype.

    >>> as_dtype(float), as_dtype(int), as_dtype(float32), as_dtype(None)
    (aotlite.float64, aotlite.int64, aotlite.float32, None)
    """
    return _OF_TYPE.get(value, value) if isinstance(value, type) else value


def dtype_of_scalar(value: Number) -> DType:
    """The dtype of a tensor that is made of this Python number alone.

    >>> dtype_of_scalar(True), dtype_of_scalar(2), dtype_of_scalar(2.0), dtype_of_scalar(2j)
    (aotlite.bool, aotlite.int64, aotlite.float32, aotlite.complex64)
    """
    found = _OF_NUMBER.get(type(value))
    if found is not None:
        return found
    for number, dtype in _OF_NUMBER.items():
        if isinstance(value, number):
            return dtype
    got = type(value).__name__
    raise DTypeError(f"dtype_of_scalar: value is a {got}, expected bool, int, float or complex")


# Pairs in which neither dtype can hold the other.
_MEETING: Final = {
    frozenset((uint8, int8)): int16,
    frozenset((float16, bfloat16)): float32,
    frozenset((float64, complex64)): complex128,
}
_LONE: Final = frozenset((float8_e4m3fn, float8_e5m2))
_WIDE_UNSIGNED: Final = frozenset((uint16, uint32, uint64))


def _promotion(a: DType, b: DType) -> DType | None:
    if a is b:
        return a
    pair = frozenset((a, b))
    high = max(a, b, key=lambda dtype: (dtype.kind, dtype.itemsize))
    if pair & _LONE or (pair & _WIDE_UNSIGNED and not high.is_floating_point):
        return None
    return _MEETING.get(pair, high)


_PROMOTED: Final = {(a, b): _promotion(a, b) for a in DTYPES for b in DTYPES}


def promote(a: DType, b: DType) -> DType:
    """Returns the smallest dtype that both convert to, as `torch.promote_types`.

    DTypeError where PyTorch defines none: 8-bit floats, and uint16 to uint64 with anything but
    a floating-point dtype.

    >>> promote(int64, float16), promote(uint8, int8)
    (aotlite.float16, aotlite.int16)
    """
    found = _PROMOTED[a, b]
    if found is None:
        error = DTypeError(f"promote: dtypes are {a} and {b}, expected a pair with a common dtype")
        raise noted(error, "PyTorch defines none for this pair either: convert one operand")
    return found


def result_type(operands: Sequence[tuple[DType, int] | Number]) -> DType:
    """Returns the dtype in which an op on these operands computes, as `torch.result_type`.

    A tensor is given as `(dtype, ndim)`, a Python number as itself. Tensors with dimensions
    outrank 0-d tensors, and these outrank numbers: a lower rank counts only by a higher kind.

    >>> result_type([(float16, 2), (float64, 0), 1.5]), result_type([(int32, 1), 1.5])
    (aotlite.float16, aotlite.float32)
    """
    dimensioned: DType | None = None
    zero_dim: DType | None = None
    number: DType | None = None
    for operand in operands:
        if not isinstance(operand, tuple):
            number = _joined(number, dtype_of_scalar(operand))
        elif operand[1]:
            dimensioned = _joined(dimensioned, operand[0])
        else:
            zero_dim = _joined(zero_dim, operand[0])
    found = _outranked(dimensioned, _outranked(zero_dim, number))
    if found is None:
        raise DTypeError("result_type: operands are [], expected at least one")
    return found


def _joined(a: DType | None, b: DType) -> DType:
    return b if a is None or a is b else promote(a, b)


def _outranked(high: DType | None, low: DType | None) -> DType | None:
    """The promotion of dtype `high` by a lower rank, which counts only if its kind is higher."""
    if high is None:
        return low
    if low is None or low.kind <= high.kind:
        return high
    if low.is_complex:
        # Not `promote`: PyTorch gives uint16 with 2j a dtype, though the pair has none.
        return high.to_complex() if high.is_floating_point else low
    return promote(high, low)


def can_cast_in_place(result: DType, destination: DType) -> bool:
    """Whether an in-place op may store `result` in `destination`: no lower kind (TEN-9).

    >>> can_cast_in_place(float64, float16), can_cast_in_place(float32, int64)
    (True, False)
    """
    return result.kind <= destination.kind
