"""What ONNX names operations, and for which dtypes onnxruntime has kernels on CPUs.

`carrier(kind, dtype)` is the dtype in which a node computes: the dtype itself if it has a kernel,
else the first of those that hold all its values. Source: onnxruntime's table of operator kernels
(docs/OperatorKernels.md of 1.22), and sessions made for each pair with 1.32. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.interchange.arrays.target import NotPrinted
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
I8, I16, I32, I64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
U8, U16, U32, U64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64

_FLOATS = (F32, F64)
_SIGNED = (I8, I16, I32, I64)
_UNSIGNED = (U8, U16, U32, U64)
_NUMBERS = (*_FLOATS, *_SIGNED, *_UNSIGNED)
_MOVED = (F16, *_NUMBERS, dtypes.bool_)
_COMPUTED = (*_FLOATS, I32, I64)

SINCE = {"BitCast": 26, "CumProd": 26}
"""The first opset of the newest operators."""
NEWEST, OLDEST = 26, 21
"""The opsets that are printed: onnxruntime 1.32 has kernels of them all."""

KERNELS: dict[str, tuple[DType, ...]] = {
    "Expand": _MOVED,
    "Slice": (*_MOVED, BF16),
    "Pad": (F16, F32, F64, I8, I32, I64, U8, U32, U64, dtypes.bool_),
    "Concat": (*_MOVED, BF16),
    "Gather": (*_MOVED, BF16),
    "ScatterElements": _NUMBERS,
    "Where": (F16, F32, F64, I8, I32, I64, U8, U32),
    "Add": _NUMBERS,
    "Sub": _NUMBERS,
    "Mul": _NUMBERS,
    "Div": _NUMBERS,
    "Mod": (*_SIGNED, *_UNSIGNED),
    "Neg": (*_FLOATS, *_SIGNED),
    "Abs": _NUMBERS,
    "Sqrt": _FLOATS,
    "Floor": _FLOATS,
    "Ceil": _FLOATS,
    "Round": _FLOATS,
    "BitShift": _UNSIGNED,
    "BitwiseAnd": (*_SIGNED, *_UNSIGNED),
    "BitwiseOr": (*_SIGNED, *_UNSIGNED),
    "BitwiseXor": (*_SIGNED, *_UNSIGNED),
    "BitwiseNot": (*_SIGNED, *_UNSIGNED),
    "Less": _NUMBERS,
    "LessOrEqual": _NUMBERS,
    "Greater": _NUMBERS,
    "GreaterOrEqual": _NUMBERS,
    "Equal": (*_NUMBERS, dtypes.bool_),
    "And": (dtypes.bool_,),
    "Or": (dtypes.bool_,),
    "Xor": (dtypes.bool_,),
    "Not": (dtypes.bool_,),
    "ReduceSum": _COMPUTED,
    "ReduceProd": _COMPUTED,
    "ReduceMax": (*_FLOATS, I8, I32, I64, U8, dtypes.bool_),
    "ReduceMin": (*_FLOATS, I8, I32, I64, U8, dtypes.bool_),
    "CumSum": _COMPUTED,
    "MatMul": (*_COMPUTED, U32, U64),
}
"""Operator -> the dtypes that have a kernel, of those that are used here."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("Add", {}),
    "sub": ("Sub", {}),
    "mul": ("Mul", {}),
    "div": ("Div", {}),
    "neg": ("Neg", {}),
    "abs": ("Abs", {}),
    "sqrt": ("Sqrt", {}),
    "floor": ("Floor", {}),
    "ceil": ("Ceil", {}),
    "rint": ("Round", {}),
    "idiv": ("Div", {}),
    "irem": ("Mod", {"fmod": 1}),
    "bit_and": ("BitwiseAnd", {}),
    "bit_or": ("BitwiseOr", {}),
    "bit_xor": ("BitwiseXor", {}),
    "bit_not": ("BitwiseNot", {}),
    "lt": ("Less", {}),
    "le": ("LessOrEqual", {}),
    "gt": ("Greater", {}),
    "ge": ("GreaterOrEqual", {}),
    "eq": ("Equal", {}),
    "and": ("And", {}),
    "or": ("Or", {}),
    "xor": ("Xor", {}),
    "not": ("Not", {}),
}
"""Primitive of scalar expressions -> operator and attributes."""

REDUCTIONS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "any": "ReduceMax",
    "all": "ReduceMin",
}
"""Combiner -> operator."""

COMBINED = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "max", "all": "min"}
"""Combiner -> the attribute `reduction` of ScatterElements."""

FUNCTIONS: dict[str, tuple[str, tuple[DType, ...]]] = {
    "exp": ("Exp", _FLOATS),
    "exp_nonpositive": ("Exp", _FLOATS),
    "log": ("Log", _FLOATS),
    "sin": ("Sin", _FLOATS),
    "cos": ("Cos", _FLOATS),
    "tanh": ("Tanh", _FLOATS),
    "tan": ("Tan", (F32,)),
    "asin": ("Asin", (F32,)),
    "acos": ("Acos", (F32,)),
    "atan": ("Atan", (F32,)),
    "sinh": ("Sinh", (F32,)),
    "cosh": ("Cosh", (F32,)),
    "asinh": ("Asinh", (F32,)),
    "acosh": ("Acosh", (F32,)),
    "atanh": ("Atanh", (F32,)),
    "erf": ("Erf", (F32,)),
    "pow": ("Pow", _FLOATS),
    "fmod": ("Mod", _FLOATS),
}
"""Function of scalar expressions -> operator, and the dtypes that have a kernel."""

_HOLDERS = {
    dtypes.bool_: (U8, I32, I64),
    I8: (I32, I64),
    I16: (I32, I64),
    I32: (I64,),
    U8: (I32, I64),
    U16: (I32, I64),
    U32: (I64,),
    U64: (I64,),
    F16: (F32,),
    BF16: (F32,),
    dtypes.float8_e4m3fn: (F32,),
    dtypes.float8_e5m2: (F32,),
}
"""Dtype -> those that hold its values, or, of uint64, its bits: sums, products and moves of bits
are the same in int64; orders of uint64 are not asked in it."""


def carrier(kind: str, dtype: DType) -> DType:
    """The dtype in which an operator computes on operands of a dtype.

    >>> carrier("Add", dtypes.int8), carrier("Where", dtypes.bool_), carrier("ReduceSum", U32)
    (aotlite.int8, aotlite.uint8, aotlite.int64)
    """
    kernels = KERNELS[kind]
    if dtype in kernels:
        return dtype
    found = next((each for each in _HOLDERS.get(dtype, ()) if each in kernels), None)
    if found is None:
        raise NotPrinted(f"needs {kind} of {dtype.name}, which no dtype of a kernel holds")
    return found
