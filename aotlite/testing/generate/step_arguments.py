"""Random arguments of views and writes that fit a tensor's shape, strides and dtype.

A function of `VIEW_ARGS` returns the further arguments of a view op, or None if the op is not
possible. Values are live tensors, whose geometry alone is read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from aotlite.testing.generate.choices import Source

Args = list[Any] | None


def _factors(rng: Source, count: int) -> list[int]:
    """A random shape of `count` elements."""
    shapes = [[count], [-1], [1, count], [count, 1]]
    for size in (2, 3, 4):
        if count and count % size == 0:
            shapes += [[size, count // size], [count // size, size], [-1, size]]
    if count == 1:
        shapes += [[], [1, 1]]
    if count == 8:
        shapes += [[2, 2, 2]]
    return rng.choice(shapes)


def _view(rng: Source, x: Any) -> Args:
    return [_factors(rng, x.numel())]


def _t(rng: Source, x: Any) -> Args:
    del rng
    return [] if x.dim() <= 2 else None


def _dims(rng: Source, x: Any) -> Args:
    return [rng.randrange(-x.dim(), x.dim()), rng.randrange(x.dim())] if x.dim() else None


def _permute(rng: Source, x: Any) -> Args:
    return [rng.sample(range(x.dim()), x.dim())]


def _expand(rng: Source, x: Any) -> Args:
    shape = [rng.randint(2, 3) if size == 1 else size for size in x.shape]
    if rng.chance(0.3) and len(shape) < 3:
        shape = [2, *shape]
    return [shape]


def _dim(rng: Source, x: Any) -> int | None:
    """A random dimension that is not empty."""
    found = [dim for dim, size in enumerate(x.shape) if size]
    return rng.choice(found) if found else None


def _select(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    size = x.shape[dim]
    return [dim - x.dim() * rng.chance(0.3), rng.randrange(-size, size)]


def _narrow(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    start = rng.randrange(x.shape[dim])
    return [dim, start, rng.randint(int(not rng.chance(0.1)), x.shape[dim] - start)]


def _getitem(rng: Source, x: Any) -> Args:
    if not x.dim():
        return None
    choices = ["1:", ":-1", ":", "0:1", "::2", ":2"]
    items: list[Any] = [rng.choice(choices) for _ in range(rng.randint(1, x.dim()))]
    if rng.chance(0.2):
        items.insert(rng.randrange(len(items) + 1), "none")
    if rng.chance(0.2) and len(items) < x.dim():
        items.insert(0, "...")
    return [items]


def _squeeze(rng: Source, x: Any) -> Args:
    return [] if not x.dim() or not rng.chance(0.6) else [rng.randrange(x.dim())]


def _unsqueeze(rng: Source, x: Any) -> Args:
    return [rng.randint(-x.dim() - 1, x.dim())] if x.dim() < 4 else None


def _diagonal(rng: Source, x: Any) -> Args:
    if x.dim() < 2:
        return None
    first, second = rng.sample(range(x.dim()), 2)
    return [rng.choice([0, 0, 0, 1, -1]), first, second]


def _unfold(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    return [dim, rng.randint(1, min(2, x.shape[dim])), rng.randint(1, 2)]


def _unflatten(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    shape = _factors(rng, x.shape[dim])
    return [dim, shape] if shape else None


def _flatten(rng: Source, x: Any) -> Args:
    return [] if x.dim() < 2 or not rng.chance(0.4) else [rng.randrange(x.dim())]


def window(rng: Source, x: Any) -> Args:
    """Returns sizes and strides for `as_strided` that stay within the tensor's span."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    if not x.numel():
        return [list(x.shape), list(x.stride())]
    size, stride = [], []
    for _ in range(rng.randint(0, 2)):
        step = rng.randint(1, 3)
        most = min(3, 1 + (span - 1) // step)
        size.append(rng.randint(1, most))
        stride.append(step)
        span -= (size[-1] - 1) * step
    if rng.chance(0.3):
        size, stride = size[::-1], stride[::-1]
    return [size, stride]


def _nothing(rng: Source, x: Any) -> Args:
    del rng, x
    return []


def name_of(dtype: Any) -> str:
    """The name of a tensor's dtype in programs."""
    return str(dtype).rpartition(".")[2].rstrip("_")


def _view_dtype(rng: Source, x: Any) -> Args:
    wider = bool(x.dim()) and x.shape[-1] % 2 == 0 and x.stride()[-1] == 1
    fits = {
        "float64": ["int64", "float64", "complex128" if wider else "int64"],
        "int64": ["float64"],
        "complex128": ["float64", "complex128"],
        "float32": ["float64" if wider else "float32"],
    }
    if x.dim() and x.stride()[-1] == 1:
        fits["float64"].append("float32")
    elif name_of(x.dtype) == "complex128":
        return ["complex128"]
    return [rng.choice(fits[name_of(x.dtype)])] if name_of(x.dtype) in fits else None


def _of_complex(rng: Source, x: Any) -> Args:
    del rng
    return [] if "complex" in str(x.dtype) else None


def _view_as_complex(rng: Source, x: Any) -> Args:
    del rng
    fits = name_of(x.dtype) == "float64" and x.dim() and x.shape[-1] == 2 and x.stride()[-1] == 1
    return [] if fits else None


def _split(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    return None if dim is None else [rng.randint(1, max(1, x.shape[dim] - 1)), dim]


def _split_with_sizes(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    first = rng.randint(0, x.shape[dim])
    return [[first, x.shape[dim] - first], dim]


def _parts(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    return None if dim is None else [rng.randint(1, 2), dim]


def _unbind(rng: Source, x: Any) -> Args:
    dim = _dim(rng, x)
    del rng
    return None if dim is None else [dim]


VIEW_ARGS: dict[str, Callable[[Source, Any], Args]] = {
    "view": _view, "reshape": _view, "t": _t, "transpose": _dims, "permute": _permute,
    "movedim": _dims, "expand": _expand, "select": _select, "narrow": _narrow, "slice": _getitem,
    "squeeze": _squeeze, "unsqueeze": _unsqueeze, "diagonal": _diagonal, "unfold": _unfold,
    "unflatten": _unflatten, "flatten": _flatten, "as_strided": window, "alias": _nothing,
    "detach": _nothing, "view_dtype": _view_dtype, "view_as_real": _of_complex,
    "real": _of_complex, "imag": _of_complex, "view_as_complex": _view_as_complex,
    "split": _split, "split_with_sizes": _split_with_sizes, "chunk": _parts,
    "tensor_split": _parts, "unbind": _unbind, "hidden_alias": _nothing,
}  # fmt: skip


# -------------------------------------------------------------------------------- the geometry ops
def _unsqueeze_(rng: Source, x: Any) -> Args:
    return _unsqueeze(rng, x)


GEOMETRY_ARGS: dict[str, Callable[[Source, Any], Args]] = {
    "t_": _t, "transpose_": _dims, "squeeze_": _squeeze, "unsqueeze_": _unsqueeze_,
    "as_strided_": window,
}  # fmt: skip


def other_size(rng: Source, x: Any) -> list[int]:
    """A size for `resize_`: mostly one that fits the tensor's memory."""
    count = max(prod(x.shape), 0)
    choices = [list(x.shape), [count], [max(count - 1, 0)], [1, count], list(x.shape), [count + 2]]
    return rng.choice(choices)
