"""Reductions go over memory as it lies (FUS-21), and still find what indexes say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.passes.axis_order import (
    ordered,
    ordered_kernel,
    takes_any_order,
    with_order,
)
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.passes.vectorization import across
from aotlite.backends.loops.program import Kernel, LoopProgram, Reduce, Scan, Store
from aotlite.backends.loops.verify import verify
from aotlite.ir.dtypes import float32
from aotlite.ir.scalar.expression import Affine, load, name
from tests.backends.loops.helpers.drawn_programs import drawn
from tests.backends.loops.test_passes import arrays

TOTALS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.t().reshape(-1).sum(0),
    "of a value": lambda x: (x.t().reshape(-1) * 2.0).sum(0),
    "amax": lambda x: x.t().reshape(-1).amax(0),
    "argmax": lambda x: x.t().reshape(-1).argmax(0),
    "argmin": lambda x: x.t().argmin(),
    "logsumexp": lambda x: x.t().reshape(-1).logsumexp(0),
    "blocks": lambda x: x.reshape(50, 8, 20, 20).permute(2, 3, 0, 1).reshape(20, -1).sum(1),
}


def kernels_of(function: Callable[[Any], Any], x: Any) -> list[Kernel]:
    program = improved(program_of(al.capture(function)(x)), 2)
    return [step for step in program.steps if type(step) is Kernel]


@pytest.mark.parametrize("form", TOTALS)
def test_a_total_of_what_lies_across_reads_it_as_it_lies(form: str) -> None:
    """No copy is made, and what is next in memory is next in the loop."""
    x = al.zeros((400, 400))
    kernels = kernels_of(TOTALS[form], x)
    assert not any("reshape" in kernel.name for kernel in kernels)
    assert not any(map(across, kernels))


@pytest.mark.parametrize("form", TOTALS)
def test_its_result_is_the_one_of_the_indexes(form: str) -> None:
    """Whole numbers, many of them alike: sums are exact, and of the best the first one counts."""
    numbers = np.random.default_rng(0).integers(-3, 4, (400, 400)).astype(np.float32)
    mine = al.compile(TOTALS[form], backend="loops")(al.tensor(numbers))
    assert np.asarray(mine) == pytest.approx(np.asarray(TOTALS[form](al.tensor(numbers))), rel=1e-6)


def test_another_order_changes_sums_by_rounding_only() -> None:
    changed = 0
    for seed in range(1000, 1150):
        program, inputs = drawn(seed)
        before = canonical(fused(program))
        after = attrs.evolve(before, steps=tuple(map(_turned, before.steps)))
        verify(after)
        changed += after != before
        for a, b in zip(arrays(before, inputs), arrays(after, inputs), strict=True):
            # Sums of up to 600 values of magnitude up to 1e4, in float32.
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-2, err_msg=f"seed {seed}")
    assert changed > 5


def _turned(step: Any) -> Any:
    """The step with its inner axes the other way round, where it says that it takes that."""
    if type(step) is not Kernel or len(step.extents) - step.space < 2 or not takes_any_order(step):
        return step
    count = len(step.extents)
    order = [*range(step.space), *range(count - 1, step.space - 1, -1)]
    return with_order(step, order)


def _kernel(*body: Any) -> Kernel:
    """Axes (row | a, b), of which a is the one of neighbors."""
    return Kernel("k", (4, 64, 64), 1, body)


VALUE = load(0, Affine((4096, 1, 64)), float32)
TOTAL = Store(1, Affine((1, 0, 0)), name(0, float32), each_row=True)


def test_what_needs_its_order_keeps_it() -> None:
    reduce, scan = Reduce((0,), "sum", (VALUE,)), Scan((0,), "sum", (VALUE,))
    along = Store(1, Affine((4096, 64, 1)), VALUE)
    last = Store(1, Affine((64, 1, 0)), VALUE)
    combined = Store(1, Affine((64, 1, 0)), VALUE, combine="sum")
    free = _kernel(reduce, TOTAL)
    assert [64 * 64, 64, 1] == _steps(ordered_kernel(free))
    assert takes_any_order(_kernel(reduce, TOTAL, along))
    for held in (
        _kernel(scan, Store(1, Affine((4096, 64, 1)), name(0, float32))),
        _kernel(reduce, TOTAL, last),
        _kernel(reduce, TOTAL, combined),
    ):
        assert not takes_any_order(held)
        assert ordered_kernel(held) is held


def test_what_lies_well_or_cannot_lie_better_stays() -> None:
    """One of two loads is across whichever way they are gone over."""
    other = load(2, Affine((4096, 64, 1)), float32)
    for values in ((other,), (VALUE * other,)):
        kernel = _kernel(Reduce((0,), "sum", values), TOTAL)
        assert ordered_kernel(kernel) is kernel


def _steps(kernel: Kernel) -> list[int]:
    reduce = next(each for each in kernel.body if type(each) is Reduce)
    return list(reduce.values[0].args[1].coefficients)


def test_the_pass_is_of_all_kernels() -> None:
    program = LoopProgram("p", (), (_kernel(Reduce((0,), "sum", (VALUE,)), TOTAL),), (), ())
    (kernel,) = ordered(program).steps
    assert type(kernel) is Kernel
    assert (4, 64, 64) == kernel.extents
    assert 0 == across(kernel)
