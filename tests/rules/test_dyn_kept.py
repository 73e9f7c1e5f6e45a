"""DYN-23: what a captured function leaves behind to be read later has numbers, not symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al

pytestmark = pytest.mark.rules("DYN-23")


def hooked(x: Any, n: int) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * n)
    return y


def hooked_by_size(x: Any, n: int) -> Any:
    held = {"n": [x.shape[0] + n]}
    y = x * 2
    y.register_hook(lambda g, k=n: g * held["n"][0] if k > 3 else g)
    return y


def called_back(x: Any, n: int) -> Any:
    return x + al.effects.callback(lambda: np.float32(n), results="f32[]")


def keys(x: Any, n: int) -> Any:
    return {n: x * 2, (x.shape[0], 1): n}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [hooked, hooked_by_size, called_back, keys],
    ids=lambda f: f.__name__,
)
def test_numbers_that_are_read_later_are_those_of_the_call(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5, 3, 6):
        seen = []
        for run in (function, compiled):
            x = al.arange(float(n)).requires_grad_()
            found = run(x, n)
            values = found if isinstance(found, dict) else {"": found}
            for each in values.values():
                if isinstance(each, al.Tensor):
                    each.sum().backward()
            listed = [(k, type(k), v if type(v) is int else v.tolist()) for k, v in values.items()]
            seen.append((listed, x.grad.tolist() if x.grad is not None else None))
        assert seen[0] == seen[1]


def test_a_hook_that_reads_a_marked_size_is_refused() -> None:
    def scaled(x: Any) -> Any:
        n = x.shape[0]
        y = x * 2
        y.register_hook(lambda g: g * n)
        return y

    x = al.ones(3).requires_grad_()
    al.mark_dynamic(x, 0)
    with pytest.raises(
        al.GuardError, match=r"marked as dynamic, and the hook or callback .*lambda"
    ):
        al.compile(scaled, backend="reference")(x)


@pytest.mark.rules("DYN-32")
@pytest.mark.parametrize("dynamic", [False, None, True])
def test_a_hook_or_callback_that_holds_a_count_is_refused(dynamic: bool | None) -> None:
    def hook(x: Any) -> Any:
        n = x[x > 0].shape[0]
        y = x * 2
        y.register_hook(lambda g: g * n)
        return y

    def callback(x: Any) -> Any:
        n = x[x > 0].shape[0] + 1
        return x + al.effects.callback(lambda a: a * n, x, results="f32[3]")

    def key(x: Any) -> Any:
        n = x[x > 0].shape[0]
        al.size_hint(n, 2)
        return {n: x * 2}

    for function in (hook, callback, key):
        compiled = al.compile(function, dynamic=dynamic, backend="reference")
        with pytest.raises(al.UnsupportedError, match="a number that depends on values"):
            compiled(al.tensor([1.0, -1.0, 2.0]).requires_grad_())


def test_a_hook_that_reads_sizes_of_its_gradient_alone_keeps_symbols() -> None:
    def scaled(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * g.shape[0])
        return y

    compiled = al.compile(scaled, dynamic=True, backend="reference")
    for n in (3, 4, 5):
        x = al.ones(n).requires_grad_()
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0 * n] * n
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-13")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * 2**n,
        lambda x, n: x * (1 << n),
        lambda x, n: ((x if n < 0 else x * 2), x + 2**n),
        lambda x, n: x * 2**n if n >= 0 else x,
        lambda x, n: x + ~((-1) ** n),
        lambda x, n: x + (3 >> n),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_exponent_that_becomes_negative_is_of_another_region(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for n in (2, 3, 5, -1, 0, -2):
        seen = []
        for run in (function, compiled):
            x = al.tensor([1, 3])
            try:
                seen.append(repr(run(x, n)))
            except (TypeError, ValueError) as error:
                seen.append(f"{type(error).__name__}: {error}")
        assert seen[0] == seen[1]


@pytest.mark.rules("NDA-2")
def test_ndarrays_among_the_arguments_have_numbers() -> None:
    for dynamic in (None, True):
        compiled = al.compile(lambda x, n: x * x.shape[0] + n, dynamic=dynamic, backend="reference")
        for n in (3, 4, 5):
            x = np.ones(n, np.float32)
            assert compiled(x, n).tolist() == [2.0 * n] * n
