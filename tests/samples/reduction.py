"""Sample inputs of reductions and scans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    NUMERIC,
    Make,
    Sample,
    array,
    dense_layouts,
    flipped,
    layouts,
    special,
)
from tests.samples import register


def _reducible(dtypes_: Iterable[str], make: Make = array) -> Iterable[np.ndarray]:
    for dtype in dtypes_:
        yield from layouts(dtype, make)


def _dims(a: np.ndarray) -> list[Any]:
    return [None, (0,), (-1,), (), tuple(range(a.ndim))][: 5 if a.ndim else 4]


@register("sum", "mean", "any", "all", "var", "std", "nansum")
def _reductions(name: str) -> Iterable[Sample]:
    spread = name in ("var", "std")
    for a in _reducible(FLOATS if spread or name == "mean" else ALL):
        for dim in _dims(a):
            yield Sample((a, dim))
            yield Sample((a, dim), {"keepdim": True})
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    if name in ("sum", "mean", "nansum"):
        yield Sample((array((2, 3), "int64"),), {"dtype": dtypes.float32})
        yield Sample((array((2, 3), "float32"), (0,)), {"dtype": dtypes.float64})
    if name in ("sum", "mean", "prod", "var", "std"):
        yield Sample((array((2, 3)) + 1j * array((2, 3), seed=1), (1,)))
    if spread:
        yield Sample((array((2, 3)),), {"correction": 0})
        yield Sample((array((2, 3)), (1,)), {"correction": 0.5}, smooth=True)
        yield Sample((np.array([[2.0, 2.0], [1.0, 3.0]]), (1,)))
    if name not in ("any", "all"):
        yield from _smooth_reductions()


def _smooth_reductions(make: Make = array) -> Iterable[Sample]:
    yield Sample((make((2, 3)),), smooth=True)
    yield Sample((flipped(make((2, 3), seed=1)), (0,)), smooth=True)
    yield Sample((make((2, 3), seed=2), (-1,)), {"keepdim": True}, smooth=True)


@register("amax", "amin")
def _extreme_reductions(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        yield from (Sample((a, dim)) for dim in _dims(a) if _has_elements(a, dim))
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((np.array([[2.0, 2.0, 1.0], [0.0, 2.0, 3.0]]), (1,)))
    yield from _smooth_reductions()


@register("max", "min")
def _extremes_of_everything(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in _reducible(ALL) if a.size)
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((np.array([2.0, 1.0, 2.0]),))
    yield Sample((flipped(array((2, 3))),), smooth=True)


@register("max()", "min()")
def _extremes_in_all_forms(name: str) -> Iterable[Sample]:
    a = array((2, 3))
    for args in ((), (1,), (0, True), (array((3,), seed=1),)):
        yield Sample((a, *args), smooth=True)
    yield Sample((a,), {"dim": -1, "keepdim": True})
    yield Sample((array((2, 3), "int64"), 1))


@register("aminmax")
def _both_extremes(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        for dim in (None, 0, -1):
            if _has_elements(a, dim):
                yield Sample((a,), {"dim": dim})
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((array((2, 3)),), smooth=True)
    yield Sample((flipped(array((2, 3))),), {"dim": 1, "keepdim": True}, smooth=True)


def _has_elements(a: np.ndarray, dim: Any) -> bool:
    """Whether no dimension that is reduced is empty: an extreme of nothing is refused."""
    reduced = range(a.ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    return all(a.shape[i] for i in reduced) if a.ndim else True


@register("argmax", "argmin", "max_dim", "min_dim")
def _positions(name: str) -> Iterable[Sample]:
    alone = name.startswith("arg")
    for a in _reducible(ALL):
        for dim in (None, 0, -1) if alone else (0, -1):
            if _has_elements(a, dim):
                yield Sample((a, dim))
                yield Sample((a, dim), {"keepdim": True})
    yield from (Sample((special(dtype), 0)) for dtype in FLOATS)
    yield Sample((np.array([[1, 3, 3], [2, 2, 2]]), 1))
    if not alone:
        yield Sample((array((2, 3)), 1), smooth=True)
        yield Sample((flipped(array((2, 3), seed=1)), 0), {"keepdim": True}, smooth=True)


@register("prod")
def _prod(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        yield from (Sample((a, dim)) for dim in (None, 0, -1))
        yield Sample((a, 0), {"keepdim": True})
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((array((2, 3), "int64"),), {"dtype": dtypes.float32})
    yield Sample((np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]), 1), smooth=True)
    yield Sample((array((2, 3)),), smooth=True)


@register("nanmean")
def _nanmean(name: str) -> Iterable[Sample]:
    for a in _reducible(("float32",)):
        yield from (Sample((a, dim)) for dim in _dims(a))
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((array((2, 3), "float32"), 0, True), {"dtype": dtypes.float64})
    yield Sample((np.array([[1.0, np.nan], [2.0, 3.0]]), (0,)), smooth=True)


@register("count_nonzero")
def _count_nonzero(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        yield from (Sample((a, dim)) for dim in _dims(a))
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((np.array([[0, 1j], [0, 2]]), (0,)))


@register("var()", "std()", "var_mean", "std_mean")
def _spread_in_all_forms(name: str) -> Iterable[Sample]:
    a = array((2, 3)) + 1  # a mean of 0 is one of rounding errors
    yield from (
        Sample(args, smooth=True) for args in ((a,), (a, 0), (a, (0, 1), False), (a, False))
    )
    yield Sample((a,), {"unbiased": False})
    yield Sample((a, 0, True, True))
    yield Sample(
        (flipped(array((2, 3), "float32")),), {"dim": -1, "correction": 0, "keepdim": True}
    )
    yield Sample((array((2, 3)) + 1j * array((2, 3), seed=1), (1,)))


# ------------------------------------------------------------------------------------- scans
@register("cumsum", "cumprod")
def _sums_so_far(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        yield from (Sample((a, dim)) for dim in (0, -1))
    yield from (Sample((special(dtype), 0)) for dtype in FLOATS)
    yield Sample((array((2, 3), "int64"), 1), {"dtype": dtypes.float32})
    yield Sample((np.full(70, 3), 0))  # beyond 64 bits
    yield from _smooth_scans()
    if name == "cumprod":
        yield Sample((np.array([[2.0, 0.0, 3.0, 0.0, 0.5]]), 1), smooth=True)
    yield Sample((array((2, 3)) + 1j * array((2, 3), seed=1), 1))


def _smooth_scans() -> Iterable[Sample]:
    yield Sample((array((2, 3)), 0), smooth=True)
    yield Sample((flipped(array((2, 3))), -1), smooth=True)


@register("cumsum_", "cumprod_")
def _sums_so_far_in_place(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        yield from (Sample((a, -1)) for a in dense_layouts(dtype))
    yield from _smooth_scans()


@register("cummax", "cummin")
def _extremes_so_far(name: str) -> Iterable[Sample]:
    for a in _reducible(ALL):
        yield from (Sample((a, dim)) for dim in (0, -1))
    yield from (Sample((special(dtype), 0)) for dtype in FLOATS)
    yield Sample((np.array([np.nan, 3.0, 3.0, np.nan]), 0))
    yield Sample((np.array([1, 3, 3, 2, 3, 1, 1]), 0))
    yield from _smooth_scans()


@register("logcumsumexp")
def _logcumsumexp(name: str) -> Iterable[Sample]:
    for a in _reducible(FLOATS):
        yield from (Sample((a, dim)) for dim in (0, -1))
    yield from (Sample((special(dtype), 0)) for dtype in FLOATS)
    yield Sample((np.array([-np.inf, -1000.0, 1000.0, 999.0]), 0))
    yield Sample((array((2, 3)) + 1j * array((2, 3), seed=1), 1))
    yield Sample((np.array([-np.inf, -np.inf, 1 + 2j, -np.inf, 0.5]), 0))
    yield from _smooth_scans()


@register("logsumexp", "softmax", "log_softmax")
def _exponentials(name: str) -> Iterable[Sample]:
    wrap = (lambda dim: (dim,)) if name == "logsumexp" else (lambda dim: dim)
    for a in _reducible(FLOATS):
        yield from (Sample((a, wrap(dim))) for dim in (0, -1))
    yield from (Sample((special(dtype), wrap(0))) for dtype in FLOATS)
    yield Sample((np.array([[1000.0, 1001.0], [-1000.0, -np.inf]]), wrap(1)))
    yield from (Sample((np.array(value), wrap(0))) for value in (1000.0, -1000.0, np.inf))
    if name == "logsumexp":
        yield Sample((array((2, 3)), (0, 1)), {"keepdim": True}, smooth=True)
        yield Sample((array((2, 3), "int64"), (0,)))
    else:
        yield Sample((array((2, 3), "int64"), 0), {"dtype": dtypes.float32})
    yield Sample((array((2, 3)), wrap(0)), smooth=True)
    yield Sample((flipped(array((2, 3), seed=1)), wrap(-1)), smooth=True)


# ---------------------------------------------------------------------------------- normalization
@register("layer_norm")
def _layer_norm(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        weight, bias = array((3,), dtype, 1), array((3,), dtype, 2)
        for a in layouts(dtype):
            if a.ndim:
                yield Sample((a, a.shape[-1:]))
                yield Sample((a, a.shape), {"eps": 0.5})
        yield Sample((array((2, 3), dtype), (3,), weight, bias))
        yield Sample((flipped(array((2, 3), dtype)), (3,), weight, None, 0.25))
        yield Sample((array((2, 2, 3), dtype), (2, 3), None, array((2, 3), dtype, 1)))
    yield Sample((special("float64")[:6].reshape(3, 2), (2,)))
    weight, bias = array((3,), seed=1), array((3,), seed=2)
    yield Sample((array((2, 3)), (3,), weight, bias), smooth=True)
    yield Sample((flipped(array((4, 3), seed=3)), (3,)), smooth=True)
    yield Sample((array((2, 2, 3)), (2, 3), array((2, 3), seed=1), None, 0.25), smooth=True)
