"""Samples of products that are added to something, and of products of given ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample, array, expanded, flipped, gapped
from tests.samples import register


def complex_array(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Different values off both axes."""
    return np.asarray(array(shape, seed=seed) + 1j * array(shape, seed=seed + 50))


_FORMS: dict[str, list[tuple[tuple[int, ...], ...]]] = {
    # Shapes of self, which the result has, and of the factors; the last ones are empty.
    "addmm": [((2, 4), (2, 3), (3, 4)), ((1, 1), (1, 1), (1, 1)), ((2, 4), (2, 0), (0, 4))],
    "addmv": [((2,), (2, 3), (3,)), ((1,), (1, 1), (1,)), ((0,), (0, 3), (3,))],
    "addr": [((2, 4), (2,), (4,)), ((1, 1), (1,), (1,)), ((0, 4), (0,), (4,))],
    "baddbmm": [
        ((2, 3, 2), (2, 3, 4), (2, 4, 2)),
        ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((0, 2, 2), (0, 2, 3), (0, 3, 2)),
    ],
    "addbmm": [
        ((3, 2), (2, 3, 4), (2, 4, 2)),
        ((1, 1), (1, 1, 1), (1, 1, 1)),
        ((3, 2), (0, 3, 4), (0, 4, 2)),
    ],
}


@register(*_FORMS, *[name + "_" for name in _FORMS])
def _added(name: str) -> Iterable[Sample]:
    forms = _FORMS[name.rstrip("_")]
    for dtype in ("float32", "float64", "int64"):
        for shapes in forms:
            yield Sample(tuple(array(s, dtype, k) for k, s in enumerate(shapes)))
    shape, left, right = forms[0]
    a, x, y = array(shape), array(left, seed=1), array(right, seed=2)
    yield Sample((flipped(a), flipped(x), gapped(y)), {"alpha": 2, "beta": -0.5})
    yield Sample((np.full(shape, np.nan), x, y), {"beta": 0})
    yield Sample((np.full(shape, 2**62), array(left, "int64"), array(right, "int64")), {"beta": 3})
    yield Sample((np.where(a > 0.5, np.inf, a), x, np.where(y > 0.5, -np.inf, y)))
    parts = [complex_array(s, k) for k, s in enumerate(forms[0])]
    yield Sample(tuple(parts), {"alpha": 2 - 1j, "beta": 0.5j})
    yield Sample((a, x, y), smooth=True)
    yield Sample((flipped(a), x, flipped(y)), {"beta": 0, "alpha": 1.5}, smooth=True)
    if not name.endswith("_"):
        yield Sample((array(shape[-1:]), expanded(x[0], left[0]), y))
        yield Sample((array(()), x, y), {"beta": 3, "alpha": -1}, smooth=True)
    if name.startswith("addr"):
        yield Sample((a > 0, x > 0, y > 0))
        yield Sample((a, x, array(right, "int64")))


def _pairs(left: tuple[int, ...], right: tuple[int, ...]) -> Iterable[Sample]:
    for dtype in ("float32", "int64"):
        yield Sample((array(left, dtype), array(right, dtype, 1)))
    yield Sample((flipped(array(left)), gapped(array(right, seed=1))), smooth=True)
    yield Sample((expanded(array(left[1:]), left[0]), array(right, seed=1)))
    yield Sample((complex_array(left), complex_array(right, 1)))


_RANKS: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "mm": [((2, 3), (3, 4)), ((0, 3), (3, 2))],
    "bmm": [((2, 3, 4), (2, 4, 2)), ((0, 3, 4), (0, 4, 2))],
    "mv": [((2, 3), (3,)), ((2, 0), (0,))],
    "dot": [((3,), (3,)), ((0,), (0,))],
    "vdot": [((3,), (3,)), ((0,), (0,))],
    "outer": [((2,), (3,)), ((0,), (3,))],
    "ger": [((2,), (3,)), ((1,), (1,))],
    "inner": [((2, 3), (4, 5, 3)), ((0, 3), (2, 3)), ((3,), (3,)), ((), (2, 2)), ((2, 0), (3, 0))],
    "kron": [((2, 3), (4, 1)), ((2,), (2, 3)), ((), (3,)), ((0, 2), (2, 2))],
}


@register(*_RANKS)
def _products(name: str) -> Iterable[Sample]:
    first, *rest = _RANKS[name]
    yield from _pairs(*first)
    for left, right in rest:
        yield Sample((array(left), array(right, seed=1)), smooth=True)
    if name in ("outer", "ger", "kron"):
        left, right = first
        yield Sample((array(left, "int64"), flipped(array(right, "float32"))))
        yield Sample((array(left, "bool"), array(right, "bool")))


