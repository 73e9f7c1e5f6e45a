"""What min-cut saves is cheapest, and the backward computes the rest (PART-14 to PART-25)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings

import aotlite as al
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import Gradient, Offset, Primal, Role, Saved, Seed, Tangent
from aotlite.ir.op import Cost
from aotlite.partition import Partition, cut, min_cut, min_cut_rematerialization_partition
from aotlite.stages.s8_partition.flow_network import ALGORITHMS, UNLIMITED
from aotlite.stages.s8_partition.indexed_graph import numbered
from aotlite.stages.s8_partition.recompute_costs import TRAITS, costs_of
from tests.end_to_end.helpers.cases import Case, cases
from tests.end_to_end.helpers.worlds import check
from tests.stages.helpers.journeys import journeys, run_graph, values_for
from tests.stages.s8_partition.helpers.mincut_programs import (
    CONTRACTED,
    HARD,
    Wave,
    arguments,
    joint_of,
    waves,
)


# -------------------------------------------------------------------------------------- the halves
def both_halves(partition: Partition, values: dict[Role, Any]) -> dict[Role, Any]:
    """The results of forward and backward, run one after the other."""
    first = run_graph(partition.forward, values)
    saved: dict[Role, Any] = {r: v for r, v in first.items() if isinstance(r, Saved)}
    backward = partition.backward
    second = {} if backward is None else run_graph(backward, {**values, **saved})
    return {r: v for r, v in {**first, **second}.items() if not isinstance(r, Saved)}


GENERATOR: tuple[Role, ...] = (Seed(), Offset())


def agree(graph: Graph, partition: Partition) -> None:
    values = values_for(graph)
    values |= {role: value * 0 + 8 for role, value in values.items() if role in GENERATOR}
    expected, found = run_graph(graph, values), both_halves(partition, values)
    assert expected.keys() == found.keys()
    for role, value in expected.items():
        assert np.array_equal(value, found[role], equal_nan=True), role


def hard(test: Any) -> Any:
    """With the functions that need a solver, or contractions, as examples."""
    for wave in HARD + CONTRACTED:
        test = example(wave)(test)
    return test


@pytest.mark.draws(long=500)
@hard
@settings(max_examples=50)
@given(waves())
def test_halves_compute_what_the_joint_graph_computes(wave: Wave) -> None:
    """PART-1, bit by bit: the same ops on the same values."""
    graph = joint_of(wave)
    assume(graph is not None)
    assert graph is not None
    partition = min_cut_rematerialization_partition(graph)
    partition.forward.lint()
    agree(graph, partition)


@pytest.mark.draws(long=520)
def test_halves_of_random_programs_compute_what_their_joint_graphs_compute() -> None:
    training = [j.simple for j in journeys() if j.meta.training]
    for graph in training:
        agree(graph, min_cut_rematerialization_partition(graph))
    assert len(training) > 20


# ------------------------------------------------------------------------------------ the optimum
def computable(graph: Graph, given_values: set[Node], banned: set[Node]) -> bool:
    """Whether the gradients follow from these values and the tangents, by what is not banned."""
    known: dict[Node, bool] = {}
    for node in graph.nodes[:-1]:
        if node in given_values or isinstance(node.role, Tangent):
            known[node] = True
        elif node.op == "placeholder" or node in banned:
            known[node] = False
        else:
            known[node] = all(known[value] for value in node.inputs())
    return all(known[value] for _, value in graph.outputs_with(Gradient) if value is not None)


@pytest.mark.draws(long=800)
@hard
@settings(max_examples=60)
@given(waves(max_steps=7))
@example(Wave((("sin", 1), ("sin", 3), ("mul", 3, 4)), (5,)))
@example(Wave((("wide", 1), ("sin", 3), ("narrow", 4), ("tanh", 5), ("mul", 6, 2)), (7,)))
def test_no_set_of_values_that_suffices_is_lighter(wave: Wave) -> None:
    """Every set of up to 12 candidates is tried: none that suffices weighs less."""
    graph = joint_of(wave)
    assume(graph is not None)
    assert graph is not None
    joint = numbered(graph)
    costs = costs_of(joint)
    limits = costs.network.capacities
    nodes = [
        (node, limits[i])
        for i, node in enumerate(graph.nodes)
        if costs.network.live[i] and limits[i] != UNLIMITED
    ]
    assume(len(nodes) <= 12)
    banned = {n for n, why in zip(graph.nodes, costs.banned, strict=True) if why}
    found = min_cut(graph)
    assert computable(graph, set(found.saved), banned)
    weight_of: dict[Node, Any] = dict(nodes)
    assert found.weight == sum(weight_of[node] for node in found.saved)
    for size in range(len(nodes) + 1):
        for chosen in itertools.combinations(nodes, size):
            if sum(weight for _, weight in chosen) < found.weight:
                assert not computable(graph, {node for node, _ in chosen}, banned)


@pytest.mark.draws(long=120)
@hard
@settings(max_examples=40)
@given(waves())
def test_two_runs_cut_alike(wave: Wave) -> None:
    """PART-7: from two captures of one function, whose nodes lie elsewhere in memory."""
    first, second = joint_of(wave), joint_of(wave)
    assume(first is not None)
    assert first is not None
    assert second is not None
    one, two = map(min_cut_rematerialization_partition, (first, second))
    assert [(v.name, v.reason) for v in one.saved] == [(v.name, v.reason) for v in two.saved]
    assert structurally_equal(one.forward, two.forward) is None
    if one.backward is not None and two.backward is not None:
        assert structurally_equal(one.backward, two.backward) is None


def test_hard_functions_have_something_to_solve() -> None:
    """The laws above are not about graphs that all reduce to nothing; but to few edges."""
    for wave in HARD:
        graph = joint_of(wave)
        assert graph is not None
        assert min_cut(graph, solver=ALGORITHMS[0]).edges > 1
        assert min_cut(graph).edges == 0


@pytest.mark.draws(long=520)
def test_most_graphs_need_no_solver() -> None:
    """Importing networkx takes longer than the rest of a compilation."""
    graphs = [joint_of(wave) for wave in CONTRACTED]
    graphs += [journey.simple for journey in journeys() if journey.meta.training]
    edges = [min_cut(graph).edges for graph in graphs if graph is not None]
    assert [0, 0, 0] == edges[:3]
    assert sum(each > 0 for each in edges) <= len(edges) / 50


# ------------------------------------------------------------------------------------- end to end
@pytest.mark.draws(long=1000)
@settings(max_examples=60)
@given(cases())
def test_random_programs_by_min_cut_equal_eager(case: Case) -> None:
    """Writes between call and backward are among them (PART-31, PART-37)."""
    found, _ = check(case, partition="min_cut", verify=1)
    assert not found, "\n".join(["", str(case), *found])


@pytest.mark.draws(long=300)
@settings(max_examples=40)
@given(waves())
def test_random_functions_by_min_cut_equal_eager(wave: Wave) -> None:
    """Also where the caller overwrites all inputs between call and backward, which eager takes."""
    runs = []
    for function in (wave, al.compile(wave, partition="min_cut")):
        al.manual_seed(3)
        inputs = arguments(0.5)
        runs.append((inputs, _world(function, inputs)))
    (_, eager), (_, compiled) = runs
    assert eager == compiled


def _world(function: Any, inputs: list[Any]) -> Any:
    results = function(*inputs)
    if not any(r.requires_grad for r in results):
        return str([r.tolist() for r in results])
    with al.no_grad():
        for x in (*inputs, results[0]):
            x.mul_(3.0)
    try:
        sum((r.sum() for r in results if r.requires_grad), al.tensor(0.0)).backward()
    except al.AutogradError:
        return "a saved value was written"
    return str([None if x.grad is None else x.grad.tolist() for x in inputs])


# -------------------------------------------------------------------------- what is saved, and why
def saved_by(function: Any, *args: Any) -> dict[str, str]:
    """Names and reasons of what is saved."""
    stages = al.inspect.stages_of(al.compile(function, partition="min_cut"), *args)
    return {each.name: each.reason for each in stages["partition"].saved}


def leaf(*shape: int) -> Any:
    return al.ones(*shape).requires_grad_()


def test_a_product_is_saved_and_what_is_pointwise_is_computed_again() -> None:
    found = saved_by(lambda x, w: (x @ w).sin().exp().sum(), leaf(4, 4), leaf(4, 4))
    assert "matmul" in found
    assert "a contraction is expensive to recompute" in found["matmul"]
    assert not {"sin", "exp", "cos"} & found.keys()


def test_a_small_reduction_is_saved() -> None:
    found = saved_by(lambda x: (x.exp() / x.exp().sum(1, True)).sin().sum(), leaf(8, 8))
    assert "a reduction that is much smaller" in found["sum"]


def test_a_reduction_is_saved_where_equal_numbers_come_of_it() -> None:
    """PART-39: the gradient of a maximum looks for it among numbers that are computed again."""

    def share(x: Any) -> Any:
        return x / (x.abs().sum(1, True) + 1)

    found = saved_by(lambda x: share(x).amax(0).sum(), leaf(64, 3))
    assert {"sum", "add"} & found.keys()  # the sum, or what follows from it alone
    assert "recomputed in another order" in found["amax"]
    assert not {"sum", "add"} & saved_by(lambda x: share(x).sin().sum(), leaf(64, 3)).keys()


def test_what_an_op_of_the_backward_reads_from_memory_is_saved() -> None:
    """The backward of a product reads `sin`, through a view; the view itself is not saved."""
    found = saved_by(lambda x, w: (x.sin() @ w).sum(), al.ones(4, 4), leaf(4, 4))
    assert ["sin"] == list(found)
    assert "an op of the backward reads it from memory" in found["sin"]


def test_a_narrow_copy_is_saved_rather_than_the_wide_value() -> None:
    def function(x: Any, w: Any) -> Any:
        return (x @ w).to(al.float16).sin().exp().sum()

    assert "cast" in saved_by(function, leaf(4, 4), leaf(4, 4))


def test_a_mask_is_saved_rather_than_the_numbers_it_comes_from() -> None:
    found = saved_by(lambda x: al.where(al.rand(64) < 0.5, x.sin(), 0.0).sum(), leaf(64))
    assert "uniform" not in found
    assert any(name.startswith("lt") for name in found)


def test_weights_are_bytes_by_distance_and_memory() -> None:
    """PART-18: 64 bytes, times 1.1 a step; `sin` and what is fused with it is not in memory."""

    def function(x: Any, w: Any) -> Any:
        return (x @ w).sin().exp().sum()

    expected = {"primals_0": 70, "matmul": 70, "sin": 154, "exp": 140, "cos": 140, "transpose": 70}
    assert expected == weights_of(joint_with(function, al.ones(4, 4), leaf(4, 4)))


@pytest.mark.parametrize(("rows", "weight"), [(1, 280), (4, 140)])
def test_a_gather_of_little_does_not_ask_for_its_operand_in_memory(rows: int, weight: int) -> None:
    """PART-19: who takes one of eight rows of `sin` computes that row."""
    index = al.zeros(rows, dtype=al.int64)

    def function(x: Any) -> Any:
        value = x.sin()
        return value.index_select(0, index).sum() + (value * value).sum()

    assert weight == weights_of(joint_with(function, leaf(8, 4)))["sin"]


def weights_of(graph: Graph) -> dict[str, float]:
    """The weights of the candidates, by name."""
    network = costs_of(numbered(graph)).network
    pairs = zip(graph.nodes, network.capacities, network.live, strict=True)
    return {graph.names[node]: capacity for node, capacity, is_live in pairs if is_live}


def test_a_value_copied_on_write_weighs_once_and_a_copy_twice() -> None:
    """PART-18: `x` is in memory, unless the call overwrites it and what was there is copied."""
    graph = joint_with(lambda x: (x * 2.0).sin().sum(), leaf(4))
    weights = weights_of(graph)
    assert (19, 34) == (weights["primals_0"], weights["mul"])
    assert ["primals_0"] == [graph.names[node] for node in min_cut(graph).saved]

    def overwritten(x: Any, b: Any) -> Any:
        y = ((x + b) * 2.0).sin().sum()
        b.zero_()
        return y

    graph = joint_with(overwritten, leaf(4), al.ones(4))
    assert 2 * weights_of(graph)["primals_0"] <= weights_of(graph)["primals_1"] + 1
    assert "primals_1" not in [graph.names[node] for node in min_cut(graph).saved]


def test_reasons_tell_all_values_apart() -> None:
    def function(x: Any, w: Any) -> Any:
        return (x @ w).sin().exp().sum()

    graph = al.inspect.stages_of(function, leaf(4, 4), leaf(4, 4))["simplify"]
    found = min_cut(graph)
    reasons = {graph.names[node]: found.reason(node) for node in graph.nodes[:-1]}
    assert reasons["matmul"].startswith("it is saved because the backward recomputes")
    assert "it is recomputed from matmul, which costs less than keeping it" == reasons["exp"]
    assert "the backward does not need it" == reasons["sum"]
    assert "it is computed in the backward alone from matmul" in reasons["cos"]
    assert "it depends on tangents, so only the backward can compute it" == reasons["mul"]


def test_a_value_from_constants_is_computed_again() -> None:
    def function(x: Any) -> Any:
        return (x * al.arange(4, dtype=al.float32).sin()).sum()

    graph = joint_with(function, leaf(4))
    found = min_cut(graph)
    assert {} == found.saved
    sine = next(node for node in graph.calls if node.target.name == "sin")
    assert "it is recomputed, from constants" == found.reason(sine)


def joint_with(function: Any, *args: Any) -> Graph:
    graph: Graph = al.inspect.stages_of(function, *args)["simplify"]
    return graph


# ---------------------------------------------------------------------------- memory of the caller
@pytest.mark.parametrize("partition", ["default", "min_cut", "inputs"])
def test_memory_that_eager_does_not_check_is_copied_on_write(partition: str) -> None:
    """PART-37: eager saves `x * 2`, so that writing `x` before the backward is no error."""

    def function(x: Any) -> Any:
        return (x * 2.0).sin().sum()

    chosen: Any = partition
    if partition == "inputs":

        def chosen(graph: Graph) -> Partition:
            return cut(graph, [graph.input_with(Primal(0))])

    x = leaf(3)
    compiled = al.compile(function, partition=chosen)
    y = compiled(x)
    with al.no_grad():
        x.zero_()
    y.backward()
    expected = leaf(3)
    function(expected).backward()
    assert expected.grad.tolist() == x.grad.tolist()
    (each,) = compiled.partition.saved
    assert each.copied_on_write == (each.owner == Primal(0)) == (partition != "default")


def result_is_read(x: Any) -> Any:
    y = x * 2.0
    return y, (y * 3.0).sin()


def one_of_two_reads(x: Any) -> Any:
    return (x * 2.0).sin(), x.sin()


@pytest.mark.parametrize(
    ("function", "kept", "written", "backward"),
    [(result_is_read, "mul", "result", 1), (one_of_two_reads, "primals_0", "input", 0)],
)
def test_copies_are_a_matter_of_each_gradient(
    function: Any, kept: str, written: str, backward: int
) -> None:
    """PART-37: eager's backward of *this* result does not read what is saved by this partition."""

    def keep_one(graph: Graph) -> Partition:
        return cut(graph, [node for node, name in graph.names.items() if name == kept])

    grads = []
    for called in (function, al.compile(function, partition=keep_one)):
        x = leaf(3)
        results = called(x)
        with al.no_grad():
            (x if written == "input" else results[0]).mul_(5.0)
        results[backward].sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_memory_that_eager_checks_is_shared() -> None:
    compiled = al.compile(lambda x: (x.sin() * x).sum(), partition="min_cut")
    compiled(leaf(3)).backward()
    assert [Primal(0)] == [each.owner for each in compiled.partition.saved]
    assert 0 == al.inspect.saved_bytes(compiled.partition)


