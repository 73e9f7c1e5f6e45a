"""Edits of an `aotlite.fx.Graph` are those of torch.fx, and of a naive model (FXG-2 to FXG-8)."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlite import fx, ops
from aotlite.ir.graph.compare import structurally_equal
from aotlite.testing import laws
from aotlite.testing.laws.graphs.corpus import STAGES
from tests.fx.helpers.edit_scripts import EditScript, FxSide

SEEDS = st.integers(0, 2**32)


def check(script: EditScript) -> None:
    """Every side shows what the model shows."""
    expected = script.model.shown()
    users = [
        sorted({script.model.at(u) for u in script.model.users(e)}) for e in script.model.nodes
    ]
    for side in script.sides:
        assert expected == side.shown()
        assert users == side.users()
        assert side.shown()[::-1] == list(reversed(side.shown()))
        assert list(side.graph.nodes) == list(reversed(side.graph.nodes))[::-1]


def run_script(seed: int, *sides: FxSide, steps: int = 12) -> EditScript:
    script = EditScript(seed, *sides)
    check(script)
    for _ in range(steps):
        script.step()
        check(script)
    return script


@pytest.mark.rules("FXG-3", "FXG-7")
@pytest.mark.draws(long=3000)
@settings(max_examples=40)
@given(SEEDS)
def test_random_edits_give_what_the_model_gives(seed: int) -> None:
    side = FxSide(fx, ops)
    run_script(seed, side)
    side.graph.lint()
    copied = fx.Graph(side.graph.ir_graph())
    assert side.shown() == FxSide.shown(_around(side, copied))
    assert side.shown() == FxSide.shown(_around(side, copy.deepcopy(side.graph)))


def _around(side: FxSide, graph: fx.Graph) -> FxSide:
    made = FxSide(side.fx, side.ops)
    made.graph = graph
    return made


@pytest.mark.torch
@pytest.mark.draws(long=3000)
@settings(max_examples=40)
@given(SEEDS)
def test_random_edits_are_those_of_torch_fx(seed: int) -> None:
    torch = pytest.importorskip("torch")
    sides = FxSide(fx, ops), FxSide(torch.fx, torch)
    run_script(seed, *sides)
    for side in sides:
        side.graph.lint()
    names = [[node.name for node in side.graph.nodes] for side in sides]
    kinds = [[name.rstrip("_0123456789") for name in each] for each in names]
    assert kinds[0] == kinds[1]


CASES = laws.graphs(*STAGES)


@pytest.mark.rules("FXG-8")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies_give_an_equal_graph_back(case: laws.GraphCase) -> None:
    graph = fx.Graph(case.graph)
    assert structurally_equal(case.graph, graph.ir_graph()) is None
    assert structurally_equal(case.graph, copy.deepcopy(graph).ir_graph()) is None
    other = fx.Graph()
    other.output(other.graph_copy(graph, {}))
    made = other.ir_graph()
    assert [node.target for node in case.graph.calls] == [node.target for node in made.calls]
    assert [node.role for node in case.graph.placeholders] == [
        node.role for node in made.placeholders
    ]
