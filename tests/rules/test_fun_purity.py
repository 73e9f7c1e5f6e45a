"""That no op writes is proved, and what is put into a graph has the place of what it stands for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import GraphError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.ops.shape.copies import CLONE, COPY_, RESTRIDE
from aotlite.ir.provenance.location import place_of
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify.common_subexpressions import eliminate_dead_code
from tests.stages.s7_simplify.helpers.window_graphs import Step, graph_of, roles, steps
from tests.stages.test_properties import ENOUGH, holds

KEPT = {"keep_inference_input_mutations": True}


def line_of(node: Node) -> str:
    """The text of the user's line that a node stands at, with single spaces."""
    assert node.location is not None
    return place_of(node.location).text


def pure(function: Any, *args: Any) -> Graph:
    graph: Graph = al.inspect.stages_of(function, *args)["functionalize"]
    return graph


# -------------------------------------------------------------------------------------- no write
def write_late(x: Any) -> Any:
    y = x * 2.0
    y.t().mul_(3.0)  # the write
    return y.sum()


@pytest.mark.rules("FUN-25")
def test_a_write_that_is_left_is_named_with_its_line() -> None:
    graph = al.capture(write_late)(al.ones(2, 2))
    with pytest.raises(GraphError) as raised:
        verify(graph, functional=True)
    told = "\n".join([str(raised.value), *raised.value.__notes__])
    assert "mul_ = ops.mul_(t, 3.0)" in told and "FUN-25" in told
    assert "y.t().mul_(3.0) # the write" in told


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.booleans())
@settings(max_examples=60)
@pytest.mark.rules("FUN-22", "FUN-25", "FUN-26")
def test_writes_are_counted_and_dead_code_removes_none(written: list[bool], returned: bool) -> None:
    """One closing copy for each written input, behind all that computes."""

    def body(*xs: Any) -> Any:
        for each, is_written in zip(xs, written, strict=True):
            if is_written:
                each.mul_(2.0).add_(1.0)
        return xs[0] if returned else xs[0].sum()

    compiled = al.compile(body, **KEPT)
    given = [al.ones(2) * (i + 1.0) for i in range(len(written))]
    compiled(*given)
    assert [x.tolist() for x in given] == [
        [2.0 * (i + 1) + 1 if is_written else i + 1.0] * 2 for i, is_written in enumerate(written)
    ]
    graph = compiled.forward_graph
    assert sum(written) == verify(graph, functional=True, closing_copies=True)
    assert sum(written) == verify(eliminate_dead_code(graph), functional=True, closing_copies=True)
    writes = [node for node in graph.calls if not node.target.pure]
    assert list(graph.calls[len(graph.calls) - len(writes) :]) == writes
    assert len({node.args[0] for node in writes}) == len(writes)
    for node in writes:
        assert node.target is COPY_ and node.args[0].op == "placeholder"
        assert line_of(node) == line_of(node.args[1]) == "each.mul_(2.0).add_(1.0)"


@pytest.mark.rules("FUN-25")
def test_two_closing_copies_into_one_input_are_refused() -> None:
    build = Builder("twice")
    x = build.placeholder(tensor_meta((2,)))
    build.emit(COPY_, (x.node, (x * 2.0).node))
    build.emit(COPY_, (x.node, (x * 3.0).node))
    with pytest.raises(GraphError, match="FUN-25"):
        verify(build.finish([]), functional=True, closing_copies=True)


@pytest.mark.draws(long=1200)
@given(steps, roles)
@settings(max_examples=198)
@pytest.mark.rules("FUN-34")
def test_a_second_time_changes_nothing(program: list[Step], wanted: list[int]) -> None:
    """What is dead stays too, and results that lie as they should need no copies."""
    graph = functionalize(graph_of(program, wanted))
    assert structurally_equal(graph, functionalize(graph)) is None


@pytest.mark.rules("FUN-34", "SYN-6")
def test_a_window_of_a_value_that_is_a_view_is_told_from_what_that_is_a_view_of() -> None:
    def written(window: Any, base: Any) -> Any:
        window.mul_(base)
        line = window.squeeze(1)
        window[0] = line
        base.fill_(2)
        return line.relu_()

    base = al.ones(1)
    graph = al.inspect.stages_of(written, base.unfold(0, 1, 1), base)["functionalize"]
    assert structurally_equal(graph, functionalize(graph)) is None


# ---------------------------------------------------------------------------------------- places
def stale_reader(x: Any) -> Any:
    y = x * 2.0
    part = y[0]  # the view
    y.t().exp_()  # the write
    return part + 1.0  # the reader


@pytest.mark.rules("FUN-35", "FUN-6")
def test_what_is_made_again_stands_where_it_was_made_first() -> None:
    places = {node.target.name: line_of(node) for node in pure(stale_reader, al.ones(2, 2)).calls}
    assert places["exp"] == "y.t().exp_() # the write"
    assert places["select"] == "part = y[0] # the view"
    assert places["add"] == "return part + 1.0 # the reader"


@pytest.mark.rules("FUN-35", "SIM-3")
def test_what_is_found_behind_a_write_stands_at_its_own_view() -> None:
    def behind(x: Any) -> Any:
        y = x * 2.0
        y[0].exp_()
        part = y.t()[:, 1]  # the view
        return part + 1.0

    graph = al.inspect.stages_of(behind, al.ones(2, 2))["simplify"]
    read = graph.outputs[0].args[0]
    assert read.target.views and line_of(read) == "part = y.t()[:, 1] # the view"


