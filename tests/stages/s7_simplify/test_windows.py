"""The window rules of stage 7: the same results, memories and strides, of ever smaller graphs."""

from __future__ import annotations

from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import Gradient, Primal, Saved
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.stages.s7_simplify import apply_window_rules, simplify
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
)
from aotlite.stages.s7_simplify.views_of_scatters import see_through_scatters
from aotlite.stages.shared.memory.windows import LOOK_BACK, SCATTERED, write_of
from tests.stages.helpers.journeys import run_graph, same_results
from tests.stages.s7_simplify.helpers.window_graphs import Step, graph_of, input_of, roles, steps


def ops_of(graph: Graph) -> list[str]:
    return [node.target.name for node in graph.calls]


def simplified(function: Any, *shape: int) -> Graph:
    graph: Graph = al.inspect.stages_of(function, al.ones(*shape))["simplify"]
    return graph


# ------------------------------------------------------------------------------- random graphs
@pytest.mark.draws(long=3000)
@given(steps, roles)
@settings(max_examples=680)
@pytest.mark.rules("SIM-2", "SIM-3", "SIM-4", "SIM-5", "SIM-6", "FUN-12")
def test_results_keep_their_values_and_metas(program: list[Step], wanted: list[int]) -> None:
    graph = graph_of(program, wanted)
    simple = simplify(graph)
    verify(simple, functional=True)
    assert same_results(run_graph(graph, input_of()), run_graph(simple, input_of()))
    assert [value.meta for value in graph.outputs] == [value.meta for value in simple.outputs]


@given(steps, roles)
@settings(max_examples=200)
@pytest.mark.rules("SIM-7", "PART-15")
def test_memory_that_the_caller_holds_stays_the_results_own(
    program: list[Step], wanted: list[int]
) -> None:
    """And no gradient comes to lie there that did not before."""
    before = graph_of(program, wanted)
    after = simplify(before)
    held, others = roots_of(after)
    assert len(held) == len(set(held)) and all(root.op == "call" for root in held)
    was_held, were_others = roots_of(before)
    for root, was in zip(others, were_others, strict=True):
        assert root not in held or was in was_held


def roots_of(graph: Graph) -> tuple[list[Node], list[Node]]:
    """Whose memory the results are that the caller comes to hold, and the others."""
    held: list[Node] = []
    others: list[Node] = []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        (others if isinstance(role, Gradient) else held).append(storage_root(value))
    return held, others


@given(steps, roles)
@settings(max_examples=200)
@pytest.mark.rules("SIM-7")
def test_no_graph_becomes_larger(program: list[Step], wanted: list[int]) -> None:
    graph = eliminate_common_subexpressions(eliminate_dead_code(graph_of(program, wanted)))
    assert len(apply_window_rules(graph)) <= len(graph)


@given(steps, roles)
@settings(max_examples=300)
def test_the_graph_given_stays_as_it_was(program: list[Step], wanted: list[int]) -> None:
    graph = graph_of(program, wanted)
    before = [(node, node.args, node.meta) for node in graph.nodes]
    simplify(graph)
    assert before == [(node, node.args, node.meta) for node in graph.nodes]


def places_of(graph: Graph) -> dict[Node, tuple[Node, int, Any]]:
    """For each value the node that made its memory, where in it it starts, and its meta."""
    found: dict[Node, tuple[Node, int, Any]] = {}
    for node in graph.nodes[:-1]:
        found[node] = node, 0, node.meta
        if type(node.target) is ViewOp and not node.target.recasts:
            memory, before, _ = found[node.args[0]]
            meta, start = node.target.result(node.args)
            found[node] = memory, before + start, meta
    return found


@given(steps)
@settings(max_examples=200)
@pytest.mark.rules("SIM-5", "SIM-6")
def test_nothing_needless_is_left(program: list[Step]) -> None:
    """Of a gradient, whose memory nobody holds: no window twice, no write of nothing or of all."""
    graph = simplify(graph_of(program, [2]))
    places = places_of(graph)
    seen = [(memory, start, meta) for memory, start, meta in places.values()]
    assert len(seen) == len(set(seen))
    for node in graph.calls:
        write = write_of(node)
        if write is None:
            continue
        window, (memory, before, _) = write.window, places[write.operand]
        assert window.meta.numel
        assert (memory, before + window.start, window.meta) != places[write.source]
        assert not (window.start == 0 and window.meta is write.source.meta is write.operand.meta)


