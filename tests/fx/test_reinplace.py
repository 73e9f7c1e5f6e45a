"""`reinplace` gives equal graphs that allocate less (RIP-1 to RIP-12)."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.fx import reinplace, reinplaced
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import PureOp, RandomOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE, COPY_
from aotlite.ir.run.interpreter import ArrayValue, Interpreter, array_value
from aotlite.stages.s8_partition import default_partition
from benchmarks.alias_programs import PROGRAMS
from tests.stages.helpers.journeys import journeys, values_for

JOINED = "overlapping_arguments_written"
"""Its overlapping arguments are one input, which the graph does not write."""


def allocated(graph: Graph) -> int:
    """The bytes of all values that a graph makes memory for."""
    total = 0
    for node in graph.calls:
        if isinstance(node.target, (PureOp, RandomOp)):
            metas: Any = node.meta if type(node.meta) is tuple else (node.meta,)
            total += sum(meta.numel * meta.dtype.itemsize for meta in metas)
    return total


def closed(graph: Graph) -> Graph:
    """The graph that ends in a copy into each input that it updates, in place of the output."""
    given = {node.role: node for node in graph.placeholders}
    edit, kept = graph.edit(), []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        target = given.get(role.of) if isinstance(role, MutatedInput) else None
        if target is None or type(value) is not Node:
            kept.append((role, value))
        elif value is not target:
            edit.call(COPY_, (target, value))
    edit.set_outputs([value for _, value in kept], [role for role, _ in kept])
    return edit.graph()


class Looking(Interpreter):
    """Runs on `ArrayValue`s, and returns the outputs as such."""

    def output(self, target: object, args: Any) -> Any:
        return args[0]


def ran(graph: Graph, values: Any) -> tuple[list[Any], list[ArrayValue]]:
    """The outputs, and the inputs behind the run."""
    if callable(values):
        given = values()
    else:
        given = [array_value(values[node.role], node.meta) for node in graph.placeholders]  # type: ignore[arg-type]
    return list(Looking(graph).run(*given)), given


def sharing(graph: Graph, outputs: list[Any], inputs: list[ArrayValue]) -> list[Any]:
    """For each output the first input or output whose memory it has, and the size of that."""
    buffers = [value.buffer for value in inputs]
    found: list[Any] = []
    for role, value in zip(graph.output_roles, outputs, strict=True):
        if type(value) is not ArrayValue or isinstance(role, MutatedInput):
            continue  # the runtime copies the latter at once
        buffers.append(value.buffer)
        first = next(k for k, buffer in enumerate(buffers) if buffer is value.buffer)
        found.append((first, value.buffer.nbytes))
    return found


def agree(graph: Graph, given: Any = None) -> Graph:
    """Checks the law on one graph, and returns the new one; `given()` makes its inputs."""
    made = reinplace(graph)
    verify(made)
    assert allocated(made) <= allocated(graph)
    values = given or values_for(graph)
    (expected, before), (found, after) = ran(graph, values), ran(made, values)
    assert sharing(graph, expected, before) == sharing(made, found, after)
    for role, old, new in zip(graph.output_roles, expected, found, strict=True):
        if type(old) is not ArrayValue:
            assert old == new, role
            continue
        assert old.meta is new.meta, role
        assert np.array_equal(old.array, new.array, equal_nan=True), role
    for old, new in zip(before, after, strict=True):
        assert np.array_equal(old.array, new.array, equal_nan=True)
    return made


def with_copies(graph: Graph) -> Graph:
    """The graph with a copy behind each view, which others read."""
    new: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        args = map_nodes(node.args, lambda value: new.get(value, value))
        meta = node.target.infer(args) if isinstance(node.target, ViewOp) else node.meta
        new[node] = node if args is node.args else node.with_args(args, meta)
        nodes.append(new[node])
        if node.op == "call" and isinstance(node.target, ViewOp):
            nodes.append(Node("call", CLONE, (new[node],), CLONE.infer((new[node],))))
            new[node] = nodes[-1]
    return attrs.evolve(graph, nodes=tuple(nodes))


def test_copies_that_nobody_can_tell_are_left_out() -> None:
    """Graphs of random programs with a copy behind each view."""
    less = 0
    for journey in journeys():
        graph = journey.simple
        try:
            copied = with_copies(graph)
            verify(copied)
        except al.AotliteError:  # a copy has other strides, which a view cannot have
            continue
        less += allocated(agree(copied)) < allocated(copied)
        agree(closed(copied))
    assert less > 10


def test_copies_that_outlive_a_write_stay() -> None:
    """An exchange of two inputs, also through views of the copies."""
    build = Builder()
    x, y = build.placeholder(tensor_meta((2, 2))), build.placeholder(tensor_meta((2, 2)))
    old = x._do("clone")
    build.emit(COPY_, (x.node, y._do("clone").t().node))
    build.emit(COPY_, (y.node, old.t().node))
    made = agree(build.finish([old._do("sum", None, False)]))
    assert 1 == sum(node.target is CLONE for node in made.calls)


def test_only_the_window_that_is_copied_into_is_written_before() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((6,)))
    window, rest = x._do("slice", 0, 0, 3, 1), x._do("slice", 0, 3, 6, 1)
    inside, outside = window.exp(), rest.exp()
    build.emit(COPY_, (window.node, inside.node))
    graph = build.finish([outside.sum()])
    code = agree(graph).code
    assert 1 == code.count("exp_(") and "copy_" not in code
    assert "outside of what is copied into" in reinplaced(graph).explain(graph)


@pytest.mark.parametrize("reads_later", [False, True])
def test_windows_that_leave_their_input_wait_for_other_inputs(reads_later: bool) -> None:
    build = Builder()
    x, y = build.placeholder(tensor_meta((3,))), build.placeholder(tensor_meta((3,)))
    window = y._do("as_strided", (4,), (1,), -1)
    before = x.exp()
    doubled = window * 2.0
    total = doubled.sum()
    after = x.sum() if reads_later else before.sum()
    build.emit(COPY_, (window.node, doubled.node))
    buffer = np.arange(1.0, 13.0, dtype="float32").view("uint8")

    def given() -> list[ArrayValue]:
        return [ArrayValue(buffer.copy(), x.meta, 4), ArrayValue(buffer.copy(), y.meta, 5)]

    def overlapping() -> list[ArrayValue]:
        memory = buffer.copy()
        return [ArrayValue(memory, x.meta, 4), ArrayValue(memory, y.meta, 5)]

    graph = build.finish([total, before, after])
    agree(graph, given)
    assert reads_later != ("mul_" in agree(graph, overlapping).code)


def test_graphs_of_random_programs_are_equal_and_smaller() -> None:
    """Joint graphs, their halves, and both with closing copies."""
    less = 0
    for journey in journeys():
        graphs = [journey.simple]
        if journey.meta.training:
            partition = default_partition(journey.simple)
            graphs += [each for each in (partition.forward, partition.backward) if each]
        for graph in graphs:
            less += allocated(agree(graph)) < allocated(graph)
            agree(closed(graph))
    assert less > 25


# ------------------------------------------------------------------------------------ each rule
def made_of(function: Any, *args: Any) -> tuple[str, str]:
    """The code of the reinplaced forward of a function without gradients, and what is refused."""
    compiled = al.compile(function, backend="reference", keep_inference_input_mutations=True)
    compiled(*args)
    graph = compiled.forward_graph
    agree(graph)
    found = reinplaced(graph)
    return found.graph.code, found.explain(graph)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != JOINED])
def test_no_program_allocates_more_than_eager_does(name: str) -> None:
    """Eager allocates for each op that does not write: those of the captured graph."""
    program = PROGRAMS[name]
    with al.no_grad():
        captured = al.capture(partial(program.body, al))(*program.arguments(al))
        compiled = al.compile(
            partial(program.body, al), backend="reference", keep_inference_input_mutations=True
        )
        compiled(*program.arguments(al))
    assert allocated(agree(compiled.forward_graph)) <= allocated(captured)


def test_a_part_that_is_written_and_put_back_is_written_in_place() -> None:
    def columns(x: Any) -> Any:
        x[:, 0].mul_(2.0)
        x[:, 1].add_(x[:, 0])
        return x.sum()

    code, _ = made_of(columns, al.ones(3, 2))
    assert "scatter" not in code and "copy_" not in code
    assert "mul_(" in code and "add_(" in code


def test_rows_that_do_not_meet_do_not_hinder_each_other() -> None:
    """The row is read behind the write; only the exact test of overlap knows that it is another."""
    build = Builder()
    x = build.placeholder(tensor_meta((4, 3)))
    whole = x * 1.0
    evens, odds = whole._do("slice", 0, 0, 4, 2), whole._do("slice", 0, 1, 4, 2)
    changed = whole._do("slice_scatter", evens.exp(), 0, 0, 4, 2)
    made = agree(build.finish([changed.sin() + 1.0, odds * 2.0]))
    assert "exp_(" in made.code and "slice_scatter" not in made.code


def test_what_is_read_later_stays() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((4,)))
    y = x * 2.0
    row = y._do("slice", 0, 1, 3, 1)
    graph = build.finish([y.exp().sum() + row.sum()])
    assert "exp_" not in agree(graph).code
    assert "what its operand holds is read later" in reinplaced(graph).explain(graph)


def test_pointwise_ops_read_what_they_write_and_others_do_not() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((3, 3)))
    y, z = x * 2.0, x * 3.0
    crossed = z._do("add", z.t())
    code = agree(build.finish([y * y, crossed])).code
    assert "mul_ = ops.mul_(mul, mul)" in code
    assert "add_" not in code


def test_results_keep_memory_of_their_own() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((4,)))
    y = x * 2.0
    made = agree(build.finish([y._do("slice", 0, 0, 2, 1).cos(), y.exp(), y.sin()]))
    assert 1 == sum(node.target.writes for node in made.calls)


def test_a_small_value_does_not_keep_a_large_one_alive() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((1000,)))
    y = x * 2.0
    small = y._do("slice", 0, 0, 2, 1).exp().sin()
    graph = build.finish([small.sum()])
    assert "more memory than it needs" in reinplaced(graph).explain(graph)
    assert "sin_(" in agree(graph).code


def test_inputs_are_written_where_the_graph_ends_so() -> None:
    def scaled(x: Any, y: Any) -> Any:
        x.mul_(2.0).add_(y)
        return y * 2.0

    code, why = made_of(scaled, al.ones(3), al.ones(3))
    assert "copy_" not in code and "mul_(primals_0" in code
    assert "an input, a constant, or known to an effect" in why


def test_what_an_effect_got_is_not_written() -> None:
    def noisy(x: Any) -> Any:
        y = x * 2.0
        al.effects.print("{}", y)
        return y.exp()

    compiled = al.compile(noisy, backend="reference")
    compiled(al.ones(2))
    graph = compiled.forward_graph
    assert "exp_" not in reinplace(graph).code
    assert "known to an effect" in reinplaced(graph).explain(graph)


def test_results_of_other_strides_lie_where_nobody_can_tell() -> None:
    """A column computed is contiguous; what is scattered back may lie in the column itself."""

    def column(x: Any) -> Any:
        x.t()[0].mul_(3.0)
        return x.sum()

    code, _ = made_of(column, al.ones(2, 4))
    assert "mul_(select" in code and "scatter" not in code


def test_sizes_as_symbols_count_as_overlapping() -> None:
    def rows(x: Any) -> Any:
        y = x * 2.0
        z = y.exp()
        return z.sin() + z[0]

    compiled = al.compile(rows, backend="reference", dynamic=True)
    compiled(al.ones(3, 2))
    made = reinplace(compiled.forward_graph)
    verify(made)
    assert "exp_(" in made.code and "sin_" not in made.code


def test_graphs_that_are_not_pure_are_refused() -> None:
    def written(x: Any) -> Any:
        return (x * 2.0).add_(1.0)

    with pytest.raises(ArgumentError, match="the graph has add_, expected a pure graph"):
        reinplace(al.capture(written)(al.ones(2)))
    with pytest.raises(ArgumentError, match="the graph has rand"):
        reinplace(al.capture(lambda: al.rand(2))())


def test_long_chains_take_linear_time() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((4000,)))
    y = x * 1.0
    for row in range(2000):
        part = y._do("select", 0, row)
        y = y._do("select_scatter", part * 2.0, 0, row)
    made = reinplace(build.finish([y]))
    assert 1 == sum(type(node.target) is PureOp for node in made.calls)


def test_copies_of_dead_values_go_away() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((4,)))
    y = (x * 2.0)._do("clone")
    made = agree(build.finish([y, y.exp()]))
    assert "clone" not in made.code


def test_inputs_that_are_exchanged_hold_no_values_in_between() -> None:
    def swap(x: Any, y: Any) -> None:
        held = x * 2.0
        x.copy_(y)
        y.copy_(held)

    def turn(x: Any, y: Any, z: Any) -> None:
        held = x * 2.0
        x.copy_(y * 3.0)
        y.copy_(z * 4.0)
        z.copy_(held)

    for function, count in ((swap, 2), (turn, 3)):
        made_of(function, *[al.ones(3) * k for k in range(count)])


@pytest.mark.parametrize(("scatter", "where"), [("select", (0, 0)), ("diagonal", (0, 0, 1))])
def test_a_scatter_into_repeated_elements_reads_them(scatter: str, where: Any) -> None:
    """The other row has the same bytes."""
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    wide = x.exp()._do("expand", (2, 2))
    part = wide._do(scatter, *where)
    agree(build.finish([wide._do(f"{scatter}_scatter", part.sin(), *where)]))