def test_cut_leaves_out_what_the_backward_does_not_use() -> None:
    """PART-3."""
    graph = joint_with(lambda x, y: (x.sin() * 2.0 + y).sum(), leaf(3), al.ones(3))
    inputs = [node for node in graph.placeholders if isinstance(node.role, Primal)]
    assert ["primals_0"] == [each.name for each in cut(graph, inputs).saved]


@pytest.mark.parametrize("partition", ["min_cut", "inputs"])
def test_an_input_that_is_written_is_not_read_again(partition: str) -> None:
    """PART-31: not even to compute `x + 1` again; PyTorch's gradient is 1 here."""

    def inputs(graph: Graph) -> Partition:
        return cut(graph, [n for n in graph.placeholders if isinstance(n.role, Primal)])

    def function(x: Any, w: Any) -> Any:
        y = (x + 1) * w
        x.zero_()
        return y

    w = leaf(3)
    chosen: Any = partition if partition == "min_cut" else inputs
    compiled = al.compile(function, partition=chosen, verify=True)
    compiled(al.ones(3), w).sum().backward()
    assert [2.0, 2.0, 2.0] == w.grad.tolist()


# ---------------------------------------------------------------------------------------- the order
def test_values_are_computed_again_just_before_they_are_read() -> None:
    """PART-26."""

    def function(x: Any, w: Any) -> Any:
        return ((x @ w).sin().exp() * 2.0).tanh().sum()

    backward = al.inspect.stages_of(
        al.compile(function, partition="min_cut"), leaf(4, 4), leaf(4, 4)
    )["backward"]
    position = {node: i for i, node in enumerate(backward.nodes)}
    again = [node for node in backward.calls if node.phase is Phase.FORWARD]
    assert again
    readers = [position[backward.users[node][0]] - position[node] for node in again]
    assert max(readers) <= len(again)
    assert position[backward.calls[0]] == len(backward.placeholders)
    assert backward.calls[0].phase is Phase.BACKWARD


