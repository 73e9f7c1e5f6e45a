"""META: one run tells everything, tangents are inputs of their own, what the run time knows."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import Hidden, MutatedInput, Output, Primal, Tangent
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.s4_joint import joint
from tests.end_to_end.helpers.worlds import body_of
from tests.rules.helpers.meta_oracle import on_both
from tests.stages.helpers.journeys import inputs_of

ENOUGH = 13


# -------------------------------------------------------------------------------------- one run
@pytest.mark.rules("META-1")
def test_the_function_runs_once_and_analysis_twice_says_the_same() -> None:
    """It reads the captured run and changes nothing of it: graph, tape, fakes, grad mode."""
    for journey in on_both()[::4]:
        runs = 0
        body = body_of(journey.case)

        def function(*inputs: Any, body: Any = body) -> Any:
            nonlocal runs
            runs += 1
            return body(*inputs)

        def twice(captured: Any) -> Any:
            graph, tape = captured.graph, state_of(captured)
            first, mode = analyze(captured), al.is_grad_enabled()
            second = analyze(captured)
            assert [] == first.differences(second)
            assert graph is captured.graph and tape == state_of(captured)
            assert mode == al.is_grad_enabled()
            return second

        _, inputs = inputs_of(journey.case)
        compiled = al.compile(function, stages={"analyze": twice}, verify=1)
        compiled.prepare(*inputs)
        assert 1 == runs
        assert [] == compiled.meta.differences(journey.compiled.meta)


def state_of(captured: Any) -> list[Any]:
    """What an analysis could change of the fakes and results."""
    tensors = [*[given.fake for given in captured.inputs], *captured.results]
    return [
        (t.meta, t.offset, t._node, t._root, t._seen, t._leaf, t.storage.version, t.value)
        for t in tensors
        if isinstance(t, al.Tensor)
    ]


@pytest.mark.rules("META-1", "META-24")
@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False, None])
def test_a_grad_mode_that_is_left_behind_is_recorded_and_put_back(outer: bool, inner: Any) -> None:
    """Compiling restores it; each call leaves what the function leaves, as the last thing."""

    def function(x: Any) -> Any:
        y = x * 2
        if inner is not None:
            al.set_grad_enabled(inner)
        return y

    before = al.is_grad_enabled()
    try:
        al.set_grad_enabled(outer)
        compiled = al.compile(function)
        compiled.prepare(al.ones(2))
        assert outer == al.is_grad_enabled()
        expected = outer if inner is None else inner
        assert compiled.meta.grad_mode_after == (None if expected == outer else inner)
        for _ in range(2):
            al.set_grad_enabled(outer)
            compiled(al.ones(2))
            assert expected == al.is_grad_enabled()
        assert 1 == len(compiled.entries)
    finally:
        al.set_grad_enabled(before)


# ------------------------------------------------------------------------------------- tangents
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-17")
def test_each_differentiable_result_has_a_tangent_of_its_own_and_of_its_layout() -> None:
    """No two are one input, none is an input of the forward."""
    seen = 0
    for journey in on_both():
        if not journey.meta.training:
            continue
        nodes = {n.role.of: n for n in journey.joint.placeholders if isinstance(n.role, Tangent)}
        assert list(journey.meta.tangents) == list(nodes)
        returned = dict(zip(journey.joint.output_roles, journey.joint.outputs, strict=True))
        for role, node in nodes.items():
            if role not in returned:  # a base of several inputs, which has no value of its own
                continue
            seen += 1
            found: Any = node.meta
            result: Any = returned[role].meta
            assert (found.shape, found.dtype) == (result.shape, result.dtype)
            assert found is result or not result.dense or result.numel <= 1
    assert seen > ENOUGH


@pytest.mark.rules("META-17")
@pytest.mark.parametrize("backward", ["one tensor twice", "the input", "the result"])
def test_any_tensor_may_arrive_as_a_tangent(backward: str) -> None:
    """The same one for two results, an input, or a result: gradients are eager's."""

    def function(x: Any) -> Any:
        return x * x, (x * 3).exp()

    found = []
    for run in (function, al.compile(function)):
        x = al.tensor([1.0, 2.0], requires_grad=True)
        first, second = run(x)
        one = al.tensor([3.0, 5.0])
        given = {
            "one tensor twice": [one, one],
            "the input": [x.detach(), x.detach()],
            "the result": [first.detach(), second.detach()],
        }[backward]
        al.autograd.backward([first, second], given)
        assert x.grad is not None
        found.append((x.grad.tolist(), [g.tolist() for g in given]))
    assert found[0] == found[1]


