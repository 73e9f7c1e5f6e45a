"""Who does not wait for the compiler: how much memory the runs before it is done take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu import backend as cpu

COUNT = 1_000_000
"""4 MB: beside these the values of a block are less than an eighth of eager's peak. Of more, they
would be a smaller part of it, and less would be found."""
MORE = 4_000_000
WORKSPACE = 12 << 20
"""Bytes of the values of a block, where they are those of the functions that take most."""


class Unfinished:
    """A job that nobody does."""

    def done(self) -> bool:
        return False

    def is_absent(self) -> bool:
        return True

    def wait(self, timeout: float) -> bool:
        return False


class Traced:
    """Memory for results that is NumPy's, and so counted."""

    @staticmethod
    def allocator(shape: tuple[int, ...], dtype: Any) -> Callable[[], Any]:
        return lambda: np.empty(shape, dtype)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library is found or made."""
    monkeypatch.setattr(cpu, "in_background", lambda make: Unfinished())
    monkeypatch.setattr(cpu.CpuBackend, "_is_compiled", lambda self, text: False)
    monkeypatch.setattr(cpu, "RESULTS", Traced)


def matrix(x: Any) -> Any:
    return x.reshape(2000, -1)


def rows(x: Any) -> Any:
    return x.reshape(-1, 1000)


def chain(x: Any) -> Any:
    for _ in range(6):
        x = (x * 1.01 + 0.1).abs().sqrt() * x
    return x


def heavy(x: Any) -> Any:
    """A sum, so that all that it takes is values of a block."""
    return (x.sin() + x.cos() * x.erf() + x.tanh()).sum()


def multiplied(x: Any) -> Any:
    rows, weight = x.reshape(-1, 32), x[:1024].reshape(32, 32)
    return ((rows @ weight).abs() @ weight) * 2


def normalized(x: Any) -> Any:
    x = rows(x)
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()


WEIGHT = al.linspace(-1.0, 1.0, 288).reshape(8, 4, 3, 3).requires_grad_(True)


def convolved(x: Any) -> Any:
    return al.nn.functional.conv2d(x.reshape(10, 4, -1, 250), WEIGHT).relu()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "chain": chain,
    "branches": lambda x: x.sqrt() + x.abs() * al.where(x > 0.5, x, -x),
    "sum": lambda x: (x * x + 1).sum(),
    "columns": lambda x: (rows(x) * 2).sum(0),
    "softmax": lambda x: rows(x).softmax(1) * 2,
    "normalized": normalized,
    "scan": lambda x: (x * 2).cumsum(0) * 0.5,
    "best": lambda x: (rows(x) + 1).amax(1) + (rows(x) * 3).amax(0)[:1],
    "rolled": lambda x: rows(x).roll(3, 1) + rows(x).roll(1, 0),
    "padded": lambda x: al.nn.functional.pad(rows(x), (3, 3, 2, 2)) * 2,
    "joined": lambda x: al.cat([x * 2, x + 1]),
    "transposed": lambda x: matrix(x).transpose(0, 1) * matrix(x).reshape(-1, 2000) + 1,
    "gathered": lambda x: x[(x * 100).to(al.int64)] + 1,
    "products": multiplied,
    "convolved": convolved,
    "sorted": lambda x: x.sort().values * 2,
}
TRAINED = [name for name in PROGRAMS if name != "gathered"]
SECONDS = ("convolved", "products")
"""Whose backward takes seconds."""


def peak_of(function: Any, x: Any, trains: bool) -> int:
    """The bytes that a call, and its backward, take beside what was there before."""
    tracemalloc.start()
    try:
        result = function(x)
        if trains:
            result.sum().backward()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        x.grad = None


@pytest.mark.parametrize(
    ("name", "trains"),
    [
        *[(name, False) for name in PROGRAMS],
        *[(name, True) for name in TRAINED if name not in SECONDS],
        *[pytest.param(name, True, marks=pytest.mark.long) for name in SECONDS],
    ],
)
def test_runs_before_the_compiler_take_half_as_much_again_as_eager(name: str, trains: bool) -> None:
    """With the values of a block."""
    function = PROGRAMS[name]
    x = al.linspace(0.0, 0.9, COUNT).requires_grad_(trains)
    found = peak_of(al.compile(function, backend="cpu", wait=False), x, trains)
    assert found <= 1.55 * peak_of(function, x, trains)


def test_values_of_a_block_are_of_a_size_that_no_program_changes() -> None:
    x = al.linspace(0.0, 0.9, MORE)
    found = peak_of(al.compile(heavy, backend="cpu", wait=False), x, False)
    assert found <= WORKSPACE < 4 * MORE