def test_long_runs_are_computed_again_in_pieces() -> None:
    """PART-22: of 1,000 steps ten are saved, and few values are alive at any time."""

    def function(x: Any) -> Any:
        for _ in range(1_000):
            x = x.sin()
        return x.sum()

    x = leaf(4)
    compiled = al.compile(function, partition="min_cut")
    compiled(x).backward()
    expected = leaf(4)
    function(expected).backward()
    assert expected.grad.tolist() == x.grad.tolist()
    assert 10 == len(compiled.partition.saved)
    backward = compiled.partition.backward
    assert backward is not None
    assert most_alive(backward) < 10 + 2 * 100 + 10


def most_alive(graph: Graph) -> int:
    """The most values that are alive at one time when the graph runs in order."""
    most = alive = 0
    for node in graph.nodes:
        alive += 1
        most = max(most, alive)
        alive -= len(graph.last_uses[node])
    return most


def test_a_wide_run_is_broken_where_it_ends() -> None:
    """PART-22: of two strands no value is the only one that leads on, until they are added."""

    def function(x: Any) -> Any:
        x = y = x.exp()
        for _ in range(200):
            x, y = x.sin() + y, y.tanh()
        return (x + y).sum()

    graph = joint_with(function, leaf(4))
    banned = costs_of(numbered(graph)).banned
    (end,) = [n for n, why in zip(graph.nodes, banned, strict=True) if "a run of" in why]
    assert ["sum"] == [user.target.name for user in graph.users[end]]


