"""Which numbers are exact: so small and so round that sums of them are, in any order.

A number is exact where it is a whole multiple of a unit, 1 or down to 1/1024, and less than a power
of two of them: 2**50 for 64 bits, 2**20 for 32. A sum of few such numbers fits the significand,
whichever is added first, and so does each product that is exact again. Integers are exact always:
they wrap around. Numbers that are the bits of another dtype (`view_dtype`) are none of these: they
may be copied, which keeps every bit, and are not to be computed with.

Place: below `differences` and the generators, which ask it. It knows arrays of NumPy only.
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
"""For a dtype the significant bits of exact numbers: three or more are left for sums."""
FINEST = 10
"""The finest unit is 2**-10."""


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
    """The largest magnitude of a number or of its parts; 0.0 where there is none."""
    parts = _parts(array)
    return float(np.abs(parts).max()) if parts.size else 0.0


def _parts(array: np.ndarray) -> np.ndarray:
    """The numbers, complex ones as their real and imaginary parts."""
    if array.dtype.kind == "c":
        return array.reshape(-1).view(array.real.dtype)
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array


def _fineness(parts: np.ndarray) -> int | None:
    """How often 1 is halved for a unit of which all are whole multiples; None for no unit."""
    for halved in range(FINEST + 1):
        scaled = parts * 2.0**halved if halved else parts
        if (scaled == np.rint(scaled)).all():
            return halved
    return None
