"""`host_array`: Python data as a NumPy array, and the dtype of its tensor, for `tensor(data)`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.dtypes import BOOL, COMPLEX, FLOATING, DType
from aotlite.ir.dtypes.limits import iinfo
from aotlite.ir.errors import ArgumentError
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.python_number import plain
from aotlite.ir.symbols.symint import SymBool, SymInt

_NUMBERS = frozenset((bool, int, float, complex))
_ARRAYS = (np.ndarray, np.generic)


def host_array(data: object, dtype: DType | None) -> tuple[np.ndarray, DType]:
    """The array of nested sequences, and the dtype of its numbers. Raises ArgumentError.

    `dtype` is the requested dtype; numbers that it cannot hold are refused.
    """
    if isinstance(data, _ARRAYS):
        host = np.asarray(data)
        return host, dtypes.from_numpy(host.dtype)
    kinds = set(_leaf_types(data))
    if kinds & {SymInt, SymBool, SymFloat, SizeFloat}:
        data = plain(data)
        kinds = set(_leaf_types(data))
    if kinds <= _NUMBERS:
        return _from_numbers(data, kinds, dtype)
    return _from_mixed(data, dtype)


def _leaf_types(data: object) -> Iterator[type]:
    """The types of the numbers in nested sequences."""
    if not isinstance(data, (list, tuple, range)):
        yield type(data)
        return
    if data and not isinstance(data[0], (list, tuple, range)):
        yield from set(map(type, data)) - {list, tuple, range}
        data = [item for item in data if isinstance(item, (list, tuple, range))]
    for item in data:
        yield from _leaf_types(item)


def _from_numbers(data: object, kinds: set[type], dtype: DType | None) -> tuple[np.ndarray, DType]:
    host = _array(data)
    if not kinds:
        return host, dtypes.default_dtype
    highest = next(kind for kind in (complex, float, int, bool) if kind in kinds)
    inferred = dtypes.dtype_of_scalar(highest())
    if highest is int and host.dtype.kind not in "iub":  # NumPy has no integer that holds them
        host = np.array(data, object)
    _check_numbers(host, data, dtype or inferred)
    if host.dtype == object:
        host = host.astype((dtype or inferred).numpy)
    return host, inferred


def _array(data: object) -> np.ndarray:
    try:
        return np.asarray(data)
    except (ValueError, OverflowError) as error:
        raise ArgumentError(
            "tensor: the nested lists differ in length, expected a full array"
        ) from error


def _check_numbers(host: np.ndarray, data: object, dtype: DType) -> None:
    """Raises ArgumentError unless the dtype can hold each number."""
    if dtype.kind == COMPLEX or not host.size:
        return
    if host.dtype.kind == "c":
        raise ArgumentError(f"tensor: argument 'data' is {data!r}, expected real numbers")
    if dtype.kind in (BOOL, FLOATING):
        return
    limits = iinfo(dtype)
    low, high = host.min(), host.max()
    least = limits.min if dtype.is_signed else -limits.max
    if not (np.isfinite(float(low)) and np.isfinite(float(high))) or not (
        least <= int(low) and int(high) <= limits.max
    ):
        raise ArgumentError(
            f"tensor: argument 'data' is {data!r}, expected numbers in nested lists, each one that "
            f"{dtype} can hold"
        )


def _from_mixed(data: object, dtype: DType | None) -> tuple[np.ndarray, DType]:
    """The array of lists that mix arrays, their elements or tensors with numbers."""
    leaves = list(_leaves(data))
    inferred = leaves[0]
    for leaf in leaves[1:]:
        inferred = dtypes.promote(inferred, leaf)
    return _array(_plain(data)).astype((dtype or inferred).numpy), inferred


def _leaves(data: object) -> Iterator[DType]:
    if isinstance(data, (list, tuple, range)):
        for item in data:
            yield from _leaves(item)
    elif isinstance(data, Tensor):
        yield data.dtype
    elif isinstance(data, _ARRAYS):
        yield dtypes.from_numpy(data.dtype)
    elif isinstance(data, (bool, int, float, complex)):
        yield dtypes.dtype_of_scalar(data)
    else:
        raise ArgumentError(
            f"tensor: argument 'data' is {data!r}, expected numbers in nested lists"
        )


def _plain(data: object) -> object:
    if isinstance(data, (list, tuple, range)):
        return [_plain(item) for item in data]
    return np.asarray(data.tolist()) if isinstance(data, Tensor) else data
