"""Passes on kernels that know their templates give the program that they give without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import aotlite as al
from aotlite.backends.cpu.compiled_program import text_of
from aotlite.backends.loops import backend
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import Kernel, LoopProgram
from aotlite.backends.loops.templates.step_sequence import LEAST_STEPS, Repetition, repeated
from benchmarks.sizes import Transformer
from tests.backends.loops.helpers.equal_regions import knowing, regions, unknowing


def _same(program: LoopProgram, threads: int, note: object) -> tuple[LoopProgram, int]:
    """Compares both programs and their texts; returns one, and how many of its kernels have the
    template of another one."""
    expected = improved(unknowing(program), threads)
    found = improved(program, threads)
    kernels = [step for step in found.steps if type(step) is Kernel and step.shared is not None]
    shared = len(kernels) - len({step.shared[0] for step in kernels})
    assert text_of(unknowing(expected)).printed.text == text_of(found).printed.text, f"{note}"
    assert str(expected) == str(found) and expected == found, f"{note}"
    return found, shared


def test_drawn_programs_of_equal_regions_are_the_same_with_templates() -> None:
    programs = {seed: knowing(regions(seed)) for seed in range(40)}
    shared = [_same(each, 1 + seed % 2 * 3, seed)[1] for seed, each in programs.items()]
    assert sum(shared) > 60


def _shown(stage: str, made: Any, into: list[str]) -> None:
    if stage.endswith("_kernels"):
        into += [line for line in str(made).splitlines() if " times on other buffers" in line]


@given(st.integers(0, 5), st.integers(1, 9), st.integers(3, 6), st.integers(0, 5))
def test_a_planted_repetition_is_found(before: int, period: int, times: int, after: int) -> None:
    assume(period * times >= LEAST_STEPS)
    block = list(range(100, 100 + period))
    sequence = [*range(before), *block * times, *range(50, 50 + after)]
    assert repeated(sequence) == Repetition(before, period, times)


def test_steps_of_no_repetition_are_not_shown() -> None:
    assert repeated([0, 1, 2, 3, 0, 1, 2, 3]) is None
    assert repeated([0, 0, 0]) is None


# ------------------------------------------------------------------------------------------ blocks
Weights = list[al.Tensor]


def _block(x: Any, w: Any, scale: float = 0.5) -> Any:
    x = (x @ w).softmax(-1) * scale + x
    return x / (x.pow(2).mean(-1, keepdim=True) + 1.0).sqrt()


def _equal(x: Any, weights: Weights, buffer: Any) -> Any:
    for w in weights:
        x = _block(x, w)
    return x


def _another_constant(x: Any, weights: Weights, buffer: Any) -> Any:
    for k, w in enumerate(weights):
        x = _block(x, w, 0.25 if k == 3 else 0.5)
    return x


def _another_dtype(x: Any, weights: Weights, buffer: Any) -> Any:
    for k, w in enumerate(weights):
        x = _block(x.double(), w.double()).float() if k == 3 else _block(x, w)
    return x


def _another_stride(x: Any, weights: Weights, buffer: Any) -> Any:
    for k, w in enumerate(weights):
        x = _block(x.t(), w).t() if k == 3 else _block(x, w)
    return x


def _one_weight(x: Any, weights: Weights, buffer: Any) -> Any:
    for w in weights:
        x = _block(x, weights[0]) * (weights[1] + w)
    return x


def _written(x: Any, weights: Weights, buffer: Any) -> Any:
    for w in weights:
        buffer.add_(x.detach().mean(0))
        x = _block(x + buffer, w)
    return x


def _skips(x: Any, weights: Weights, buffer: Any) -> Any:
    before = last = x
    for w in weights:
        before, last, x = last, x, _block(x, w) + before.sin()
    return x


BLOCKS = _equal, _another_constant, _another_dtype, _another_stride, _one_weight, _written, _skips


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compares every program of the backend `loops`. Returns how many kernels each one shares."""
    found: list[int] = []

    def both(program: LoopProgram, threads: int) -> LoopProgram:
        made, shared = _same(program, threads, program.name)
        found.append(shared)
        return made

    monkeypatch.setattr(backend, "improved", both)
    return found


@pytest.mark.parametrize("function", BLOCKS, ids=lambda each: each.__name__)
def test_blocks_are_the_same_with_templates(
    function: Callable[..., Any], compared: list[int]
) -> None:
    rng = np.random.default_rng(0)
    weights = [al.tensor(rng.standard_normal((8, 8))).float().requires_grad_() for _ in range(6)]
    x = al.tensor(rng.standard_normal((8, 8))).float().requires_grad_()
    compiled = al.compile(function, backend="loops")
    compiled(x, weights, al.zeros(8)).sum().backward()
    assert len(compared) == 2 and sum(compared) > 4


def test_kernels_are_printed_with_what_repeats() -> None:
    found: list[str] = []
    weights = [al.ones(4, 4) for _ in range(5)]
    hear = partial(_shown, into=found)
    al.compile(_equal, backend="loops", observer=hear)(al.ones(4, 4), weights, None)
    assert found == ["steps 0..1 repeat 5 times on other buffers, up to step 9"]


def test_a_transformer_is_the_same_with_templates(compared: list[int]) -> None:
    model = Transformer(10, 16, heads=2)
    x = al.tensor(np.random.default_rng(0).standard_normal((2, 4, 16))).float()
    al.compile(model.loss, backend="loops")(x, model.parameters).backward()
    assert len(compared) == 2 and min(compared) > 30
