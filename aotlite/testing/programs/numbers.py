"""The numbers in programs' tensors: small, whole, and determined by a seed."""

from __future__ import annotations

from typing import Any


def numbers(count: int, seed: int, dtype: str = "float64") -> list[Any]:
    """Small whole numbers, none of them 0, drawn by a seed. Sums and products of few of them are
    exact in every dtype.

    >>> numbers(4, 0), numbers(3, 1, "int64")
    ([-3.0, 2.0, 4.0, -2.0], [4, -2, 3])
    """
    found = [(i * 5 + seed * 3) % 7 - 3 or 4 for i in range(count)]
    if dtype == "bool":
        return [number > 0 for number in found]
    if dtype.startswith("complex"):
        return [complex(a, b) for a, b in zip(found, reversed(found), strict=True)]
    return found if dtype.startswith("int") else [float(number) for number in found]
