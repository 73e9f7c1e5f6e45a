"""The order in which `einsum` multiplies more than two operands: by cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from aotlite.ir.deferred import deferred
from aotlite.ir.geometry import sizes

Shape: TypeAlias = tuple[int, ...]
Path: TypeAlias = list[tuple[int, int]]

if TYPE_CHECKING:
    from opt_einsum import paths as searches
else:  # imported at the first product of three: it takes 0.1 s
    searches = deferred("opt_einsum.paths")

SEARCHED = 5
"""Up to so many operands the best of all orders is taken; of more, one that is found greedily."""


def contraction_path(shapes: Sequence[Shape], kept: int) -> Path:
    """Pairs of positions to multiply; the rest then moves up, and the product stands last.

    Shapes are of one rank; dimensions from `kept` on are summed over as soon as nothing else has
    them. From left to right, as it is written, unless another order costs less.

    >>> contraction_path([(9, 9, 1), (1, 9, 9), (1, 1, 9)], 1)
    [(1, 2), (0, 1)]
    """
    operands = list(shapes)
    count = len(shapes)
    left_to_right = [(0, 1)] + [(0, k) for k in range(count - 2, 0, -1)] if count > 1 else []
    if count > 2:
        least = _cost(operands, left_to_right, kept)
        named = [frozenset([d for d, size in enumerate(shape) if size != 1]) for shape in shapes]
        sizes_of = {d: shape[d] for shape, names in zip(shapes, named, strict=True) for d in names}
        search: Callable[..., Path] = searches.optimal if count <= SEARCHED else searches.greedy
        path = [(min(pair), max(pair)) for pair in search(named, frozenset(range(kept)), sizes_of)]
        if _cost(operands, path, kept) < least:
            return path
    return left_to_right


def _cost(operands: list[Shape], path: Path, kept: int) -> int:
    total = 0
    for pair in path:
        cost, operands = _multiplied(operands, pair, kept)
        total += cost
    return total


def _multiplied(operands: list[Shape], pair: tuple[int, int], kept: int) -> tuple[int, list[Shape]]:
    """The multiplications and additions that a pair takes, and the operands after it."""
    a, b = operands[pair[0]], operands[pair[1]]
    rest = [shape for k, shape in enumerate(operands) if k not in pair]
    joined = sizes.broadcast_shapes(a, b)
    left = [
        size if d < kept or any(s[d] != 1 for s in rest) else 1 for d, size in enumerate(joined)
    ]
    summed = any(m != n for m, n in zip(joined, left, strict=True))
    return sizes.numel(joined) * (2 if summed else 1), [*rest, tuple(left)]
