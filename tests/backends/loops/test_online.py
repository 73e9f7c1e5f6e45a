"""Maxima and sums of exponentials in one pass: what is joined, and that it means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.analysis.cost import inner_points
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.online_softmax import with_online
from aotlite.backends.loops.passes.vectorization import scheduled
from aotlite.backends.loops.program import BufferKind, Kernel, LoopProgram, Reduce
from aotlite.backends.loops.verify import verify

LONG = 20_000
"""Points of a row that fusion does not go over twice, where rows are few."""


def program(function: Callable[[Any], Any], shape: tuple[int, int]) -> LoopProgram:
    return fused(program_of(al.capture(function)(al.zeros(shape))))


def kinds(found: LoopProgram) -> list[str]:
    kernels = [step for step in found.steps if type(step) is Kernel]
    return [each.kind for step in kernels for each in step.body if type(each) is Reduce]


def outputs(found: LoopProgram, array: Any) -> list[Any]:
    """What a program stores, with the lanes that the CPU has."""
    memory = run_program(scheduled(found), [array.ravel()])
    return [memory[each.number] for each in found.buffers if each.kind is BufferKind.OUTPUT]


def softmax(x: Any) -> Any:
    return al.softmax(x, -1)


def log_softmax(x: Any) -> Any:
    return al.log_softmax(x, -1)


def longer_than(points: int) -> Callable[[Kernel], bool]:
    """Whether a kernel's rows have more points."""
    return lambda kernel: inner_points(kernel) > points


@pytest.mark.parametrize("function", [softmax, log_softmax])
@pytest.mark.parametrize("shape", [(3, LONG), (9, 50)])
def test_both_reductions_become_one(function: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    """Of two kernels, and of one whose rows are longer than what is said; else nothing changes."""
    before = program(function, shape)
    after = with_online(before, longer_than(40))
    verify(after)
    assert ["max", "sum"] == kinds(before)
    assert ["sum_exp"] == kinds(after)
    if shape[1] < LONG:
        assert before is with_online(before, longer_than(50))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 4
    expected, found = outputs(before, x), outputs(after, x)
    # The sums are of the same numbers in other orders.
    np.testing.assert_allclose(found[0], expected[0], rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("shape", [(3, LONG), (9, 50)])
def test_a_variance_is_made_in_one_pass(shape: tuple[int, int]) -> None:
    """As accurate as in two passes, of numbers far from 0 too."""
    before = program(lambda x: x.var(-1), shape)
    after = with_online(before, longer_than(40))
    verify(after)
    assert ["sum", "sum"] == kinds(before)
    assert ["moments"] == kinds(after)
    x = 1000 + np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exact = x.astype(np.float64).var(-1, ddof=1)
    # Each deviation is rounded relative to a mean of 1000.
    np.testing.assert_allclose(outputs(after, x)[0], exact, rtol=2e-4)


def test_what_a_mean_is_needed_for_stays() -> None:
    """The mean, and the sum that it is made of, where those are stored too."""
    before = program(lambda x: (x.sum(-1), x.mean(-1), x.var(-1)), (3, LONG))
    after = with_online(before, longer_than(40))
    verify(after)
    assert "moments" in kinds(after)
    x = np.random.default_rng(0).standard_normal((3, LONG)).astype(np.float32) + 1
    for expected, found in zip(outputs(before, x), outputs(after, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=3e-5)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("place", [0, 7, LONG - 1])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -3e38])
@pytest.mark.parametrize("n", [50, LONG])
def test_rows_of_numbers_without_an_exponential_stay_what_they_were(
    place: int, value: float, n: int
) -> None:
    x = np.linspace(-3, 3, 3 * n, dtype=np.float32).reshape(3, n)
    x[1, place % n] = value
    x[2, :] = -np.inf if value == -np.inf else value
    before = program(softmax, (3, n))
    with np.errstate(all="ignore"):
        (expected,), (found,) = outputs(before, x), outputs(with_online(before, longer_than(40)), x)
    # As above.
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-30)


def test_a_maximum_of_other_numbers_is_left_alone() -> None:
    """The greatest of -x is not what exp(x - ...) is to have; nor is one of other rows."""
    before = program(lambda x: al.exp(x - (-x).amax(-1, keepdim=True)).sum(-1), (3, LONG))
    assert before is with_online(before, longer_than(40))
    turned = program(lambda x: al.exp(x - x.amax(0)).sum(-1), (LONG, LONG // 1000))
    assert "sum_exp" not in kinds(with_online(turned, longer_than(4)))


def test_what_is_overwritten_between_is_left_alone() -> None:
    """The sum is of other numbers than the maxima then."""

    def function(x: Any) -> Any:
        top = x.amax(-1, keepdim=True)
        x.mul_(2.0)
        return al.exp(x - top).sum(-1)

    graph = al.compile(function, backend="reference")
    graph(al.zeros((3, LONG)))
    before = fused(program_of(graph.forward_graph))
    assert "sum_exp" not in kinds(with_online(before, longer_than(4)))
