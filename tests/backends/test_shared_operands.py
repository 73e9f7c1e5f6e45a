"""No pass walks a shared value twice: what a program costs grows as its size does.

Costs are calls of Python functions while a pass runs, which no machine changes. A program of 2n
rounds may cost at most 2.2 times what one of n rounds does, whatever its rounds share.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cpu.emit import print_program
from aotlite.backends.cpu.graph_keys import graph_key
from aotlite.backends.loops import cost, inline
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.expr import walk
from aotlite.backends.loops.improve import improved
from aotlite.backends.loops.program import Kernel, Program, values_of
from aotlite.backends.loops.verify import verify as verify_program
from aotlite.ir.graph import Graph
from aotlite.ir.serialize import dumps, loads
from aotlite.ir.verify import verify

GROWTH = 2.2
ROUNDS = 12
LIMIT = 3_000_000
"""Calls after which a pass is stopped: a walk of trees would never end."""

Round = Callable[[Any, Any], tuple[Any, Any]]
"""New values of a tensor of floats and one of integers."""


def floats(make: Callable[[Any], Any]) -> Round:
    return lambda x, k: (make(x), k)


def integers(make: Callable[[Any], Any]) -> Round:
    return lambda x, k: (x, make(k))


POINTWISE: dict[str, Round] = {
    "add": floats(lambda x: x + x),
    "square": floats(lambda x: x * x),
    "logistic": floats(lambda x: 3.7 * x * (1 - x)),
    "diamond": floats(lambda x: x.sin() + x.cos() * x),
    "where": floats(lambda x: al.where(x > 0.5, x * 2, x + x)),
    "clamp": floats(lambda x: (x + x).clamp(-1, 1) * x),
    "cast": floats(lambda x: (x * 3).to(al.int64).to(al.float32) + x),
    "index": integers(lambda k: k * 3 - k + (k - 1)),
    "choice": integers(lambda k: al.where(k + k < 5, k * 2 - k, k + 1)),
    "divided": integers(lambda k: k // 2 + k % 5),
    "compared": lambda x, k: (al.where(k < 2, x, x * x), k + k - k),
    "guarded": lambda x, k: (al.where((k > 1) & (k < 3) | (k == 0), x, -x), k - 1),
}
GEOMETRIC: dict[str, Round] = {
    "flip": floats(lambda x: x + x.flip(0) * x.flip(1)),
    "transpose": floats(lambda x: x.transpose(0, 1) * x + x),
    "roll": floats(lambda x: x.roll(1, 1) + x),
    "row": floats(lambda x: x / x.sum(-1, keepdim=True) * x),
    "product": floats(lambda x: x @ x),
    "slices": floats(lambda x: al.cat([x[:, 1:] + x[:, :-1], x[:, :1]], 1)),
}
EVERY = POINTWISE | GEOMETRIC
MIXES = [tuple(random.Random(seed).sample(sorted(EVERY), 3)) for seed in range(8)]
MORE_MIXES = [tuple(random.Random(seed).sample(sorted(EVERY), 4)) for seed in range(100, 160)]


def program(names: tuple[str, ...], count: int) -> Callable[[Any], tuple[Any, Any]]:
    """`count` times each of these rounds, then a comparison of what they gave."""

    def function(x: Any) -> tuple[Any, Any]:
        k = al.arange(4)
        for _ in range(count):
            for name in names:
                x, k = EVERY[name](x, k)
        return al.where(x > 0.5, x, 0), al.where(k < 2, k, -k)

    return function


class TooMuch(BaseException):
    """A pass was stopped."""


def cost_of(work: Callable[[], Any]) -> int:
    """The calls of Python functions that some work makes; LIMIT where there are more."""
    calls = 0

    def count(frame: Any, event: str, value: Any) -> None:
        nonlocal calls
        if event == "call":
            calls += 1
            if calls > LIMIT:
                sys.setprofile(None)
                raise TooMuch

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    except TooMuch:
        pass
    finally:
        sys.setprofile(before)
    return calls


def captured(names: tuple[str, ...], count: int) -> Graph:
    graph: Graph = al.capture(program(names, count))(al.ones(4, 4))
    return graph


def scalars_of(program: Program) -> int:
    """The scalars of each kernel, once each."""
    kernels = [step for step in program.steps if type(step) is Kernel]
    roots = [[v for each in kernel.body for v in values_of(each)] for kernel in kernels]
    return sum(len(list(walk(each))) for each in roots)


def grows(name: str, small: float, large: int) -> list[str]:
    """What is wrong with the costs of a pass."""
    bound = GROWTH * small + 500
    return [] if large <= bound else [f"{name}: {small} calls, then {large}"]


def faults(names: tuple[str, ...], rounds: int) -> list[str]:
    """The passes whose cost grows faster than programs of these rounds do."""
    graphs = [captured(names, count) for count in (rounds, 2 * rounds)]
    lowered = [program_of(graph) for graph in graphs]
    fused = [improved(each, 2) for each in lowered]
    print_program(fused[0])  # functions of the library are printed once
    passes: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "capture": (lambda count: captured(names, count), [rounds, 2 * rounds]),
        "compile": (lambda n: compiled(names, n), [rounds, 2 * rounds]),
        "verify": (verify, graphs),
        "text": (lambda graph: graph.code, graphs),
        "key": (lambda graph: graph_key(graph, 2), graphs),
        "records": (lambda graph: loads(dumps(graph)), graphs),
        "lower": (program_of, graphs),
        "verify loops": (verify_program, lowered),
        "text of loops": (str, lowered),
    }
    # Fusing may compute a value in several kernels: printing costs as much for each scalar.
    printing = [cost_of(partial(print_program, each)) for each in fused]
    more = scalars_of(fused[1]) / scalars_of(fused[0]) / 2
    return grows("print C", printing[0] * max(more, 1), printing[1]) + [
        fault
        for name, (work, given) in passes.items()
        for fault in grows(name, *[cost_of(partial(work, each)) for each in given])
    ]


def compiled(names: tuple[str, ...], count: int) -> Any:
    """The gradients, of the stages up to a graph that runs op by op."""
    x = al.ones(4, 4, requires_grad=True)
    result, _ = al.compile(program(names, count), backend="reference")(x)
    if result.requires_grad:
        result.sum().backward()


@pytest.mark.parametrize("name", POINTWISE)
def test_a_shared_value_is_walked_once(name: str) -> None:
    assert [] == faults((name,), ROUNDS)


@pytest.mark.parametrize("names", MIXES, ids="-".join)
def test_drawn_mixes_of_shared_values_are_walked_once(names: tuple[str, ...]) -> None:
    assert [] == faults(names, 5)


@pytest.mark.long
@pytest.mark.parametrize("names", MORE_MIXES, ids="-".join)
def test_more_mixes_of_shared_values_are_walked_once(names: tuple[str, ...]) -> None:
    assert [] == faults(names, 8)


@pytest.mark.parametrize("name", POINTWISE)
def test_fusing_costs_as_much_as_kernels_may_grow(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge walks one kernel, which has a bounded number of operations: beyond it all is linear.
    The bound is made so small here that programs reach it."""
    monkeypatch.setattr(cost, "MOST_OPERATIONS", 12)
    monkeypatch.setattr(inline, "MOST_OPERATIONS", 12)

    def improve(count: int) -> None:
        improved(program_of(captured((name,), count)), 2)

    small, large = [cost_of(partial(improve, count)) for count in (60, 120)]
    assert [] == grows("improve", small, large)
