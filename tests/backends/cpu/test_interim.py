"""Who does not wait for the compiler: how much memory the runs before it is done take, and when
they are left."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cpu import backend as cpu
from aotlite.backends.loops import kernel_run

COUNT = 1_000_000
WORKSPACE = 6 << 20
"""Bytes that a run may take beyond half as much again as eager's: the values of a block, and what
is compiled."""


class Unfinished:
    """A job that nobody does."""

    def done(self) -> bool:
        return False


def matrix(x: Any) -> Any:
    return x[:490_000].reshape(700, 700)


def rows(x: Any) -> Any:
    return x.reshape(-1, 1000)


def chain(x: Any) -> Any:
    for _ in range(6):
        x = (x * 1.01 + 0.1).tanh() * x
    return x


def normalized(x: Any) -> Any:
    x = rows(x)
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()


def convolved(x: Any) -> Any:
    image, weight = x[:320_000].reshape(8, 4, 100, 100), x[:288].reshape(8, 4, 3, 3)
    return al.nn.functional.conv2d(image, weight).relu()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "chain": chain,
    "branches": lambda x: x.sin() + x.cos() * al.where(x > 0.5, x, -x),
    "sum": lambda x: (x * x + 1).sum(),
    "columns": lambda x: (rows(x) * 2).sum(0),
    "softmax": lambda x: rows(x).softmax(1) * 2,
    "normalized": normalized,
    "scan": lambda x: (x * 2).cumsum(0) * 0.5,
    "best": lambda x: (rows(x) + 1).amax(1) + (rows(x) * 3).amax(0)[:1],
    "rolled": lambda x: rows(x).roll(3, 1) + rows(x).roll(1, 0),
    "padded": lambda x: al.nn.functional.pad(rows(x), (3, 3, 2, 2)) * 2,
    "joined": lambda x: al.cat([x * 2, x + 1]),
    "transposed": lambda x: matrix(x).transpose(0, 1) * matrix(x) + 1,
    "gathered": lambda x: x[(x * 100).to(al.int64)] + 1,
    "products": lambda x: ((matrix(x) @ matrix(x)).tanh() @ matrix(x)).sin(),
    "convolved": convolved,
    "sorted": lambda x: x.sort().values * 2,
}
TRAINED = [name for name in PROGRAMS if name != "gathered"]


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
    [*[(name, False) for name in PROGRAMS], *[(name, True) for name in TRAINED]],
)
def test_runs_before_the_compiler_take_half_as_much_again_as_eager(
    name: str, trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "in_background", lambda make: Unfinished())
    function = PROGRAMS[name]
    x = al.linspace(0.0, 0.9, COUNT).requires_grad_(trains)
    compiled = al.compile(function, backend="cpu", wait=False)
    found = peak_of(compiled, x, trains)
    assert found <= 1.5 * peak_of(function, x, trains) + WORKSPACE


# -------------------------------------------------------------------------------- left when done
class Finished(Unfinished):
    """A job that is done after it was asked so often."""

    def __init__(self, make: Callable[[], Any], asks: int) -> None:
        self.made = make()
        self.asks = asks

    def done(self) -> bool:
        self.asks -= 1
        return self.asks < 0

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self.made


@pytest.mark.parametrize("asks", [0, 1, 2, 7, 20])
def test_the_first_call_goes_on_with_what_was_compiled_meanwhile(
    asks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before each operation on a block, so that no call takes longer than waiting."""
    operations: list[str] = []
    monkeypatch.setattr(kernel_run, "POINTS", 10)
    monkeypatch.setattr(cpu, "in_background", lambda make: Finished(make, asks))
    own = kernel_run.apply

    def counted(scalar: Any, operands: Any) -> Any:
        operations.append(scalar.op)
        return own(scalar, operands)

    monkeypatch.setattr(kernel_run, "apply", counted)
    x = al.arange(100).to(al.float32)
    compiled = al.compile(lambda x: (x * 2 + 1) * x, backend="cpu", wait=False)
    for _ in range(2):
        assert [(2 * k + 1) * k for k in range(100)] == compiled(x).tolist()
    assert len(operations) <= asks


def test_a_run_that_was_left_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that is written, and read before, has its new value once."""
    for asks in range(0, 40, 3):
        monkeypatch.setattr(cpu, "in_background", lambda make, n=asks: Finished(make, n))
        x = al.ones(5)
        compiled = al.compile(lambda x: x.mul_(3).sum(), backend="cpu", wait=False)
        assert 15.0 == compiled(x).item()
        assert [3.0] * 5 == x.tolist()
