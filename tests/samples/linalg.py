"""Samples of linear algebra: matrices far from singular, whose values do not repeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.testing.laws.samples.sample import Sample, array, expanded, flipped, gapped
from tests.samples import register
from tests.samples.products import complex_array

KINDS = ("float32", "float64", "complex128")


def matrices(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Small numbers, and 2, 3, ... on the diagonal."""
    small = complex_array(shape, seed) if dtype.startswith("complex") else array(shape, seed=seed)
    small = small / (4 * max(shape[-1], 1))
    diagonal = np.zeros(shape[-2:])
    np.fill_diagonal(diagonal, np.arange(2, 2 + min(shape[-2:])))
    return np.asarray(small + diagonal, dtype)


def symmetric(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Hermitian and positive-definite."""
    a = matrices(shape, dtype, seed)
    return np.asarray((a + a.conj().swapaxes(-1, -2)) / 2)


def _each(make: Any, rows: int, columns: int) -> Iterable[np.ndarray]:
    for dtype in KINDS:
        yield make((rows, columns), dtype)
        yield make((2, rows, columns), dtype)
    yield flipped(make((rows, columns)))
    yield gapped(make((rows, columns)))
    yield expanded(make((rows, columns)), 2)
    yield make((1, 1))
    yield make((0, rows, columns))


@register("linalg_inv", "linalg_det", "linalg_slogdet", "linalg_cofactors", "inverse", "det")
def _square(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in _each(matrices, 3, 3))
    yield Sample((-matrices((3, 3)),))
    yield Sample((np.zeros((0, 0)),))
    if name in ("linalg_det", "det"):
        yield Sample((np.ones((3, 3)),))  # singular, of rank 1
        yield Sample((np.diag([2.0, 0.0, 3.0]),))
    yield Sample((matrices((2, 3, 3), seed=1),), smooth=True)
    yield Sample((flipped(matrices((2, 2), seed=1)),), smooth=True)


@register("slogdet", "logdet")
def _logarithms(name: str) -> Iterable[Sample]:
    yield Sample((matrices((2, 3, 3)),), smooth=True)
    yield Sample((-matrices((3, 3)),))
    yield Sample((matrices((2, 2), "complex128"),))


@register("linalg_cholesky", "cholesky")
def _cholesky(name: str) -> Iterable[Sample]:
    for upper in (False, True):
        yield from (Sample((a,), {"upper": upper}) for a in _each(symmetric, 3, 3))
        yield Sample((np.zeros((0, 0)),), {"upper": upper})
        yield Sample((symmetric((2, 3, 3), seed=1),), {"upper": upper}, smooth=True)


@register("linalg_eigh")
def _eigh(name: str) -> Iterable[Sample]:
    for uplo in ("L", "U"):
        yield from (Sample((a, uplo)) for a in _each(symmetric, 3, 3))
        yield Sample((np.zeros((0, 0)), uplo))
        yield Sample((symmetric((2, 3, 3), seed=1), uplo), smooth=True)


@register("linalg_eigvalsh")
def _eigvalsh(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in _each(symmetric, 3, 3))
    yield Sample((symmetric((2, 3, 3), seed=1), "U"), smooth=True)


def _tall_and_wide() -> Iterable[np.ndarray]:
    yield from _each(matrices, 3, 2)
    yield from _each(matrices, 2, 3)
    yield np.zeros((0, 3))
    yield np.zeros((3, 0))


@register("linalg_qr")
def _qr(name: str) -> Iterable[Sample]:
    yield from (Sample((a, mode)) for mode in ("reduced", "complete") for a in _tall_and_wide())
    yield Sample((matrices((2, 3, 2)), "r"))
    for shape in ((3, 2), (2, 3), (2, 3, 3)):
        yield Sample((matrices(shape, seed=1),), smooth=True)


@register("linalg_svd")
def _svd(name: str) -> Iterable[Sample]:
    yield from (Sample((a, full)) for full in (True, False) for a in _tall_and_wide())
    for shape in ((3, 2), (2, 3), (2, 3, 3)):
        yield Sample((matrices(shape, seed=1), False), smooth=True)


@register("linalg_svdvals")
def _svdvals(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in _tall_and_wide())
    yield Sample((np.diag([2.0, 2.0, 1.0]),), smooth=True)
    yield Sample((matrices((2, 3, 2), seed=1),), smooth=True)


@register("qr", "svd")
def _older_forms(name: str) -> Iterable[Sample]:
    yield Sample((matrices((3, 2)),), smooth=True)
    yield Sample((matrices((2, 3, 2), "float32"), False))
    if name == "svd":
        yield Sample((matrices((2, 3)), True, False))


@register("linalg_solve")
def _solve(name: str) -> Iterable[Sample]:
    for dtype in KINDS:
        yield Sample((matrices((3, 3), dtype), np.ones((3, 2), dtype)))
        yield Sample((matrices((2, 3, 3), dtype), np.ones((2, 3), dtype)))
    a, b = matrices((3, 3)), array((3, 2), seed=3)
    yield Sample((a, b[:, 0].copy()), smooth=True)
    yield Sample((matrices((2, 3, 3)), flipped(b)), smooth=True)
    yield Sample((a, array((2, 3, 4), seed=3)), smooth=True)
    yield Sample((flipped(a), gapped(array((2, 3), seed=3))), {"left": False}, smooth=True)
    yield Sample((expanded(a, 2), array((3,), seed=3)))
    yield Sample((a, np.zeros((3, 0))))
    yield Sample((np.zeros((0, 0)), np.zeros((0, 2))))
    yield Sample((np.zeros((0, 3, 3)), b))


@register("linalg_solve_triangular")
def _solve_triangular(name: str) -> Iterable[Sample]:
    for upper in (False, True):
        for dtype in KINDS:
            pair = (matrices((5, 5), dtype), np.ones((5, 2), dtype))
            yield Sample(pair, {"upper": upper})
        a, b = matrices((3, 3)), array((3, 2), seed=3)
        yield Sample((flipped(a), flipped(b)), {"upper": upper}, smooth=True)
        wishes: dict[str, Any] = {"upper": upper, "left": False}
        yield Sample((a, array((2, 4, 3), seed=3)), wishes, smooth=True)
        yield Sample((matrices((2, 3, 3)), b), {"upper": upper, "unitriangular": True}, smooth=True)
        yield Sample((np.zeros((2, 2)), np.array([[1.0], [-1.0]])), {"upper": upper})
        yield Sample((np.zeros((0, 0)), np.zeros((0, 2))), {"upper": upper})
        yield Sample((matrices((1, 1)), b[:1].copy()), {"upper": upper})


@register("linalg_pinv")
def _pinv(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in _tall_and_wide())
    yield Sample((np.diag([2.0, 1e-20, 1.0]),))
    yield Sample((np.diag([2.0, 0.5, 1.0]),), {"rtol": 0.4})
    yield Sample((np.diag([2.0, 0.5, 1.0]),), {"atol": 0.75})
    yield Sample((symmetric((2, 3, 3), "complex128"),), {"hermitian": True})
    yield Sample((matrices((3, 2), seed=1),), smooth=True)
    yield Sample((matrices((2, 2, 3), seed=1),), smooth=True)


@register("pinverse")
def _pinverse(name: str) -> Iterable[Sample]:
    yield Sample((matrices((3, 2)),), smooth=True)
    yield Sample((np.diag([2.0, 0.5, 1.0]), 0.4))


@register("linalg_matrix_rank")
def _rank(name: str) -> Iterable[Sample]:
    for a in (*_tall_and_wide(), np.ones((3, 3)), np.zeros((2, 2))):
        yield Sample((a,))
    yield Sample((np.diag([2.0, 0.5, 1e-3]),), {"rtol": 0.1})
    yield Sample((np.diag([2.0, 0.5, 1e-3]),), {"atol": 0.75})
    yield Sample((np.diag([2.0, -0.5, 1e-3]),), {"atol": 0.01, "hermitian": True})


@register("linalg_matrix_power", "matrix_power")
def _power(name: str) -> Iterable[Sample]:
    for n in (-2, -1, 0, 1, 2, 5):
        yield Sample((matrices((2, 3, 3)), n), smooth=n not in (0, 1))
        yield Sample((flipped(matrices((2, 2), "float32")), n))
    yield Sample((array((2, 2), "int64"), 3))
    yield Sample((array((2, 2), "int64"), 0))
    yield Sample((np.zeros((0, 0)), 2))


@register("linalg_matrix_exp", "matrix_exp")
def _exp(name: str) -> Iterable[Sample]:
    yield from (Sample((a / 4,)) for a in _each(matrices, 3, 3))
    yield Sample((matrices((2, 2)) * 5,))
    yield Sample((np.zeros((0, 0)),))
    yield Sample((matrices((2, 3, 3), seed=1) / 4,), smooth=True)


@register("linalg_matrix_norm")
def _matrix_norm(name: str) -> Iterable[Sample]:
    for ord_ in ("fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2):
        yield Sample((matrices((2, 3, 2)), ord_), smooth=True)
        yield Sample((flipped(matrices((3, 2), "float32")), ord_), {"keepdim": True})
        yield Sample((matrices((2, 3, 2)), ord_, (0, 2)))
    yield Sample((matrices((2, 3), "float32"),), {"dtype": dtypes.float64})


@register("linalg_norm")
def _norm(name: str) -> Iterable[Sample]:
    for args in ((), (None, 1), (2,), ("nuc",), (np.inf,), (3, 0), (1, (0, 1)), ("fro", (1, 0))):
        yield Sample((matrices((3, 2)), *args), smooth=True)
    yield Sample((array((4,)), 3), smooth=True)
    yield Sample((matrices((2, 3, 2)),), {"keepdim": True})
    yield Sample((matrices((2, 3, 2), "float32"), 2, (-2, -1)), {"dtype": dtypes.float64})


@register("linalg_diagonal")
def _diagonal(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3, 4)),), smooth=True)
    yield Sample((array((2, 3, 4)),), {"offset": 1, "dim1": 0})


@register("linalg_matmul")
def _matmul(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)), array((3, 2), seed=1)), smooth=True)


@register("linalg_vecdot")
def _vecdot(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)), array((3,), seed=1)), smooth=True)
    yield Sample((complex_array((2, 3)), complex_array((2, 3), 1)), {"dim": 0})