@register("linalg_cross", "cross")
def _cross(name: str) -> Iterable[Sample]:
    dim = {"dim": -1} if name == "cross" else {}
    for dtype in ("float32", "float64", "int64"):
        yield Sample((array((2, 3), dtype), flipped(array((2, 3), dtype, 1))), dim)
    yield Sample((array((3, 4)), flipped(array((3, 4), seed=1))), {"dim": 0}, smooth=True)
    yield Sample((expanded(array((3,)), 2), array((1, 3), seed=1)), dim)
    yield Sample((array((3,)), gapped(array((3,), seed=1))), dim, smooth=True)
    yield Sample((array((0, 3)), array((1, 3))), dim)
    yield Sample((complex_array((2, 3)), complex_array((2, 3), 1)), dim)
    yield Sample((np.array([np.inf, -0.0, 1.0]), np.array([0.0, np.nan, -1.0])), dim)
    if name == "cross":
        yield Sample((array((2, 3, 3)), array((2, 3, 3), seed=1)), smooth=True)


@register("tensordot")
def _tensordot(name: str) -> Iterable[Sample]:
    a, b = array((2, 3, 4)), array((3, 4, 5), seed=1)
    yield Sample((a, b), smooth=True)
    yield Sample((flipped(a), gapped(b), 2))
    yield Sample((array((2, 3)), array((4,), seed=1), 0), smooth=True)
    yield Sample((a, b, ([1, -1], [0, 1])), smooth=True)
    yield Sample((a, array((4, 3, 5), seed=1)), {"dims": ((2, 1), (0, 1))})
    yield Sample((array((2, 1, 4)), b), smooth=True)
    yield Sample((array((2, 3, 4), "int64"), array((4, 2), "int64"), 1))
    yield Sample((array((2, 0)), array((0, 3)), 1))
    yield Sample((complex_array((2, 3)), complex_array((3, 2)), 1))


_EQUATIONS: list[tuple[Any, ...]] = [
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("b i j, bjk -> bik", (2, 3, 4), (2, 4, 2)),
    ("ii->i", (3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("ij->", (2, 3)),
    ("ij->ji", (2, 3)),
    ("ba", (2, 3)),
    ("...ij,...jk", (2, 2, 3), (3, 4)),
    ("i...->...", (2, 3, 2)),
    ("i,j", (2,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 1)),
    ("ij,jk->i", (2, 1), (3, 4)),
    (",", (), ()),
    ("ij,jk", (2, 0), (0, 3)),
    ("bn,anm,bm->ba", (2, 3), (2, 3, 4), (2, 4)),
    ("ij,jk,kl,lm->im", (2, 5), (5, 2), (2, 5), (5, 2)),
]


@register("einsum")
def _einsum(name: str) -> Iterable[Sample]:
    for equation, *shapes in _EQUATIONS:
        operands = [array(shape, seed=k) for k, shape in enumerate(shapes)]
        yield Sample((equation, *operands), smooth=True)
    yield Sample(("ij,kj->ik", flipped(array((2, 3))), gapped(array((4, 3), seed=1))))
    yield Sample(("ij,jk", array((2, 3), "int64"), array((3, 4), "int64")))
    yield Sample(("ij,jk", complex_array((2, 3)), complex_array((3, 2))))
    yield Sample(("ij,jk", [array((2, 3), "float32"), array((3, 4), "float32")]))


@register("chain_matmul")
def _chain_matmul(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)),))
    yield Sample((array((2, 5)), array((5, 2), seed=1), array((2, 4), seed=2)), smooth=True)
    yield Sample((array((5, 1)), array((1, 5)), flipped(array((5, 1))), array((1, 2))))


@register("linalg_multi_dot")
def _multi_dot(name: str) -> Iterable[Sample]:
    a, b, c = array((2, 5)), array((5, 2), seed=1), array((2, 4), seed=2)
    yield Sample(((a, b),), smooth=True)
    yield Sample(((a, b, c),), smooth=True)
    yield Sample(((array((2,)), a, b, c, array((4,), seed=3)),), smooth=True)
    yield Sample(((a[0].copy(), b),))
    yield Sample(((array((0, 5)), b, c),))
    yield Sample(((complex_array((2, 3)), complex_array((3, 2)), complex_array((2, 1))),))