def addresses(meta: Any, start: int) -> set[int]:
    """The elements of memory that a window shows, one by one."""
    places = product(*map(range, meta.shape))
    return {start + sum(map(mul, place, meta.stride)) for place in places}


@given(steps)
@settings(max_examples=200)
@pytest.mark.rules("SIM-3")
def test_no_view_is_taken_behind_a_write_that_it_does_not_show(program: list[Step]) -> None:
    """Of a gradient, whose memory nobody holds; views of views may cost more than they save."""
    graph = simplify(graph_of(program, [2]))
    for node, (memory, start, meta) in places_of(graph).items():
        write = write_of(memory)
        is_direct = node is not memory and node.args[0] is memory
        if is_direct and write is not None and meta.numel:
            assert addresses(meta, start) & addresses(*write.window)


# ----------------------------------------------------------------------------- exhaustive, in a row
def _row_of(starts: tuple[int, ...], places: tuple[int, ...]) -> Graph:
    """A write, a slice, a write, ...: each value is read by the next alone."""
    build = Builder("row")
    value = build.placeholder(tensor_meta((6,)), Primal(0))
    for number, (start, place) in enumerate(zip(starts, places, strict=True)):
        if start:
            value = value._do("slice", 0, start, value.meta.shape[0], 1)
        source = build.emit(FULL, ((), float(-1 - number), value.meta.dtype, value.meta.device))
        value = value._do("select_scatter", Proxy(build, source), 0, place)
    return build.finish([value.clone()])


@pytest.mark.rules("SIM-2", "SIM-3")
def test_of_two_elements_only_the_written_one_is_read_from_the_write() -> None:
    for start, written, read in product((0, 1), range(4), range(4)):
        build = Builder("beside")
        value = build.placeholder(tensor_meta((6,)), Primal(0))
        whole = value._do("slice", 0, start, 6, 1) if start else value
        source = whole._do("select", 0, written) * -1.0
        copy = whole._do("select_scatter", source, 0, written)
        graph = simplify(build.finish([copy._do("select", 0, read) + 1.0]))
        assert "select_scatter" not in ops_of(graph)
        assert ("mul" in ops_of(graph)) == (written == read)


@pytest.mark.rules("SIM-4")
def test_writes_and_slices_in_a_row_give_what_numpy_gives() -> None:
    for starts in product((0, 1), (0, 1, 2), (0, 1)):
        lengths = [6 - sum(starts[: i + 1]) for i in range(3)]
        for places in product(*map(range, lengths)):
            expected = np.arange(6, dtype=np.float32)
            for number, (start, place) in enumerate(zip(starts, places, strict=True)):
                expected = expected[start:]
                expected[place] = -1 - number
            simple = simplify(_row_of(starts, places))
            (got,) = run_graph(simple, {Primal(0): np.arange(6, dtype=np.float32)}).values()
            assert expected.tolist() == got.tolist(), (starts, places)


# -------------------------------------------------------------------------------- rule by rule
@pytest.mark.rules("SIM-2")
def test_what_was_written_is_read_without_a_scatter() -> None:
    def read_back(x: Any) -> Any:
        y = x * 1.0
        y[1].mul_(2.0)
        return y[1] + 1.0

    assert ops_of(simplified(read_back, 2, 3)) == ["mul", "select", "mul", "add"]


@pytest.mark.rules("SIM-2", "FUN-12")
def test_a_column_read_back_keeps_the_strides_of_what_is_made_of_it() -> None:
    """The column has stride 3, the value written stride 1: a sum and a copy see no difference."""

    def column(x: Any) -> Any:
        y = x * 1.0
        y[:, 1].mul_(2.0)
        return y[:, 1] + 1.0

    assert ops_of(simplified(column, 2, 3)) == ["mul", "select", "mul", "add"]


@pytest.mark.rules("SIM-2", "FUN-12")
def test_what_looks_at_strides_keeps_the_view() -> None:
    """A sum of a transposed part adds in the order of memory."""

    def block(x: Any) -> Any:
        y = x * 1.0
        y[:, :2].copy_(y[:2, :2].t() * 2.0)
        return y[:, :2].sum(0)

    graph = simplified(block, 2, 3)
    assert "slice_scatter" in ops_of(graph)
    assert same_results(run_graph(graph, _ones(graph)), run_graph(_pure(block, 2, 3), _ones(graph)))


