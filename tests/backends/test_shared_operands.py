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

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.emit.c_program import print_program
from aotlite.backends.cpu.graph_key import graph_key
from aotlite.backends.cuda.emit.cuda_program import print_program as print_cuda
from aotlite.backends.loops.analysis import cost
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.fusion import inline
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import Kernel, LoopProgram, values_of
from aotlite.backends.loops.verify import verify as verify_program
from aotlite.inspect import stages_of
from aotlite.ir.graph import Graph
from aotlite.ir.graph.verify import verify
from aotlite.ir.scalar.expression import walk
from aotlite.ir.serialize import dumps, loads
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s8_partition.min_cut import min_cut

GROWTH = 2.2
ROUNDS = 12
LIMIT = 1_500_000
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
    """Work was stopped."""


def counted(work: Callable[[], Any], limit: int = LIMIT) -> tuple[int, Any]:
    """The calls of Python functions that some work makes, and what it gives; stops it beyond the
    limit."""
    calls = 0

    def count(frame: Any, event: str, value: Any) -> None:
        nonlocal calls
        if event == "call":
            calls += 1
            if calls > limit:
                sys.setprofile(None)
                raise TooMuch(f"more than {limit} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        made = work()
    finally:
        sys.setprofile(before)
    return calls, made


def made_by(work: Callable[[], Any]) -> Any:
    """What work gives that is not measured, and stopped like what is."""
    return counted(work)[1]


def captured(names: tuple[str, ...], count: int) -> Graph:
    graph: Graph = al.capture(program(names, count))(al.ones(4, 4))
    return graph


def scalars_of(program: LoopProgram) -> int:
    """The scalars of each kernel, once each."""
    kernels = [step for step in program.steps if type(step) is Kernel]
    roots = [[v for each in kernel.body for v in values_of(each)] for kernel in kernels]
    return sum(len(list(walk(each))) for each in roots)


def faults_of(
    name: str, work: Callable[[Any], Any], given: list[Any], more: float = 1
) -> list[str]:
    """What is wrong with the costs of work on a program and on one of twice the size.

    `more` says how much more work the larger one is than twice, where it is more.
    """
    small = bound = 0
    try:
        small, _ = counted(partial(work, given[0]))
        bound = int(GROWTH * small * max(more, 1)) + 500
        counted(partial(work, given[1]), bound)
    except TooMuch as stopped:
        return [f"{name}: {small} calls, then {stopped}"]
    return []


def faults(names: tuple[str, ...], rounds: int) -> list[str]:
    """The passes whose cost grows faster than programs of these rounds do."""
    counts = [rounds, 2 * rounds]
    try:
        graphs = [made_by(partial(captured, names, count)) for count in counts]
        lowered = [made_by(partial(program_of, graph)) for graph in graphs]
        fused = [made_by(partial(improved, each, 2)) for each in lowered]
        joints = [made_by(partial(staged, names, count))["simplify"] for count in counts]
        for printer in (print_program, print_kernels):  # library functions are printed once
            made_by(partial(printer, fused[0]))
    except TooMuch as stopped:
        return [f"stages and lowering: {stopped}"]
    passes: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "capture": (lambda count: captured(names, count), counts),
        "compile": (lambda count: compiled(names, count), counts),
        "stages, and their text": (lambda count: str(staged(names, count)), counts),
        "verify": (verify, graphs),
        "text": (lambda graph: graph.code, graphs),
        "provenance": (lambda graph: graph.sequence_table(print_output=False), joints),
        "default partition": (default_partition, joints),
        "min-cut partition": (min_cut, joints),
        "key": (lambda graph: graph_key(graph, 2), graphs),
        "records": (lambda graph: loads(dumps(graph)), graphs),
        "lower": (program_of, graphs),
        "verify loops": (verify_program, lowered),
        "text of loops": (str, lowered),
        "interpret loops": (interpreted, lowered),
    }
    of_fused: dict[str, Callable[[Any], Any]] = {
        "print C": print_program,
        "print CUDA": print_kernels,
        "verify fused loops": verify_program,
        "text of fused loops": str,
        "interpret fused loops": interpreted,
    }
    # Fusing may compute a value in several kernels: each scalar costs as much.
    more = scalars_of(fused[1]) / scalars_of(fused[0]) / 2
    found = [faults_of(name, work, given) for name, (work, given) in passes.items()]
    found += [faults_of(name, work, fused, more) for name, work in of_fused.items()]
    return [fault for each in found for fault in each]


def staged(names: tuple[str, ...], count: int) -> Any:
    """The stages of a program that is differentiated."""
    return stages_of(program(names, count), al.ones(4, 4, requires_grad=True))


def print_kernels(program: LoopProgram) -> Any:
    """The CUDA text of the kernels: products of matrices are cuBLAS's."""
    kernels = tuple([step for step in program.steps if type(step) is Kernel])
    return print_cuda(attrs.evolve(program, steps=kernels))


def interpreted(program: LoopProgram) -> Any:
    """The memory after a run on ones."""
    buffers = {buffer.number: buffer for buffer in program.buffers}
    given = [None if number is None else buffers[number] for number in program.inputs]
    return run_program(program, [b and np.ones(b.size, b.dtype.numpy) for b in given])


def compiled(names: tuple[str, ...], count: int) -> Any:
    """The gradients, of the stages up to a graph that runs op by op."""
    x = al.ones(4, 4, requires_grad=True)
    result, _ = al.compile(program(names, count), backend="reference")(x)
    if result.requires_grad:
        result.sum().backward()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", POINTWISE)
def test_a_shared_value_is_walked_once(name: str) -> None:
    assert [] == faults((name,), ROUNDS)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("names", MIXES, ids="-".join)
def test_drawn_mixes_of_shared_values_are_walked_once(names: tuple[str, ...]) -> None:
    assert [] == faults(names, 5)


@pytest.mark.long
@pytest.mark.parametrize("names", MORE_MIXES, ids="-".join)
def test_more_mixes_of_shared_values_are_walked_once(names: tuple[str, ...]) -> None:
    assert [] == faults(names, 8)


@pytest.mark.thinned(3)
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

    assert [] == faults_of("improve", improve, [60, 120])


def test_the_logistic_map_compiles_in_linear_time() -> None:
    """The comparison at the end asked for a form of all the shared floats before it."""

    def lowered_and_printed(count: int) -> None:
        def function(x: Any, r: Any) -> Any:
            for _ in range(count):
                x = r * x * (1 - x)
            return al.where(x > 0.5, x, 0)

        graph = al.capture(function)(al.ones(8), al.tensor(3.7))
        print_program(improved(program_of(graph), 2))

    lowered_and_printed(2)
    assert [] == faults_of("compile for cpu", lowered_and_printed, [40, 80])


@pytest.mark.parametrize("op", ["sin", "square", "max"])
def test_many_results_cost_what_each_does(op: str) -> None:
    """Each result's gradient reads what all before it have saved."""
    rounds: dict[str, Callable[[Any], Any]] = {
        "sin": lambda x: (x * x).sin(),
        "square": lambda x: x * x,
        "max": lambda x: x * x.max(-1, keepdim=True)[0],
    }

    def trained(count: int) -> None:
        def function(x: Any) -> list[Any]:
            found = []
            for _ in range(count):
                x = rounds[op](x)
                found.append(x)
            return found

        x = al.ones(4, 4, requires_grad=True)
        results = al.compile(function, backend="reference")(x)
        sum(each.sum() for each in results).backward()

    trained(2)
    assert [] == faults_of("results", trained, [25, 50])
