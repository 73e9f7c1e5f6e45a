"""Every op of the table as launches: many samples in one graph, kernels interpreted.

What is tested is all around the kernels: addresses, the arena, ops between kernels, checks, the
host's part. The text of the kernels is tested in `test_printer.py`. Six seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import interpreted
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.testing.laws.ops.runs import same_bits
from aotlite.testing.laws.samples.sample import Sample
from tests.backends.cpu.test_op_table import NAMES, Case, graph_of, parts, results_of
from tests.backends.cuda.helpers.devices import Relabeled, plain


class Interpreted:
    """The same program on the interpreter, with memory of its own for every buffer."""

    def compile(self, graph: Any) -> Any:
        program = improved_for(program_of(graph), H100)
        return ProgramRun(graph, program, interpreted(program))


def check(cases: Sequence[Case]) -> None:
    graph, arrays = graph_of(cases)
    backends = Interpreted(), Relabeled(plain())
    expected, got = (results_of(backend, graph, arrays) for backend in backends)
    for node, mine, its in zip(graph.outputs, expected, got, strict=True):
        assert same_bits(mine, its), f"{graph.names[node]} of {node.args}"


def some(samples: Sequence[Sample]) -> list[Sample]:
    """The smallest samples, and the first of the others."""
    sizes = [max([a.size for a in s.args if isinstance(a, np.ndarray)], default=0) for s in samples]
    order = sorted(range(len(samples)), key=sizes.__getitem__)
    return [samples[k] for k in order[:2] + order[-2:]]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(4))
def test_ops_as_launches_give_the_interpreters_bits(part: int) -> None:
    for cases in parts(NAMES[part::4], some):
        check(cases)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_of_an_op_as_launches_gives_the_interpreters_bits(name: str) -> None:
    for cases in parts([name], list):
        check(cases)
