"""The kinds of dtype that ops refuse, and the errors for them.

They are those of PyTorch: bool where an op has no meaning for it, and the dtypes for storage, for
which PyTorch has hardly any arithmetic: 8-bit floats, and unsigned integers of 16 to 64 bits.
"""

from __future__ import annotations

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.binding import NUMBERS

Refused = frozenset[str]
"""The kinds of dtype that a pointwise op refuses."""

NOTHING: Refused = frozenset()
BOOL: Refused = frozenset(("bool",))
ANY_BOOL: Refused = frozenset(("any bool",))
"""Any bool operand, whatever the promoted dtype."""
WIDE: Refused = frozenset(("wide unsigned",))
FLOAT8: Refused = frozenset(("float8",))
STORED: Refused = WIDE | FLOAT8
INTEGER: Refused = frozenset(("integer",)) | WIDE
HALF: Refused = frozenset(("half",))
FLOATING: Refused = frozenset(("floating",)) | HALF | FLOAT8
COMPLEX: Refused = frozenset(("complex",))

_KINDS = frozenset(NUMBERS)
_WIDE = (dtypes.uint16, dtypes.uint32, dtypes.uint64)
_FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
_HALF = (dtypes.float16, dtypes.bfloat16)
_NAMES = ("bool", "integer", "floating", "complex")
_EXPECTED = {
    ("bool",): "one of numbers",
    ("complex",): "a real one",
    ("bool", "complex"): "one of real numbers",
    ("bool", "integer"): "a floating or complex one",
    ("bool", "integer", "complex"): "a floating one",
    ("bool", "integer", "floating"): "a complex one",
    ("floating", "complex"): "bool or an integer one",
    ("bool", "floating", "complex"): "an integer one",
}


# ----------------------------------------------------------------------------------- one dtype
def require_floating(name: str, dtype: DType) -> DType:
    """The dtype. Raises DTypeError for all but real floating ones."""
    if not dtype.is_floating_point:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a floating one")
    return dtype


def require_inexact(name: str, dtype: DType) -> DType:
    """The dtype. Raises DTypeError for bool and integers."""
    if not dtype.is_differentiable:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a floating or complex one")
    return dtype


def require_real(name: str, dtype: DType) -> DType:
    """The dtype. Raises DTypeError for complex ones."""
    if dtype.is_complex:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a real one: complex has no order")
    return dtype


# -------------------------------------------------------------------------------- pointwise ops
def kind_of(dtype: DType) -> str:
    """The kind of dtype, as refusals name it."""
    if dtype in _FLOAT8:
        return "float8"
    if dtype in _WIDE:
        return "wide unsigned"
    return "half" if dtype in _HALF else _NAMES[dtype.kind]


def refuse(name: str, key: tuple[object, ...], promoted: DType, refused: Refused) -> None:
    """Raises DTypeError if the promoted dtype of an op's operands is of a refused kind."""
    if "any bool" in refused:
        for a in key:
            if a is bool or (type(a) is TensorMeta and a.dtype is dtypes.bool_):
                raise DTypeError(f"{name}: dtype is {dtypes.bool_}, expected one of numbers")
    kind = kind_of(promoted)
    if kind in refused:
        raise refusal(name, promoted, refused)


def refusal(name: str, dtype: DType, refused: Refused) -> DTypeError:
    """The error for a dtype of a refused kind."""
    kind = kind_of(dtype)
    named = tuple(each for each in _NAMES if each in refused or f"any {each}" in refused)
    if kind in STORED and not (dtype.kind == dtypes.INTEGER and "integer" in named):
        if not (dtype.kind == dtypes.FLOATING and "floating" in named):
            error = DTypeError(f"{name}: dtype is {dtype}, expected one with arithmetic")
            return noted(error, "PyTorch has none for it either: convert the operands first")
    expected = _EXPECTED.get(named, "another one")
    if kind == "half" and "floating" not in named:
        expected = f"{dtypes.float32} or {dtypes.float64}"
    return DTypeError(f"{name}: dtype is {dtype}, expected {expected}")
