"""Random functions whose joint graphs have something to cut: values of many sizes and costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph import Graph

STEPS: dict[str, Callable[..., Any]] = {
    "sin": lambda x: x.sin(),
    "tanh": lambda x: x.tanh(),
    "double": lambda x: x * 2.0,
    "wide": lambda x: x.to(al.float64),
    "narrow": lambda x: x.to(al.float32),
    "transpose": lambda x: x.t(),
    "row_sum": lambda x: x.sum(1, True).expand(4, 4),
    "half_sum": lambda x: (x[0:2] + x[2:4]).sum(0, True).expand(4, 4),
    "softmax": lambda x: x.softmax(1),
    "greatest": lambda x: x.max(1)[0].unsqueeze(1).expand(4, 4),
    "part": lambda x: al.cat(list(x.split(2)), 0),
    "noise": lambda x: x * al.rand(4, 4),
    "mask": lambda x: al.where(al.rand(4, 4) < 0.5, x, 0.0),
}
JOINS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x.to(al.float32) @ y.to(al.float32),
}


@attrs.frozen
class Wave:
    """A function of three 4 x 4 matrices, the first of which requires no gradient.

    Each step reads earlier values: an input by number 0 to 2, a step's result from 3 on.
    """

    steps: tuple[tuple[Any, ...], ...]
    outputs: tuple[int, ...]
    writes: bool = False
    """Whether the first input is overwritten at the end."""

    def __call__(self, *inputs: Any) -> Any:
        values = list(inputs)
        for name, *read in self.steps:
            values.append({**STEPS, **JOINS}[name](*[values[i] for i in read]))
        if self.writes:
            inputs[0].zero_()
        return tuple([values[i] * 1.0 for i in self.outputs])


@st.composite
def waves(draw: Callable[[Any], Any], max_steps: int = 12) -> Wave:
    """Functions of which at least one result depends on an input that requires grad."""
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, max_steps))):
        last = len(steps) + 2
        near = st.integers(max(0, last - 3), last)
        if draw(st.integers(0, 2)):
            steps.append((draw(st.sampled_from(list(STEPS))), draw(near)))
        else:
            name = draw(st.sampled_from(list(JOINS)))
            steps.append((name, draw(near), draw(st.integers(0, last))))
    last = len(steps) + 2
    outputs = (last, draw(st.integers(1, last))) if draw(st.booleans()) else (last,)
    return Wave(tuple(steps), outputs, draw(st.integers(0, 3)) == 0)


CONTRACTED = (
    Wave((("add", 0, 1), ("add", 0, 0), ("tanh", 1), ("tanh", 4), ("mul", 5, 3)), (7,)),
    Wave(
        (
            ("greatest", 1),
            ("add", 0, 3),
            ("mul", 4, 3),
            ("tanh", 5),
            ("matmul", 5, 3),
            ("mul", 4, 2),
        ),
        (8,),
    ),
    Wave((("add", 1, 0), ("add", 1, 3), ("matmul", 3, 4), ("sin", 4)), (6, 6)),
)
"""Functions whose networks are solved where vertices on one side of the cut become one."""

HARD = (
    Wave(
        (
            ("matmul", 0, 0),
            ("add", 1, 3),
            ("matmul", 2, 1),
            ("mul", 4, 4),
            ("mask", 6),
            ("add", 5, 6),
        ),
        (8, 7),
    ),
    Wave(
        (
            ("matmul", 1, 1),
            ("transpose", 2),
            ("add", 1, 3),
            ("mul", 5, 0),
            ("matmul", 4, 0),
            ("half_sum", 6),
            ("half_sum", 6),
            ("mul", 6, 7),
        ),
        (10,),
    ),
    Wave(
        (
            ("add", 1, 0),
            ("matmul", 3, 2),
            ("double", 1),
            ("matmul", 5, 0),
            ("mul", 5, 3),
            ("matmul", 6, 0),
            ("add", 6, 0),
            ("add", 6, 7),
            ("mul", 10, 8),
        ),
        (11,),
    ),
)
"""Functions whose networks do not reduce to nothing."""


def arguments(scale: float = 1.0) -> list[Any]:
    """Three matrices; the second and third are leaves that require grad."""
    rows = [[(7 * i + 3 * j) % 5 - 2.0 + 0.25 * i for j in range(4)] for i in range(4)]
    a, b, c = (al.tensor(rows) * scale * k for k in (1.0, 0.5, -0.75))
    return [a, b.requires_grad_(), c.requires_grad_()]


def joint_of(function: Any) -> Graph | None:
    """The simplified joint graph; None where no gradient flows."""
    try:
        stages = al.inspect.stages_of(function, *arguments())
    except al.AotliteError:
        return None
    graph: Graph = stages["simplify"]
    return graph if stages["analyze"].training else None
