"""Laws of single stages, on the journeys of random programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.modes import STATE
from aotlite.eager.dispatch import dispatch
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import Gradient, IntermediateBase, Output, Primal, Role, Saved
from aotlite.ir.graph.verify import verify
from aotlite.ir.run.interpreter import Interpreter
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    Fixed,
    IsInput,
    Plain,
    Repeated,
)
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s8_partition import default_partition
from tests.end_to_end.helpers.cases import results_of
from tests.end_to_end.helpers.worlds import body_of
from tests.helpers.programs import Aotlite, execute
from tests.stages.helpers.journeys import (
    Journey,
    inputs_of,
    journeys,
    run_graph,
    same_results,
    values_for,
)

ENOUGH = 13
"""Journeys that a law must have something to say about."""


def holds(check: Callable[[Journey], bool | None]) -> int:
    """Checks a law on all journeys; the number that it applied to: it returns False elsewhere."""
    applied = 0
    for journey in journeys():
        try:
            applied += check(journey) is not False
        except Exception as error:
            error.add_note(str(journey.case))
            raise
    return applied


# ------------------------------------------------------------------------------ 6 functionalize
@pytest.mark.draws(long=520)
@pytest.mark.slow("takes 120 cases through all stages, for the tests of a worker")
@pytest.mark.rules("FUN-1", "FUN-25")
def test_functionalize_gives_a_pure_graph() -> None:
    def check(journey: Journey) -> None:
        verify(journey.pure, functional=True)

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
@pytest.mark.rules("FUN-4", "FUN-6", "FUN-7", "FUN-2")
def test_functionalize_computes_what_the_imperative_graph_computes() -> None:
    """Run by the interpreter, whose in-place ops write memory, on small integers: exactly."""

    def check(journey: Journey) -> None:
        values = values_for(journey.joint)
        assert same_results(run_graph(journey.joint, values), run_graph(journey.pure, values))

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
@pytest.mark.rules("FUN-34")
def test_functionalize_leaves_a_pure_graph_alone() -> None:
    """FUN-34: after the first time there is nothing left to do."""

    def check(journey: Journey) -> None:
        assert structurally_equal(journey.pure, functionalize(journey.pure)) is None

    assert holds(check) > ENOUGH


# ------------------------------------------------------------------------------------ 7 simplify
@pytest.mark.draws(long=520)
def test_simplify_keeps_results() -> None:
    def check(journey: Journey) -> None:
        values = values_for(journey.pure)
        assert same_results(run_graph(journey.pure, values), run_graph(journey.simple, values))

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
def test_simplify_twice_is_simplify_once() -> None:
    def check(journey: Journey) -> None:
        assert structurally_equal(journey.simple, simplify(journey.simple)) is None

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
def test_results_have_memory_of_their_own() -> None:
    """PART-15: no two results share memory, and none is an input's: the caller may write it."""

    def check(journey: Journey) -> None:
        roots = [
            _memory(value)
            for role, value in zip(journey.simple.output_roles, journey.simple.outputs, strict=True)
            if isinstance(role, (Output, IntermediateBase))
        ]
        assert len(roots) == len(set(roots))
        assert all(root.op == "call" for root in roots)

    assert holds(check) > ENOUGH


def _memory(value: Any) -> Node:
    node: Node = value
    while node.op == "call" and node.target.views:
        node = node.args[0]
    return node


# ----------------------------------------------------------------------------------- 8 partition
@pytest.mark.draws(long=520)
def test_partition_halves_together_are_the_joint_graph() -> None:
    """PART-1: backward(saved(forward(primals)), tangents) = the joint graph's, exactly."""

    def check(journey: Journey) -> bool:
        backward = journey.partition.backward
        if backward is None:
            return False
        values = values_for(journey.simple)
        first = run_graph(journey.partition.forward, values)
        saved: dict[Role, Any] = {r: v for r, v in first.items() if isinstance(r, Saved)}
        second = run_graph(backward, {**values, **saved})
        both: dict[Role, Any] = {
            r: v for r, v in {**first, **second}.items() if not isinstance(r, Saved)
        }
        assert same_results(run_graph(journey.simple, values), both)
        return True

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
def test_partition_twice_gives_the_same_graphs() -> None:
    """PART-7."""

    def check(journey: Journey) -> bool:
        if not journey.meta.training:
            return False
        again = default_partition(journey.simple)
        assert structurally_equal(journey.partition.forward, again.forward) is None
        if journey.partition.backward is not None and again.backward is not None:
            assert structurally_equal(journey.partition.backward, again.backward) is None
        return True

    assert holds(check) > ENOUGH


