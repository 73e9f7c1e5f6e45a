"""Cuts of reduced networks are cuts of the whole ones, whoever solves them (PART-17, PART-24)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import networkx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError
from aotlite.stages.s8_partition import flow_reductions
from aotlite.stages.s8_partition.flow_network import (
    ALGORITHMS,
    SINK,
    SOURCE,
    UNLIMITED,
    ReducedNetwork,
    minimum_cut,
    unlimited_path,
)
from aotlite.stages.s8_partition.flow_reductions import Edges, Vertex, contracted, leaves


@st.composite
def networks(draw: Callable[[Any], Any]) -> ReducedNetwork:
    """Of up to 14 values, a few of them without limit; all that are live lead to the sink.

    Several that begin and several that end, all of one size, are what is hardest to reduce.
    """
    count, most, wide = draw(st.integers(1, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    limits = draw(
        st.sampled_from(
            (st.integers(0, 9), st.integers(6, 9), st.sampled_from((1, 2, 7, UNLIMITED)))
        )
    )
    capacities = [draw(limits) for _ in range(count)]
    starts = [i < wide or draw(st.integers(0, 4)) == 0 for i in range(count)]
    inputs = [
        sorted({draw(st.integers(0, i - 1)) for _ in range(most if i else 0)}) for i in range(count)
    ]
    ends = [i >= count - wide or draw(st.integers(0, 3)) == 0 for i in range(count)]
    return network_of(inputs, capacities, starts, ends)


def network_of(inputs: Any, capacities: Any, starts: Any, ends: Any) -> ReducedNetwork:
    """The network in which what reaches the sink is live."""
    live, users = [int(end) for end in ends], [0] * len(ends)
    for i in range(len(ends) - 1, -1, -1):
        if live[i] and not starts[i]:
            for p in inputs[i]:
                live[p] = 1
                users[p] += 1
    return ReducedNetwork(
        inputs, capacities, live, list(map(int, starts)), list(map(int, ends)), users
    )


def whole(network: ReducedNetwork) -> Any:
    """The network as PART-17 words it, nothing reduced."""
    digraph = networkx.DiGraph()
    digraph.add_nodes_from((SOURCE, SINK))
    for i, capacity in enumerate(network.capacities):
        limit = {} if capacity == UNLIMITED else {"capacity": capacity}
        digraph.add_edge(2 * i, 2 * i + 1, **limit)
        if network.starts[i]:
            digraph.add_edge(SOURCE, 2 * i)
        if network.ends[i]:
            digraph.add_edge(2 * i + 1, SINK)
        for p in network.inputs[i]:
            digraph.add_edge(2 * p + 1, 2 * i)
    return digraph


def separates(network: ReducedNetwork, values: set[int]) -> bool:
    """Whether no path from source to sink avoids these values."""
    reached = set()
    for i in range(len(network.capacities)):
        arrives = network.starts[i] or any(p in reached for p in network.inputs[i])
        if arrives and i not in values:
            if network.ends[i]:
                return False
            reached.add(i)
    return True


@settings(max_examples=600)
@given(networks(), st.sampled_from((None, *ALGORITHMS)))
def test_reduced_networks_have_the_cuts_of_the_whole_ones(
    network: ReducedNetwork, solver: str | None
) -> None:
    try:
        expected, _ = networkx.minimum_cut(whole(network), SOURCE, SINK)
    except networkx.NetworkXUnbounded:
        assert unlimited_path(network)
        return
    assert [] == unlimited_path(network)
    found = minimum_cut(network, solver)
    assert expected == found.weight
    assert separates(network, set(found.values))
    assert expected == sum(network.capacities[i] for i in found.values)


def next_to_the_sink(network: ReducedNetwork) -> tuple[int, ...]:
    """The values that networkx cuts of the whole network, but for those that nothing leads to.

    Such are values of no bytes behind others of the cut.
    """
    _, (near, far) = networkx.minimum_cut(whole(network), SOURCE, SINK)
    cut = {i for i in range(len(network.capacities)) if 2 * i in near and 2 * i + 1 in far}
    reached, needed = set(), []
    for i, is_live in enumerate(network.live):
        if is_live and (network.starts[i] or any(p in reached for p in network.inputs[i])):
            if i in cut:
                needed.append(i)
            else:
                reached.add(i)
    return tuple(needed)


# Cuts that weigh the same, of which one is nearer to the sink: of values that several lead to, and
# behind the one value that all comes through.
TWO_OR_TWO = network_of([[], [0], [0, 1], [1]], [3, 2, 2, 2], [1, 1, 0, 0], [0, 0, 1, 1])
FIRST_OR_FOURTH = network_of(
    [[], [0], [0, 1], [1, 2], [3], [3, 4], [4, 5], [4, 5]],
    [7, 7, 7, 7, 9, 9, 9, 9],
    [1, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 1],
)

# Behind the value that is cut lies one without bytes.
NOTHING_MORE = network_of(
    [[], [0], [0, 1], [0, 1], [1, 3], [0], [4], [1, 2, 4], [0], [2, 5], [6], [4, 8], [7, 9]],
    [4, 3, 0, 2, 5, 5, 3, 6, 2, 5, 2, 2, 5],
    [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1],
)


@settings(max_examples=300)
@given(networks())
@example(NOTHING_MORE)
@example(TWO_OR_TWO)
@example(FIRST_OR_FOURTH)
def test_reductions_do_not_choose(network: ReducedNetwork) -> None:
    """Of cuts of equal weight it is the one that networkx gives for the whole network."""
    if not unlimited_path(network):
        assert next_to_the_sink(network) == minimum_cut(network).values


@settings(max_examples=200)
@given(networks())
def test_algorithms_agree_on_the_values(network: ReducedNetwork) -> None:
    """The cut next to the sink is one and the same for all of them (PART-7)."""
    if not unlimited_path(network):
        found = {minimum_cut(network, name).values for name in ALGORITHMS}
        assert {minimum_cut(network).values} == found


def test_random_networks_have_something_to_solve() -> None:
    """The laws above are not about networks that all reduce to nothing."""
    solved = []

    @settings(max_examples=400)
    @given(networks())
    def collect(network: ReducedNetwork) -> None:
        if not unlimited_path(network):
            solved.append(minimum_cut(network, ALGORITHMS[0]).edges > 1)

    collect()
    assert sum(solved) > 8


@settings(max_examples=400)
@given(networks())
def test_paths_without_limit_lead_from_source_to_sink(network: ReducedNetwork) -> None:
    path = unlimited_path(network)
    if path:
        assert network.starts[path[0]]
        assert network.ends[path[-1]]
        assert all(network.capacities[i] == UNLIMITED for i in path)
        assert all(p in network.inputs[i] for p, i in itertools.pairwise(path))


def ladder(steps: int) -> ReducedNetwork:
    """Values of which each feeds the sink, too: what a chain of ops and its backward make."""
    inputs = [[i - 1] if i else [] for i in range(steps)]
    return network_of(inputs, [5] * steps, [i == 0 for i in range(steps)], [True] * steps)


def test_long_chains_need_no_solver_and_no_stack() -> None:
    steps = 30_000
    inputs = [[i - 1] if i else [] for i in range(steps)]
    starts = [i == 0 for i in range(steps)]
    ends = [i == steps - 1 for i in range(steps)]
    found = minimum_cut(network_of(inputs, [9] * steps, starts, ends))
    assert (9, (steps - 1,), 0) == (found.weight, found.values, found.edges)
    found = minimum_cut(ladder(steps))
    assert ((0,), 0) == (found.values, found.edges)


def silu(first: int, last: int) -> ReducedNetwork:
    """What x * sigmoid(x) makes: all goes through the first and the last value."""
    inputs = [[], [0], [0, 1], [1, 2], [3]]
    return network_of(inputs, [first, 7, 7, 7, last], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1])


@pytest.mark.parametrize(
    ("first", "last", "weight", "value"), [(3, 7, 3, 0), (7, 7, 7, 4), (7, 6, 6, 4)]
)
def test_all_goes_through_one_value(first: int, last: int, weight: int, value: int) -> None:
    found = minimum_cut(silu(first, last))
    assert (weight, (value,), 0) == (found.weight, found.values, found.edges)


def test_groups_that_hang_together_are_on_one_side() -> None:
    """What norms and their backward make: two values that several cheaper ones lead to."""
    into: dict[Vertex, Edges] = {
        0: {SOURCE: (10, 0), 2: (UNLIMITED, None)},
        1: {SOURCE: (10, 1), 3: (279, 2)},
        2: {SOURCE: (139, 3)},
        3: {SOURCE: (169, 4), 2: (UNLIMITED, None)},
        SINK: {0: (230, 5), 1: (230, 6)},
    }
    left = contracted(into)
    assert {SINK: {SOURCE}} == {vertex: set(edges) for vertex, edges in left.items()}
    weight, tree = left[SINK][SOURCE]
    assert (328, [0, 1, 3, 4]) == (weight, sorted(leaves(tree)))


def crossed() -> ReducedNetwork:
    """Two inputs that cross, and two values for the sink: not reducible to single edges."""
    return network_of([[], [], [0, 1], [0, 1]], [3, 3, 2, 5], [1, 1, 0, 0], [0, 0, 1, 1])


def test_what_cannot_be_reduced_is_solved() -> None:
    found = minimum_cut(crossed(), ALGORITHMS[0])
    assert (6, (0, 1)) == (found.weight, found.values)
    assert found.edges > 1


def test_small_networks_are_solved_without_asking() -> None:
    found = minimum_cut(crossed())
    assert (6, (0, 1), 0) == (found.weight, found.values, found.edges)


def braid(layers: int, width: int, capacities: list[int]) -> ReducedNetwork:
    """Layers of values of which each reads all of the layer before, and is read by the sink."""
    inputs: list[list[int]] = []
    for layer in range(layers):
        before = range((layer - 1) * width, layer * width) if layer else ()
        inputs += [list(before)] * width
    starts = [i < width or i % 5 == 0 for i in range(len(inputs))]
    ends = [i >= len(inputs) - width or i % 3 == 0 for i in range(len(inputs))]
    return network_of(inputs, capacities, starts, ends)


@settings(max_examples=100)
@given(st.integers(1, 4), st.integers(2, 9), st.data())
def test_narrow_networks_are_cut_as_networkx_cuts_them(
    width: int, layers: int, data: st.DataObject
) -> None:
    count = width * layers
    limits = st.lists(st.integers(1, 9), min_size=count, max_size=count)
    network = braid(layers, width, data.draw(limits))
    found = minimum_cut(network)
    assert networkx.minimum_cut_value(whole(network), SOURCE, SINK) == found.weight
    assert next_to_the_sink(network) == found.values


def test_long_narrow_networks_need_no_solver() -> None:
    """What a model of many layers leaves, which differ: no two of its parts have one shape."""
    network = braid(400, 2, [500 + (i * 7919) % 131 for i in range(800)])
    found = minimum_cut(network)
    assert 0 == found.edges
    assert networkx.minimum_cut_value(whole(network), SOURCE, SINK) == found.weight


def test_parts_are_solved_one_by_one_and_equal_ones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layers that only the source joins, two of them alike."""
    inputs: list[list[int]] = []
    capacities: list[int] = []
    for k, weights in enumerate(([3, 3, 2, 5], [9, 9, 8, 5], [3, 3, 2, 5])):
        at = 4 * k
        inputs += [[], [], [at, at + 1], [at, at + 1]]
        capacities += weights
    asked, solve = [], networkx.minimum_cut

    def noted(digraph: Any, source: Any, sink: Any, **options: Any) -> Any:
        asked.append(len(digraph))
        return solve(digraph, source, sink, **options)

    monkeypatch.setattr(networkx, "minimum_cut", noted)
    monkeypatch.setattr(flow_reductions, "_WIDTH", -1)
    layers = network_of(inputs, capacities, [1, 1, 0, 0] * 3, [0, 0, 1, 1] * 3)
    found = minimum_cut(layers)
    assert (25, (0, 1, 6, 7, 8, 9)) == (found.weight, found.values)
    assert [6, 6] == asked


