"""Exact numbers: those whose sums are exact in any order.

Numbers are exact if they are whole multiples of one unit (1, 1/2, ... or 1/1024) and smaller than a
power of two of it: 2**50 units for 64 bits, 2**20 for 32. A sum of few exact numbers then fits the
significand, in any order. Integers are always exact, as they wrap around. Numbers that are the bits
of another dtype (`view_dtype`) are not exact; a program may copy them, but not compute with them.

Place: below `differences` and the generators. It uses arrays of NumPy alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes
import numpy as np

BITS = {
    "float16": 8,
    "bfloat16": 5,
    "float32": 20,
    "complex64": 20,
    "float64": 50,
    "complex128": 50,
}
"""Dtype -> the significant bits of exact numbers; three or more bits are left for sums."""
FINEST = 10
"""The exponent of the finest unit, 2**-10."""


def array_of(values: bytes, dtype: str) -> np.ndarray:
    """The elements in row-major order; `dtype` may have a library's name before a dot."""
    name = dtype.rpartition(".")[2].rstrip("_")
    if name == "bfloat16":
        return np.frombuffer(values, ml_dtypes.bfloat16)
    return np.frombuffer(values, name)


def are_exact(arrays: Iterable[np.ndarray]) -> bool:
    """Whether all numbers of all arrays are exact, in one unit.

    >>> are_exact([np.array([0.5, -3.0]), np.array([7])])
    True
    >>> are_exact([np.array([0.1])]), are_exact([np.array([2.0**50])])
    (False, False)
    >>> are_exact([np.array([0.5]), np.array([2.0**49])])  # their sum needs one unit
    False
    """
    finest = 0
    sizes = []
    for array in arrays:
        bits = BITS.get(array.dtype.name)
        if bits is None or not array.size:
            continue
        size = largest(array)
        found = _fineness(_parts(array)) if size < 2.0**bits else None
        if found is None:
            return False
        finest = max(finest, found)
        sizes.append(size / 2.0**bits)
    return max(sizes, default=0.0) * 2.0**finest < 1


def largest(array: np.ndarray) -> float:
    """The largest magnitude of a number, or of its real or imaginary part; 0.0 if empty."""
    parts = _parts(array)
    return float(np.abs(parts).max()) if parts.size else 0.0


def _parts(array: np.ndarray) -> np.ndarray:
    """The numbers; complex numbers as their real and imaginary parts."""
    if array.dtype.kind == "c":
        return array.reshape(-1).view(array.real.dtype)
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array


def _fineness(parts: np.ndarray) -> int | None:
    """The smallest k for which all numbers are whole multiples of 2**-k; None if there is none."""
    for halved in range(FINEST + 1):
        scaled = parts * 2.0**halved if halved else parts
        if (scaled == np.rint(scaled)).all():
            return halved
    return None
