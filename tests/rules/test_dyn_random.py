"""DYN-6, RNG-3: random numbers of symbolic shapes. Seeds and offsets are eager's at each size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

F = al.nn.functional
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]


def two_draws(x: al.Tensor) -> al.Tensor:
    first = al.rand(x.shape[0], x.shape[1])
    second = al.randn(x.shape[1], x.shape[0])
    return x * first + second.t()


def dropped(x: al.Tensor) -> al.Tensor:
    return F.dropout(F.dropout(x, 0.5) * 2, 0.25)


def like(x: al.Tensor) -> al.Tensor:
    return x * al.rand_like(x) + al.randn_like(x[:1]) * al.randint(0, 9, x.shape)


def drawn_by_value(x: al.Tensor) -> al.Tensor:
    return al.bernoulli(x.sigmoid()) + al.normal(x, 2.0) + al.normal(0.0, 1.0, x.shape)


def permuted(x: al.Tensor) -> al.Tensor:
    return x[al.randperm(x.shape[0])] + al.rand(())


def written(x: al.Tensor) -> al.Tensor:
    y = x.clone()
    y[1:].uniform_(-1.0, 1.0)
    y.t()[0].normal_()
    return y + al.empty_like(x).exponential_()


def seeded(x: al.Tensor) -> al.Tensor:
    before = al.rand(x.shape)
    al.manual_seed(7)
    return x * before + al.rand(x.shape[1])


def branches(x: al.Tensor) -> al.Tensor:
    noise = al.rand(x.shape[0], 1)
    if x.shape[0] > 2:
        noise = noise + al.rand(x.shape[1])
    return x + noise


def kept_state(x: al.Tensor) -> al.Tensor:
    state = al.get_rng_state()
    first = al.rand(x.shape)
    al.set_rng_state(state)
    return x * (first - al.rand(x.shape)) + al.rand(x.shape)


def recomputed(x: al.Tensor) -> Any:
    def block(y: al.Tensor) -> al.Tensor:
        return F.dropout(y.exp(), 0.5) * al.rand(y.shape[1])

    return al.checkpoint(block, x) * al.rand(x.shape[0], 1)


def split(x: al.Tensor) -> al.Tensor:
    return al.rand(x.shape[0] * x.shape[1] + 1)[1:].reshape(x.shape) * x


PROGRAMS = [
    *(two_draws, dropped, like, drawn_by_value, permuted, written, seeded, branches),
    *(kept_state, recomputed, split),
]


def outcome(function: Callable[..., Any], rows: int, columns: int) -> list[object]:
    """Values and gradient of a call, and what is drawn after it."""
    al.manual_seed(rows * 10 + columns)
    x = (al.arange(rows * columns).reshape(rows, columns) / 7).requires_grad_()
    result = function(x)
    (grad,) = al.autograd.grad((result * result).sum(), [x], allow_unused=True)
    after = al.rand(3)
    return [
        str(result.meta),
        result.tolist(),
        None if grad is None else grad.tolist(),
        after.tolist(),
    ]


def close(found: object, expected: object) -> bool:
    if isinstance(found, list) and isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(close(a, b) for a, b in pairs)
    if isinstance(found, float) and isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    return found == expected


@pytest.mark.rules("RNG-3", "DYN-2", "SIZ-6")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS)
def test_draws_are_eagers_at_each_size(function: Callable[..., Any], backend: str) -> None:
    compiled = al.compile(function, dynamic=True, backend=backend)
    sizes = [(4, 3), (5, 3), (3, 5), (2, 2), (1, 4), (4, 1), (1, 1), (9, 2)]
    for rows, columns in sizes:
        expected = outcome(function, rows, columns)
        assert close(outcome(compiled, rows, columns), expected), (rows, columns)
    assert len(compiled.entries) < len(sizes)


@pytest.mark.rules("RNG-3", "DYN-2")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("function", [two_draws, dropped, branches, like])
def test_draws_of_no_elements(function: Callable[..., Any]) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    for rows, columns in [(4, 3), (0, 3), (3, 0), (2, 2), (0, 0)]:
        expected = outcome(function, rows, columns)
        assert outcome(compiled, rows, columns) == expected, (rows, columns)


@pytest.mark.rules("RNG-3", "DYN-26")
def test_an_int_argument_is_the_number_of_draws() -> None:
    def drawn(n: int, k: int) -> al.Tensor:
        return al.rand(n) * al.randint(0, k, (n,)).sum() + al.rand(2)[0]

    compiled = al.compile(drawn, dynamic=True, backend="reference")
    for n, k in [(4, 9), (7, 3), (2, 5), (1, 1)]:
        al.manual_seed(n)
        expected = drawn(n, k).tolist(), al.rand(1).tolist()
        al.manual_seed(n)
        assert (compiled(n, k).tolist(), al.rand(1).tolist()) == expected
    assert len(compiled.entries) <= 2


@pytest.mark.rules("RNG-3", "DYN-27")
def test_a_float_argument_is_the_scale_of_a_draw() -> None:
    def noisy(x: al.Tensor, scale: float) -> al.Tensor:
        return x + al.randn(x.shape[0]) * scale

    compiled = al.compile(noisy, dynamic=True, backend="reference")
    for scale in (0.1, 0.5, 2.0):
        al.manual_seed(3)
        expected = noisy(al.ones(4), scale).tolist()
        al.manual_seed(3)
        assert compiled(al.ones(4), scale).tolist() == expected
    assert len(compiled.entries) == 1


@pytest.mark.rules("RNG-3", "DYN-2", "SIZ-9")
@pytest.mark.parametrize("backend", ["reference", "loops"])
def test_a_negative_bound_of_sizes_is_a_word(backend: str) -> None:

    def drawn(x: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
        n = x.shape[0]
        return al.randint(-n, n + 1, (8,)), al.randperm(n)

    compiled = al.compile(drawn, dynamic=True, backend=backend)
    for n in (3, 0, 1, 9):
        results = []
        for function in (drawn, compiled):
            al.manual_seed(n)
            results.append([each.tolist() for each in function(al.ones(n))])
        assert results[0] == results[1]


@pytest.mark.rules("RNG-3", "DYN-2")
def test_a_permutation_of_any_size_asks_nothing() -> None:
    """An int64 holds every size."""
    compiled = al.compile(lambda x: al.randperm(x.shape[0]), dynamic=True, backend="reference")
    compiled(al.ones(3))
    [region] = compiled.regions()
    assert region.guards == ()
