"""Random graphs, built from plain data: steps that refer to live values by number."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import (
    Argument,
    BackwardOffset,
    Gradient,
    Hidden,
    MutatedInput,
    NextOffset,
    Output,
    Primal,
    Saved,
    Seed,
    Tangent,
)
from aotlite.ir.meta import tensor_meta

INPUT_ROLES = [
    Primal(0),
    Primal(1),
    Hidden(0),
    Hidden(1, "model.weight"),
    Tangent(Output(0)),
    Tangent(MutatedInput(Primal(1))),
    Saved(0),
    Saved(1, "mul"),
    Seed(),
    BackwardOffset(),
    Argument(7),
]
OUTPUT_ROLES = [
    Output(0),
    Output(1),
    MutatedInput(Hidden(0)),
    Gradient(Primal(0)),
    NextOffset(),
    Saved(0),
    Saved(1, "ops"),
]

NUMBERS = [
    2.0,
    -0.0,
    0.0,
    math.nan,
    math.inf,
    -math.inf,
    1e-300,
    3,
    True,
    1j,
    complex(-0.0, math.nan),
]
SMALL = [2.0, -1.0, 0.5, 3, 0]

PURE = {
    "neg": lambda b, x, y, k: x.logical_not() if x.dtype is dtypes.bool_ else -x,
    "mul": lambda b, x, y, k: x * y,
    "add": lambda b, x, y, k: x + y,
    "t": lambda b, x, y, k: x.permute(tuple(reversed(range(x.ndim)))),
    "select": lambda b, x, y, k: x.select(-1, k % x.shape[-1]),
    "slice": lambda b, x, y, k: x.narrow(0, k % x.shape[0], x.shape[0] - k % x.shape[0]),
    "unsqueeze": lambda b, x, y, k: x.unsqueeze(k % 3),
    "restride": lambda b, x, y, k: x.contiguous(),
    "split": lambda b, x, y, k: x.split(2, 0)[0],
    "eq": lambda b, x, y, k: x == y,
    "where": lambda b, x, y, k: x.to(dtypes.bool_).where(x, y),
}
IMPURE = {
    "mul_": lambda b, x, y, k: x.mul_(y if x.meta is y.meta else k),
    "t_": lambda b, x, y, k: x.t_(),
}


def _literal_step(b, x, number):
    return x * number


shapes = st.sampled_from([(2, 3), (3, 2), (3, 3), (2,), (3,), (1, 3), (2, 1, 3)])
kinds = st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_])


@st.composite
def metas(draw, dtypes_from=kinds):
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    stride, step = [0] * len(shape), 1
    for dim in order:
        stride[dim] = step
        step *= shape[dim] + draw(st.integers(0, 1))
    return tensor_meta(shape, stride, draw(dtypes_from))


@st.composite
def graphs(
    draw, *, impure: bool = True, numbers=NUMBERS, dtypes_from=kinds, most: int = 12
) -> Graph:
    """Graphs of up to `most` steps; `impure` allows writes and changes of geometry."""
    build = Builder(draw(st.sampled_from(["graph", "model__0_forward_3", "ops", "class", "a b"])))
    roles = draw(st.lists(st.sampled_from(INPUT_ROLES), min_size=1, max_size=4, unique=True))
    live = [build.placeholder(draw(metas(dtypes_from)), role) for role in roles]
    if draw(st.booleans()):
        meta = draw(metas(dtypes_from))
        name = draw(st.sampled_from(["w", "ops", "layer.0.weight", "it's"]))
        live.append(build.constant(name, np.arange(meta.numel).reshape(meta.shape), meta))
    table = {**PURE, **(IMPURE if impure else {})}
    for step in range(draw(st.integers(0, most))):
        if draw(st.integers(0, 5)) == 0:
            build.source = _source(draw(st.sampled_from(list(Phase))), step)
        _add_step(draw, build, live, table, numbers)
    count = draw(st.integers(0, 4))
    outputs = [draw(st.sampled_from([None, 2.5, *live])) for _ in range(count)]
    return build.finish(outputs, draw(st.permutations(OUTPUT_ROLES))[:count])


def _add_step(draw, build, live, table, numbers) -> None:
    x, y = draw(st.sampled_from(live)), draw(st.sampled_from(live))
    name = draw(st.sampled_from([*table, "literal", "full"]))
    try:
        if name == "literal":
            live.append(x * draw(st.sampled_from(numbers)))
        elif name == "full":
            number = draw(st.sampled_from([n for n in numbers if not isinstance(n, complex)]))
            live.append(x.new_full((2, 3), number, dtype=dtypes.float64))
        else:
            live.append(table[name](build, x, y, draw(st.integers(0, 5))))
    except (AotliteError, ZeroDivisionError, IndexError):
        pass  # these operands do not fit this op


def _source(phase: Phase, step: int) -> Node:
    """A node of an earlier graph that the following ones stand for."""
    location = (_literal_step.__code__, 0) if step % 2 else None
    return Node("call", None, phase=phase, sequence=step, location=location, grad_mode=False)


__all__ = ["CPU", "SMALL", "graphs", "kinds", "metas"]