@pytest.mark.slow("takes 160 cases through all stages, for the tests of a worker")
@pytest.mark.rules("FUN-26", "FUN-35")
def test_nodes_of_the_graph_stand_at_lines_of_the_program() -> None:
    """No line appears that the imperative graph has not, for views and writes of any kind."""

    def check(journey: Any) -> None:
        known = {place_of(n.location) for n in journey.joint.calls if n.location is not None}
        made = [n for n in (*journey.pure.calls, *journey.simple.calls) if n.location is not None]
        assert {place_of(node.location) for node in made} <= known

    assert holds(check) > ENOUGH


# ---------------------------------------------------------------------------------------- copies
def into_another_layout(x: Any, w: Any) -> Any:
    y = x * 1.0
    y.t().copy_(w)
    return y + 1.0


def one_value_twice(x: Any, w: Any) -> Any:
    a, b = x * 1.0, x * 0.0
    b.copy_(a)
    return a, b


def an_argument_copied(x: Any, w: Any) -> Any:
    b = x * 0.0
    b.copy_(w)
    return b


def arguments_written_crosswise(x: Any, w: Any) -> None:
    x.copy_(w)
    w.mul_(2.0)


@pytest.mark.rules("FUN-12")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (into_another_layout, "the tensor that is written lies so in memory"),
        (one_value_twice, "two results are two memories"),
        (an_argument_copied, "the result is no memory of an input"),
        (arguments_written_crosswise, "its memory is written before it is read"),
    ],
)
def test_a_copy_is_counted_with_its_reason(body: Any, reason: str) -> None:
    graph = pure(body, al.ones(2, 2), al.ones(2, 2))
    assert [reason] == [copy.reason for copy in graph.copies]
    copies = [node for node in graph.calls if node.target in (RESTRIDE, CLONE)]
    assert copies == [copy.node for copy in graph.copies]
    x, w, same, other = (al.arange(4.0).view(2, 2) + i for i in (0, 5, 0, 5))
    expected, found = body(x, w), al.compile(body, verify=2)(same, other)
    assert str(expected) == str(found)
    assert [x.tolist(), w.tolist()] == [same.tolist(), other.tolist()]


@pytest.mark.rules("FUN-12")
def test_no_copy_is_put_in_that_is_not_counted() -> None:
    """A copy that is not counted is one of the program's own."""

    def check(journey: Any) -> None:
        counted = {copy.node for copy in journey.pure.copies}
        for op in (RESTRIDE, CLONE):
            made = {node for node in journey.pure.calls if node.target is op} - counted
            assert len(made) <= sum(node.target is op for node in journey.joint.calls)

    assert holds(check) > ENOUGH


@pytest.mark.rules("FUN-12")
def test_copies_are_told_in_sentences() -> None:
    def twice(x: Any) -> Any:
        y = x * 1.0
        y.t().copy_(x)
        return y, x.t()[0] * 1.0

    told = al.inspect.explain_copies(pure(twice, al.ones(2, 2)))
    assert told.startswith(
        "1 copy inserted:\n  restride is f32[2, 2][1, 2]: the tensor that is written lies so in "
        "memory (test_fun_purity.py:"
    )
    assert told.endswith("in twice: y.t().copy_(x))")
    assert "0 copies inserted." == al.inspect.explain_copies(pure(lambda x: x.sin(), al.ones(2)))
    stage = str(al.inspect.stages_of(twice, al.ones(2, 2)).record("functionalize"))
    assert "# 1 copy inserted:\n#   restride is " in stage


@pytest.mark.rules("FUN-22")
def test_closing_copies_are_counted() -> None:
    compiled = al.compile(lambda x, y: (x.mul_(2), y.add_(x), x.sum())[2], **KEPT)
    compiled(al.ones(2), al.ones(2))
    copies = compiled.forward_graph.copies
    assert ["the graph writes its input"] * 2 == [copy.reason for copy in copies]
    assert not compiled.forward_graph.outputs_with(MutatedInput)


@pytest.mark.rules("FUN-5")
@pytest.mark.parametrize(
    ("source", "copies"), [(lambda w: w, 1), (lambda w: w.t(), 1), (lambda w: w.exp(), 1)]
)
def test_a_copied_source_is_copied_once(source: Any, copies: int) -> None:
    """Into another layout too: that copy is memory of its own already."""

    def body(x: Any, w: Any) -> Any:
        y = x * 1.0
        y.copy_(source(w))
        return y * x

    graph = pure(body, al.ones(2, 2).requires_grad_(), al.ones(2, 2))
    assert copies == len(graph.copies)


def _every_second(x):
    part = (x * 1.0)[:, ::2]
    part.mul_(2)
    return part


def _column(x):
    column = (x * 1.0)[:, 1:2]
    column.copy_(al.arange(4.0).view(1, 4).t())
    return column


MEMORY_READERS = {
    "a window is replaced": lambda x: al.as_strided_scatter(
        _every_second(x), x.new_zeros(2), (2,), (2,), 0
    ),
    "between its elements": lambda x: al.as_strided_scatter(
        _every_second(x), x.new_zeros(2), (2,), (1,), 0
    ),
    "a window on a scatter": lambda x: (
        al.select_scatter(_every_second(x), x.new_zeros(4), 0, 0).as_strided((8,), (2,), 0) * 1
    ),
    "bytes of a copy": lambda x: _column(x).clone().view(al.uint8) * 1,
    "bytes of a sum": lambda x: (_column(x) + 1).view(al.uint8) * 1,
}


@pytest.mark.rules("FUN-12")
@pytest.mark.parametrize("name", MEMORY_READERS)
def test_what_reads_memory_sees_the_strides_of_eager(name):
    function = MEMORY_READERS[name]
    x = al.arange(32.0).view(4, 8)
    expected, found = function(x), al.compile(function, verify=2)(x)
    assert expected.tolist() == found.tolist()
    assert expected.stride() == found.stride()
