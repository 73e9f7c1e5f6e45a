"""Loops in two versions: whatever numbers a block holds, each result is what it is by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.native.compiler.toolchain import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")

SHAPE = (70, 701)
FORMS: dict[str, Callable[[al.Tensor], al.Tensor]] = {
    "of memory": lambda x: x.sin() * 2.0,
    "of a value": lambda x: (x * 0.5).cos() + x * 0.5,
    "of one another": lambda x: (x.sin() * 3.0).cos() + x.tan(),
    "two operands": lambda x: x.sin() * (x + 1.0).sin(),
    "over rolls": lambda x: x.roll(1, 1).sin() + x.roll(2, 0).sin(),
    "across": lambda x: x.sin().t().clone(),
    "across and down": lambda x: x.sin() + x.reshape(701, 70).t().cos(),
    "rows summed": lambda x: x.sin().sum(1),
    "columns summed": lambda x: x.cos().sum(0),
    "all summed": lambda x: (x.sin() * x.tan()).sum(),
    "after a sum": lambda x: (x - x.sin().mean(1, True)).cos(),
    "of row level": lambda x: x[:, :1].sin() + x * 2.0,
    "summed along": lambda x: x.sin().cumsum(1),
    "of what is summed along": lambda x: x.cumsum(1).sin() + (x * 2.0).cos(),
    "of what is summed down": lambda x: (x.cumsum(0) * 2.0).sin().sum(1),
    "in half precision": lambda x: x.to(al.float16).sin(),
    "of few": lambda x: x[0, :3].sin(),
}


def _numbers(*, unusual: bool) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32) * 10
    if unusual:
        x[3, 5], x[40, 600], x[69, 700] = 1e30, np.inf, np.nan
        x[0, :700] = 7e3
    return x


def _run(form: str, x: np.ndarray, backend: object) -> np.ndarray:
    made = al.compile(FORMS[form], backend=backend)(al.tensor(x.copy()))
    numbers = np.asarray(made)
    # Which nan comes of two, no rule says.
    return np.where(np.isnan(numbers), np.nan, numbers)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("unusual", [False, True], ids=["usual", "with others"])
@pytest.mark.parametrize("form", FORMS)
def test_both_versions_are_the_interpreters(form: str, unusual: bool) -> None:
    x = _numbers(unusual=unusual)
    mine = _run(form, x, CpuBackend(contract=False))
    assert mine.tobytes() == _run(form, x, "loops").tobytes()


@pytest.mark.parametrize("form", ["of memory", "of a value", "two operands"])
def test_a_result_does_not_depend_on_its_neighbors(form: str) -> None:
    """Contracted, too: a number in a block that takes the longer way has the bits that it has in
    another block."""
    usual, other = _numbers(unusual=False), _numbers(unusual=True)
    same = usual == other
    mine, among_others = (_run(form, x, "cpu") for x in (usual, other))
    assert mine[same].tobytes() == among_others[same].tobytes()


def test_a_loop_over_usual_numbers_has_no_conversion_to_float64() -> None:
    """Which halves the numbers of a vector."""
    stages = al.inspect.stages_of(al.compile(al.sin, backend="cpu"), al.ones(1000))
    (kernels,) = [each.made for each in stages if "forward_kernels" in each.name]
    kernel = kernels.text[kernels.text.index("run_k0") :]
    usual, others = kernel.split("} else {")[:2]
    assert "f64" not in usual
    assert "points0(" in others
    assert "line_sin_f32_f32(" in kernels.text[kernels.text.index(" points0(") :]
