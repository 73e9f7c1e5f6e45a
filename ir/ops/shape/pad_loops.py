"""The loops of paddings with a tensor's own elements, and of their gradients.

Along a dimension, places of the padded tensor come in runs, each of which reads a run of the
operand: forwards, backwards, or one element again and again. Told to the writer of
`specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.precision import accumulator

Sides = Callable[[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]]


class Run(NamedTuple):
    """Places first <= x < end of the padded dimension, which read slope * x + shift."""

    first: int
    end: int
    slope: int
    shift: int


def runs_of(name: str, size: int, pair: tuple[int, int]) -> list[Run]:
    """The runs of one dimension, in order. None is empty."""
    before, length = pair[0], size + sum(pair)
    if name == "circular_pad":
        first = max(-before, 0)
        period = size + min(pair[1], 0) - first
        origin = before + first
        turns = range(-origin // period, (length - 1 - origin) // period + 1)
        ends = [origin + turn * period for turn in turns]
        found = [Run(end, end + period, 1, first - end) for end in ends]
    elif name == "replication_pad":
        found = [
            Run(0, before, 0, 0),
            Run(before, before + size, 1, -before),
            Run(before + size, length, 0, size - 1),
        ]
    else:
        found = [
            Run(0, before, -1, before),
            Run(before, before + size, 1, -before),
            Run(before + size, length, -1, before + 2 * (size - 1)),
        ]
    cut = [run._replace(first=max(run.first, 0), end=min(run.end, length)) for run in found]
    return [run for run in cut if run.first < run.end]


def padded_loops(name: str, sides_of: Sides) -> Callable[..., Any]:
    """The loops of a padding: each run of places is a branch."""

    def loops(k: Any, meta: TensorMeta, a: Any, padding: tuple[int, ...]) -> Any:
        sides = sides_of(a.shape, padding)
        if 0 in meta.shape:
            return k.new(meta)
        runs = [runs_of(name, n, pair) for n, pair in zip(a.shape, sides, strict=True)]
        return k.map(meta, lambda *i: _chosen(k, a, i, (), runs))

    return loops


def _chosen(k: Any, a: Any, i: Any, found: tuple[Any, ...], runs: list[list[Run]]) -> Any:
    """The element for the positions that are `found`, and those of the other dimensions."""
    if len(found) == len(runs):
        return a[found]
    value, x = None, i[len(found)]
    for run in reversed(runs[len(found)]):
        here = _chosen(k, a, i, (*found, x * run.slope + run.shift), runs)
        value = here if value is None else k.where(x < run.end, here, value)
    return value


_UNROLLED = 16
"""So many places may read one element."""


def padding_backward_loops(name: str, sides_of: Sides) -> Callable[..., Any]:
    """The loops of the gradient: each element sums the places that read it, in their order."""

    def loops(k: Any, meta: TensorMeta, grad: Any, size: Any, padding: tuple[int, ...]) -> Any:
        if 0 in grad.shape:
            return k.map(meta, lambda *i: 0)
        sides = sides_of(tuple(size), padding)
        runs = [_single(runs_of(name, n, pair)) for n, pair in zip(size, sides, strict=True)]
        if any(len(each) > _UNROLLED for each in runs):
            return None
        zero = k.number(0, accumulator(meta.dtype))

        def total(i: Any, found: tuple[Any, ...]) -> Any:
            """The sum over the dimensions that are left, the last one outermost."""
            dim = meta.ndim - 1 - len(found)
            if dim < 0:
                return k.wide(grad[found])
            value = None
            for run in runs[dim]:
                place, condition = _reader(k, run, i[dim])
                part = k.where(condition, total(i, (place, *found)), zero)
                value = part if value is None else value + part
            return value

        return k.map(meta, lambda *i: k.cast(total(i, ()), meta.dtype))

    return loops


def _single(runs: list[Run]) -> list[Run]:
    """The runs, with those that read one element taken apart."""
    found = []
    for run in runs:
        if run.slope:
            found.append(run)
        else:
            found += [Run(x, x + 1, 0, run.shift) for x in range(run.first, run.end)]
    return found


def _reader(k: Any, run: Run, y: Any) -> tuple[Any, Any]:
    """The place of the run that reads element y, and whether there is one."""
    if not run.slope:
        return run.first, y.equals(run.shift)
    place = (y - run.shift) * run.slope
    return place, k.inside(place, run.first, run.end)
