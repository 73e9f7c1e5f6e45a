"""Views of a 2:4 sparse tensor, as views of its values and of its metadata.

They must keep groups of four whole, and along one dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir.geometry import sizes

GROUP = 4
"""The size of a group, of which two numbers are kept."""
Ints = tuple[int, ...]
Parts = tuple[Any, Any, int] | None
"""(arguments of the view of the values, those of the metadata's, the new dimension of groups)."""


_VIEWS: dict[str, Callable[..., Parts]] = {}


def _of(*ops: str) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Enters the decorated function for these view ops."""

    def enter(function: Callable[..., Parts]) -> Callable[..., Parts]:
        _VIEWS.update(dict.fromkeys(ops, function))
        return function

    return enter


@_of("alias", "detach")
def _same(x: Any, rest: object, shape: Ints) -> Parts:
    return rest, rest, x.sparse_dim


def _turned(order: Callable[..., Sequence[int]]) -> Any:
    def parts(x: Any, rest: Any, shape: Ints) -> Parts:
        dims = [d % x.dim() for d in order(x.dim(), *rest)]
        return rest, rest, dims.index(x.sparse_dim)

    return parts


def _swapped(ndim: int, first: int, second: int) -> list[int]:
    order = list(range(ndim))
    order[first], order[second] = order[second], order[first]
    return order


_of("t")(_turned(lambda ndim: range(ndim)[::-1]))
_of("transpose")(_turned(_swapped))
_of("permute")(_turned(lambda ndim, dims: dims))


@_of("unsqueeze")
def _unsqueezed(x: Any, rest: Any, shape: Ints) -> Parts:
    dim = rest[0] % (x.dim() + 1)
    return rest, rest, x.sparse_dim + (dim <= x.sparse_dim)


@_of("squeeze")
def _squeezed(x: Any, rest: Any, shape: Ints) -> Parts:
    asked = range(x.dim()) if rest[0] is None else [d % x.dim() for d in rest[0]]
    gone = tuple([d for d in asked if x.shape[d] == 1])
    return (gone,), (gone,), x.sparse_dim - sum(d < x.sparse_dim for d in gone)


@_of("select")
def _selected(x: Any, rest: Any, shape: Ints) -> Parts:
    dim = rest[0] % x.dim()
    return None if dim == x.sparse_dim else (rest, rest, x.sparse_dim - (dim < x.sparse_dim))


@_of("slice")
def _sliced(x: Any, rest: Any, shape: Ints) -> Parts:
    dim, start, end, step = rest
    if dim % x.dim() != x.sparse_dim:
        return rest, rest, x.sparse_dim
    first, last = sizes.slice_bounds(start, end, x.shape[dim])
    if first % GROUP or last % GROUP or step != 1:
        return None
    return (dim, first // 2, last // 2), (dim, first // GROUP, last // GROUP), x.sparse_dim


@_of("expand")
def _expanded(x: Any, rest: object, shape: Ints) -> Parts:
    dim = x.sparse_dim + len(shape) - x.dim()
    size = (*shape[:dim], -1, *shape[dim + 1 :])
    return (size,), (size,), dim


@_of("view")
def _reshaped(x: Any, rest: object, shape: Ints) -> Parts:
    if x.sparse_dim != x.dim() - 1 or not shape or shape[-1] % GROUP:
        return None
    rows, last = shape[:-1], shape[-1]
    return ((*rows, last // 2),), ((*rows, last // GROUP),), len(shape) - 1


def parts_seen(name: str, x: object, rest: tuple[object, ...], shape: Ints) -> Parts:
    """The views of both parts for a view of this shape; None if there are none."""
    found = _VIEWS.get(name)
    return None if found is None else found(x, rest, shape)
