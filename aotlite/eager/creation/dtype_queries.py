"""Queries of dtypes and tensors: `promote_types`, `can_cast`, `is_tensor`, `numel`, ..."""

from __future__ import annotations

import builtins
from typing import Any, TypeGuard

from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.symbols.python_number import plain


def can_cast(from_: DType | type, to: DType | type) -> builtins.bool:
    """Whether promotion may turn one dtype into the other: no kind is lost.

    >>> can_cast(dtypes.float64, dtypes.float16), can_cast(dtypes.float32, dtypes.int64)
    (True, False)
    """
    return dtypes.can_cast_in_place(_dtype("can_cast", from_), _dtype("can_cast", to))


def promote_types(type1: DType | type, type2: DType | type) -> DType:
    """The smallest dtype that both convert to. Raises DTypeError where there is none.

    >>> promote_types(dtypes.uint8, dtypes.int8)
    aotlite.int16
    """
    return dtypes.promote(_dtype("promote_types", type1), _dtype("promote_types", type2))


def _dtype(name: str, given: object) -> DType:
    found = dtypes.as_dtype(given)
    if not isinstance(found, DType):
        raise ArgumentError(f"{name}: a dtype is {given!r}, expected a dtype")
    return found


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype in which an op on these tensors or numbers computes.

    >>> import aotlite as al
    >>> result_type(al.ones(2, dtype=al.int8), 2.5)
    aotlite.float32
    """
    return dtypes.result_type([_operand(tensor1), _operand(tensor2)])


def _operand(value: object) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, value.ndim
    value = plain(value)
    if isinstance(value, (builtins.bool, int, float, complex)):
        return value
    raise ArgumentError(f"result_type: an operand is {value!r}, expected a tensor or a number")


def get_default_dtype() -> DType:
    """The dtype of tensors made of Python floats; it cannot be set."""
    return dtypes.default_dtype


def is_tensor(obj: object) -> TypeGuard[Tensor]:
    """Whether this is a tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> builtins.bool:
    """Whether the tensor's dtype is a real floating one."""
    return _checked("is_floating_point", input).is_floating_point()


def is_complex(input: Tensor) -> builtins.bool:
    """Whether the tensor's dtype is a complex one."""
    return _checked("is_complex", input).is_complex()


def numel(input: Tensor) -> int:
    """Number of elements of the tensor."""
    return _checked("numel", input).numel()


def _checked(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{name}: argument 'input' is {value!r}, expected a tensor")
    return value
