"""The corpus: small functions and their graphs, to test passes, partitioners and backends.

Each function has one feature of graphs: views, writes, several results, constants, random numbers,
empty tensors, gradients of None. `graphs` compiles the functions and returns the graphs of some
stages; it runs no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.inspect import stages_of
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph
from aotlite.testing.compiled import compile_by_reference

__all__ = ["FUNCTIONS", "CorpusFunction", "GraphCase", "graphs", "joints"]


@attrs.frozen(eq=False, repr=False)
class GraphCase:
    """A graph to test with. `arrays` are its inputs; None: inputs are drawn by role."""

    name: str
    graph: Graph
    arrays: tuple[np.ndarray, ...] | None = None
    tolerance: float = 0.0
    """The tolerance of results against the reference, relative to their largest value or 1."""

    def __repr__(self) -> str:
        return f"<GraphCase {self.name}: {len(self.graph)} nodes>"


@attrs.frozen(eq=False)
class CorpusFunction:
    """A function and the arguments of its capture."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    indices: int = 0
    """The number of further arguments: int64 zeros of the shape of the first argument."""
    transposed: bool = False
    """Whether the first argument is transposed in memory."""
    overlap: bool = False
    """Whether the last argument is a view of the first."""

    @property
    def name(self) -> str:
        return self.function.__name__

    def args(self, *, grad: bool = True) -> list[Any]:
        """Fresh arguments. `grad`: floats require grad, and are no leaves: they may be written."""
        args: list[Any] = [al.arange(float(np.prod(shape))).reshape(shape) for shape in self.shapes]
        if self.transposed:
            args[0] = args[0].t().clone().t()
        args = [a.requires_grad_() if grad else a for a in args]
        if grad:
            args = [a * 1.0 for a in args]  # a leaf may not be written
        if self.overlap:
            args.append(args[0][1:])
        first = self.shapes[0]
        args += [al.zeros(first, dtype=al.int64) for _ in range(self.indices)]
        return args


# ------------------------------------------------------------------------------------- functions
def scaled(x: Tensor) -> object:
    return x * 2.0 + 1.0


def doubled_twice(x: Tensor) -> object:
    """The same computation twice, whose results must not share memory."""
    return x * 2.0, x * 2.0


def doubled_both(x: Tensor, y: Tensor) -> object:
    """Two inputs whose gradients are the same computation, and must not share memory."""
    return x * 2.0 + y * 2.0


def written(x: Tensor) -> object:
    x.mul_(2.0)
    return x.sum()


def row_written(x: Tensor) -> object:
    x[0].add_(1.0)
    x.t()[1].mul_(3.0)
    return x * x


def intermediate_written(x: Tensor) -> object:
    y = x * 1.5
    y.t().mul_(2.0)
    y[0].zero_()
    return y, y.t()


def layer(x: Tensor, w: Tensor, b: Tensor) -> object:
    return (x @ w + b).relu()


def chain(x: Tensor, w: Tensor) -> object:
    hidden = (x @ w).tanh()
    return ((hidden.exp() + 1.0).log() * hidden.sigmoid()).sum()


def several_results(x: Tensor) -> object:
    values, indices = x.sort(dim=-1)
    low, high = x.chunk(2, dim=-1)
    return values, indices, low * high.sum(), x.max()


def parts_written(x: Tensor) -> object:
    y = x * 2.0
    for k in range(len(y)):
        y[k].add_(float(k + 1))
    y.detach()[0].mul_(2.0)
    first, *rest = y.unbind(0)
    return first, rest[-1] * x.split(1)[0]


def taken(x: Tensor, index: Tensor) -> object:
    return x.gather(0, index) * 2.0, x.index_add(0, index[0][:1], x[:1])


def without_elements(x: Tensor, y: Tensor) -> object:
    return al.cat([x, y]) * 2.0, x.sum(), x.t()


def without_dimensions(x: Tensor, y: Tensor) -> object:
    x.add_(y)
    return x * y, x.expand(2, 2).sum()


def spread(x: Tensor, y: Tensor) -> object:
    return (x.unsqueeze(-1) * y).expand(2, 2, 3).sum(0), y.expand(4, 3)


def chosen(x: Tensor) -> object:
    return (x > 0).where(x, x * 0.5), x.isnan(), (x > 0).sum()


def converted(x: Tensor) -> object:
    return x.to(al.float64).sum(), (x * 4.0).to(al.int64) + 1, x.to(al.bool_)


def neutral(x: Tensor) -> object:
    """Computations that are the identity, or 0, but for nan, infinities and -0.0."""
    return x * 0.0, x + 0.0, x - x, 0.0 - x, x / 3.0, x.maximum(-x)


def wide(x: Tensor, index: Tensor) -> object:
    """Results that a narrower dtype cannot hold."""
    return (x.to(al.float64) + 2.0**-40) * 3.0, index * 3 + 1


def with_constant(x: Tensor) -> object:
    return x * al.tensor([1.0, -1.0, 2.0]) + al.ones(3)


def with_noise(x: Tensor) -> object:
    return x * al.rand(2, 3) + al.rand(3)


