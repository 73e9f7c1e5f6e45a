"""The backend `cpu` under `compile`: whole functions, forward and backward."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.auto import AutoBackend
from aotlite.backends.cpu import backend
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.backends.native.compiler import compiler_process, toolchain
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.errors import BackendError

F = al.nn.functional
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
EXACT = CpuBackend(contract=False)


def gelu(x: Any, w: Any) -> Any:
    return F.gelu(x * w[0] + w[1]) + x


def rows(x: Any, w: Any) -> Any:
    return (F.layer_norm(x, (6,)) @ w.t()).softmax(-1)


def sorted_between(x: Any, w: Any) -> Any:
    """An op without loops between two kernels."""
    return (x * 2).sort(-1)[0].exp() * w.sum(0)


def written(x: Any, w: Any) -> Any:
    y = x * 1.0
    y[1:].mul_(w[0])
    return y.t().roll(2, 0), y[0]


FUNCTIONS = (gelu, rows, sorted_between, written)


def made(requires_grad: bool = True) -> tuple[Any, Any]:
    al.manual_seed(3)
    return tuple(al.randn(n, 6).requires_grad_(requires_grad) for n in (5, 4))  # type: ignore[return-value]


def results_of(run: Callable[..., Any]) -> list[np.ndarray]:
    """The results, and the gradients of their sum of squares."""
    given = made()
    found = run(*given)
    found = found if isinstance(found, tuple) else (found,)
    loss = sum(((result * result).sum() for result in found), al.zeros(()))
    gradients = al.autograd.grad(loss, given)
    return [each.detach().numpy() for each in (*found, *gradients)]


@needs_compiler
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_compiled_function_is_eagers_up_to_rounding(function: Callable[..., Any]) -> None:
    mine, its = results_of(al.compile(function, backend="cpu")), results_of(function)
    for a, b in zip(mine, its, strict=True):
        assert a.strides == b.strides
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("function", (gelu, sorted_between, written), ids=lambda f: f.__name__)
def test_without_contraction_kernels_give_the_interpreters_bits(
    function: Callable[..., Any],
) -> None:
    """But for products of matrices, which are divided among threads."""
    mine = results_of(al.compile(function, backend=EXACT))
    its = results_of(al.compile(function, backend="loops"))
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_compiler
def test_who_does_not_wait_is_served_by_the_interpreter_until_the_kernel_is_there() -> None:
    compiled = al.compile(gelu, backend=CpuBackend(wait=False, contract=False))
    x, w = made(requires_grad=False)
    first = compiled(x, w)
    for _ in range(200):
        assert first.tolist() == compiled(x, w).tolist()


@needs_compiler
def test_a_bad_index_raises_what_eager_raises_and_writes_nothing() -> None:
    def take(x: Any, index: Any) -> Any:
        x.mul_(2)
        return x.index_select(0, index)

    x = al.ones(3)
    compiled = al.compile(take, backend="cpu")
    assert [2.0, 2.0] == compiled(x, al.tensor([0, 2])).tolist()
    before = x.tolist()
    with pytest.raises(IndexError) as mine:
        compiled(x, al.tensor([0, 7]))
    with pytest.raises(IndexError) as its:
        take(al.ones(3), al.tensor([0, 7]))
    assert str(its.value) == str(mine.value)
    assert before == x.tolist()


def test_without_a_compiler_auto_runs_op_by_op_and_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(toolchain, "_search", lambda: (None, ("gcc: is not there",)))
    x, w = made(requires_grad=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = al.compile(gelu, backend=AutoBackend())(x, w)
    assert gelu(x, w).tolist() == found.tolist()
    assert any("pip install 'aotlite[cc]'" in str(each.message) for each in said)


def _raising(*_: Any, **__: Any) -> Any:
    raise BackendError("cpu: the compiler is on strike")


@needs_compiler
def test_without_waiting_a_compiler_that_fails_leaves_the_interpreter(monkeypatch: Any) -> None:
    monkeypatch.setattr(backend, "execution", _raising)
    compiled = al.compile(gelu, backend="cpu", wait=False)
    x, w = made(requires_grad=False)
    with pytest.warns(RuntimeWarning, match=r"on strike; graph gelu stays with the interpreter"):
        for _ in range(500):
            found = compiled(x, w)
            time.sleep(0.001)
    np.testing.assert_allclose(found.numpy(), gelu(x, w).numpy(), rtol=2e-5)


@needs_compiler
def test_a_compiler_that_fails_is_an_error_for_cpu_and_a_warning_for_auto(monkeypatch: Any) -> None:
    monkeypatch.setattr(backend, "execution", _raising)
    x, w = made(requires_grad=False)
    with pytest.raises(BackendError, match="on strike"):
        al.compile(gelu, backend="cpu")(x, w)
    with pytest.warns(RuntimeWarning, match="runs op by op, as with backend='reference'"):
        found = al.compile(gelu, backend="auto")(x, w)
    assert gelu(x, w).tolist() == found.tolist()


def test_waiting_is_refused_for_a_backend_that_compiles_at_once() -> None:
    with pytest.raises(al.ArgumentError, match=r"wait is False for backend 'reference'"):
        al.compile(gelu, backend="reference", wait=False)


@needs_compiler
def test_the_call_is_written_while_the_compiler_runs(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_compiler()
    running: list[bool] = []

    class Written(ProgramRun):
        def __init__(self, *given: Any) -> None:
            running.append(bool(compiler_process._running))
            super().__init__(*given)

    monkeypatch.setattr(backend, "ProgramRun", Written)
    x, w = made(requires_grad=False)
    al.compile(lambda x, w: gelu(x, w) * 1.375, backend=EXACT)(x, w)
    al.compile(lambda x, w: gelu(x, w) * 1.375, backend=EXACT)(x, w)
    assert [True, False] == running


@needs_compiler
def test_the_kernels_of_a_compilation_can_be_read() -> None:
    stages = al.inspect.stages_of(al.compile(gelu, backend="cpu"), *made(requires_grad=False))
    text = str(stages.record("forward_kernels"))
    for part in ("kernel ", "erf(", "C compiler", "int run_0(void **slots"):
        assert part in text


@pytest.mark.parametrize("name", ["loops", "cpu"])
def test_a_write_through_a_view_that_sees_places_twice_leaves_the_others(name: str) -> None:
    def write(x: Any) -> None:
        x[:2, 1:] = 4.0

    if name == "cpu" and find_compiler() is None:
        pytest.skip("no C compiler works here")
    base = al.tensor([[-1.0, -3.0]])
    al.compile(write, backend=name)(base.expand((3, 2)).detach())
    assert [[-1.0, 4.0]] == base.tolist()
