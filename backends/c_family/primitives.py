"""The primitives of scalar expressions as C text, without undefined behavior of C.

Signed integers are added as unsigned ones, since they wrap; shifts by the width or more, and casts
of floats out of range, get NumPy's results. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.c_family.c_types import SHORT, rounded, value_type
from aotlite.ir import dtypes
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Scalar
from aotlite.ir.scalar.primitives import LEAVES, PRIMITIVE


def operation(scalar: Scalar, texts: Sequence[str]) -> str:
    """Returns the C text of a primitive on operands."""
    op, dtype = scalar.op, scalar.dtype
    if op in LEAVES:
        raise GraphError(f"c printer: {scalar} is a leaf, expected an operation")
    if op == "cast":
        return _cast(scalar.args[0].dtype, dtype, texts[0])
    if op == "bits":
        return _bits(scalar.args[0].dtype, dtype, texts[0])
    if op == "where":
        return f"{texts[0]} ? {texts[1]} : {texts[2]}"
    if op == "not":
        return f"!{texts[0]}"
    row = PRIMITIVE[op]
    if row.c and not row.wraps:
        text = f"{texts[0]} {row.c} {texts[1]}"
        return rounded(dtype, text) if row.rounds else text
    if dtype.is_floating_point:
        return _of_floats(op, dtype, texts)
    return _of_integers(op, dtype, texts)


def _of_floats(op: str, dtype: dtypes.DType, texts: Sequence[str]) -> str:
    suffix = "" if dtype is dtypes.float64 else "f"
    row = PRIMITIVE[op]
    if row.wraps:
        text = f"{texts[0]} {row.c} {texts[1]}"
    elif op == "neg":
        text = f"-{texts[0]}"
    elif row.builtin:
        text = f"__builtin_{row.builtin}{suffix}({texts[0]})"
    else:
        raise GraphError(f"c printer: {op} of {dtype}, expected an operation of floats")
    return rounded(dtype, text) if row.rounds else text


def _of_integers(op: str, dtype: dtypes.DType, texts: Sequence[str]) -> str:
    kind = value_type(dtype)
    wide = "u64" if dtype.itemsize == 8 else "u32"
    first = texts[0]
    match op:
        case _ if PRIMITIVE[op].wraps:
            return f"({kind})(({wide}){first} {PRIMITIVE[op].c} ({wide}){texts[1]})"
        case "neg":
            return f"({kind})(0 - ({wide}){first})"
        case "abs" if dtype.is_signed:
            return f"{first} < 0 ? ({kind})(0 - ({wide}){first}) : {first}"
        case _ if PRIMITIVE[op].builtin:  # of integers, floor and the like change nothing
            return first
        case "idiv" | "irem":
            return f"{op}_{kind}({first}, {texts[1]})"
        case "bit_not":
            return f"({kind})~{first}"
        case "shl" | "shr":
            return _shift(op, dtype, first, texts[1])
    raise GraphError(f"c printer: {op} of {dtype}, expected an operation of integers")


def _shift(op: str, dtype: dtypes.DType, value: str, by: str) -> str:
    """Returns the C text of a shift. By the width or more it gives 0, or the sign, as NumPy."""
    kind, width = value_type(dtype), 8 * dtype.itemsize
    wide = "u64" if dtype.itemsize == 8 else "u32"
    number = by.rstrip("UuL")
    inside = number.isdigit() and int(number) < width
    amount = by if inside else f"({by} & {width - 1})"
    if op == "shl":
        text, other = f"({kind})(({wide}){value} << {amount})", f"({kind})0"
    else:
        text = f"({kind})({value} >> {amount})"
        other = f"({kind})({value} < 0 ? -1 : 0)" if dtype.is_signed else f"({kind})0"
    return text if inside else f"(u64){by} < {width}u ? {text} : {other}"


def _cast(old: dtypes.DType, new: dtypes.DType, text: str) -> str:
    if new is dtypes.bool_:
        return f"{text} != 0"
    kind = value_type(new)
    if new in SHORT:
        exact = old in SHORT and old is new
        direct = new is dtypes.float16 and old is dtypes.float64
        return text if exact else rounded_from(new, text, direct)
    if old.is_floating_point and new.itemsize < 4:
        return f"({kind})(i32){text}"
    if old.is_floating_point and new is dtypes.uint32:
        return f"(u32)(i64){text}"
    if old.is_floating_point and new is dtypes.uint64:
        return _unsigned(old, text)
    return f"({kind}){text}"


def _unsigned(old: dtypes.DType, text: str) -> str:
    """Returns the C text of a float cast to uint64. In C a negative float is undefined, and vector
    units differ from scalar code; as in NumPy it wraps here, and NaN becomes 2^63."""
    half = "0x1p63f" if value_type(old) == "f32" else "0x1p63"
    high = f"((u64)(i64)({text} - {half}) ^ 1ull << 63)"
    return f"{text} >= {half} ? {high} : (u64)(i64){text}"


def through_integer(scalar: Scalar, text: str) -> str:
    """Returns the C text of a float cast to an integer and back, without these conversions: gcc
    replaces both by `trunc`, which keeps -0.0, NaN and floats beyond the integers. As in NumPy
    those give the least integer."""
    between, inner = scalar.args[0], scalar.args[0].args[0]
    kind, double = value_type(inner.dtype), inner.dtype is dtypes.float64
    limit, end = f"0x1p{8 * between.dtype.itemsize - 1}", "" if double else "f"
    whole = f"__builtin_trunc{end}({text}) + ({kind})0"
    size = f"__builtin_fabs{end}({text})"
    chosen = f"({size} < {limit}{end} ? {whole} : -{limit}{end})"
    return _cast(inner.dtype, scalar.dtype, chosen)


def rounded_from(new: dtypes.DType, text: str, direct: bool) -> str:
    """Returns the C text of a number rounded to a 16-bit float: through float32, or directly."""
    return f"(f32)(f16){text}" if direct else rounded(new, f"(f32){text}")


def _bits(old: dtypes.DType, new: dtypes.DType, text: str) -> str:
    if not old.is_floating_point and not new.is_floating_point:
        return f"{text} != 0" if new is dtypes.bool_ else f"({value_type(new)}){text}"
    if old.is_floating_point and new.is_floating_point:
        between = dtypes.uint16
        return _bits(between, new, _bits(old, between, text))
    short = [each.short if each in SHORT else value_type(each) for each in (new, old)]
    return f"bits_{short[0]}_{short[1]}({text})"
