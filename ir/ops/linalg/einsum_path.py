"""The order in which `einsum` multiplies more than two operands: by cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

from aotlite.ir.geometry import sizes

Shape: TypeAlias = tuple[int, ...]
Path: TypeAlias = list[tuple[int, int]]

SEARCHED = 5
"""Up to so many operands (180 orders) all orders are tried; more are taken cheapest pair first."""


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
    best, least = left_to_right, _cost(operands, left_to_right, kept)
    if count > 2:
        paths = _all_paths(count) if count <= SEARCHED else [_greedy(operands, kept)]
        for path in paths:
            cost = _cost(operands, path, kept)
            if cost < least:
                best, least = path, cost
    return best


def _all_paths(count: int) -> list[Path]:
    if count == 1:
        return [[]]
    rest = _all_paths(count - 1)
    return [[pair, *path] for pair in combinations(range(count), 2) for path in rest]


def _greedy(operands: list[Shape], kept: int) -> Path:
    path: Path = []
    while len(operands) > 1:
        pairs = combinations(range(len(operands)), 2)
        found = min(pairs, key=lambda pair: _multiplied(operands, pair, kept)[0])
        path.append(found)
        operands = _multiplied(operands, found, kept)[1]
    return path


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
