"""DYN-2: rules, kernels and gradients of users' ops, with symbols for sizes, ints and floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir import scalar
from aotlite.ir.meta import tensor_meta
from tests.helpers.own_ops import evens, taken_out

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]
SIZES = [(5, 3), (6, 3), (3, 4), (2, 2), (1, 3), (4, 1), (9, 2)]


@pytest.fixture(autouse=True)
def own_ops() -> Iterator[None]:
    """Ops of this file, which are taken out of the table afterwards."""
    with taken_out():
        al.register_op(
            "my_scaled_tanh(Tensor self, Tensor|Scalar by) -> Tensor",
            kernel=lambda xp, a, by: xp.tanh(a) * by,
            scalar=lambda a, by: scalar.tanh(a) * by,
            vjp={"self": lambda grad, self, by: grad * by * (1 - self.tanh().square())},
            result="float",
        )
        al.register_op(
            "my_windows(Tensor self, int size) -> Tensor",
            meta=_windows_meta,
            kernel=lambda xp, meta, a, size: np.stack(
                [a[i : i + size] for i in range(len(a) - size + 1)]
            ),
            vjp={
                "self": lambda grad, self_meta, size: al.stack(
                    [
                        al.nn.functional.pad(grad[:, k], (0, 0, k, size - 1 - k))
                        for k in range(int(size))
                    ]
                ).sum(0)
            },
        )
        evens(al.register_op)
        al.register_op(
            "my_halves(Tensor self) -> (Tensor, Tensor)",
            meta=lambda self: (
                tensor_meta((self.shape[0] // 2, *self.shape[1:]), None, self.dtype, self.device),
                tensor_meta(
                    (self.shape[0] - self.shape[0] // 2, *self.shape[1:]),
                    None,
                    self.dtype,
                    self.device,
                ),
            ),
            kernel=lambda xp, meta, a: (a[: len(a) // 2] * 2, a[len(a) // 2 :] * 3),
            vjp=None,
        )
        al.register_op(
            "my_folded(Tensor self) -> Tensor",
            meta=_folded_meta,
            kernel=lambda xp, meta, a: a.sum(0) if len(a) > 3 else a * 2,
            vjp={
                "self": lambda grad, self_meta: (
                    grad.expand(self_meta.shape) if self_meta.shape[0] > 3 else grad * 2
                )
            },
        )
        al.register_op(
            "my_note(Tensor self, int n) -> ()",
            kernel=lambda xp, meta, a, n: NOTED.append((a.shape, n)),
            vjp=None,
            effect="my_notes",
        )
        NOTED.clear()
        yield


NOTED: list[object] = []


def _windows_meta(self: Any, size: int) -> Any:
    if size < 1 or size > self.shape[0]:
        raise al.ShapeError(f"my_windows: size is {size}, expected at most {self.shape[0]}")
    shape = self.shape[0] - size + 1, size, *self.shape[1:]
    return tensor_meta(shape, None, self.dtype, self.device)


def _folded_meta(self: Any) -> Any:
    shape = self.shape[1:] if self.shape[0] > 3 else self.shape
    return tensor_meta(shape, None, self.dtype, self.device)


def outcome(function: Callable[..., Any], rows: int, columns: int, *numbers: object) -> object:
    x = (al.arange(rows * columns).reshape(rows, columns) / 7).requires_grad_()
    try:
        result = function(x, *numbers)
    except al.AotliteError as error:
        return type(error).__name__, str(error).splitlines()[0]
    grad = None
    if result.requires_grad:
        (grad,) = al.autograd.grad((result * result).sum(), [x])
    slope = None if grad is None else Close(grad.numpy())
    return str(result.meta), Close(result.detach().numpy()), slope


class Close:
    """Values that equal others but for some roundings."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Close)
        return np.allclose(self.array, other.array, rtol=1e-5, atol=1e-6)

    __hash__ = None  # type: ignore[assignment]


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "pointwise": (lambda x: al.my_scaled_tanh(x, x.shape[0]) + al.my_scaled_tanh(x, x), 1),
    "generic": (lambda x: al.my_windows(x * 2, 2).sum(1), 2),
    "by its size": (lambda x: al.my_windows(x, x.shape[0] - 1).sum(0) if x.shape[0] > 1 else x, 9),
    "view": (lambda x: al.my_evens(x * 1.0) * 2, 1),
    "written view": (lambda x: written(x), 2),
    "several results": (lambda x: halves(x), 3),
    "branches": (lambda x: al.my_folded(x + 1), 2),
}


def written(x: al.Tensor) -> al.Tensor:
    y = x.clone()
    al.my_evens(y).mul_(3.0)
    return y + 1


def halves(x: al.Tensor) -> al.Tensor:
    first, second = al.my_halves(x)
    return first.sum(0) + second.sum(0) * x.sum()


@pytest.mark.rules("DYN-2", "SIZ-6")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_own_ops_at_each_size(name: str, backend: str) -> None:
    function, most = PROGRAMS[name]
    compiled = al.compile(function, dynamic=True, backend=backend)
    for rows, columns in SIZES:
        expected = outcome(function, rows, columns)
        assert outcome(compiled, rows, columns) == expected, (rows, columns)
    assert len(compiled.entries) <= most


@pytest.mark.rules("DYN-2", "DYN-26")
def test_an_int_argument_of_an_own_op() -> None:
    def windows(x: al.Tensor, size: int) -> al.Tensor:
        return al.my_windows(x, size).detach() * 2

    compiled = al.compile(windows, dynamic=True, backend="reference")
    for size in (2, 3, 1, 5, 6, 0, -1):
        expected = outcome(windows, 5, 3, size)
        assert outcome(compiled, 5, 3, size) == expected, size
    assert len(compiled.entries) <= 2


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_float_argument_of_an_own_op_is_an_input(backend: str) -> None:
    def scaled(x: al.Tensor, by: float) -> al.Tensor:
        return al.my_scaled_tanh(x.detach(), by * 2)

    compiled = al.compile(scaled, dynamic=True, backend=backend)
    for by in (0.5, 0.25, -3.0):
        assert outcome(compiled, 2, 3, by) == outcome(scaled, 2, 3, by)
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-2", "TOK-2")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_own_op_with_an_effect_gets_the_sizes_of_each_call(backend: str) -> None:
    def noted(x: al.Tensor, n: int) -> al.Tensor:
        al.my_note(x * 2, n + x.shape[0])
        return x + 1

    compiled = al.compile(noted, dynamic=True, backend=backend)
    for rows, n in [(4, 2), (5, 2), (2, -7), (4, 2)]:
        compiled(al.ones(rows), n)
        assert NOTED.pop() == ((rows,), n + rows) and not NOTED
    assert len(compiled.entries) == 1