@pytest.mark.rules("SIM-2", "FUN-12")
def test_what_is_computed_from_the_view_lies_as_before() -> None:
    """A product of the value written would be laid out like that."""
    build, x = _four_rows()
    turned = x._do("slice", 0, 0, 3, 1).t() * 2.0
    copy = x._do("slice_scatter", turned, 0, 1, 4, 1)
    simple = simplify(build.finish([copy._do("slice", 0, 1, 4, 1) * 3.0]))
    verify(simple, functional=True)
    assert ((1, 3), (3, 1)) == (turned.meta.stride, simple.outputs[0].meta.stride)


def _ones(graph: Graph) -> dict[Any, Any]:
    value = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    return {node.role: value for node in graph.placeholders}


def _pure(function: Any, *shape: int) -> Graph:
    graph: Graph = al.inspect.stages_of(function, al.ones(*shape))["functionalize"]
    return graph


@pytest.mark.rules("SIM-3")
def test_what_was_not_written_is_read_behind_the_write() -> None:
    def other_row(x: Any) -> Any:
        y = x * 1.0
        y.t()[:, 1].mul_(2.0)
        return y[0] + 1.0

    assert ops_of(simplified(other_row, 2, 3)) == ["mul", "select", "add"]


@pytest.mark.rules("SIM-3")
def test_parts_that_interleave_are_told_apart() -> None:
    """Ranges of addresses meet, elements do not."""

    def odd_and_even(x: Any) -> Any:
        y = x * 1.0
        y[::2].mul_(2.0)
        return y[1::2] + 1.0

    assert ops_of(simplified(odd_and_even, 6)) == ["mul", "slice", "add"]


def _four_rows() -> tuple[Builder, Any]:
    build = Builder("rows")
    return build, build.placeholder(tensor_meta((4, 3)), Primal(0))


@pytest.mark.rules("SIM-2", "SIM-3")
def test_a_part_that_starts_further_on_is_met_where_it_lies() -> None:
    """Row 2 is written, rows 1 and 2 are copied with row 1 written, and row 2 is read."""
    build, x = _four_rows()
    whole = x._do("select_scatter", x.select(0, 0) * 7.0, 0, 2)
    part = whole._do("slice", 0, 1, 3, 1)
    copy = part._do("select_scatter", x.select(0, 1) * 2.0, 0, 0)
    graph = build.finish([copy.select(0, 1) + 1.0])
    simple = simplify(graph)
    assert ops_of(simple) == ["select", "mul", "add"]
    assert same_results(run_graph(graph, input_of()), run_graph(simple, input_of()))


@pytest.mark.rules("SIM-4")
def test_windows_of_a_part_are_no_windows_of_the_whole() -> None:
    """Row 1 of the whole and row 1 of the part begin at one number, and are two rows."""
    build, x = _four_rows()
    whole = x._do("select_scatter", x.select(0, 0) * 7.0, 0, 1)
    part = whole._do("slice", 0, 1, 3, 1)
    copy = part._do("select_scatter", x.select(0, 1) * 2.0, 0, 1)
    graph = build.finish([copy * 2.0])
    simple = simplify(graph)
    assert ops_of(simple).count("select_scatter") == 2
    assert same_results(run_graph(graph, input_of()), run_graph(simple, input_of()))


@pytest.mark.rules("SIM-3")
def test_views_look_behind_at_most_64_scatters_in_a_round() -> None:
    def far(x: Any, count: int) -> Any:
        y = x * 1.0
        for i in (0, *range(2, count + 1)):
            y[i].mul_(2.0)
        return y[1] + 1.0, y.sum()

    for count, behind in ((LOOK_BACK, True), (LOOK_BACK + 1, False)):
        graph = _pure(lambda x, count=count: far(x, count), count + 1, 2)
        seen = eliminate_dead_code(see_through_scatters(graph, set()))
        read = seen.outputs[0].args[0]
        assert (storage_root(read).target.name == "mul") is behind


@pytest.mark.rules("SIM-3")
def test_writes_in_a_row_beside_a_view_are_passed_by_together() -> None:
    def far(x: Any) -> Any:
        y = x * 1.0
        for i in range(1, 4 * LOOK_BACK):
            y[i].mul_(2.0)
        return y[0] + 1.0, y.sum()

    graph = simplified(far, 4 * LOOK_BACK, 2)
    assert storage_root(graph.outputs[0].args[0]).target.name == "mul"


