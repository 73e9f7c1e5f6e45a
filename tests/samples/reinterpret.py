"""Samples of the ops and composites in `ir/ops/views/reinterpret.py`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.ir import dtypes
from aotlite.testing.laws.samples.sample import Sample, array, expanded, flipped, gapped
from tests.samples import register


def complex_array(shape: tuple[int, ...], dtype: str = "complex128", seed: int = 0) -> np.ndarray:
    """Different complex values, none of them on an axis."""
    return np.asarray(array(shape, seed=seed) + 1j * array(shape, seed=seed + 1), dtype)


def _complex_layouts(dtype: str) -> list[np.ndarray]:
    a = complex_array((2, 3), dtype)
    special = np.array([np.inf - 0j, complex(np.nan, -0.0), complex(-0.0, -np.inf)], dtype)
    row = complex_array((3,), dtype)
    return [a, flipped(a), gapped(a), expanded(row, 2), np.asarray(a[0, 0]), a[:0], special]


def _pairs(dtype: str) -> list[np.ndarray]:
    a = array((2, 3, 2), dtype)
    swapped = array((3, 2, 2), dtype).transpose(1, 0, 2)
    return [a, swapped, array((2,), dtype), array((1, 1, 2), dtype), a[:, ::2]]


@register("view_as_real", "real()", "imag")
def _view_as_real(name: str) -> Iterable[Sample]:
    for dtype in ("complex64", "complex128"):
        yield from (Sample((a,)) for a in _complex_layouts(dtype))
    yield Sample((complex_array((2, 3)),), smooth=True)
    yield Sample((flipped(complex_array((2, 3))),), smooth=True)
    if name == "real()":
        yield Sample((flipped(array((2, 3))),), smooth=True)
        yield Sample((array((), "int64"),))


@register("view_as_complex", "view_as_complex_copy")
def _view_as_complex(name: str) -> Iterable[Sample]:
    for dtype in ("float32", "float64"):
        yield from (Sample((a,)) for a in _pairs(dtype))
    yield from (Sample((a,), smooth=True) for a in _pairs("float64")[:2])
    yield Sample((expanded(array((2,)), 3),))


@register("view_dtype", "view_dtype_copy")
def _view_dtype(name: str) -> Iterable[Sample]:
    yield from (Sample((gapped(array((2, 3), "int64")), d)) for d in (dtypes.int64, dtypes.float64))
    yield Sample((flipped(array((2, 3), "float32")), dtypes.int32))
    a = array((2, 4), "float32")
    narrow = (dtypes.uint8, dtypes.int16, dtypes.float16, dtypes.bfloat16)
    yield from (Sample((a, dtype)) for dtype in (*narrow, dtypes.float64, dtypes.complex64))
    yield Sample((array((3, 2, 4), "float32").transpose(1, 0, 2), dtypes.float64))
    yield Sample((array((3, 2, 4), "float32").transpose(1, 0, 2), dtypes.int8))
    yield Sample((complex_array((2, 2), "complex64"), dtypes.float32))
    yield Sample((array((), "float32"), dtypes.int32))
    yield Sample((array((1, 2, 1, 1), "float64"), dtypes.float32))
    yield Sample((expanded(array((4,), "float32"), 2), dtypes.int64))
