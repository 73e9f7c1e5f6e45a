"""SIZ-19: backwards for some of a region's gradients have kernels for all sizes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.symbols.proving import Unproved

PICKED = ((0,), (1,), (2,), (0, 1), (0, 1, 2))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the libraries that are loaded from now on."""
    texts: list[str] = []
    for module in ("sized_program", "compiled_program"):
        load = import_module(f"aotlite.backends.cpu.{module}").load_c

        def counted(text: str, *rest: object, load: Any = load, **how: object) -> object:
            texts.append(text)
            return load(text, *rest, **how)

        monkeypatch.setattr(f"aotlite.backends.cpu.{module}.load_c", counted)
    return texts


def three_results(x: al.Tensor, w: al.Tensor, v: al.Tensor) -> tuple[al.Tensor, ...]:
    y = (x @ w).relu()
    return (y * v).sum(1), (y.softmax(-1) * 2).mean(0), (x * v.sum()).exp()


def three_layouts(x: al.Tensor, w: al.Tensor, v: al.Tensor) -> tuple[al.Tensor, ...]:
    """An addition passes a gradient on, in another layout."""
    y = x @ w
    z = y.t() + v.unsqueeze(1)
    return z.t() * 2, y + v, z.exp()


def gradients(function: Any, n: int, picked: tuple[int, ...]) -> list[np.ndarray | None]:
    """The gradients of x, w and v, from the results that are picked."""
    draws = np.random.default_rng(n)
    shapes = ((n, 5), (5, 7), (7,))
    x, w, v = [
        al.tensor(draws.standard_normal(shape).astype(np.float32)).requires_grad_()
        for shape in shapes
    ]
    results = function(x, w, v)
    total = [(results[k] * results[k]).sum() for k in picked]
    found = al.autograd.grad(total, [x, w, v], allow_unused=True)
    return [None if each is None else each.numpy() for each in found]


def agree(function: Any, compiled: Any, n: int, picked: tuple[int, ...]) -> None:
    expected, found = gradients(function, n, picked), gradients(compiled, n, picked)
    for a, b in zip(expected, found, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


@pytest.mark.rules("SIZ-19")
@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.parametrize("function", [three_results, three_layouts])
def test_a_backward_for_some_gradients_is_compiled_once(function: Any, loaded: list[str]) -> None:
    compiled = al.compile(function, dynamic_shapes={"x": {0: True}}, backend="cpu")
    for n in (9, 10, 16, 33, 7):  # 7 is another size of the program
        before = len(loaded)
        for picked in PICKED:
            agree(function, compiled, n, picked)
        assert len(loaded) - before == (0 if n != 9 else 1 + len(PICKED))
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-19")
def test_a_change_that_needs_numbers_is_made_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told."""

    def asking(*_: object) -> None:
        raise Unproved("whether s0 > 7")

    monkeypatch.setattr("aotlite.pipeline.size_regions.kernels.proving", asking)
    compiled = al.compile(three_results, dynamic_shapes={"x": {0: True}}, backend="loops")
    for n in (9, 10):
        agree(three_results, compiled, n, (0,))
    region: Any = compiled.entries[0].guarded
    assert set(region.records.kernels[1].why_not) == {
        "three_results_backward: a backward for some gradients needs numbers: whether s0 > 7"
    }
