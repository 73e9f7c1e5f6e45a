"""Sums and maxima over the places of windows as loops: written out where there are few.

Unrolled places need no inner loops, so that neighboring results are vectorized, and the producer
of the image can be fused into the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.nn.window import Ints

FEW = 25
"""Places of a window that are written out: 5 x 5."""

Term = Callable[[Any, Any], Any]
"""(positions in the result, place in the window) -> scalar."""


def places_summed(
    k: Any, meta: TensorMeta, over: Ints, term: Term, finish: Callable[[Any, Any], Any]
) -> Any:
    """The tensor of `finish(sum of terms, positions)`, cast to the result's dtype."""
    if 0 < sizes.numel(over) <= FEW:
        places = list(product(*map(range, over)))
        return k.map(meta, lambda *i: k.cast(finish(summed(term, i, places), i), meta.dtype))
    rows: list[Any] = []

    def seen(row: Any, place: Any) -> Any:
        rows[:] = [row]
        return term(row, place)

    def finished(total: Any) -> Any:
        return k.cast(finish(total, rows[0]), meta.dtype)

    return k.reduce("sum", meta, over, seen, finish=finished)


def summed(term: Term, row: Any, places: Iterable[Ints]) -> Any:
    """The sum of the terms at these places, in order."""
    first, *rest = [term(row, place) for place in places]
    for each in rest:
        first = first + each
    return first


def places_best(
    k: Any, metas: tuple[TensorMeta, TensorMeta], over: Ints, parts: Term, *, whole: bool
) -> Any:
    """The largest value of each window and its place, of (value, place); the first of equal ones,
    the last of nans. `whole`: no window has places beside the image.
    """
    if not 0 < sizes.numel(over) <= FEW:
        return k.reduce(
            "pool_max",
            metas,
            over,
            parts,
            finish=lambda value, place: (k.cast(value, metas[0].dtype), place),
        )
    outs = tuple([k.new(meta) for meta in metas])

    def element(*i: Any) -> tuple[Any, Any]:
        value, place = _best(k, [parts(i, at) for at in product(*map(range, over))], whole)
        return k.cast(value, metas[0].dtype), place

    k.stores(outs, element)
    return outs


def _best(k: Any, candidates: list[tuple[Any, Any]], whole: bool) -> tuple[Any, Any]:
    (value, place), *rest = candidates
    for other, its in rest:
        wins = k.make("gt", other, value)
        if not whole:  # what is beside the image is the least, and comes after its equals
            wins = wins | (k.make("eq", other, value) & (its < place))
        if other.dtype.is_floating_point:
            wins = wins | k.make("ne", other, other)
        value, place = k.where(wins, other, value), k.where(wins, its, place)
    return value, place