# ---------------------------------------------------------------------------------------- solvers
def test_a_solver_of_ones_own_is_asked() -> None:
    asked = []

    def solve(digraph: Any, source: Any, sink: Any) -> Any:
        asked.append(sorted(map(str, digraph)))
        return networkx.minimum_cut(digraph, source, sink)

    found = minimum_cut(crossed(), solve)
    assert minimum_cut(crossed()).values == found.values
    assert {"sink", "source"} <= set(asked[0])


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("what", ["reduced to one edge", "a ladder", "tried", "parts"])
def test_a_solver_that_is_chosen_is_asked_once_for_every_cut(
    what: str, by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the reductions leave no question: its user wants to see the networks."""
    crossing = [[], [], [0, 1], [0, 1]]
    shifted = [[4 + i for i in each] for each in crossing]
    networks = {
        "reduced to one edge": network_of([[], [0]], [3, 2], [1, 0], [0, 1]),
        "a ladder": ladder(3),
        "tried": crossed(),
        "parts": network_of(
            [*crossing, *shifted], [3, 3, 2, 5] * 2, [1, 1, 0, 0] * 2, [0, 0, 1, 1] * 2
        ),
    }
    asked, minimum = [], networkx.minimum_cut

    def solve(digraph: Any, source: Any, sink: Any, **options: Any) -> Any:
        asked.append(digraph.number_of_edges())
        return minimum(digraph, source, sink, **options)

    monkeypatch.setattr(networkx, "minimum_cut", solve)
    found = minimum_cut(networks[what], "dinitz" if by_name else solve)
    assert [found.edges] == asked
    assert minimum_cut(networks[what]).values == found.values
    assert [found.edges] == asked


def raises(digraph: Any, source: Any, sink: Any) -> Any:
    raise KeyError("capacity")


def says_nothing(digraph: Any, source: Any, sink: Any) -> Any:
    return None


def says_too_much(digraph: Any, source: Any, sink: Any) -> Any:
    return 0, ({1}, {2}, {3})


def loses_the_sink(digraph: Any, source: Any, sink: Any) -> Any:
    value, (near, far) = networkx.minimum_cut(digraph, source, sink)
    return value, (near, far - {sink})


def takes_all(digraph: Any, source: Any, sink: Any) -> Any:
    return 0, (set(digraph), set())


def lies(digraph: Any, source: Any, sink: Any) -> Any:
    value, sides = networkx.minimum_cut(digraph, source, sink)
    return value - 1, sides


def cuts_what_has_no_limit(digraph: Any, source: Any, sink: Any) -> Any:
    tail = next(tail for tail, _, edge in digraph.edges(data=True) if not edge)
    return 0, ({source, tail}, set(digraph) - {source, tail})


@pytest.mark.parametrize(
    ("solver", "got"),
    [
        (raises, "KeyError: 'capacity', expected a cut"),
        (says_nothing, "None, expected (value, (source side, sink side))"),
        (says_too_much, "expected (value, (source side, sink side))"),
        (loses_the_sink, "of the 6 vertices, expected each vertex on one side"),
        (takes_all, "sides of 6 and 0 of the 6 vertices, expected each vertex on one side"),
        (lies, "a cut of weight 6 and the value 5, expected equal numbers"),
        (cuts_what_has_no_limit, "a cut of weight inf and the value 0, expected equal numbers"),
    ],
)
def test_a_bad_solver_is_named(solver: Any, got: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        minimum_cut(crossed(), solver)
    text = str(caught.value)
    assert text.startswith(f"min-cut: the answer of solver '{solver.__name__}' is ")
    assert got in text
    assert any("PART-24" in note for note in caught.value.__notes__)


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        minimum_cut(crossed(), "simplex")
    assert "min-cut: the solver is 'simplex', expected a function or one of" in str(caught.value)