# --------------------------------------------------------------------------------------- 4 joint
@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-1", "JNT-3")
def test_joint_has_a_gradient_where_eager_has_one() -> None:
    """JNT-3: None where eager's `grad(allow_unused=True)` gives None."""

    def check(journey: Journey) -> bool:
        tangents = [t.index for t in journey.meta.tangents if isinstance(t, Output)]
        if len(tangents) < len(journey.meta.tangents) or not journey.meta.training:
            return False
        _, inputs = inputs_of(journey.case)
        tracked = {id(x): x for x in inputs if x.requires_grad}.values()
        if len(tracked) > 1 and not all(x.is_leaf for x in tracked):
            return False  # one input's history may lead to another
        results = body_of(journey.case)(*inputs)
        results = [results[index] for index in tangents]
        roles = {role.of: value for role, value in journey.joint.outputs_with(Gradient)}
        wanted = [inputs[role.index] for role in roles]
        ones = [al.ones(*r.shape, dtype=r.dtype) for r in results]
        try:
            found = al.autograd.grad(results, wanted, ones, allow_unused=True)
        except al.AutogradError:
            return False
        for gradient, value in zip(found, roles.values(), strict=True):
            assert (gradient is None) == (value is None)
        return True

    assert holds(check) > ENOUGH / 12


