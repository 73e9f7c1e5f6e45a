"""Random programs that reduce, then write several arguments by each other, on backends that fuse.

Loads see memory as it was before the kernel (K-6), so that a write that waits for a reduction makes
others wait: a momentum that is scaled after the weight was updated by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

Call = Callable[..., Any]
SIZES = ((4, 3), (2, 5), (8, 8), (1, 4), (40, 33))
FOUND = (385, 407)
"""Programs that once differed."""


def momentum(w: Any, g: Any) -> Any:
    """The smallest program that once differed: the write of w waits for the sum."""
    y = w * w.sum()
    w.sub_(g)
    g.mul_(0.5)
    return y


def drawn(seed: int) -> Call:
    """A function of two matrices, three vectors of rows or columns."""
    rng = random.Random(seed)
    dim = rng.choice((0, 1))
    steps = [(rng.choice("mas"), rng.randrange(8), rng.choice(("sum", "mean", "amax")),
              rng.randrange(3)) for _ in range(rng.randint(2, 4))]  # fmt: skip
    writes = [(rng.choice(("add_", "sub_", "mul_", "copy_")), rng.randrange(3), rng.randrange(8),
               rng.random()) for _ in range(rng.randint(2, 5))]  # fmt: skip
    last = rng.choice((None, "add_", "sub_"))
    both = {"m": lambda a, b: a * b, "a": lambda a, b: a + b, "s": lambda a, b: a - b}

    def run(a: Any, b: Any, *vectors: Any) -> Any:
        def shaped(vector: Any) -> Any:
            return vector if dim == 0 else vector.unsqueeze(1)

        current, known = a, list(vectors)
        for op, which, kind, further in steps:
            current = both[op](current, shaped(known[which % len(known)]))
            known.append(getattr(current, kind)(dim))
            current = current * (a, b, current)[further] if further < 2 else current
        for name, into, by, more in writes:
            getattr(vectors[into], name)(known[by % len(known)])
            if more < 0.3:
                known.append(known[by % len(known)] + vectors[into])
        if last is not None:
            getattr(b, last)(current)
        return current, known[-1] * 1

    def arguments() -> list[Any]:
        rows, columns = SIZES[seed % len(SIZES)]
        shapes = [(rows, columns)] * 2 + [((columns, rows)[dim],)] * 3
        made = random.Random(seed + 1)
        count = [shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes]
        values = [[made.choice((-2.0, -1.0, 0.5, 1.0, 2.0)) for _ in range(n)] for n in count]
        return [al.tensor(v).view(s) for v, s in zip(values, shapes, strict=True)]

    run.arguments = arguments  # type: ignore[attr-defined]
    return run


def seen(function: Call, arguments: list[Any]) -> list[Any]:
    """Results and arguments afterwards, to six digits: sums may be in another order."""
    results = function(*arguments)
    every = [*(results if isinstance(results, tuple) else (results,)), *arguments]
    return [[float(f"{x:.5g}") for x in each.flatten().tolist()] for each in every]


def differs(seed: int, backend: str) -> bool:
    function: Any = drawn(seed)
    compiled = al.compile(function, backend=backend)
    its, mine = seen(function, function.arguments()), seen(compiled, function.arguments())
    return not all(
        x == pytest.approx(y, rel=1e-4, abs=1e-4, nan_ok=True)
        for x, y in zip(its, mine, strict=True)
    )


BACKENDS = ("loops", pytest.param("cpu", marks=pytest.mark.skipif(
    find_compiler() is None, reason="no C compiler works here")))  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_that_waits_makes_others_wait(backend: str) -> None:
    arguments = [[al.ones(4), al.ones(4) * 4] for _ in range(2)]
    compiled = al.compile(momentum, backend=backend)
    assert seen(momentum, arguments[0]) == seen(compiled, arguments[1])


def moved(a: Any, b: Any, c: Any) -> None:
    """b has what a had; nothing is computed in between."""
    before = a * 1
    a.copy_(c)
    b.copy_(before)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_a_value_that_only_moves_is_read_before_it_is_written(backend: str) -> None:
    arguments = [[al.ones(4), al.zeros(4), al.ones(4) * 4] for _ in range(2)]
    moved(*arguments[0])
    al.compile(moved, backend=backend)(*arguments[1])
    assert [x.tolist() for x in arguments[0]] == [x.tolist() for x in arguments[1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_that_reduce_and_write_are_eagers(backend: str) -> None:
    seeds = (*FOUND, *range(60 if backend == "loops" else 24))
    assert [] == [seed for seed in seeds if differs(seed, backend)]


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_programs_that_reduce_and_write_are_eagers(first: int, backend: str) -> None:
    assert [] == [seed for seed in range(first, first + 100) if differs(seed, backend)]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_a_step_of_a_network_with_batch_norm_is_eagers(options: dict[str, Any]) -> None:
    """The whole step as one graph: gradients are reductions, and updates write."""

    def trained(is_compiled: bool) -> list[Any]:
        al.manual_seed(0)
        net = al.nn.Sequential(
            al.nn.Linear(4, 6), al.nn.BatchNorm1d(6), al.nn.Tanh(), al.nn.Linear(6, 3)
        )
        optimizer = al.optim.SGD(net.parameters(), lr=0.1, **options)
        x = al.randn(8, 4)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = al.compile(step, backend="cpu") if is_compiled else step
        losses = [run(x).item() for _ in range(4)]
        return [*losses, *[v for p in net.parameters() for v in p.flatten().tolist()]]

    assert trained(False) == pytest.approx(trained(True), rel=1e-3, abs=1e-4)
