"""Views of placed tensors: which are views of each rank's part (SHD-6).

A view is that of the parts where, of a dense tensor, what it shows of part r is part r of what it
shows of the whole: the same elements at the same distances. The view's own meta rule says so.
Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED

Rest = tuple[Any, ...]


def view_of_shards(
    op: ViewOp, meta: TensorMeta, rest: Rest, dim: int, ranks: int
) -> tuple[int, Rest] | None:
    """The dimension along which the result is cut, and the view's arguments for a part; or None.

    `meta` is of the whole, which is cut along `dim`; `rest` are the arguments behind the first.
    """
    if op is AS_STRIDED:
        return None  # it speaks of memory, and parts lie apart
    whole = meta.as_contiguous()
    part = tensor_meta(_divided(whole.shape, dim, ranks), whole.stride, whole.dtype, whole.device)
    seen = _seen(op, whole, rest)
    if seen is None:
        return None
    step = part.shape[dim] * whole.stride[dim] * whole.dtype.itemsize
    for place, args in _candidates(op, seen[0], rest, ranks):
        found = _seen(op, part, args)
        if found is not None and _is_part(seen, found, place, ranks, step):
            return place, args
    return None


def _candidates(op: ViewOp, out: TensorMeta, rest: Rest, ranks: int) -> Iterator[tuple[int, Rest]]:
    """Dimensions of the result, each with the arguments as they are, and with a smaller size."""
    for place, size in enumerate(out.shape):
        if size % ranks == 0:
            yield place, rest
            for k, value in enumerate(rest):
                if type(value) is tuple and len(value) == len(out.shape) and value[place] == size:
                    yield place, (*rest[:k], _divided(value, place, ranks), *rest[k + 1 :])


def _is_part(
    seen: tuple[TensorMeta, int],
    found: tuple[TensorMeta, int],
    place: int,
    ranks: int,
    step: int,
) -> bool:
    """Whether what is found of a part is the part of what is seen of the whole, at each rank.

    `step` are the bytes from a part's first element to the next part's.
    """
    (out, start), (own, own_start) = seen, found
    if own.shape != _divided(out.shape, place, ranks) or own_start != start:
        return False
    steps = zip(own.shape, own.stride, out.stride, strict=True)
    if any(n > 1 and a != b for n, a, b in steps):
        return False
    between: int = own.shape[place] * out.stride[place] * out.dtype.itemsize
    return step == between


def _seen(op: ViewOp, meta: TensorMeta, rest: Rest) -> tuple[TensorMeta, int] | None:
    try:
        found: tuple[TensorMeta, int] = op.rule(meta, *rest)
    except AotliteError:
        return None
    return found


def _divided(shape: tuple[Any, ...], dim: int, ranks: int) -> tuple[Any, ...]:
    return (*shape[:dim], shape[dim] // ranks, *shape[dim + 1 :])