class _UnderTape(Interpreter):
    """Runs a graph op by op under the tape, each op in its node's grad mode."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, dispatch)

    def run_node(self, node: Node) -> Any:
        if node.op != "call":
            return super().run_node(node)
        before = STATE.grad_mode
        STATE.grad_mode = node.grad_mode
        try:
            return super().run_node(node)
        finally:
            STATE.grad_mode = before


@pytest.mark.draws(long=520)
def test_continuing_the_tape_is_interpreting_under_it() -> None:
    """Where no Python is called back, the captured graph run again under the tape is the same."""

    def check(journey: Journey) -> bool:
        arguments = journey.case.calls[0].inputs
        outputs = journey.meta.outputs
        if len(set(arguments)) < len(arguments) or any(isinstance(o, Fixed) for o in outputs):
            return False

        def again(*inputs: Any) -> Any:
            return _UnderTape(journey.captured).run(*inputs)

        stages: dict[str, Any] = {}
        _, inputs = inputs_of(journey.case)
        al.compile(again, observer=stages.__setitem__)(*inputs)
        assert structurally_equal(journey.simple, stages["7 simplify"]) is None
        return True

    assert holds(check) > ENOUGH


# ------------------------------------------------------------------------------------- 2 analyze
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-1", "META-2", "META-6", "META-7", "FUN-17", "FUN-23")
def test_analyze_says_what_eager_does() -> None:
    """META against brute force: eager runs, and its storages, objects and bytes are looked at."""

    def check(journey: Journey) -> None:
        case, meta = journey.case, journey.meta
        _, inputs = inputs_of(case)
        before = [(x.shape, x.stride(), x.version, str(x.detach().tolist())) for x in inputs]
        values = list(inputs)
        execute(Aotlite(), case.program.body, values)
        results = results_of(case, values)
        for x, old in zip(inputs, before, strict=True):
            first = next(i for i, y in enumerate(inputs) if y is x)
            said = meta.input_of(Primal(first))
            now = (x.shape, x.stride(), x.version, str(x.detach().tolist()))
            assert now[2] - old[2] == said.version_bumps
            if not any(y is not x and y.storage is x.storage for y in inputs):
                assert said.writes_data or said.writes_metadata or now[3] == old[3]
            assert said.writes_metadata or now[:2] == old[:2]
            assert said.requires_grad_at_exit == x.requires_grad
        for index, (result, kind) in enumerate(zip(results, meta.outputs, strict=True)):
            _check_output(index, result, kind, inputs, results)

    assert holds(check) > ENOUGH


def _check_output(
    index: int, result: Any, kind: Any, inputs: list[Any], results: list[Any]
) -> None:
    if not isinstance(result, al.Tensor):
        assert isinstance(kind, Fixed)
        return
    earlier = [i for i, other in enumerate(results[:index]) if other is result]
    owner = [i for i, x in enumerate(inputs) if x.storage is result.storage]
    sharing = {
        id(other)
        for other in results
        if isinstance(other, al.Tensor) and other.storage is result.storage
    }
    if isinstance(kind, Repeated):
        assert kind.output in earlier
    elif isinstance(kind, IsInput):
        assert isinstance(kind.role, Primal)
        assert inputs[kind.role.index] is result
    elif isinstance(kind, AliasOfInput):
        assert isinstance(kind.role, Primal)
        assert kind.role.index in owner
        assert kind.view.requires_grad == result.requires_grad
    else:
        assert not owner
        if isinstance(kind, (AliasOfBase, AliasOfOutput)):
            assert kind.view.requires_grad == result.requires_grad
            assert len(sharing) > 1 or kind.view.kind is not None
        else:
            assert isinstance(kind, Plain)
            assert kind.requires_grad == result.requires_grad
            assert result.version == kind.version


def _meta_of(function: Any, *inputs: Any) -> Any:
    compiled = al.compile(function)
    compiled(*inputs)
    return compiled.meta


def leaf() -> Any:
    return al.ones(2, 2, requires_grad=True)


def value() -> Any:
    return leaf() * 1


@pytest.mark.rules("META-27", "META-6")
def test_worked_kinds_of_results() -> None:
    """META-27, with the differences that META-13 makes."""

    def two(x: Any) -> Any:
        y = x * 2
        return y.view(-1), y.t()

    def base_and_view(x: Any) -> Any:
        y = x * 2
        return y, y.t(), y.detach()

    kinds = {
        (lambda x: x * 2): [Plain],
        (lambda x: x[0]): [AliasOfInput],
        (lambda x: x): [IsInput],
        two: [AliasOfBase, AliasOfBase],
        base_and_view: [Plain, AliasOfOutput, AliasOfOutput],
        (lambda x: (x * 2).view(-1)): [Plain],
        (lambda x: (x * 2, 3)): [Plain, Fixed],
    }
    for function, expected in kinds.items():
        for made in (leaf, lambda: leaf().detach()):
            assert expected == [type(o) for o in _meta_of(function, made()).outputs]


@pytest.mark.rules("META-28", "FUN-18")
@pytest.mark.parametrize(
    ("function", "made", "facts"),
    [
        (lambda x: x.mul_(2), lambda: leaf().detach(), "data"),
        (lambda x: x.mul_(2), value, "data history"),
        (lambda x: x.detach().mul_(2), leaf, "data"),
        (lambda x: x.t_(), value, "geometry"),
        (lambda x: x.t_().mul_(2), value, "data geometry history"),
        (lambda x: x[0].add_(1), value, "data history"),
        (lambda x: x.copy_(x), value, "data"),
        (lambda x: x.mul_(2).div_(2), value, "data history"),
        (lambda x: x.squeeze_(0), value, ""),
    ],
)
def test_worked_writes_of_inputs(function: Any, made: Any, facts: str) -> None:
    """META-28."""
    (each,) = _meta_of(function, made()).inputs
    found = {
        "data": each.writes_data,
        "geometry": each.writes_metadata,
        "history": each.changes_history,
    }
    assert set(facts.split()) == {name for name, holds in found.items() if holds}


@pytest.mark.rules("META-28", "META-2", "META-16")
def test_worked_write_of_an_input_by_a_differentiable_operand() -> None:
    """META-28: `x.mul_(w)`, only `w` requires grad: `x` requires grad afterwards, one tangent."""
    meta = _meta_of(lambda x, w: x.mul_(w), leaf().detach(), leaf())
    x = meta.input_of(Primal(0))
    assert (False, True) == (x.requires_grad, x.requires_grad_at_exit)
    assert 1 == len(meta.tangents)


@pytest.mark.rules("META-28", "FUN-20")
def test_worked_write_under_no_grad_and_with_grad() -> None:
    """META-28: both kinds of writes make a differentiable one."""

    def both(x: Any) -> None:
        with al.no_grad():
            x.mul_(2)
        x.mul_(2)

    (each,) = _meta_of(both, value()).inputs
    assert each.changes_history
    assert not each.under_no_grad
    assert 2 == each.version_bumps


def test_values_of_the_gradient_are_those_of_the_interpreted_halves() -> None:
    """The whole chain once by hand: forward, saved values, backward, against eager's numbers."""
    x = al.tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True)

    def function(x: Any) -> Any:
        return (x * x).relu().sum()

    compiled = al.compile(function)
    compiled(x).backward()
    assert x.grad is not None
    assert np.array_equal(np.array([[2.0, 4.0], [6.0, -8.0]]), np.array(x.grad.tolist()))
