"""Primitives of JAX that move elements, reduce them, or put them in order.

Spec: `specs/jaxpr.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.interchange.jaxpr.pointwise import Lowering, Parameters
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import from_numpy, int32, int64
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import OPS


def arange(known: Any, count: int, dtype: Any = int64) -> Any:
    """The numbers below `count`, on the device of a known value."""
    return known._apply(OPS["arange_of"], (count, 0, 1, dtype, known.meta.device))


def _broadcast_in_dim(params: Parameters, x: Any) -> Any:
    shape, dims = params["shape"], params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for size, dim in zip(x.meta.shape, dims, strict=True):
        sizes[dim] = size
    return x.reshape(tuple(sizes))._do("expand", tuple(shape))


def _reshape(params: Parameters, x: Any) -> Any:
    if params["dimensions"] is not None:
        x = x._do("permute", tuple(params["dimensions"]))
    return x.reshape(tuple(params["new_sizes"]))


def _slice(params: Parameters, x: Any) -> Any:
    strides = params["strides"] or [1] * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    for dim, (start, end, step) in enumerate(bounds):
        if (start, end, step) != (0, x.meta.shape[dim], 1):
            x = x._do("slice", dim, start, end, step)
    return x


def pad(x: Any, value: Any, config: Any) -> Any:
    """`x` with (before, after, between) places of `value` along each dimension; negative numbers
    before and after cut."""
    for dim, (low, high, between) in enumerate(config):
        if (low, high, between) == (0, 0, 0):
            continue
        size, step = x.meta.shape[dim], between + 1
        inner = (size - 1) * step + 1 if size else 0
        before, after = max(low, 0), max(high, 0)
        shape = (*x.meta.shape[:dim], inner + before + after, *x.meta.shape[dim + 1 :])
        room = value.reshape(())._do("expand", shape).contiguous()
        x = room._do("slice_scatter", x, dim, before, before + inner, step) if size else room
        x = x._do("slice", dim, max(-low, 0), shape[dim] - max(-high, 0), 1)
    return x


def _reduced(name: str) -> Lowering:
    def lowering(params: Parameters, x: Any) -> Any:
        axes = tuple(params["axes"])
        return x._do(name, axes) if axes else x

    return lowering


def _sum(params: Parameters, x: Any) -> Any:
    axes = tuple(params["axes"])
    return x._do("sum", axes, False, dtype=x.meta.dtype) if axes else x


def _prod(params: Parameters, x: Any) -> Any:
    for axis in sorted(params["axes"], reverse=True):
        x = x._do("prod", axis, False, dtype=x.meta.dtype)
    return x


def _of_bools(name: str) -> Lowering:
    def lowering(params: Parameters, x: Any) -> Any:
        if x.meta.dtype.kind != 0:
            return NotImplemented
        axes = tuple(params["axes"])
        return x._do(name, axes) if axes else x

    return lowering


def _place(name: str) -> Lowering:
    def lowering(params: Parameters, x: Any) -> Any:
        (axis,) = params["axes"]
        return x._do(name, axis)._do("cast", from_numpy(params["index_dtype"]))

    return lowering


def _scanned(name: str) -> Lowering:
    def lowering(params: Parameters, x: Any) -> Any:
        axis = params["axis"]
        x = x._do("flip", (axis,)) if params["reverse"] else x
        if name in ("cumsum", "cumprod"):
            made = x._do(name, axis, dtype=x.meta.dtype)
        else:
            made = x._do(name, axis)
        made = made[0] if isinstance(made, tuple) else made
        return made._do("flip", (axis,)) if params["reverse"] else made

    return lowering


def _sort(params: Parameters, *operands: Any) -> Any:
    axis, first = params["dimension"], operands[0]
    if params["num_keys"] != 1:
        return NotImplemented
    values, places = first._do("sort", axis, False, stable=True)
    return (values, *[x._do("gather", axis, places) for x in operands[1:]])


def _top_k(params: Parameters, x: Any) -> Any:
    axis, k = params.get("axis", -1), params["k"]
    axis = axis % len(x.meta.shape)
    found = x._do("sort", axis, True, stable=True)
    values, places = [each._do("slice", axis, 0, k, 1) for each in found]
    return values, places._do("cast", int32)


def _split(params: Parameters, x: Any) -> Any:
    return tuple(x._do("split_with_sizes", tuple(params["sizes"]), params["axis"]))


def _window(name: str) -> Lowering:
    """A reduction over windows: of views that have the places of a window as last dimensions."""

    def lowering(params: Parameters, x: Any) -> Any:
        if any(step != 1 for step in params["window_dilation"]):
            return NotImplemented
        rank = len(x.meta.shape)
        between = [step - 1 for step in params["base_dilation"]]
        config = [(*pair, n) for pair, n in zip(params["padding"], between, strict=True)]
        x = pad(x, x._filled((), _NEUTRAL[name](x.meta.dtype), x.meta.dtype, x.meta.device), config)
        windows = zip(params["window_dimensions"], params["window_strides"], strict=True)
        for dim, (size, step) in enumerate(windows):
            x = x._do("unfold", dim, size, step)
        dims = tuple(range(rank, 2 * rank))
        return x._do("sum", dims, False, dtype=x.meta.dtype) if name == "sum" else x._do(name, dims)

    return lowering


def _lowest(dtype: Any) -> Any:
    if dtype.kind == 2:
        return float("-inf")
    return False if dtype.kind == 0 else _limits(dtype).min


def _highest(dtype: Any) -> Any:
    if dtype.kind == 2:
        return float("inf")
    return True if dtype.kind == 0 else _limits(dtype).max


def _limits(dtype: Any) -> Any:
    return np.iinfo(dtype.numpy)


_NEUTRAL = {"sum": lambda dtype: 0, "amax": _lowest, "amin": _highest}


def _iota(params: Parameters, builder: Builder) -> Any:
    shape, dim = params["shape"], params["dimension"]
    sizes = tuple([size if d == dim else 1 for d, size in enumerate(shape)])
    dtype = from_numpy(params["dtype"])
    numbers = builder.call(OPS["arange_of"], (shape[dim], 0, 1, int64, CPU))
    numbers = numbers if dtype is int64 else numbers._do("cast", dtype)
    return numbers.reshape(sizes)._do("expand", tuple(shape))


GEOMETRY: dict[str, Lowering] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "tile": lambda params, x: x._do("repeat", tuple(params["reps"])),
    "stack": lambda params, *xs: xs[0]._apply(OPS["stack"], (tuple(xs), params["axis"])),
    "unstack": lambda params, x: tuple(x._do("unbind", params["axis"])),
    "transpose": lambda params, x: x._do("permute", tuple(params["permutation"])),
    "squeeze": lambda params, x: x._do("squeeze", tuple(params["dimensions"])),
    "expand_dims": lambda params, x: _unsqueezed(x, params["dimensions"]),
    "rev": lambda params, x: x._do("flip", tuple(params["dimensions"])),
    "concatenate": lambda params, *xs: xs[0]._apply(OPS["cat"], (tuple(xs), params["dimension"])),
    "slice": _slice,
    "pad": lambda params, x, value: pad(x, value, params["padding_config"]),
    "split": _split,
    "reduce_sum": _sum,
    "reduce_max": _reduced("amax"),
    "reduce_min": _reduced("amin"),
    "reduce_prod": _prod,
    "reduce_and": _of_bools("all"),
    "reduce_or": _of_bools("any"),
    "reduce_window_sum": _window("sum"),
    "reduce_window_max": _window("amax"),
    "reduce_window_min": _window("amin"),
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "cumsum": _scanned("cumsum"),
    "cumprod": _scanned("cumprod"),
    "cummax": _scanned("cummax"),
    "cummin": _scanned("cummin"),
    "cumlogsumexp": _scanned("logcumsumexp"),
    "sort": _sort,
    "top_k": _top_k,
    "optimization_barrier": lambda params, *xs: xs,
    "device_put": lambda params, *xs: xs,
}
"""Primitive -> its form."""

WITHOUT_OPERANDS: dict[str, Lowering] = {"iota": _iota}
"""Primitives of no operands; their forms are given the builder."""


def _unsqueezed(x: Any, dims: Any) -> Any:
    for dim in sorted(dims):
        x = x._do("unsqueeze", dim)
    return x