# ------------------------------------------------------------------------------------------- wishes
def wishing(op: str, recompute: bool) -> Any:
    """A pass that notes a wish on each call of an op."""

    def note(graph: Graph) -> Graph:
        edit = graph.edit()
        for node in edit.nodes:
            if node.op == "call" and node.target.name == op:
                node.recompute = recompute
        return edit.graph()

    return note


@pytest.mark.parametrize(("op", "recompute"), [("matmul", True), ("exp", False)])
def test_wishes_are_kept(op: str, recompute: bool) -> None:
    """PART-17, PART-20: what to recompute is not saved though it is dear, and the reverse."""

    def function(x: Any, w: Any) -> Any:
        return (x @ w).sin().exp().sum()

    x, w = al.tensor([[1.0, 2.0], [3.0, 4.0]]), leaf(2, 2)
    passes = [wishing(op, recompute)]
    compiled = al.compile(function, partition="min_cut", passes=passes, verify=True)
    compiled(x, w).backward()
    assert recompute != (op in [each.name for each in compiled.partition.saved])
    expected = leaf(2, 2)
    function(x, expected).backward()
    assert expected.grad.tolist() == w.grad.tolist()


def test_a_draw_that_is_computed_again_is_the_same_draw() -> None:
    """Seed and offset are saved in its stead: 16 bytes for a mask of any size."""

    def function(x: Any) -> Any:
        return (x * al.rand(64)).sin().sum()

    compiled = al.compile(function, partition="min_cut", passes=[wishing("uniform", True)])
    grads = []
    for called in (function, compiled):
        al.manual_seed(5)
        x = leaf(64)
        called(x).backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]
    assert {"seed", "offset"} <= {each.name for each in compiled.partition.saved}
    assert "uniform" not in {each.name for each in compiled.partition.saved}


