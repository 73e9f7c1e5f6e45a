"""The loops of images in another size, and of their gradients.

Which pixels each place reads, and their shares, are constants that loops read from tables. Told to
the writer of `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aotlite.ir.meta import TensorMeta

Taps = list[tuple[Any, Any]]
"""(positions, shares or None) along an axis, as arrays."""


def upsampled(k: Any, meta: TensorMeta, a: Any, taps: Sequence[Taps]) -> Any:
    """Each place as the sum of what it reads. `taps` are those of rows and of columns."""
    times = [_whole_times(each, n) for each, n in zip(taps, a.shape[2:], strict=True)]
    if all(times):  # each pixel becomes a block: no position is computed
        out = k.new(meta)
        shape, stride = _blocks(meta, a.shape, times)
        k.store(out.view(shape, stride), lambda n, c, i, _, j, __: a[n, c, i, j])
        return out
    rows, columns = ([_tables(k, tap) for tap in each] for each in taps)

    def element(n: Any, c: Any, y: Any, x: Any) -> Any:
        def across(row: Any) -> Any:
            return _total(columns, x, lambda column: k.wide(a[n, c, row, column]))

        return k.cast(_total(rows, y, across), meta.dtype)

    return k.map(meta, element)


def upsampled_backward(k: Any, meta: TensorMeta, grad: Any, taps: Sequence[Taps]) -> Any:
    """Each pixel as the sum of the places that read it."""
    times = [_whole_times(each, n) for each, n in zip(taps, meta.shape[2:], strict=True)]
    if all(times):
        blocks = grad.view(*_blocks(grad.meta, meta.shape, times))

        def of_block(i: Any, inner: Any) -> Any:
            return k.wide(blocks[i[0], i[1], i[2], inner[0], i[3], inner[1]])

        return k.reduce("sum", meta, times, of_block)
    rows, columns = (_readers(k, each, n) for each, n in zip(taps, meta.shape[2:], strict=True))

    def share(i: Any, inner: Any) -> Any:
        (n, c, y, x), (r, s) = i, inner
        valid = rows.counts[y] > k.position(r), columns.counts[x] > k.position(s)
        value = k.wide(grad[n, c, rows.places[y, r], columns.places[x, s]])
        for table, at in ((rows.shares, (y, r)), (columns.shares, (x, s))):
            value = value if table is None else value * table[at]
        return k.where(k.all(*valid), value, 0)

    return k.reduce("sum", meta, (rows.most, columns.most), share)


# --------------------------------------------------------------------------------------- tables
def _whole_times(taps: Taps, size: int) -> int:
    """How often each pixel comes, one after the other; 0 if that differs."""
    if len(taps) > 1 or taps[0][1] is not None:
        return 0
    places = taps[0][0].tolist()
    times = len(places) // size
    return times if times and places == [x // times for x in range(size * times)] else 0


def _blocks(
    meta: TensorMeta, small: tuple[int, ...], times: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides) of a large image whose places are in a block for each pixel of the small."""
    (h, w), (y, x) = small[2:], meta.stride[2:]
    shape = (*meta.shape[:2], h, times[0], w, times[1])
    return shape, (*meta.stride[:2], times[0] * y, y, times[1] * x, x)


def _tables(k: Any, tap: tuple[Any, Any]) -> tuple[Any, Any]:
    places, shares = tap
    return k.table(places), None if shares is None else k.table(shares)


def _total(taps: list[tuple[Any, Any]], x: Any, element: Callable[[Any], Any]) -> Any:
    total: Any = None
    for places, shares in taps:
        part = element(places[x])
        part = part if shares is None else part * shares[x]
        total = part if total is None else total + part
    return total


class _Readers(NamedTuple):
    """Which places read each pixel, with which shares: tables as wide as the longest list."""

    most: int
    counts: Any
    places: Any
    shares: Any


def _readers(k: Any, taps: Taps, size: int) -> _Readers:
    found: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for places, shares in taps:
        for x, place in enumerate(places.tolist()):
            found[place].append((x, 1.0 if shares is None else shares.tolist()[x]))
    most = max(map(len, found))
    padded = [[*each, *[(0, 0.0)] * (most - len(each))] for each in found]
    counts = k.table([len(each) for each in found])
    at = k.table([[x for x, _ in each] for each in padded])
    if taps[0][1] is None:
        return _Readers(most, counts, at, None)
    kind = taps[0][1].dtype.type
    return _Readers(
        most, counts, at, k.table(kind([[share for _, share in each] for each in padded]))
    )