def half_used(x: Tensor, y: Tensor) -> object:
    """No gradient flows to `y`; two results require none."""
    return x.sum() * 2.0, y.detach() * 2.0, (x * x).detach()


def returned(x: Tensor, y: Tensor) -> object:
    """Results that are arguments, views of them, and a copy."""
    return x, y.t(), y.view(-1)[1:3], y.clone()


def reordered(x: Tensor) -> object:
    return x + x.clone(), x.t().clone(), x.t().reshape(-1) * 3.0


def overlapping(x: Tensor, rest: Tensor) -> object:
    rest.mul_(2.0)
    x[0].add_(1.0)
    return x.sum() + rest.sum()


FUNCTIONS: tuple[CorpusFunction, ...] = (
    CorpusFunction(scaled, ((2, 3),)),
    CorpusFunction(scaled, ((0, 3),)),
    CorpusFunction(scaled, ((3, 2),), transposed=True),
    CorpusFunction(doubled_twice, ((3,),)),
    CorpusFunction(written, ((2, 3),)),
    CorpusFunction(row_written, ((2, 2),)),
    CorpusFunction(intermediate_written, ((2, 2),)),
    CorpusFunction(layer, ((2, 3), (3, 2), (2,))),
    CorpusFunction(layer, ((2, 3), (3, 2), (2,)), transposed=True),
    CorpusFunction(chain, ((2, 3), (3, 2))),
    CorpusFunction(several_results, ((2, 4),)),
    CorpusFunction(parts_written, ((2, 3),)),
    CorpusFunction(taken, ((2, 2),), indices=1),
    CorpusFunction(without_elements, ((0, 3), (0, 3))),
    CorpusFunction(without_dimensions, ((), ())),
    CorpusFunction(spread, ((2,), (1, 3))),
    CorpusFunction(chosen, ((2, 3),)),
    CorpusFunction(converted, ((2, 2),)),
    CorpusFunction(neutral, ((2, 4),)),
    CorpusFunction(wide, ((2, 3),), indices=1),
    CorpusFunction(with_constant, ((2, 3),)),
    CorpusFunction(with_noise, ((2, 3),)),
    CorpusFunction(half_used, ((3,), (2,))),
    CorpusFunction(returned, ((2,), (2, 3))),
    CorpusFunction(reordered, ((2, 3),)),
    CorpusFunction(reordered, ((2, 3),), transposed=True),
    CorpusFunction(overlapping, ((3, 2),), overlap=True),
    CorpusFunction(doubled_both, ((3,), (3,))),
)
"""The functions of the corpus, with arguments."""

FUNCTIONAL = ("functionalize", "simplify", "forward", "backward")
"""Stages whose graphs contain no writes."""
IMPERATIVE = ("capture", "joint")
"""Stages whose graphs may contain views and writes."""
STAGES = (*IMPERATIVE, *FUNCTIONAL, "closing")
"""The names that `graphs` accepts; `closing` are forwards with closing copies."""


# ---------------------------------------------------------------------------------------- graphs
def graphs(*stages: str) -> tuple[GraphCase, ...]:
    """The graphs of these stages of every function, the smallest first; functional ones if none is
    named.

    Stages are `capture`, `joint`, `functionalize`, `simplify`, `forward`, `backward`, as of
    `aotlite.inspect.stages_of`, and `closing`: forwards that end with copies into their inputs.

    >>> from aotlite.testing import laws
    >>> laws.graphs("backward")[0]
    <GraphCase scaled of 2x3, backward: 3 nodes>
    """
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise ArgumentError(f"laws: the stage is {unknown[0]!r}, expected {', '.join(STAGES)}")
    wanted = stages or FUNCTIONAL
    found = [case for stage, case in _every() if stage in wanted]
    return tuple(sorted(found, key=lambda case: len(case.graph)))


def joints() -> tuple[GraphCase, ...]:
    """The graphs that a partitioner gets: simplified joint graphs with a backward."""
    trained = {case.name.partition(", ")[0] for case in graphs("backward")}
    return tuple([c for c in graphs("simplify") if c.name.partition(", ")[0] in trained])


@cache
def _every() -> Sequence[tuple[str, GraphCase]]:
    return tuple([pair for subject in FUNCTIONS for pair in _graphs_of(subject)])


def _graphs_of(subject: CorpusFunction) -> Iterator[tuple[str, GraphCase]]:
    state = al.get_rng_state()
    try:
        trained = stages_of(subject.function, *subject.args())
        keeping = compile_by_reference(subject.function, keep_inference_input_mutations=True)
        with al.no_grad():
            plain = stages_of(keeping, *subject.args(grad=False))
    finally:
        al.set_rng_state(state)
    title = _title(subject)
    for record in trained:
        stage = record.name.split(", ")[-1].split(" ")[-1]
        if isinstance(record.made, Graph):
            yield stage, GraphCase(f"{title}, {stage}", record.made)
    yield "closing", GraphCase(f"{title}, closing", plain["forward"])


def _title(subject: CorpusFunction) -> str:
    shape = "x".join(map(str, subject.shapes[0])) or "0-d"
    return f"{subject.name} of {'transposed ' if subject.transposed else ''}{shape}"
