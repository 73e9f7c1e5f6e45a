"""Calls of the op table as text: a sample's arguments, with expressions of tensors for its arrays.

Values come literally, so that indices stay in range and matrices positive definite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.op import OPS, DataOp, GeometryOp, InplaceOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.samples.sample import Sample
from tests.laws.helpers.composites import entry
from tests.samples import samples_of

LITERAL = 80
"""The most elements that are written out; longer arrays get other numbers."""
_PLAIN = (bool, int, float, complex, str, slice, type(None))


@attrs.frozen
class Face:
    """A name that users call, and the key of its samples."""

    name: str
    key: str


def faces() -> list[Face]:
    """All faces of the table for a captured function."""
    others = DataOp, EffectOp, TokenOp  # effects have tests of their own
    ops = [Face(n, n) for n, op in OPS.items() if not isinstance(op, others) and n != "getitem"]
    return ops + [Face(n, entry(n)) for n in COMPOSITES]


@cache
def usable_samples(key: str) -> tuple[Sample, ...]:
    """The samples that can be written as text: those with the longest arrays are left out."""
    return tuple(s for s in samples_of(key) if _is_usable((s.args, tuple(s.kwargs.values()))))


def _is_usable(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.size <= LITERAL or value.dtype.kind in "fc"
    if isinstance(value, (tuple, list)):
        return all(map(_is_usable, value))
    return value is Ellipsis or value is CPU or isinstance(value, (*_PLAIN, DType, MemoryFormat))


def call_text(face: Face, sample: Sample, operand: Callable[[np.ndarray], str], form: str) -> str:
    """The sample's call, as a method, a property or a function of `al`."""
    args = [argument_text(value, operand) for value in sample.args]
    named = [f"{key}={argument_text(value, operand)}" for key, value in sample.kwargs.items()]
    made = COMPOSITES.get(face.name)
    takes_method = made is None or made.is_method
    first = isinstance(sample.args[0], np.ndarray) if sample.args else False
    if first and made is not None and made.is_property:
        return f"{args[0]}.{face.name}"
    if first and form == "method" and takes_method:
        return f"{args[0]}.{face.name}({', '.join([*args[1:], *named])})"
    return f"al.{face.name}({', '.join([*args, *named])})"


def argument_text(value: Any, operand: Callable[[np.ndarray], str]) -> str:
    """A value as Python."""
    if isinstance(value, np.ndarray):
        return operand(value)
    if isinstance(value, (tuple, list)):
        inside = ", ".join(argument_text(item, operand) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, DType):
        return dtype_name(value)
    if isinstance(value, MemoryFormat):
        return f"al.{value.name}"
    return "'cpu'" if value is CPU else "..." if value is Ellipsis else repr(value)


def dtype_name(dtype: DType) -> str:
    """`al.float32`."""
    return "al.bool_" if dtype is dtypes.bool_ else f"al.{dtype.name}"


def made_text(array: np.ndarray, seed: int, *, grad: bool, again: bool, laid: bool) -> str:
    """The expression of a tensor like the array; `again`: with other, equally valid numbers."""
    dtype = dtypes.from_numpy(array.dtype)
    words = [f"dtype={dtype_name(dtype)}", *["grad=True"] * (grad and dtype.is_differentiable)]
    if array.size > LITERAL or array.size == 0:
        return f"T({', '.join([str(seed + 20 * again), *map(str, array.shape), *words])})"
    steps = tuple(step // array.itemsize for step in array.strides)
    stride = map(str, steps if laid and 0 not in steps else ())
    if again and array.dtype.kind in "iub":  # in the other order: indices stay in range
        array = array.ravel()[::-1].reshape(array.shape)
    elif again:
        words.append("scale=0.75")
    return f"L({', '.join([_numbers_text(array.tolist()), *stride, *words])})"


def _numbers_text(values: Any) -> str:
    """Nested lists as Python, of complex infinities too."""
    if isinstance(values, list):
        return f"[{', '.join(map(_numbers_text, values))}]"
    is_complex = isinstance(values, complex)
    return f"complex({values.real!r}, {values.imag!r})" if is_complex else repr(values)


def writes(face: Face) -> bool:
    """Whether the call writes its first operand."""
    return face.name.endswith("_") or isinstance(OPS.get(face.name), (InplaceOp, GeometryOp))
