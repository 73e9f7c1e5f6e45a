"""Programs of rows and columns, divided for a small GPU: each for one way in which they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.backend import program_of
from aotlite.ir.graph import Graph
from tests.backends.cuda.helpers.cuda_cases import Cases, inputs_of

SMALL_GPU = Target("sm_90", 2, shared=227 << 10)
"""Few multiprocessors, so that small programs are divided as large ones are."""


def floats(dtype: al.dtype, *shape: int) -> al.Tensor:
    """A leaf of some numbers."""
    count = int(np.prod(shape))
    values = np.sin(np.arange(count, dtype=np.float32)).reshape(shape)
    return al.tensor(values).to(dtype).requires_grad_()


def norm(x: Any, w: Any, b: Any) -> Any:
    """The layer norm over the last axis."""
    return al.layer_norm(x, (x.shape[-1],), w, b)


def rms(x: Any, w: Any, b: Any) -> Any:
    """The root-mean-square norm over the last axis."""
    return x * al.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w + b


def softmax(x: Any, w: Any, b: Any) -> Any:
    """Two reductions, and what needs both."""
    return al.softmax(x, -1)


def statistics(x: Any, w: Any, b: Any) -> Any:
    """Reductions of several kinds and parts in one kernel."""
    return x.sum(-1), x.amax(-1), x.argmax(-1), x.prod(-1), (x > 0).any(-1), x.var(-1)


def down(x: Any, w: Any, b: Any) -> Any:
    """Reductions of columns."""
    return x.sum(0), x.amax(0), x.argmin(0), al.softmax(x, 0), x.var(0)


def whole(x: Any, w: Any, b: Any) -> Any:
    """Reductions of everything."""
    return x.sum(), x.amax(), x.argmax(), (x * w).mean(), x.var()


def scans(x: Any, w: Any, b: Any) -> Any:
    """Running sums along rows and down columns."""
    return al.cumsum(x, -1), al.cumsum(x, 0), al.cummax(x, -1).values


Function = Callable[..., Any]
KINDS: dict[str, tuple[Function, bool]] = {
    "softmax": (softmax, True),
    "norm": (norm, True),
    "rms": (rms, True),
    "statistics": (statistics, False),
    "down": (down, False),
    "whole": (whole, False),
    "scans": (scans, False),
}
SHAPES: dict[str, tuple[int, int]] = {
    "parts_of_warps": (21, 20),
    "warps": (9, 256),
    "odd": (5, 203),
    "blocks": (3, 2048),
    "long": (2, 9000),
    "many": (700, 24),
    "beside": (257, 132),
}
"""Rows of each way: side by side in a warp, a warp's, of no vectors, a block's, divided; and so
many that the sums of their columns are made beside them."""


def rows(kinds: dict[str, str], dtype: al.dtype = al.float32) -> Cases:
    """Functions at shapes, forward and backward: by kind, the names of shapes."""
    found: Cases = {}
    for kind, shapes in kinds.items():
        function, trains = KINDS[kind]
        for shape in shapes.split():
            n, m = SHAPES[shape]
            args = floats(dtype, n, m), floats(dtype, m), floats(dtype, m)
            for way, graph in graphs(function, args, trains=trains).items():
                program = improved_for(program_of(graph), SMALL_GPU)
                key = f"{kind}_{shape}_{way}_{dtype.short}"
                found[key] = program, inputs_of(key, program)
    return found


def online() -> Cases:
    """A softmax of rows so long that maxima and sums are made at once, in parts."""
    graph = al.capture(lambda x: al.softmax(x, -1))(al.zeros((2, 17_000)))
    program = improved_for(program_of(graph), SMALL_GPU)
    return {"online": (program, inputs_of("online", program))}


def graphs(
    function: Callable[..., Any], args: tuple[al.Tensor, ...], *, trains: bool
) -> dict[str, Graph]:
    """The forward graph, and the backward one where it is asked for."""
    if not trains:
        return {"forward": al.capture(function)(*[each.detach() for each in args])}
    compiled = al.compile(function)
    compiled(*args)
    assert compiled.forward_graph is not None
    assert compiled.backward_graph is not None
    return {"forward": compiled.forward_graph, "back": compiled.backward_graph}