@pytest.mark.rules("SIM-4")
def test_of_two_writes_to_one_window_the_later_counts() -> None:
    def overlapping_between(x: Any) -> Any:
        y = x * 1.0
        y[0].mul_(2.0)
        y[:, 0].fill_(3.0)
        y[0].fill_(4.0)
        return y.sum()

    assert ops_of(simplified(overlapping_between, 2, 3)).count("select_scatter") == 2


@pytest.mark.rules("SIM-4")
def test_a_write_that_is_read_in_between_stays() -> None:
    def read_between(x: Any) -> Any:
        y = x * 1.0
        y[0].fill_(3.0)
        total = y.sum()
        y[0].fill_(4.0)
        return total + y.sum()

    assert ops_of(simplified(read_between, 2, 3)).count("select_scatter") == 2


@pytest.mark.rules("SIM-5")
@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.t().t(),
        lambda x: x.view(6).view(2, 3),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x[:, 0:3],
        lambda x: x.permute(1, 0).transpose(0, 1),
        lambda x: x.as_strided((2, 3), (3, 1)),
    ],
)
def test_a_view_of_everything_in_its_geometry_is_the_value(same: Any) -> None:
    assert ops_of(simplified(lambda x: same(x * 1.0).exp(), 2, 3)) == ["mul", "exp"]


@pytest.mark.rules("SIM-5")
def test_views_with_one_window_are_one() -> None:
    def twice(x: Any) -> Any:
        return x[1:3][0] * x[1] + x.t()[:, 1]

    assert ops_of(simplified(twice, 4, 3)).count("select") == 1


ROWS = {
    "select": lambda x: x._do("select", 0, 0),
    "view": lambda x: x._do("view", (4,)),
    "squeeze": lambda x: x._do("squeeze", 0),
    "slice, select": lambda x: x._do("slice", 1, 0, 4, 1)._do("select", 0, 0),
    "as_strided": lambda x: x._do("as_strided", (4,), (1,), 0),
}
"""The only row, by views of several ops."""


@pytest.mark.rules("SIM-5")
@pytest.mark.parametrize(("first", "second"), list(product(ROWS, repeat=2)))
def test_views_of_several_ops_that_show_the_same_are_one(first: str, second: str) -> None:
    build = Builder("rows")
    x = build.placeholder(tensor_meta((1, 4)))
    graph = simplify(build.finish([ROWS[first](x).exp() + ROWS[second](x).sin()]))
    assert sum(isinstance(node.target, ViewOp) for node in graph.calls) == 1


@pytest.mark.rules("SIM-6")
def test_scatters_of_nothing_of_the_same_and_of_everything() -> None:
    build = Builder("needless")
    x = build.placeholder(tensor_meta((2, 3)))
    nothing = x._do("slice_scatter", x.narrow(1, 0, 0), 1, 0, 0, 1)
    same = nothing._do("select_scatter", x.select(0, 1), 0, 1)
    every = same._do("slice_scatter", (same + 1.0), 0, 0, 2, 1)
    graph = simplify(build.finish([every * 2.0]))
    assert ops_of(graph) == ["add", "mul"]
    assert graph.calls[0].args[0] is graph.placeholders[0]


@pytest.mark.rules("SIM-7", "PART-15")
def test_what_is_read_from_a_result_stays_in_its_memory() -> None:
    """Saved for the backward, it has the version that the caller's writes change."""

    def held(x: Any) -> Any:
        y = x * 1.0
        y[0].mul_(2.0)
        return y, y[0] * y[0]

    compiled = al.compile(held)
    y, square = compiled(al.ones(2, 3).requires_grad_())
    graph = compiled.forward_graph
    [saved] = [value for _, value in graph.outputs_with(Saved)]
    assert storage_root(saved) is storage_root(graph.outputs[0])
    y.add_(1.0)
    with pytest.raises(al.AutogradError):
        square.sum().backward()


def test_every_scatter_is_known() -> None:
    names = {op.name for op in SCATTERED}
    assert {f"{name}_scatter" for name in ("select", "slice", "diagonal", "unfold")} <= names
    assert "as_strided_scatter" in names


def test_simplify_keeps_a_graph_without_windows() -> None:
    graph = simplified(lambda x: x.sin() * 2.0, 3)
    assert structurally_equal(graph, simplify(graph)) is None
    assert simplify(graph) is graph
