"""Numbers of values: one for what is one, found by whichever way (DBL-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from aotlite.ir.graph import Graph, Node, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Gradient, Primal
from aotlite.ir.meta import tensor_meta
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.shared.memory.windows import LOOK_BACK
from aotlite.stages.shared.value_numbering import ValueNumbering, are_known
from tests.stages.helpers.journeys import run_graph
from tests.stages.s7_simplify.helpers.window_graphs import (
    VIEWS,
    Step,
    copying,
    graph_of,
    input_of,
    roles,
)

TURN = VIEWS.index(("t", ()))
THREE = VIEWS.index(("as_strided", ((3,), (2,), 0)))


@pytest.mark.draws(long=3000)
@given(copying)
@settings(max_examples=680)
@example([("view", 0, TURN, 0), ("view", 0, THREE, 0), ("copy", 1, 0, 0), ("view", 0, THREE, 0)])
@pytest.mark.rules("DBL-2")
def test_values_with_one_number_are_equal(program: list[Step]) -> None:
    check_numbers(graph_of(program, [2]), ValueNumbering())


@pytest.mark.draws(long=3000)
@given(copying, copying, st.sampled_from([(2, 3), (3, 4), (3, 3), (3,), (12,), (4, 6)]))
@settings(max_examples=520)
@example([("view", 0, TURN, 0)], [("view", 0, 0, 0), ("scatter", 1, 4, 0)], (2, 3))
@pytest.mark.rules("DBL-2")
def test_values_with_one_number_are_equal_behind_a_graph_with_an_input_of_another_shape(
    before: list[Step], program: list[Step], shape: tuple[int, ...]
) -> None:
    """In the same role, as gradients are that arrive at several orders."""
    numbering = ValueNumbering()
    earlier = numbering.of(graph_of(before, [2], shape), {})
    numbers = check_numbers(graph_of(program, [2]), numbering)
    shapes = {number: node.shape for node, number in earlier.items()}
    for node, number in numbers.items():
        assert shapes.get(number, node.shape) == node.shape, f"{node}"


def check_numbers(graph: Graph, numbering: ValueNumbering) -> dict[Node, int]:
    """The numbers of the values, of which those with one are equal."""
    values = graph.nodes[:-1]
    closing = output_node(values, [Gradient(Primal(k)) for k in range(len(values))])
    shown = run_graph(Graph((*values, closing), "all"), input_of())
    first: dict[int, Any] = {}
    numbers = numbering.of(graph, {})
    for node, number in numbers.items():
        value = shown[Gradient(Primal(values.index(node)))]
        assert np.array_equal(first.setdefault(number, value), value), graph.code
    return numbers


@pytest.mark.draws(long=3000)
@given(copying, roles)
@settings(max_examples=520)
@pytest.mark.rules("DBL-2", "SIM-2", "SIM-3", "SIM-4", "SIM-5", "SIM-6")
def test_what_stage_7_makes_of_a_value_has_its_number(
    program: list[Step], wanted: list[int]
) -> None:
    """But for writes to copies of what lies in one place twice, which are not looked into."""
    views = {VIEWS[view][0] for _, _, view, _ in program}
    assume(views.isdisjoint(("expand", "unfold")) or all(step[0] != "copy" for step in program))
    graph = graph_of(program, wanted)
    simple = simplify(graph)
    numbering = ValueNumbering()
    before, after = numbering.of(graph, {}), numbering.of(simple, {})
    for one, other in zip(graph.outputs, simple.outputs, strict=True):
        assert before[one] == after[other], f"{graph.code}\n{simple.code}"


@pytest.mark.draws(long=3000)
@given(copying, st.lists(st.integers(0, 40), min_size=1, max_size=2))
@settings(max_examples=520)
@pytest.mark.rules("DBL-2")
def test_what_is_known_without_numbers_is_known_by_numbers(
    program: list[Step], places: list[int]
) -> None:
    """No known value is a view of another, and no value is an input that is not known."""
    graph = graph_of(program, [2])
    values = graph.nodes[:-1]
    known = {values[place % len(values)] for place in places}
    numbering = ValueNumbering()
    numbers = numbering.of(graph, {})
    inputs = {numbers[node] for node in graph.placeholders} - {numbers[node] for node in known}
    if are_known([], known, graph):
        assert [] == [node for node in known if numbering.turned(numbers[node]) != numbers[node]]
    for node in values:
        if are_known([node], known, graph):
            assert numbers[node] not in inputs, graph.code
            assert node in known or node.args[0] in known


@pytest.mark.rules("DBL-2", "SIM-2")
@pytest.mark.parametrize("turned", [True, False])
def test_what_is_viewed_back_of_what_was_written_has_the_number_of_the_view(turned: bool) -> None:
    """Of a memory that is written whole through a view of it, and seen through another one."""
    build = Builder("back")
    x = build.placeholder(tensor_meta((12,)), Primal(0))
    written = x.as_strided((2, 3), (3, 1), 4) * 2.0
    after = x.as_strided_scatter(written, (2, 3), (3, 1), 4)
    seen = after.as_strided((3, 2), (1, 3), 4) if turned else after.as_strided((6,), (1,), 4)
    back = seen.t() if turned else seen.view((2, 3))
    again = written.t() if turned else written.view((6,))
    numbers = ValueNumbering().of(build.finish([seen, back, again], [Gradient(Primal(0))] * 3), {})
    assert numbers[back.node] == numbers[written.node]
    assert numbers[seen.node] == numbers[again.node]


@pytest.mark.rules("DBL-2")
def test_a_row_is_found_behind_as_many_writes_as_stage_7_looks_back() -> None:
    build = Builder("rows")
    x = build.placeholder(tensor_meta((LOOK_BACK, 3)), Primal(0))
    value, rows = x, []
    for row in range(LOOK_BACK):
        rows.append(value.select(0, row) * 2.0)
        value = value.select_scatter(rows[-1], 0, row)
    last = value.select(0, 0)
    numbers = ValueNumbering().of(build.finish([last], [Gradient(Primal(0))]), {})
    assert numbers[rows[0].node] == numbers[last.node]
