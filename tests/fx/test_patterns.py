"""`replace_pattern` and `SubgraphMatcher`: which places match, and what takes their place."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import fx, ops
from aotlite.fx.passes.utils.matcher_utils import SubgraphMatcher
from aotlite.fx.subgraph_rewriter import replace_pattern, replace_pattern_with_filters
from aotlite.ir.errors import ArgumentError


def traced(function: Any, *types: str) -> fx.GraphModule:
    return fx.symbolic_trace(function, *(types or ("f32[2]",)))


def names(module: fx.GraphModule) -> list[str]:
    return [node.target.__name__ for node in module.graph.find_nodes(op="call_function")]


def swish(a: Any) -> Any:
    return a * a.sigmoid()


def silu(a: Any) -> Any:
    return ops.silu(a)


@pytest.mark.rules("FXG-20")
def test_overlapping_matches_are_taken_in_the_order_of_the_graph() -> None:
    module = traced(lambda x: x.neg().neg().neg().neg().neg())
    found = replace_pattern(module, lambda a: a.neg().neg(), lambda a: a.exp())
    assert [str(each.anchor) for each in found] == ["neg_1", "neg_3"]
    assert names(module) == ["exp", "exp", "neg"]
    matcher = SubgraphMatcher(
        traced(lambda a: a.neg().neg()).graph, remove_overlapping_matches=False
    )
    module = traced(lambda x: x.neg().neg().neg())
    assert len(matcher.match(module.graph)) == 2  # neg_1 is in both


@pytest.mark.rules("FXG-20")
def test_a_value_that_is_used_outside_is_no_match() -> None:
    module = traced(lambda x: (swish(x), x.sigmoid() + 1))
    assert len(replace_pattern(module, swish, silu)) == 1

    def leaking(x: Any) -> Any:
        gate = x.sigmoid()
        return x * gate, gate

    kept = traced(leaking)
    assert replace_pattern(kept, swish, silu) == []
    assert names(kept) == ["sigmoid", "mul"]


@pytest.mark.rules("FXG-20")
def test_literals_have_to_be_equal_and_of_one_type() -> None:
    module = traced(lambda x: (x * 2.0, x * 2, x * 3.0))
    assert len(replace_pattern(copy.deepcopy(module), lambda a: a * 2.0, lambda a: a + a)) == 1
    assert len(replace_pattern(copy.deepcopy(module), lambda a: a * 2, lambda a: a + a)) == 1
    found = replace_pattern_with_filters(
        module, lambda a: a * 2.0, lambda a: a + a, ignore_literals=True
    )
    assert [len(each.replacements) for each in found] == [1, 1, 1]
    assert names(module) == ["add", "add", "add"]


def test_an_input_may_stand_for_a_number_and_twice_for_one_value() -> None:
    module = traced(lambda x: (x * 3.0 + x, x * x + x))
    found = replace_pattern(module, lambda a, b: a * b + a, lambda a, b: a * (b + 1))
    assert len(found) == 2
    assert module(al.ones(2))[0].tolist() == [4.0, 4.0]
    assert module(al.ones(2))[1].tolist() == [2.0, 2.0]
    other = traced(lambda x, y: x * y + x, "f32[2]", "f32[2]")
    assert len(replace_pattern(other, lambda a, b: a * b + b, lambda a, b: a)) == 0


def test_a_pattern_has_its_form_for_the_types_that_it_matches() -> None:
    def rows(a: Any) -> Any:
        return a.sum(-1) if a.dim() == 2 else a.sum(0)

    module = traced(lambda x, y: (x.sum(-1), y.sum(0), x.sum(0)), "f32[2, 3]", "f32[3]")
    found = replace_pattern(module, rows, lambda a: a.mean(-1))
    assert len(found) == 2
    assert sorted(names(module)) == ["mean", "mean", "sum"]


def test_several_results_and_constants_match() -> None:
    weight = al.ones(2)

    def both(a: Any) -> Any:
        b = a * weight
        return b.exp(), b.sin()

    module = traced(lambda x: [each + 1 for each in both(x)])
    found = replace_pattern(module, both, lambda a: (a.neg(), a.cos()))
    assert len(found) == 1
    assert names(module) == ["neg", "cos", "add", "add"]
    other = al.full((2,), 3.0)
    module = traced(lambda x: [each + 1 for each in ((x * other).exp(), (x * other).sin())])
    assert replace_pattern(module, both, lambda a: (a.neg(), a.cos())) == []


def test_a_match_that_needs_its_own_result_stays() -> None:
    module = traced(lambda x: x.exp().neg().sin())
    found = replace_pattern(module, lambda a, b: (a.exp(), b.sin()), lambda a, b: (a, b))
    assert found == []
    assert names(module) == ["exp", "neg", "sin"]


def test_a_replacement_brings_its_constants() -> None:
    bias = al.nn.Parameter(al.ones(2))
    module: Any = traced(lambda x: x.exp())
    replace_pattern(module, lambda a: a.exp(), lambda a: a * bias)
    assert module._tensor_constant0 is bias
    module(al.ones(2)).sum().backward()
    assert bias.grad is not None
    assert fx.GraphModule(module.graph.ir_graph())(al.ones(2))[0].tolist() == [1.0, 1.0]


@pytest.mark.rules("FXG-20")
def test_what_is_written_in_between_is_no_match() -> None:
    def function(x: Any) -> Any:
        gate = x.sigmoid()
        x.add_(1.0)
        return x * gate

    module = traced(function)
    assert replace_pattern(module, swish, silu) == []
    before = traced(lambda x: swish(x).add_(1.0))
    assert len(replace_pattern(before, swish, silu)) == 1
    assert before(al.zeros(2)).tolist() == [1.0, 1.0]
    writing = traced(lambda x: x.exp().add_(1.0))
    assert len(replace_pattern(writing, lambda a: a.exp().add_(1.0), lambda a: a.exp() + 1)) == 1
    assert names(writing) == ["exp", "add"]

    def reading(x: Any) -> Any:
        y = x.exp()
        z = y * 2
        return y.add_(1.0), z

    assert replace_pattern(traced(reading), lambda a: a.exp().add_(1.0), lambda a: a + 1) == []


def test_filters_choose_and_chains_are_replaced_in_one_go() -> None:
    module = traced(lambda x: swish(swish(swish(x))))
    seen = []

    def second(match: Any, graph: Any, pattern: Any) -> bool:
        seen.append(match.anchors[0].name)
        return match.anchors[0].name == "mul_1"

    replace_pattern_with_filters(module, swish, silu, [second])
    assert names(module) == ["sigmoid", "mul", "silu", "sigmoid", "mul"]
    assert seen == ["mul", "mul_1", "mul_2"]
    assert len(replace_pattern(module, swish, silu)) == 2
    assert names(module) == ["silu"] * 3


MISTAKES = {
    "inputs": (lambda a: a.exp(), traced(lambda a, b: a, "f32[2]", "f32[2]"), "has 2 inputs"),
    "results": (lambda a: a.exp(), lambda a: (a, a), "has 2 results, expected 1"),
    "number": (lambda a: a.exp(), lambda a: 3, "returns a number"),
    "nothing": (lambda a: a, lambda a: a, "the pattern has no op"),
    "input": (lambda a: (a, a.exp()), lambda a: (a, a), "the pattern returns an input"),
    "dead": (lambda a: (a.sin(), a.exp())[1], lambda a: a, "nothing of the pattern needs sin"),
    "no function": (3, lambda a: a, "the pattern is 3"),
    "no replacement": (lambda a: a.exp(), 3, "the replacement is 3"),
    "stars": (lambda *a: a[0].exp(), lambda a: a, r"\*args"),
    "raises": (lambda a: a.view(17), lambda a: a, "raises for all types"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_and_nothing_changes(name: str) -> None:
    pattern, replacement, text = MISTAKES[name]
    module = traced(lambda x: x.exp().sin())
    before = module.code
    with pytest.raises(ArgumentError, match=text):
        replace_pattern(module, pattern, replacement)
    assert before == module.code == module.recompile().src


RULES: list[tuple[Any, Any]] = [
    (lambda a: a.neg().neg(), lambda a: a * 1.0),
    (lambda a, b: a * b + b, lambda a, b: (a + 1.0) * b),
    (lambda a: a.exp().neg(), lambda a: -(a.exp() * 1.0)),
    (lambda a, b: (a + b, a - b), lambda a, b: (b + a, a + b * -1.0)),
    (lambda a: a + a, lambda a: a * 2.0),
]


@pytest.mark.draws(long=2000)
@settings(max_examples=12)
@given(st.integers(0, 2**32), st.permutations(range(len(RULES))))
def test_replacements_of_equals_leave_the_values(seed: int, order: list[int]) -> None:
    rng = random.Random(seed)

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for _ in range(rng.randrange(3, 12)):
            a, b = rng.choice(values), rng.choice(values)
            values.append(rng.choice([a + b, a - b, -a, a * b, a.exp().neg(), a * 0.5]))
        return values[-1], rng.choice(values)

    module = fx.symbolic_trace(program, "f64[3]", "f64[3]")
    x, y = al.tensor([0.1, -0.2, 0.3]).to(al.float64), al.tensor([0.5, 0.2, -0.1]).to(al.float64)
    expected = [each.numpy() for each in module(x, y)]
    for place in order:
        pattern, replacement = RULES[place]
        matches = replace_pattern(module, pattern, replacement)
        taken = [n for m in matches for p, n in m.nodes_map.items() if p.op == "call_function"]
        assert len(taken) == len(set(taken))
        for one, other in zip(expected, module(x, y), strict=True):
            np.testing.assert_allclose(other.numpy(), one, rtol=1e-9)
