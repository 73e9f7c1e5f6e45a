"""Writes by an ndarray between call and backward, of memory that the backward reads (PART-40).

Eager mixes old and new values; a compiled backward does just the same, or raises.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al

Op = Callable[[Any], Any]
UNARY: dict[str, Op] = {
    "sin": lambda x: x.sin(),
    "exp": lambda x: x.exp(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "abs": lambda x: x.abs(),
    "sqrt": lambda x: (x * x + 1.0).sqrt(),
    "power": lambda x: x**3,
    "inverse": lambda x: 1.0 / (x * x + 1.0),
    "view": lambda x: x.view(4).flip(0),
    "clone": lambda x: x.clone(),
    "more": lambda x: x + 1.0,
    "double": lambda x: x * 2.0,
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "running": lambda x: x.cumsum(0),
    "clamped": lambda x: x.clamp(0.7, 1.8),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1.0),
    "where": lambda a, b: al.where(a > b, a, b),
    "maximum": al.maximum,
    "outer": lambda a, b: (a.view(2, 2) @ b.view(2, 2)).view(4),
}
ENDS: dict[str, Op] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "norm": lambda x: (x * x).sum(),
    "itself": lambda x: x,
}


def drawn(draw: random.Random) -> Op:
    """A function that keeps inputs, results and what lies between for its gradient."""
    steps = [
        (draw.choice([*UNARY]), draw.choice([*BINARY]), draw.random() < 0.5, draw.randrange(9))
        for _ in range(draw.randint(1, 3))
    ]
    end = ENDS[draw.choice([*ENDS])]

    def body(x: Any) -> Any:
        values = [x]
        for one, two, joins, place in steps:
            value = UNARY[one](values[-1])
            values.append(BINARY[two](value, values[place % len(values)]) if joins else value)
        return end(values[-1])

    return body


WRITTEN = ["argument, shown before", "argument, shown after", "result"]
OPTIONS: list[dict[str, Any]] = [
    {"backend": "reference"},
    {"backend": "reference", "partition": "min_cut"},
    {"backend": "loops", "partition": "min_cut"},
]


def gradient(run: Op, what: str) -> Any:
    """The gradient behind a write by an ndarray; the error's text where it raises."""
    first = [0.5, 1.0, 1.5, 2.0]
    shown = "before" in what
    x: Any = al.from_numpy(np.array(first)) if shown else al.tensor(first, dtype=al.float64)
    x.requires_grad_()
    y = run(x)
    written = (y if what == "result" else x).detach().numpy()
    written[...] = np.resize([3.0, 0.25, 4.0, 0.75], written.shape)
    try:
        (y if y.ndim == 0 else y.sum()).backward()
    except al.AutogradError as error:
        return str(error)
    return x.grad.numpy()


def check(count: int, seed: int) -> Counter[str]:
    draw, found = random.Random(seed), Counter[str]()
    for number in range(count):
        body, what = drawn(draw), draw.choice(WRITTEN)
        expected = gradient(body, what)
        compiled = al.compile(body, **OPTIONS[number % len(OPTIONS)])
        for call in range(2):
            mine = gradient(compiled, what)
            if isinstance(mine, str):
                assert "was written by an ndarray on its memory" in mine
            else:
                same = np.allclose(expected, mine, rtol=1e-10, equal_nan=True)
                assert same, (seed, number, call, what, expected, mine)
            found["raised" if isinstance(mine, str) else "same"] += 1
    return found


@pytest.mark.rules("PART-40")
def test_writes_by_ndarrays_give_eagers_gradient_or_raise() -> None:
    """120 programs, twice each."""
    found = check(120, seed=3)
    assert found["same"] > 60 and found["raised"] > 20, found


@pytest.mark.long
def test_writes_by_ndarrays_give_eagers_gradient_or_raise_long() -> None:
    assert 4000 == sum(sum(check(200, seed).values()) for seed in range(10, 20))


@pytest.mark.rules("PART-40")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_memory_of_which_the_backward_computes_again_is_refused_where_it_was_written(
    backend: str,
) -> None:
    compiled = al.compile(lambda x: x.sin().exp().sum(), backend=backend, partition="min_cut")
    for writes in (False, True):
        array = np.array([0.5, 1.0])
        x = al.from_numpy(array).requires_grad_()
        y = compiled(x)
        array[:] = [3.0, 4.0] if writes else array
        if not writes:
            y.backward()
            continue
        with pytest.raises(al.AutogradError, match="was written by an ndarray on its memory"):
            y.backward()
        assert x.grad is None
    assert (True,) == tuple(each.byte_checked for each in compiled.partition.saved)
