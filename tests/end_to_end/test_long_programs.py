"""Long programs: what a compilation does grows no faster than they do, and nothing recurses."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import aotlite as al

Made = tuple[Callable[..., Any], list[Any]]
"""A function and its arguments."""


def leaf(*shape: int) -> Any:
    return al.ones(*shape).requires_grad_()


def chain(count: int) -> Made:
    def run(x: Any) -> Any:
        for _ in range(count // 4):
            x = (x.sin() * 0.99).cos() + 0.5
        return x.sum()

    return run, [leaf(4)]


def views_of_views(count: int) -> Made:
    def run(x: Any) -> Any:
        for _ in range(count // 2):
            x = x.view(4).view(2, 2)
        return x.sum()

    return run, [leaf(2, 2)]


def writes_to_one_tensor(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 1.0
        for _ in range(count // 2):
            y.add_(1.0).mul_(0.99)
        return y.sum()

    return run, [leaf(4)]


def writes_to_rows(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 1.0
        for i in range(count):
            y[i % 2].add_(1.0)
        return y.sum()

    return run, [leaf(2, 2)]


def transposed_and_written(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 1.0
        for _ in range(count):
            y = y.t()
            y.mul_(0.99)
        x.copy_(y.view(2, 3))

    return run, [al.ones(2, 3)]


def reordered_and_a_part_written(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 1.0
        for _ in range(count):
            y = y.permute(1, 2, 0).detach()
            y[0].mul_(0.99)
        x.copy_(y.reshape(2, 3, 4))

    return run, [al.ones(2, 3, 4)]


def geometry_ops(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 1.0
        for _ in range(count):
            y.t_()
        return y.sum()

    return run, [leaf(2, 2)]


def detached_again_and_again(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x
        for _ in range(count):
            y = y.detach()
        return (x * y).sum()

    return run, [leaf(4)]


def many_arguments(count: int) -> Made:
    def run(*xs: Any) -> Any:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total.sum()

    return run, [leaf(4) for _ in range(count)]


def many_results(count: int) -> Made:
    def run(x: Any) -> Any:
        return [x * float(i) for i in range(count // 4)]

    return run, [leaf(4)]


def many_parts(count: int) -> Made:
    def run(x: Any) -> Any:
        return list((x * 2.0).split(1))

    return run, [leaf(count // 4)]


def many_uses_of_one_value(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x.sin()
        total = y
        for _ in range(count):
            total = total + y
        return total.sum()

    return run, [leaf(4)]


def many_results_on_one_storage(count: int) -> Made:
    def run(x: Any) -> Any:
        y = x * 2.0
        return [y.view(4) for _ in range(count)]

    return run, [leaf(2, 2)]


def many_written_arguments(count: int) -> Made:
    def run(*xs: Any) -> Any:
        for x in xs:
            x.add_(1.0)

    return run, [al.ones(4) for _ in range(count)]


PROGRAMS = [
    chain,
    views_of_views,
    writes_to_one_tensor,
    writes_to_rows,
    transposed_and_written,
    reordered_and_a_part_written,
    geometry_ops,
    detached_again_and_again,
    many_arguments,
    many_parts,
    many_uses_of_one_value,
    many_results,
    many_results_on_one_storage,
    many_written_arguments,
]


def each_of(programs: Sequence[Callable[[int], Made]]) -> Any:
    rows = pytest.mark.parametrize("program", programs, ids=lambda program: program.__name__)
    return lambda test: pytest.mark.thinned(3)(rows(test))


@contextmanager
def counting() -> Iterator[list[int]]:
    """The number of calls, of Python functions and others, in a block."""
    calls = [0]

    def count(frame: Any, event: str, what: Any) -> None:
        if event in ("call", "c_call"):
            calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of_a_first_call(program: Callable[[int], Made], count: int) -> int:
    function, args = program(count)
    compiled = al.compile(function, verify=1)
    with counting() as calls:
        compiled(*args)
    return calls[0]


@each_of(PROGRAMS)
def test_calls_made_by_a_first_call_grow_like_the_program(program):
    """Counted, not timed. Twice the program, twice the calls: what is the same each time aside."""
    calls_of_a_first_call(program, 8)
    small, middle, large = [calls_of_a_first_call(program, n) for n in (100, 200, 400)]
    assert large - middle <= 2.1 * (middle - small)


@each_of(PROGRAMS)
def test_no_program_is_too_long(program):
    """Longer than Python recurses: recording, running, gradients, and letting it all go."""
    function, args = program(1_500)
    compiled = al.compile(function)
    check_runs_and_dies(compiled, function, args)


@pytest.mark.long
@each_of([chain, views_of_views, writes_to_one_tensor])
def test_a_program_of_100_000_ops_is_compiled_run_and_let_go(program):
    function, args = program(100_000)
    check_runs_and_dies(al.compile(function, verify=0), function, args)


def check_runs_and_dies(compiled: Any, function: Callable[..., Any], args: list[Any]) -> None:
    given = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
    losses = []
    for run, inputs in ((function, args), (compiled, given)):
        result = run(*inputs)
        if result is not None:
            last = result[-1] if isinstance(result, list) else result
            losses.append(last.tolist())
            last.sum().backward()
        del result
    gc.collect()
    if losses:
        assert losses[0] == losses[1]
    grads = [[None if x.grad is None else x.grad.tolist() for x in xs] for xs in (args, given)]
    assert grads[0] == grads[1]
    assert [x.tolist() for x in args] == [x.tolist() for x in given]
