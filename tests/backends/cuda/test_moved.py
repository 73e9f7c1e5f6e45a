"""Laws of bytes moved: at rows of any length, forms of rows and columns move what they must.

What is claimed is claimed of 2^26 elements on both targets; no GPU is asked.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.driver.kernel_resources import compile_without_spills
from aotlite.backends.cuda.emit.cuda_program import print_program
from aotlite.backends.cuda.memory_traffic import TrafficReport, traffic
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import A100, H100, Target
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import LoopProgram
from aotlite.inspect import stages_of
from tests.backends.cuda.helpers import rows_cases

ELEMENTS = 1 << 26
TARGETS = {"sm_80": A100, "sm_90": H100}
DTYPES = {"f32": al.float32, "bf16": al.bfloat16, "f16": al.float16, "f64": al.float64}
FORMS: dict[str, tuple[rows_cases.Function, bool]] = {
    "norm": (rows_cases.norm, False),
    "norm_back": (rows_cases.norm, True),
    "rms": (rows_cases.rms, False),
    "rms_back": (rows_cases.rms, True),
    "softmax": (rows_cases.softmax, False),
    "softmax_back": (rows_cases.softmax, True),
    "var": (lambda x, w, b: x.var(-1), False),
    "var_of_columns": (lambda x, w, b: x.var(0), False),
    "sum_of_columns": (lambda x, w, b: x.sum(0), False),
}
SHORT = 4096
"""Points of a row that a block keeps whatever the form and the dtype."""


@cache
def _lowered(form: str, n: int, dtype: str) -> LoopProgram:
    """The program of a form over rows of n elements, for any target."""
    function, is_backward = FORMS[form]
    kind = DTYPES[dtype].numpy
    # Memory that nobody touches: a gigabyte of zeros takes longer to fill than a program to make.
    args = [al.from_numpy(np.zeros(shape, kind)) for shape in ((ELEMENTS // n, n), (n,), (n,))]
    if is_backward:
        args = [each.requires_grad_() for each in args]
    stages = stages_of(al.compile(function, backend="reference"), *args)
    graph = stages["backward" if is_backward else "simplify"]
    return program_of(graph)


@cache
def program(form: str, n: int, dtype: str, target: Target) -> LoopProgram:
    """The program for a target."""
    return improved_for(_lowered(form, n, dtype), target)


def report(form: str, n: int, dtype: str, target: Target) -> TrafficReport:
    """What it moves."""
    return traffic(program(form, n, dtype, target), target)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_kept_are_moved_once(form: str, dtype: str, target: str) -> None:
    """Lengths that divide what there is, and such that do not; one more in turn."""
    number = [*FORMS].index(form) + [*DTYPES].index(dtype) + [*TARGETS].index(target)
    for n in (1000, SHORT, (512, 1024, 3072)[number % 3]):
        found = report(form, n, dtype, TARGETS[target])
        assert found.ratio <= 1.05, (n, str(found))


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_more_lengths_are_moved_once(form: str, dtype: str, target: str) -> None:
    for n in (512, 1000, 1024, 3072, SHORT):
        found = report(form, n, dtype, TARGETS[target])
        assert found.ratio <= 1.05, (n, str(found))


LONG = {
    ("norm_back", "f32", "sm_90"): {8192: 1.03, 16384: 1.05, 32768: 1.68},
    ("norm_back", "bf16", "sm_90"): {8192: 1.05, 16384: 1.09, 32768: 1.68},
    ("norm_back", "bf16", "sm_80"): {8192: 1.04, 16384: 1.07, 32768: 1.68},
    ("norm_back", "f64", "sm_80"): {1 << 18: 2.0, 1 << 20: 2.0},
    ("rms_back", "bf16", "sm_90"): {16384: 1.07, 32768: 1.51},
    ("softmax_back", "f64", "sm_90"): {8192: 1.001},
    ("softmax", "f64", "sm_90"): {16384: 1.001, 32768: 1.501, 1 << 20: 1.501},
    ("var", "f64", "sm_90"): {32768: 1.001, 1 << 20: 1.001},
    ("norm", "bf16", "sm_80"): {32768: 1.001, 1 << 18: 1.5},
    ("var_of_columns", "bf16", "sm_90"): {32768: 1.05, 65536: 1.05, 1 << 18: 1.001},
    ("var_of_columns", "f32", "sm_80"): {65536: 1.03, 1 << 18: 1.001},
}
"""What forms move at rows that a block can keep in part, or not at all: what is next to nothing
beside reading an operand once, twice, or as often as there are reductions of which one needs
another."""


@pytest.mark.parametrize("key", LONG, ids="_".join)
def test_long_rows_are_moved_as_often_as_is_known(key: tuple[str, str, str]) -> None:
    form, dtype, target = key
    for n, most in LONG[key].items():
        found = report(form, n, dtype, TARGETS[target])
        assert found.ratio <= most, (n, str(found))


def test_casts_of_vectors_are_made_where_they_are_used() -> None:
    for dtype in ("bf16", "f16"):
        assert 1 == report("norm", 1024, dtype, H100).launches


def test_the_same_program_is_printed_the_same() -> None:
    """What is kept was chosen in the order of a set."""
    made = program("norm_back", 32768, "f32", H100)
    first = print_program(made, target=H100).text
    program.cache_clear()
    _lowered.cache_clear()
    again = program("norm_back", 32768, "f32", H100)
    assert first == print_program(again, target=H100).text


@pytest.mark.long
@pytest.mark.skipif(not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_kept_spill_nothing(form: str, dtype: str, target: str) -> None:
    """Of longer rows a few do, in blocks of 1,024 threads, whose 64 registers are all there are."""
    for n in (1024, SHORT):
        made = program(form, n, dtype, TARGETS[target])
        text = print_program(made, target=TARGETS[target]).text
        _, found = compile_without_spills(text, TARGETS[target])
        assert 0 == sum([each.spill_stores + each.spill_loads for each in found.values()]), n