# --------------------------------------------------------------------------------- the run time
@pytest.mark.rules("META-23")
def test_reach_of_each_result_is_where_eagers_gradient_goes() -> None:
    """The inputs that one result's gradient reaches, by `grad(allow_unused=True)` of eager."""
    seen = 0
    for journey in on_both()[::2]:
        plan = journey.compiled.entries[-1].guarded
        reach = reach_of(journey)
        _, inputs = inputs_of(journey.case)
        if len({id(x.storage) for x in inputs}) < len({id(x) for x in inputs}) or plan is None:
            continue
        tracked = {i: x for i, x in enumerate(inputs) if x.requires_grad}
        results = body_of(journey.case)(*inputs)
        for role in [r for r in journey.meta.tangents if isinstance(r, Output)]:
            result = results[role.index]
            leaves = [x for x in tracked.values() if x.is_leaf and x.grad_fn is None]
            if len(leaves) < len(tracked) or role not in reach:
                continue
            ones = al.ones(*result.shape, dtype=result.dtype)
            try:
                grads = al.autograd.grad(result, leaves, ones, allow_unused=True, retain_graph=True)
            except al.AutogradError:
                continue
            given = {id(x) for x, g in zip(leaves, grads, strict=True) if g is not None}
            assert given == {id(inputs[of.index]) for of in reach[role]}
            seen += 1
    assert seen > ENOUGH / 6


def reach_of(journey: Any) -> dict[Any, Any]:
    """What stage 4 says of the case, captured anew."""
    found: dict[Any, Any] = {}

    def noting(captured: Any, meta: Any) -> Any:
        both = joint(captured, meta)
        found.update(both.backward.reachable_inputs)
        return both

    _, inputs = inputs_of(journey.case)
    al.compile(body_of(journey.case), stages={"joint": noting}).prepare(*inputs)
    return found


@pytest.mark.rules("META-23")
def test_a_saved_value_knows_whose_memory_it_is_and_why_it_is_kept() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x.exp()
        return y, (y * w).sum(), (w * w).sin()

    compiled = al.compile(function)
    compiled(al.ones(2).requires_grad_(), al.ones(2).requires_grad_())
    owners = {value.name: value.owner for value in compiled.partition.saved}
    assert Primal(1) in owners.values()
    assert Output(0) in owners.values()
    assert None in owners.values()
    assert all(value.reason for value in compiled.partition.saved)


@pytest.mark.rules("META-23")
def test_an_error_of_eagers_backward_is_kept_for_its_result_alone() -> None:
    """A value that the function saves and then writes: only the backward that reads it raises."""

    def function(x: Any) -> Any:
        y = x * 2
        first = y * y
        y.add_(1)
        return first, x * 3

    for run in (function, al.compile(function)):
        x = al.ones(2, requires_grad=True)
        first, second = run(x)
        second.sum().backward(retain_graph=True)
        assert x.grad is not None
        assert [3.0, 3.0] == x.grad.tolist()
        with pytest.raises(al.AutogradError, match="modified in place|was written"):
            first.sum().backward()


# --------------------------------------------------------------------------------- hidden inputs
@pytest.mark.rules("META-2", "META-6", "META-16")
def test_hidden_inputs_have_records_as_arguments_have() -> None:
    """A tensor from the closure is written, returned, and viewed as an argument would be."""
    state = al.ones(3)
    weight = al.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        state.mul_(weight)
        return state, weight[1:], x * state

    compiled = al.compile(function)
    compiled(al.ones(3))
    places = ["argument 0", "closure of function, cell 0", "closure of function, cell 1"]
    assert places == sorted(each.place for each in compiled.meta.inputs)
    hidden = {each.place: each for each in compiled.meta.inputs}
    of = {"state": hidden[places[1]], "weight": hidden[places[2]]}
    assert of["state"].writes_data and of["state"].changes_history
    assert [Hidden, Hidden] == [type(o.role) for o in compiled.meta.outputs[:2]]  # type: ignore[union-attr]
    assert MutatedInput(of["state"].role) == compiled.meta.tangents[0]


def test_the_oracles_programs_compile_alike_each_time() -> None:
    """What these tests compare belongs to one program: compiling it again gives equal graphs."""
    for journey in on_both()[::40]:
        stages: dict[str, Any] = {}
        _, inputs = inputs_of(journey.case)
        al.compile(body_of(journey.case), observer=stages.__setitem__).prepare(*inputs)
        assert structurally_equal(journey.joint, stages["4 joint"]) is None
