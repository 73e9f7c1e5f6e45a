"""Every op of the table in C: many samples in one graph, so that a compiler is started seldom.

Without contraction a kernel gives the interpreter's bits, whatever the op; products of matrices
are BLAS's, which adds up in an order of its own. What the interpreter gives is compared with
kernels of the reference backend in `tests/backends/loops/test_lowering.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.loops.backend import LOOPS
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.testing.laws.ops.forward import proxied
from aotlite.testing.laws.ops.runs import bound, close, same_bits, tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import samples_of
from tests.thinning import thinned

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
EXACT = CpuBackend(contract=False)
NAMES = sorted(name for name, op in OPS.items() if type(op) is PureOp)
MANY = 60
"""Samples in one graph."""
Case = tuple[str, Sample]


def is_small(sample: Sample) -> bool:
    """Whether a tensor has no elements, or no dimensions."""
    arrays = [each for each in sample.args if isinstance(each, np.ndarray)]
    return any(not array.size or not array.ndim for array in arrays)


def graph_of(cases: Sequence[Case]) -> tuple[Graph, list[np.ndarray]]:
    """A graph of a call of each, and its inputs."""
    build, results, arrays = Builder("table"), list[Any](), list[np.ndarray]()
    calls = []
    for name, sample in cases:
        args = bound(OPS[name], sample)
        tensors = tensors_in(args)
        proxies = [build.placeholder(tensor.meta) for tensor in tensors]
        arrays += [np.array(tensor.array) for tensor in tensors]
        calls.append((name, proxied(args, iter(proxies))))
    for name, args in calls:
        made: Any = build.call(OPS[name], args)
        results += made if type(made) is tuple else (made,)
    return build.finish(results), arrays


def windows_of(graph: Graph, arrays: Sequence[np.ndarray]) -> list[tuple[np.ndarray, int]]:
    """Memory of their own in the inputs' geometry."""
    found = []
    for node, array in zip(graph.placeholders, arrays, strict=True):
        meta: Any = node.meta
        memory = np.zeros(max(meta.span, 1), meta.dtype.numpy)
        if meta.numel:
            ArrayValue(memory, meta, 0).array[...] = array
        found.append((memory, 0))
    return found


def results_of(backend: Any, graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    run = backend.compile(graph)
    with np.errstate(all="ignore"):
        found: Any = run(windows_of(graph, arrays))
    return [
        ArrayValue(buffer, node.meta, start).array
        for (buffer, start), node in zip(found, graph.outputs, strict=True)
    ]


CONTRACTIONS = {op for op in OPS.values() if type(op) is PureOp and op.cost is Cost.CONTRACTION}


def is_product(node: Node) -> bool:
    """Whether the result is of an op that BLAS may carry out."""
    made = node.args[0] if node.target is GETITEM else node
    return made.target in CONTRACTIONS


def check(cases: Sequence[Case]) -> None:
    graph, arrays = graph_of(cases)
    expected, got = (results_of(backend, graph, arrays) for backend in (LOOPS, EXACT))
    for node, mine, its in zip(graph.outputs, expected, got, strict=True):
        equal = close(mine, its, 1e-5) if is_product(node) else same_bits(mine, its)
        assert equal, f"{graph.names[node]} of {node.args}: {its.tolist()}, not {mine.tolist()}"


def parts(names: Sequence[str], keep: Any) -> Iterator[list[Case]]:
    """The samples of these ops that are wanted, as many at a time as one graph holds."""
    whole = chain.from_iterable([(n, s) for s in keep(samples_of(n))] for n in names)
    found = [case for case in whole if _is_taken(case)]
    for start in range(0, len(found), MANY):
        yield found[start : start + MANY]


def _is_taken(case: Case) -> bool:
    """Whether the op takes the sample: some are there to be refused."""
    try:
        graph_of([case])
    except AotliteError:
        return False
    return True


def smallest(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if is_small(sample)][:2]


@pytest.mark.parametrize("part", thinned(range(4), 4))
def test_ops_of_empty_tensors_and_of_single_numbers_are_the_interpreters(part: int) -> None:
    for cases in parts(NAMES[part::4], smallest):
        check(cases)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_of_an_op_is_the_interpreters(name: str) -> None:
    for cases in parts([name], list):
        check(cases)
