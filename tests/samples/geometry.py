"""Sample inputs of views, of ops that change a geometry, and of the inverse writes of views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.ir.geometry import layout
from aotlite.testing.laws.samples.sample import (
    ALL,
    Sample,
    array,
    expanded,
    flipped,
    gapped,
    layouts,
)
from tests.samples import register

Calls = dict[str, list[tuple[np.ndarray, tuple[Any, ...]]]]


def _parents(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    a = array(shape, dtype)
    return [a, flipped(a), gapped(a)]


def _matrices(dtype: str) -> list[np.ndarray]:
    return [*_parents((2, 3), dtype), expanded(array((3,), dtype), 2), array((0, 3), dtype)]


@register("alias", "detach", "hidden_alias", "t")
def _without_arguments(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a,)) for a in layouts(dtype) if a.ndim <= 2)
    yield Sample((flipped(array((2, 3))),), smooth=True)


@register("view")
def _view(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield Sample((array((2, 3), dtype), (6,)))
        yield Sample((array((2, 3), dtype), (-1, 2)))
        yield Sample((array((2, 3), dtype), (2, 1, 3, 1)))
        yield Sample((gapped(array((2, 3), dtype)), (6,)))
        yield Sample((flipped(array((2, 3), dtype)), (2, 3, 1)))
        yield Sample((array((), dtype), (1, 1)))
        yield Sample((array((1, 1), dtype), ()))
        yield Sample((array((0, 3), dtype), (3, 0)))
        yield Sample((expanded(array((4,), dtype), 2), (2, 2, 2)))
    yield Sample((array((2, 3)), (3, 2)), smooth=True)
    yield Sample((flipped(array((2, 4))), (2, 2, 2)), smooth=True)


@register("unsqueeze")
def _unsqueeze(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, dim)) for a in _matrices(dtype) for dim in (0, 1, 2, -1))
        yield Sample((array((), dtype), 0))
    yield Sample((flipped(array((2, 3))), 1), smooth=True)


@register("squeeze")
def _squeeze(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in (array((1, 3, 1), dtype), flipped(array((1, 3, 1), dtype)), array((1, 0), dtype)):
            yield from (Sample((a, dim)) for dim in (None, (0,), (1,), (0, -1)))
        yield Sample((array((), dtype),))
    yield Sample((array((2, 1, 3)), (1,)), smooth=True)


@register("transpose")
def _transpose(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, 0, -1)) for a in _matrices(dtype))
        yield Sample((array((2, 1, 3), dtype), 1, 2))
        yield Sample((array((2, 3), dtype), 1, 1))
        yield Sample((array((), dtype), 0, -1))
    yield Sample((gapped(array((2, 3))), 0, 1), smooth=True)


@register("permute")
def _permute(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, (2, 0, 1))) for a in _parents((2, 1, 3), dtype))
        yield Sample((array((), dtype), ()))
        yield Sample((array((2, 0, 3), dtype), (-1, 0, 1)))
    yield Sample((array((2, 1, 3)), (2, 0, 1)), smooth=True)


@register("expand")
def _expand(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield Sample((array((3,), dtype), (2, 3)))
        yield Sample((gapped(array((3,), dtype)), (2, -1)))
        yield Sample((array((2, 1), dtype), (2, 2, 3)))
        yield Sample((array((), dtype), (2,)))
        yield Sample((array((1, 3), dtype), (0, 3)))
        yield Sample((array((3,), dtype), (0, 3)))
        yield Sample((array((), dtype), (2, 0)))
        yield Sample((array((2, 3), dtype), (1, 2, 3)))
        yield Sample((array((2, 1), dtype), (2, 1)))
    yield Sample((array((2, 1)), (2, 2, 3)), smooth=True)


_CALLS: dict[str, tuple[tuple[int, ...], list[tuple[Any, ...]]]] = {
    "select": ((2, 3), [(0, 1), (1, -1), (-1, 0)]),
    "slice": (
        (3, 4),
        [(), (0, 1), (1, None, None, 2), (1, -3, -1), (0, 2, 1), (1, 1, 99, 2), (-1, 0, 0)],
    ),
    "diagonal": ((2, 3), [(), (1,), (-1,), (0, 1, 0), (5,)]),
    "unfold": ((2, 5), [(1, 2, 2), (0, 1, 1), (-1, 3, 1), (1, 5, 1), (1, 2, 4)]),
}
_SMOOTH: dict[str, list[tuple[Any, ...]]] = {
    "select": [(1, -1)],
    "slice": [(1, 1, None, 2)],
    "diagonal": [(1,)],
    "unfold": [(1, 2, 2), (1, 3, 1)],
}
_WINDOWS: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = [
    (np.asarray, (2, 3), ((2, 2), (3, 1), 1)),
    (np.asarray, (2, 3), ((3,), (2,), 0)),
    (flipped, (2, 3), ((3, 2), (2, 1))),
    (np.asarray, (6,), ((2,), (1,), 4)),
    (np.asarray, (6,), ((), (), 3)),
    (np.asarray, (4,), ((0, 2), (2, 1))),
    (gapped, (2, 3), ((3,), (4,))),
]


def _calls(name: str, dtype: str) -> Iterable[tuple[np.ndarray, tuple[Any, ...]]]:
    if name == "as_strided":
        yield from ((laid_out(array(shape, dtype)), rest) for laid_out, shape, rest in _WINDOWS)
        return
    shape, calls = _CALLS[name]
    for rest in calls:
        yield from ((a, rest) for a in _parents(shape, dtype))
    if name != "unfold":
        yield array((2, 2, 3), dtype), calls[0]
    if name == "slice":
        yield array((0, 3), dtype), (0, 0, 2)


@register("select", "slice", "diagonal", "unfold")
def _parts(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, *rest)) for a, rest in _calls(name, dtype))
    shape = _CALLS[name][0]
    yield Sample((expanded(array(shape), 2), *_CALLS[name][1][0]))
    for rest in _SMOOTH[name]:
        yield Sample((array(shape), *rest), smooth=True)
        yield Sample((flipped(array(shape)), *rest), smooth=True)
    if name == "unfold":
        yield Sample((array(()), 0, 1, 1))


@register("as_strided")
def _as_strided(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, *rest)) for a, rest in _calls(name, dtype))
    yield Sample((array((6,)), (2, 3), (1, 1)))
    yield Sample((gapped(array((2, 3))), (3,), (3,), 1))
    yield Sample((array((2, 3)), (2, 2), (3, 1), 1), smooth=True)
    yield Sample((array((5,)), (3, 3), (1, 1)), smooth=True)


_SPLITS: dict[str, list[tuple[Any, ...]]] = {
    "split": [(2,), (1, -1), (4, 1), (5,)],
    "split_with_sizes": [((1, 2),), ((3, 0, 1), 1), ((2, 2), -1), ((3,),)],
    "unbind": [(), (1,), (-1,)],
}


@register(*_SPLITS)
def _several(name: str) -> Iterable[Sample]:
    calls = _SPLITS[name]
    for dtype in ALL:
        for rest in calls:
            yield from (Sample((a, *rest)) for a in _parents((3, 4), dtype))
    yield Sample((array((3, 0)), *calls[0]))
    if name == "split":
        yield Sample((array((0, 3)), 2))
    yield Sample((array((3, 2)), *calls[0]), smooth=True)
    yield Sample((flipped(array((3, 2))), *calls[0]), smooth=True)


@register(*[f"{name}_scatter" for name in (*_CALLS, "as_strided")])
def _scatters(name: str) -> Iterable[Sample]:
    from aotlite.ir.op import OPS, ViewOp

    viewed = OPS[name.removesuffix("_scatter")]
    assert isinstance(viewed, ViewOp)
    for dtype in ALL:
        for a, rest in _calls(viewed.name, dtype):
            src = _seen(viewed, a, rest, dtype)
            if src is not None:
                yield Sample((a, src, *rest))
                yield Sample((a, flipped(src), *rest))
    for rest in _SMOOTH.get(viewed.name, [((2, 2), (3, 1), 1)])[:1]:
        a = array(_CALLS[viewed.name][0] if viewed.name in _CALLS else (2, 3))
        src = _seen(viewed, a, rest, "float64")
        yield Sample((a, src, *rest), smooth=True)


def _seen(viewed: Any, a: np.ndarray, rest: tuple[Any, ...], dtype: str) -> np.ndarray | None:
    """A value for the part that the view sees; None if the view sees an element twice."""
    from aotlite import from_numpy
    from aotlite.ir.geometry.overlap import has_internal_overlap

    meta = viewed.infer(viewed.bind((from_numpy(a), *rest), {}))
    if has_internal_overlap(meta.shape, meta.stride):
        return None
    return array(meta.shape, dtype, 9)


@register("strided_accumulate")
def _accumulate(name: str) -> Iterable[Sample]:
    for dtype in ("float32", "float64", "int64"):
        yield Sample((array((2, 3), dtype), (6,), (1, 1)))
        yield Sample((flipped(array((2, 3), dtype)), (2, 4), (4, 1), 1))
        yield Sample((array((), dtype), (2,), (), 1))
        yield Sample((array((0, 3), dtype), (2,), (1, 1)))
    yield Sample((array((2, 3)), (5,), (2, 1)), smooth=True)


@register("as_strided_")
def _as_strided_in_place(name: str) -> Iterable[Sample]:
    """On dense operands only: a window in their own memory."""
    for dtype in ALL:
        calls = [(a, rest) for a, rest in _calls("as_strided", dtype) if _is_dense(a)]
        yield from (Sample((a, *rest)) for a, rest in calls)
    yield Sample((array((2, 3)), (2, 2), (3, 1), 1), smooth=True)


def _is_dense(a: np.ndarray) -> bool:
    return layout.is_dense(a.shape, tuple(step // a.itemsize for step in a.strides))