def test_a_value_that_can_be_neither_saved_nor_recomputed_is_explained() -> None:
    """PART-24: values and indices of a maximum are a pair, which is no tensor, and dear."""

    def function(x: Any) -> Any:
        return x.sin().max(1)[0].exp().sum()

    with pytest.raises(ArgumentError) as caught:
        min_cut(wishing("getitem", True)(joint_with(function, leaf(8, 16))))
    assert "min-cut: max_dim is needed by the backward and can be neither" in str(caught.value)
    (why, rule) = caught.value.__notes__
    assert "max_dim: it cannot be saved, having several results" in why
    assert "it cannot be computed again: a reduction that is much smaller" in why
    assert "PART-24" in rule


# ----------------------------------------------------------------------------------------- the rest
def test_graphs_without_gradients_are_the_forward_alone() -> None:
    """PART-13."""
    graph = joint_with(lambda x: x.sin(), al.ones(3))
    partition = min_cut_rematerialization_partition(graph)
    assert partition.backward is None
    assert () == partition.saved


def test_an_impure_graph_is_refused() -> None:
    graph = al.inspect.stages_of(lambda x: (x * 1).mul_(2).sum(), leaf(3))["joint"]
    with pytest.raises(ArgumentError, match="min-cut: the graph has mul_, expected pure ops only"):
        min_cut(graph)


def test_costs_cover_every_class() -> None:
    """PART-25."""
    assert set(Cost) == set(TRAITS)


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        al.compile(lambda x: x, partition="max_cut")
    expected = "compile: partition is 'max_cut', expected 'default', 'min_cut' or a function"
    assert expected == str(caught.value)
