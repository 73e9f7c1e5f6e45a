"""Sums of many numbers in float32 are as exact as sums of few (FUS-22)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.analysis.cost import inner_points
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import Kernel, Reduce

TENTH = float(np.float32(0.1))
MEANS: dict[str, tuple[Callable[[al.Tensor], al.Tensor], tuple[int, ...]]] = {
    "all": (lambda x: x.mean(), (1 << 22,)),
    "no power of two": (lambda x: x.mean(), (1_000_003,)),
    "rows": (lambda x: x.mean(1), (20, 100_000)),
    "columns": (lambda x: x.mean(0), (1 << 18, 4)),
    "repeated": (lambda x: x.expand(4096, 1024).mean(), (1024,)),
    "repeated along rows": (lambda x: x[:, None].expand(1024, 4096).mean(), (1024,)),
    "of a value": (lambda x: (x * 1.0).expand(4096, 1024).mean(0), (1024,)),
    "by exponentials": (lambda x: x.logsumexp(0) - np.log(1 << 21), (1 << 21,)),
}


@pytest.mark.parametrize("form", MEANS)
def test_a_mean_of_equal_numbers_is_that_number(form: str) -> None:
    """Rounding goes one way in such a sum; added up in order, 2^22 of them are 1 % wrong."""
    function, shape = MEANS[form]
    graph = al.capture(function)(al.full(shape, 0.1))
    program = improved(program_of(graph), 2)
    memory = run_program(program, [np.full(shape, 0.1, np.float32).reshape(-1)])
    (placed,) = [each for each in program.outputs if each is not None]
    assert memory[placed.buffer] == pytest.approx(TENTH, rel=5e-5)


def test_a_column_that_joins_rows_is_divided_too() -> None:
    """The gradient of a factor is summed while rows are computed."""

    def scaled(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        return (x * w).softmax(1)

    compiled = al.compile(scaled, backend="loops")
    compiled(al.zeros(1 << 15, 8), al.ones(8, requires_grad=True))
    assert compiled.backward_graph is not None
    program = improved(program_of(compiled.backward_graph), 2)
    rows = [k.extents for k in program.steps if type(k) is Kernel and "sum=" in str(k)]
    assert rows
    assert all(extents[1] <= 4096 for extents in rows)


@pytest.mark.parametrize("shape", [(16384, 8), (8200, 8)])
def test_columns_that_are_used_again_are_divided_too(shape: tuple[int, int]) -> None:
    """They were gone down again while in a cache, by kernels of two passes, which are not divided:
    30 times eager's error."""
    graph = al.capture(lambda x: x - x.mean(0))(al.zeros(shape))
    kernels = [k for k in improved(program_of(graph), 2).steps if type(k) is Kernel]
    columns = [k for k in kernels if any(type(each) is Reduce for each in k.body)]
    assert columns
    assert all(inner_points(kernel) <= 4096 for kernel in columns)


@pytest.mark.parametrize(("name", "chunks"), [("amax", 8), ("argmin", 8)])
def test_what_does_not_round_is_divided_for_threads_alone(name: str, chunks: int) -> None:
    graph = al.capture(lambda x: getattr(x, name)())(al.zeros(10_000_000))
    first = improved(program_of(graph), 2).steps[0]
    assert type(first) is Kernel
    assert first.extents[0] == chunks
    assert any(type(each) is Reduce for each in first.body)
