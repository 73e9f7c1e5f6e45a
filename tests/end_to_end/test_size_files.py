"""Graphs of random size programs in files: each is saved, loaded and printed, and all compute the
same at further sizes (SER-16, GRA-16)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir import serialize
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.binding import parameters_of
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.meta import TensorMeta, table_in
from aotlite.ir.op import GeometryOp, Op
from aotlite.ir.op.namespace import OpNamespace
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.symbols.table import SymbolTable
from tests.backends.loops.helpers.sized_graphs import drawn
from tests.end_to_end.drawn_size_programs import TRIED, draw

pytestmark = pytest.mark.rules("SER-1", "SER-16", "SER-17", "SER-18", "GRA-16", "PART-4")

VECTORS = 3
"""The vectors of sizes at which each graph runs, besides that of its capture."""


def graphs_of(seed: int, partition: str) -> list[tuple[str, Graph]]:
    """The graphs of all stages of a program, with their names; none where eager raises."""
    program = draw(seed)
    sizes = {name: TRIED[name] for name in program.symbols}
    try:
        program.function()(*program.arguments(sizes))
    except Exception:
        return []
    options: Any = {"backend": "reference", "partition": partition}
    compiled = al.compile(program.function(), dynamic=True, **options)
    stages = al.inspect.stages_of(compiled, *program.arguments(sizes))
    return [(each.name, each.made) for each in stages if isinstance(each.made, Graph)]


def vectors(table: SymbolTable, seed: int) -> Iterator[dict[str, int]]:
    """Sizes that the guards admit, the hints first."""
    yield table.hints
    names = list(table.symbols)
    every = list(itertools.product(range(8), repeat=len(names))) if len(names) < 5 else []
    dice = random.Random(seed)
    some = [tuple(dice.choices(range(8), k=len(names))) for _ in range(2000)]
    dice.shuffle(every)
    found = 0
    for each in every or some:
        values = dict(zip(names, each, strict=True))
        rooms = [(table.symbols[name].room, value) for name, value in values.items()]
        fits = all((a is None or a <= n) and (b is None or n <= b) for (a, b), n in rooms)
        if fits and values != table.hints and all(guard.holds(values) for guard in table.log):
            yield values
            found += 1
            if found == VECTORS:
                return


def argument(meta: TensorMeta, seed: int) -> al.Tensor:
    """A tensor of this geometry."""
    memory = drawn(meta.as_contiguous((meta.span,)), seed)
    return al.tensor(memory).as_strided(meta.shape, meta.stride, 0).detach()


def run_op(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of an op on tensors."""
    return al.Tensor._apply(None, op, args)  # type: ignore[arg-type]


def printed(graph: Graph, sizes: dict[str, int], arguments: list[al.Tensor]) -> list[Any]:
    """The results of the graph's text, as Python on tensors."""
    constants = {name: al.tensor(value) for name, value in graph.constants.items()}
    scope: dict[str, Any] = {"ops": OpNamespace(run_op, constants)}
    exec(graph.code, scope)
    (function,) = [each for name, each in scope.items() if name not in ("ops", "__builtins__")]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    numbers = {name: value for name, value in sizes.items() if name in names}
    found = function(*arguments, **numbers)
    return [each.numpy() if isinstance(each, al.Tensor) else each for each in found]


def outcome(run: Any) -> Any:
    """Results, or the error: a write of other sizes, about which the op's rule does not ask."""
    try:
        return list(run())
    except AotliteError as error:
        return type(error).__name__


def check(graph: Graph, seed: int) -> Counter[str]:
    """Saves, loads and prints a graph with symbols; compares them at several vectors of sizes."""
    seen: Counter[str] = Counter(graphs=1)
    text = serialize.dumps(graph)
    again = serialize.loads(text)
    assert serialize.dumps(again) == text
    assert again.code == graph.code
    assert parameters_of(again) == parameters_of(graph)
    table = table_in([node.meta for node in again.nodes])
    for sizes in [{}] if table is None else vectors(table, seed):
        check_at(sizes, graph, again)
        seen["vectors"] += 1
    return seen


def check_at(sizes: dict[str, int], graph: Graph, again: Graph) -> None:
    """Both graphs, and the text, give at these sizes what the graph with numbers gives."""
    numbers = at_sizes(graph, sizes)
    metas: list[Any] = [node.meta for node in numbers.placeholders]
    arrays = [argument(meta, k).numpy() for k, meta in enumerate(metas)]
    given = {name: sizes[name] for name in parameters_of(graph)}
    expected = outcome(lambda: run_graph(numbers, *arrays))
    for each in (graph, again):
        assert_same(outcome(partial(run_graph, each, *arrays, sizes=given)), expected)
    # A tensor whose geometry is changed in place is one object under its earlier names, too.
    if not any(isinstance(node.target, GeometryOp) for node in graph.nodes):
        tensors = [argument(meta, k) for k, meta in enumerate(metas)]
        assert_same(outcome(lambda: printed(again, given, tensors)), expected)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
        return
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def compared(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        for name, graph in graphs_of(seed, ("default", "min_cut")[seed % 2]):
            try:
                total += check(graph, seed)
            except UnsupportedError as error:
                # Whether a part of a window lies in its storage is asked anew, without its guards.
                assert "as_strided" in graph.code, (seed, error.__notes__)
                total["windows"] += 1
            except Exception as error:
                error.add_note(f"seed {seed}, {name}\n{draw(seed).text}")
                raise
    return total


def test_graphs_of_random_programs_are_saved_loaded_and_printed() -> None:
    seen = compared(range(3000, 3012))
    assert seen["windows"] <= 0.02 * seen["graphs"]
    assert seen["vectors"] > 3 * seen["graphs"]


@pytest.mark.long
def test_graphs_of_many_random_programs_are_saved_loaded_and_printed() -> None:
    print(dict(compared(range(4000, 5000))))


def test_a_size_that_an_equation_bounds_is_read_as_it_was_written() -> None:
    """Under s0 + s1 == 8 it is still known that min(1, s1) is not negative."""

    def function(x: al.Tensor) -> list[al.Tensor]:
        return [x[..., :1] * 2 if sum(x.shape) == 8 else x]

    stages = al.inspect.stages_of(al.compile(function, dynamic=True), al.ones(3, 5))
    check(stages["capture"], 0)
