"""Graphs of single ops, and graphs that raise when they run, as an op refuses the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import Op
from aotlite.testing.laws.graphs.corpus import GraphCase
from aotlite.testing.laws.ops.check_op import op_of
from aotlite.testing.laws.ops.forward import proxied
from aotlite.testing.laws.ops.runs import bound, tensors_in
from aotlite.testing.laws.samples.generated import samples_for
from aotlite.testing.laws.samples.sample import Sample

__all__ = ["failing_graphs", "graphs_of"]


def graphs_of(op: Op | str, samples: Iterable[Sample] | None = None) -> tuple[GraphCase, ...]:
    """A graph of one call of the op for each sample, with the sample's arrays as inputs.

    >>> from aotlite.testing import laws
    >>> len(laws.graphs_of("tanh"))
    69
    >>> print(laws.check_backend("reference", laws.graphs_of("tanh")[:20]))
    backend 'reference' obeys B1, B2, B3, B4, B5, B6, B7, B8, B9, B10 on 20 cases
    """
    found = op_of(op)
    cases: Sequence[Sample] = samples_for(found) if samples is None else list(samples)
    return tuple([_graph_of(found, sample) for sample in cases])


def _graph_of(op: Op, sample: Sample) -> GraphCase:
    args = bound(op, sample)
    tensors: list[Tensor] = tensors_in(args)
    build = Builder(op.name)
    proxies = [build.placeholder(tensor.meta) for tensor in tensors]
    made: Any = build.call(op, proxied(args, iter(proxies)))
    graph = build.finish(made if type(made) is tuple else (made,))
    arrays = tuple(np.array(tensor.array) for tensor in tensors)
    return GraphCase(f"{op.name}{sample}", graph, arrays)


# --------------------------------------------------------------------------------------- failing
def _out_of_range(x: Any, index: object) -> object:
    return (x * 2.0).gather(0, index) + 1.0


def _not_positive(x: object) -> object:
    return al.linalg.cholesky(x) * 2.0


@cache
def failing_graphs() -> tuple[GraphCase, ...]:
    """Graphs that compile, with inputs on which one of their ops raises an error of aotlite's."""
    return tuple(_failing())


def _failing() -> Iterator[GraphCase]:
    square = np.ones((2, 2), np.float32)
    for function, arrays in (
        (_out_of_range, (square, np.full((2, 2), 7))),
        (_not_positive, (-square,)),
    ):
        graph = al.capture(function)(*map(al.from_numpy, arrays))
        yield GraphCase(function.__name__.strip("_"), graph, arrays)
