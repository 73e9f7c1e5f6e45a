"""Bytes that kernels move: counted by strides, and the least on kernels that are known."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cuda.emit.memory_accesses import Touch, sectors
from aotlite.backends.cuda.memory_traffic import TrafficReport, traffic
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.analysis.affine import whole
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Gemm, LoopProgram, MatrixWindow, Statement, Store
from aotlite.ir.dtypes import float32
from aotlite.ir.scalar.expression import Affine, axis, const, load, where
from tests.backends.cpu.helpers.chosen_kernels import program
from tests.backends.cuda.helpers import point_cases
from tests.backends.cuda.helpers.cuda_cases import centered


def drawn(draw: random.Random, gap: int) -> Touch:
    """An access whose runs do not overlap: strides outgrow what smaller ones reach."""
    itemsize, reach = draw.choice((1, 2, 4, 8)), 0
    steps, extents = [], []
    for _ in range(draw.randint(1, 3)):
        step, extent = reach + draw.choice((1, 1, 2, 3, 8, 33)), draw.randint(1, 7)
        step += gap if reach else 0
        steps.append(step * draw.choice((1, 1, -1)))
        extents.append(extent)
        reach += step * (extent - 1)
    start = draw.randint(0, 40) + sum(
        [-s * (n - 1) for s, n in zip(steps, extents, strict=True) if s < 0]
    )
    return Touch(0, Affine(tuple(steps), start), whole(extents), itemsize)


def counted(each: Touch, unit: int) -> int:
    """The units that an access touches, point by point."""
    points = itertools.product(*[range(first, last + 1) for first, last in each.bounds])
    steps = each.address.coefficients
    places = {each.address.start + sum(map(operator.mul, steps, p)) for p in points}
    return len({place * each.itemsize // unit for place in places})


def test_sectors_of_affine_addresses_are_those_that_are_counted() -> None:
    for seed in range(500):
        each = drawn(random.Random(seed), 32)
        assert counted(each, 32) == sectors(each), each
        assert counted(each, each.itemsize) == sectors(each, each.itemsize), each


def test_runs_that_share_a_sector_count_at_most_one_too_many_each() -> None:
    for seed in range(500):
        each = drawn(random.Random(seed), 0)
        runs = math.prod([last + 1 for _, last in each.bounds])
        assert counted(each, 32) <= sectors(each) <= counted(each, 32) + runs, each


def compiled(function: Callable[..., Any], *args: Any) -> list[TrafficReport]:
    """The reports of a function's forward, and of its backward where it has one."""
    made = al.compile(function)
    made(*args)
    graphs = [made.forward_graph, made.backward_graph]
    return [traffic(improved_for(program_of(each), H100)) for each in graphs if each is not None]


def leaf(*shape: int) -> al.Tensor:
    return al.zeros(shape, requires_grad=True)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda x, y: al.gelu(x * 2 + y) * al.sigmoid(y), (leaf(512, 512), leaf(512, 512))),
    "transposed": (lambda x, y: al.tanh(x.t() + y), (al.zeros((512, 512)), al.zeros((512, 512)))),
    "laplacian": (
        lambda x: (
            al.roll(x, 1, 0) + al.roll(x, -1, 0) + al.roll(x, 1, 1) + al.roll(x, -1, 1) - 4 * x
        ),
        (al.zeros((512, 512)),),
    ),
    "softmax": (lambda x: al.softmax(x, -1), (leaf(512, 2048),)),
    "layer_norm": (lambda x: al.layer_norm(x, (1024,)), (leaf(512, 1024),)),
    "mean": (lambda x: x.mean(-1), (leaf(512, 1024),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_memory_bound_functions_move_what_they_must(name: str) -> None:
    function, args = FUNCTIONS[name]
    for report in compiled(function, *args):
        assert 1 == report.launches
        assert 1.0 <= report.ratio <= 1.02, str(report)


def test_what_a_block_cannot_keep_is_moved_again() -> None:
    kept, again = traffic(centered(64, 4096, 1024)), traffic(centered(4, 1 << 20, 1024))
    assert 1.0 == kept.ratio
    assert 1.5 == again.ratio
    assert [2, 2] == [kept.steps[0].sweeps, again.steps[0].sweeps]


def across(rows: int, columns: int, *, safe: bool) -> LoopProgram:
    """A transpose; without its first column, where that is not in the buffer."""
    value = load(0, Affine((1, rows)), float32)
    if not safe:
        before = load(0, Affine((1, rows), -rows), float32)
        value = where(axis(1) > 0, before, const(0.0, float32))
    body: list[Statement] = [Store(1, Affine((columns, 1)), value)]
    size = (float32, rows * columns)
    return program(((rows, columns), 2, 1), body, {0: size}, {1: size})


def test_accesses_with_gaps_between_threads_move_whole_sectors() -> None:
    """A tile makes neighbors of what lies across, if it may be loaded at every point."""
    assert 1.0 == traffic(across(64, 64, safe=True)).ratio
    assert 63 * 64 * 32 + 64 * 64 * 4 == traffic(across(64, 64, safe=False)).moved


def test_each_element_of_a_strided_access_costs_its_sector() -> None:
    report = traffic(point_cases.strided(1000))
    elements = 1000 * 4
    assert 2 * elements == report.least
    assert 4.0 < report.ratio < 8.0


def test_branches_move_what_they_take() -> None:
    """Of three operands that are joined each its part."""
    assert traffic(point_cases.joined()).ratio <= 1.2


def test_positions_that_are_read_make_an_estimate() -> None:
    report = traffic(point_cases.gathered(7, 72))
    assert report.steps[0].is_estimate
    assert "(estimate)" in str(report)
    assert not traffic(across(64, 64, safe=True)).steps[0].is_estimate


def test_products_move_their_operands_once() -> None:
    window = MatrixWindow(0, 0, (), 8, 1)
    step = Gemm("product", (3,), 8, 8, 8, window, window, window)
    base = across(8, 8, safe=True)
    found = traffic(LoopProgram("product", base.buffers, (step,), (), ()))
    assert 3 * 3 * 64 * 4 == found.moved
