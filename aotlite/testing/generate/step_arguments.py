"""Random arguments of views and writes that fit a tensor's shape, strides and dtype.

A function of `VIEW_ARGS` returns the further arguments of a view op, or None if the op is not
possible. Values are live tensors, whose geometry alone is read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.generate.choices import Source
from aotlite.testing.programs.vocabulary import GEOMETRY

Args = list[Any] | None
Arguments = Callable[[Source, EngineTensor], Args]
VIEW_ARGS: dict[str, Arguments] = {}


def _of(*ops: str) -> Callable[[Arguments], Arguments]:
    """Enters the decorated function for these ops into `VIEW_ARGS`."""

    def enter(function: Arguments) -> Arguments:
        VIEW_ARGS.update(dict.fromkeys(ops, function))
        return function

    return enter


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


@_of("view", "reshape")
def _view(rng: Source, x: EngineTensor) -> Args:
    return [_factors(rng, x.numel())]


@_of("t")
def _t(rng: Source, x: EngineTensor) -> Args:
    del rng
    return [] if x.dim() <= 2 else None


@_of("transpose", "movedim")
def _dims(rng: Source, x: EngineTensor) -> Args:
    return [rng.randrange(-x.dim(), x.dim()), rng.randrange(x.dim())] if x.dim() else None


@_of("permute")
def _permute(rng: Source, x: EngineTensor) -> Args:
    return [rng.sample(range(x.dim()), x.dim())]


@_of("expand")
def _expand(rng: Source, x: EngineTensor) -> Args:
    shape = [rng.randint(2, 3) if size == 1 else size for size in x.shape]
    if rng.chance(0.3) and len(shape) < 3:
        shape = [2, *shape]
    return [shape]


def _dim(rng: Source, x: EngineTensor) -> int | None:
    """A random dimension that is not empty."""
    found = [dim for dim, size in enumerate(x.shape) if size]
    return rng.choice(found) if found else None


@_of("select")
def _select(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    size = x.shape[dim]
    return [dim - x.dim() * rng.chance(0.3), rng.randrange(-size, size)]


@_of("narrow")
def _narrow(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    start = rng.randrange(x.shape[dim])
    return [dim, start, rng.randint(int(not rng.chance(0.1)), x.shape[dim] - start)]


@_of("slice")
def _getitem(rng: Source, x: EngineTensor) -> Args:
    if not x.dim():
        return None
    choices = ["1:", ":-1", ":", "0:1", "::2", ":2"]
    items: list[Any] = [rng.choice(choices) for _ in range(rng.randint(1, x.dim()))]
    if rng.chance(0.2):
        items.insert(rng.randrange(len(items) + 1), "none")
    if rng.chance(0.2) and len(items) < x.dim():
        items.insert(0, "...")
    return [items]


@_of("squeeze")
def _squeeze(rng: Source, x: EngineTensor) -> Args:
    return [] if not x.dim() or not rng.chance(0.6) else [rng.randrange(x.dim())]


@_of("unsqueeze")
def _unsqueeze(rng: Source, x: EngineTensor) -> Args:
    return [rng.randint(-x.dim() - 1, x.dim())] if x.dim() < 4 else None


@_of("diagonal")
def _diagonal(rng: Source, x: EngineTensor) -> Args:
    if x.dim() < 2:
        return None
    first, second = rng.sample(range(x.dim()), 2)
    return [rng.choice([0, 0, 0, 1, -1]), first, second]


@_of("unfold")
def _unfold(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    return [dim, rng.randint(1, min(2, x.shape[dim])), rng.randint(1, 2)]


@_of("unflatten")
def _unflatten(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    shape = _factors(rng, x.shape[dim])
    return [dim, shape] if shape else None


@_of("flatten")
def _flatten(rng: Source, x: EngineTensor) -> Args:
    return [] if x.dim() < 2 or not rng.chance(0.4) else [rng.randrange(x.dim())]


@_of("as_strided")
def window(rng: Source, x: EngineTensor) -> Args:
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


@_of("alias", "detach", "hidden_alias")
def _nothing(rng: Source, x: EngineTensor) -> Args:
    del rng, x
    return []


def name_of(dtype: object) -> str:
    """The name of a tensor's dtype in programs."""
    return str(dtype).rpartition(".")[2].rstrip("_")


@_of("view_dtype")
def _view_dtype(rng: Source, x: EngineTensor) -> Args:
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


@_of("view_as_real", "real", "imag")
def _of_complex(rng: Source, x: EngineTensor) -> Args:
    del rng
    return [] if "complex" in str(x.dtype) else None


@_of("view_as_complex")
def _view_as_complex(rng: Source, x: EngineTensor) -> Args:
    del rng
    fits = name_of(x.dtype) == "float64" and x.dim() and x.shape[-1] == 2 and x.stride()[-1] == 1
    return [] if fits else None


@_of("split")
def _split(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    return None if dim is None else [rng.randint(1, max(1, x.shape[dim] - 1)), dim]


@_of("split_with_sizes")
def _split_with_sizes(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    if dim is None:
        return None
    first = rng.randint(0, x.shape[dim])
    return [[first, x.shape[dim] - first], dim]


@_of("chunk", "tensor_split")
def _parts(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    return None if dim is None else [rng.randint(1, 2), dim]


@_of("unbind")
def _unbind(rng: Source, x: EngineTensor) -> Args:
    dim = _dim(rng, x)
    del rng
    return None if dim is None else [dim]


# -------------------------------------------------------------------------------- the geometry ops
GEOMETRY_ARGS = {op: VIEW_ARGS[op.removesuffix("_")] for op in GEOMETRY}


def other_size(rng: Source, x: EngineTensor) -> list[int]:
    """A size for `resize_`: mostly one that fits the tensor's memory."""
    count = max(prod(x.shape), 0)
    choices = [list(x.shape), [count], [max(count - 1, 0)], [1, count], list(x.shape), [count + 2]]
    return rng.choice(choices)
