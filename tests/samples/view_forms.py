"""Samples of the composites in `ir/ops/views/forms.py` and `ir/ops/views/copies.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aotlite.ir.op import OPS, MultiViewOp, ViewOp
from aotlite.testing.laws.samples.sample import Sample, array, expanded, flipped, gapped, layouts
from tests.samples import register, samples_of

CUBE = (2, 3, 4)


def _complex(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(array(shape, seed=seed) + 1j * array(shape, seed=seed + 1))


def _each(calls: list[tuple[Any, ...]], make: Callable[..., np.ndarray]) -> Iterable[Sample]:
    """The calls on a dense, a flipped and a gapped array, and smooth on one of them."""
    for rest in calls:
        yield from (Sample((laid(make()), *rest)) for laid in (np.asarray, flipped, gapped))
    yield Sample((flipped(make()), *calls[0]), smooth=True)
    yield Sample((make(), *calls[-1]), smooth=True)


@register("view()")
def _view(name: str) -> Iterable[Sample]:
    a = array((2, 6))
    yield from (Sample((a, *rest)) for rest in [(3, 4), (-1,), ((2, 2, 3),), ([12, 1],)])
    yield Sample((array(()), (1,)))
    yield Sample((array(()),), {"size": ()})
    yield Sample((flipped(a), 2, 3, 2), smooth=True)


@register("view_as", "reshape_as", "expand_as")
def _like(name: str) -> Iterable[Sample]:
    like = array((2, 3), "int64")
    shape = (3, 2) if name != "expand_as" else (1, 3)
    yield Sample((array(shape), like), smooth=True)
    yield Sample((array((0, 1) if name == "expand_as" else (0, 3)), array((0, 3))))
    yield Sample((array((1,), "float32"), array((1, 1))))
    if name == "reshape_as":
        yield Sample((flipped(array((3, 2))), like), smooth=True)


@register("reshape")
def _reshape(name: str) -> Iterable[Sample]:
    for a in layouts("float32"):
        yield Sample((a, -1) if a.size else (a, a.shape))
        yield Sample((a, (*a.shape, 1)))
    calls: list[tuple[Any, ...]] = [(4, 6), ((2, 12),), ([-1, 2],), (2, 3, 4)]
    yield from _each(calls, lambda: array(CUBE))
    yield Sample((expanded(array((4,)), 2), (4, 2)), smooth=True)
    yield Sample((array((0, 3)), (3, 0)))


@register("reshape_copy")
def _reshape_copy(name: str) -> Iterable[Sample]:
    for dtype in ("float32", "float64", "int64", "bool"):
        yield Sample((flipped(array((2, 3), dtype)), (6,)))
        yield Sample((array((2, 3), dtype), (3, -1)))
        yield Sample((expanded(array((3,), dtype), 2), (3, 2)))
        yield Sample((array((), dtype), (1,)))
        yield Sample((array((0, 3), dtype), (3, 0)))
    yield Sample((flipped(array((2, 3))), (3, 2)), smooth=True)
    yield Sample((flipped(_complex((2, 3))), (3, 2)))


@register("flatten")
def _flatten(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("float32"))
    yield Sample((array((3,)),), smooth=True)
    yield Sample((array((2, 3, 2)), 1, 1))
    yield Sample((array((2, 3, 2)), 1), smooth=True)
    yield Sample((flipped(array((2, 3, 2))), 0, 1), smooth=True)


@register("ravel")
def _ravel(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("float32"))
    yield Sample((array((3,)),), smooth=True)
    yield Sample((flipped(array((2, 3))),), smooth=True)


@register("unflatten")
def _unflatten(name: str) -> Iterable[Sample]:
    yield from _each([(2, (2, 2)), (-1, (-1, 1)), (0, [2])], lambda: array(CUBE))
    yield Sample((array((0, 3)), 0, (0, 2)))


@register("permute()")
def _permute(name: str) -> Iterable[Sample]:
    yield from _each([(2, 0, 1), ((-1, 0, 1),), ([0, 1, 2],)], lambda: array(CUBE))
    yield Sample((array(CUBE),), {"dims": (1, 2, 0)})


@register("swapaxes", "swapdims")
def _swap(name: str) -> Iterable[Sample]:
    yield from _each([(0, 2), (-1, 1), (1, 1)], lambda: array(CUBE))
    yield Sample((array(()), 0, -1))


@register("swapaxes_", "swapdims_")
def _swap_in_place(name: str) -> Iterable[Sample]:
    yield from (Sample((laid(array(CUBE)), 0, -1)) for laid in (np.asarray, flipped, gapped))


@register("movedim", "moveaxis")
def _movedim(name: str) -> Iterable[Sample]:
    calls: list[tuple[Any, ...]] = [(0, 2), (-1, 0), ((0, 1), (1, 2)), ([2, 0], (0, -1)), ((), ())]
    yield from _each(calls, lambda: array(CUBE))
    yield Sample((array(()), 0, -1))


@register("T", "mT", "H", "mH", "adjoint")
def _transposed(name: str) -> Iterable[Sample]:
    taken = {"T": range(9), "H": (0, 2)}.get(name, (0, 2, 3, 4))
    yield from (Sample((a,)) for a in layouts("int64") if a.ndim in taken)
    yield Sample((array((3, 2)),), smooth=True)
    yield Sample((_complex((2, 3)),))
    yield Sample((flipped(_complex((2, 3))),), smooth=True)
    if name in ("mT", "mH", "adjoint"):
        yield Sample((array((2, 3, 2)),), smooth=True)


@register("expand()")
def _expand(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 1)), 2, 3), smooth=True)
    yield Sample((gapped(array((3,))), [2, -1]), smooth=True)
    yield Sample((array(()),), {"size": (2, 2)})
    yield Sample((array((1, 3)), (0, 3)))


@register("broadcast_to")
def _broadcast_to(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 1)), (2, 2, 3)), smooth=True)
    yield Sample((array((3,), "int64"), (3,)))
    yield Sample((array((1,), "bool"), [0]))


@register("broadcast_tensors")
def _broadcast_tensors(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 1)), array((3,), seed=1), array((), seed=2)), smooth=True)
    yield Sample((array((2, 3)), flipped(array((2, 3), "int64"))))
    yield Sample((array((0, 3)), array((1, 1), "float32")))


@register("atleast_1d", "atleast_2d", "atleast_3d")
def _at_least(name: str) -> Iterable[Sample]:
    shapes: list[tuple[int, ...]] = [(), (3,), (0,), (2, 3), CUBE, (1, 2, 1, 2)]
    yield from (Sample((flipped(array(shape)),)) for shape in shapes)
    yield Sample((array(()), array((2,), "int64"), array((2, 2))))
    yield Sample(((array((2,)), array(CUBE)),))
    yield Sample((array((3,)), array((), seed=1)), smooth=True)


# ------------------------------------------------------------------------------- copies of views
def _copy_samples(name: str) -> list[Sample]:
    """Some samples of the view: its layouts in one dtype, and the smooth ones."""
    found = samples_of(name.removesuffix("_copy"))
    return [s for s in found if s.smooth or s.args[0].dtype in (np.float32, np.complex64)]


_WITH_COPIES = [
    f"{name}_copy"
    for name, op in OPS.items()
    if isinstance(op, (ViewOp, MultiViewOp)) and f"{name}_copy" not in OPS and name != "as_strided"
]
register(*_WITH_COPIES)(_copy_samples)


@register("as_strided_copy")
def _as_strided_copy(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3), "float32"), (2, 2), (1, 3)))
    yield Sample((array((2, 3), "float32"), (2, 2), (1, 3), 3))
    yield Sample((array((2, 3)), (2, 2), (1, 2)), smooth=True)
