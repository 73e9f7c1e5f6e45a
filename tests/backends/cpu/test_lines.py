"""EMIT-5: loops that call many functions compute what the interpreter computes, and their text has
each body once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.native.compiler.toolchain import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")

Form = Callable[[al.Tensor], Any]


def _chain(count: int, function: Form) -> Form:
    def chained(x: al.Tensor) -> al.Tensor:
        for _ in range(count):
            x = function(x)
        return x

    return chained


def _sum_of_sines(x: al.Tensor) -> al.Tensor:
    total = x
    for k in range(1, 9):
        total = total + (x * float(k)).sin()
    return total


def _residual(x: al.Tensor) -> al.Tensor:
    for _ in range(6):
        x = x + (x * 0.5).tanh()
    return x


def _kept(x: al.Tensor) -> al.Tensor:
    shared = ((x * 1.25 + 0.5) * x - 2.0) * (x - 3.0)
    return (shared.sin() + shared).sin() * shared


def _powers(x: al.Tensor) -> al.Tensor:
    base = x.abs() + 1.0
    return ((base**1.7) ** (x * 0.125)) ** base[:, :1]


def _written(x: al.Tensor) -> al.Tensor:
    y = x * 2.0
    y.sin_()
    y[:, 1:].tanh_()
    y.sin_()
    return y


FORMS: dict[str, Form] = {
    "sines": _chain(5, lambda x: (x * 1.5).sin()),
    "different ones": lambda x: ((x.sin() * 3.0).cos() * 2.0).tan(),
    "exponentials": _chain(6, lambda x: (-x).exp()),
    "of float64": lambda x: _chain(4, lambda y: (-y).exp())(x.double()),
    "half precision": lambda x: _chain(4, lambda y: (y * 1.5).sin())(x.half()),
    "side by side": _sum_of_sines,
    "residual": _residual,
    "kept": _kept,
    "powers": _powers,
    "rows summed": lambda x: _chain(3, al.sin)(x).sum(1),
    "columns summed": lambda x: _chain(3, al.sin)(x).sum(0),
    "all summed": lambda x: _chain(3, al.sin)(x).sum(),
    "largest": lambda x: _residual(x).amax(1),
    "after a sum": lambda x: _residual(x - x.mean(1, True)),
    "softmax": lambda x: _residual(x).softmax(1),
    "summed along": lambda x: _residual(x).cumsum(1),
    "of what is summed along": lambda x: _residual(x.cumsum(1) * 0.01) + _residual(x),
    "across": lambda x: _residual(x).t().clone(),
    "of a transposed one": lambda x: _residual(x.t()),
    "over rolls": lambda x: (x.roll(1, 1).sin() + x.roll(2, 0)).sin(),
    "padded": lambda x: al.nn.functional.pad(x.sin(), (1, 2), value=0.5).sin(),
    "of positions": lambda x: (al.arange(x.shape[1]).float().sin() + x).sin().sin(),
    "gathered": lambda x: _residual(x[:, al.tensor([2, 0, 1, 1] * 20)]),
    "chosen": lambda x: al.where(x.sin().sin() > 0.1, x.sin(), x.cos().cos()),
    "of row level": lambda x: _residual(x[:, :1]) + x,
    "every second": lambda x: _residual(x[:, ::2]),
    "written": _written,
    "joined": lambda x: al.cat([x.sin().sin(), x.cos().sin()], 1).sin(),
}
SHAPES = [(5, 700), (64, 64), (3, 5), (40, 17), (1300, 4), (1, 20000)]


def _numbers(shape: tuple[int, int], *, unusual: bool) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 10
    if unusual:
        x[-1, -1], x[0, 2], x[0, 1] = np.nan, np.inf, 1e30
        x[shape[0] // 2, :3] = 7e3
    return x


def _bytes(compiled: Any, x: np.ndarray) -> bytes:
    numbers = np.asarray(compiled(al.tensor(x.copy())))
    # Which nan comes of two, no rule says.
    return np.where(np.isnan(numbers), np.nan, numbers).tobytes()


@pytest.mark.thinned(8)
@pytest.mark.parametrize("dynamic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("form", FORMS)
def test_lines_are_what_the_interpreter_computes(form: str, dynamic: bool) -> None:
    mine, other = (
        al.compile(FORMS[form], backend=backend, dynamic=dynamic)
        for backend in (CpuBackend(contract=False), "loops")
    )
    for shape in SHAPES if dynamic else SHAPES[:2]:
        for unusual in (False, True):
            x = _numbers(shape, unusual=unusual)
            assert _bytes(mine, x) == _bytes(other, x), (form, shape, unusual)


def _text(form: Form, *, dynamic: bool) -> str:
    """The C text of a function of a tensor that needs no gradient."""
    compiled = al.compile(form, backend="cpu", dynamic=dynamic)
    stages = al.inspect.stages_of(compiled, al.ones(64, 300))
    (kernels,) = [each.made for each in stages if "forward_kernels" in each.name]
    text: str = kernels.text
    return text


@pytest.mark.thinned(7)
@pytest.mark.parametrize("form", FORMS)
def test_the_forms_are_printed_by_lines(form: str) -> None:
    assert " line_" in _text(FORMS[form], dynamic=False)


@pytest.mark.parametrize("dynamic", [False, True], ids=["numbers", "symbols"])
def test_a_text_has_each_body_once(dynamic: bool) -> None:
    """However many calls a chain has, and however many kernels and versions of them there are."""
    form = _chain(12, lambda y: (y * 1.01).sin())
    text = _text(lambda x: form(x).sum(), dynamic=dynamic)
    assert len(re.findall(r"= fn_sin\w*\(", text)) == 2
    assert len(re.findall(r"void line_sin_f32_f32\(", text)) == 1
    assert len(re.findall(r"void points\d+\(", text)) == 1
