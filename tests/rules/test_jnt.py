"""JNT: what holds of every joint graph, on the journeys of random programs, and by cases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.compilers import nop
from aotlite.inspect import stages_of
from aotlite.ir.graph import Constant, Graph, Node, Phase
from aotlite.ir.graph.role import Gradient, Output, Primal, Tangent
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.stages.s8_partition import default_partition
from tests.end_to_end.helpers.worlds import body_of
from tests.stages.helpers.journeys import Journey, inputs_of, journeys, run_graph, values_for

ENOUGH = 10
Check = Callable[[Journey], bool | None]
gradients: Any = al.autograd.grad


def holds(check: Check) -> int:
    """Checks a law on all journeys; how many it applied to."""
    applied = 0
    for journey in journeys():
        try:
            applied += check(journey) is not False
        except Exception as error:
            error.add_note(str(journey.case))
            raise
    return applied


def leaf(*values: float) -> Any:
    return al.tensor(list(values), dtype=al.float64, requires_grad=True)


# ------------------------------------------------------------------------------ random programs
@pytest.mark.draws(long=520)
@pytest.mark.slow("takes 120 cases through all stages, for the tests of a worker")
@pytest.mark.rules("JNT-1", "JNT-2", "JNT-11")
def test_the_joint_graph_on_any_tangents_gives_eagers_gradients() -> None:
    """Run by an interpreter on small integers; eager is given the same tangents."""

    def check(journey: Journey) -> bool:
        tangents = [t.index for t in journey.meta.tangents if isinstance(t, Output)]
        if len(tangents) < len(journey.meta.tangents) or not journey.meta.training:
            return False
        _, inputs = inputs_of(journey.case)
        tracked = {id(x): x for x in inputs if x.requires_grad}.values()
        placeholders = journey.joint.placeholders
        if not all(x.is_leaf and x._base is None for x in tracked):
            return False
        if not all(type(node.role) in (Primal, Tangent) for node in placeholders):
            return False
        if any(x._base is not None for x in inputs):
            return False  # memory that is given once for several
        values = values_for(journey.joint)
        for node in placeholders:
            if type(node.role) is Primal:
                values[node.role] = np.array(inputs[node.role.index].detach().tolist()).astype(
                    node.meta.dtype.numpy  # type: ignore[union-attr]
                )
        found = run_graph(journey.joint, values)
        results = body_of(journey.case)(*inputs)
        roots = [results[index] for index in tangents]
        given = [
            al.tensor(values[Tangent(Output(k))].tolist(), dtype=results[k].dtype) for k in tangents
        ]
        roles = [role for role, _ in journey.joint.outputs_with(Gradient)]
        wanted = [inputs[role.of.index] for role in roles]
        try:
            expected = al.autograd.grad(roots, wanted, given, allow_unused=True)
        except al.AutogradError:
            return False
        for role, grad in zip(roles, expected, strict=True):
            assert (grad is None) == (role not in found)
            if grad is not None:
                assert np.array_equal(np.array(grad.tolist()), found[role])
        return True

    assert holds(check) > 2


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-4", "TRC-8")
def test_every_input_and_output_has_a_role_of_its_own() -> None:
    def check(journey: Journey) -> None:
        for graph in (journey.captured, journey.joint, journey.pure, journey.simple):
            roles = [node.role for node in graph.placeholders]
            assert None not in roles and len(set(roles)) == len(roles)
            assert None not in graph.output_roles
            assert len(set(graph.output_roles)) == len(graph.output_roles)

    assert holds(check) > ENOUGH


def renamed(graph: Graph) -> Graph:
    """The graph with other targets of its inputs, which names are printed from, in FX's way."""
    new: dict[Node, Node] = {}
    for k, node in enumerate(graph.nodes):
        args = _mapped(node.args, new)
        target = f"tangents_{k}" if node.op == "placeholder" else node.target
        new[node] = attrs.evolve(node, target=target, args=args)
    return Graph(tuple(new.values()), "another_name")


def _mapped(value: Any, new: dict[Node, Node]) -> Any:
    if type(value) is tuple:
        return tuple([_mapped(item, new) for item in value])
    return new.get(value, value) if type(value) is Node else value


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-4")
def test_a_partition_reads_roles_and_no_names() -> None:
    def check(journey: Journey) -> bool:
        if not journey.meta.training:
            return False
        one, other = default_partition(journey.simple), default_partition(renamed(journey.simple))
        assert [str(each) for each in one.saved] == [str(each) for each in other.saved]
        for half, again in ((one.forward, other.forward), (one.backward, other.backward)):
            if half is not None and again is not None:
                assert half.output_roles == again.output_roles
                assert [n.role for n in half.placeholders] == [n.role for n in again.placeholders]
                assert [n.target for n in half.calls] == [n.target for n in again.calls]
        return True

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-5")
def test_inputs_have_the_metas_of_the_arguments_at_the_call() -> None:
    """Whatever the function does to the geometry of its arguments; these are as they were."""
    moving = 0

    def check(journey: Journey) -> None:
        nonlocal moving
        _, inputs = inputs_of(journey.case)
        before = [(x.meta, x.version, x.requires_grad, str(x.detach().tolist())) for x in inputs]
        stages_of(body_of(journey.case), *inputs)
        for node in journey.captured.placeholders:
            if type(node.role) is Primal:
                assert node.meta == inputs[node.role.index].meta
        after = [(x.meta, x.version, x.requires_grad, str(x.detach().tolist())) for x in inputs]
        assert before == after
        moving += any(type(node.target) is GeometryOp for node in journey.captured.calls)

    assert holds(check) > ENOUGH
    assert moving > 2


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-6", "FUN-25")
def test_what_is_handed_over_is_pure_and_alive() -> None:
    def check(journey: Journey) -> None:
        for graph in (journey.pure, journey.simple):
            writing = (InplaceOp, GeometryOp)
            assert not any(isinstance(node.target, writing) for node in graph.calls)
            for node in graph.nodes:
                if node.op == "get_attr":
                    assert isinstance(node.target, Constant)
                    assert type(node.target.value) is np.ndarray
        live = {value for value in journey.simple.outputs if type(value) is Node}
        for node in reversed(journey.simple.calls):
            assert node in live, node
            live.update(node.inputs())

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-7")
def test_the_forward_comes_first_and_needs_nothing_of_the_backward() -> None:
    def check(journey: Journey) -> bool:
        graph = journey.joint
        halves = [node.phase for node in graph.calls]
        if Phase.BACKWARD not in halves:
            return False
        start = halves.index(Phase.BACKWARD)
        assert set(halves[start:]) == {Phase.BACKWARD}
        gradients = {value for _, value in graph.outputs_with(Gradient)}
        for value in graph.outputs:
            if type(value) is Node and value not in gradients:
                assert value.phase is Phase.FORWARD
        for node in graph.calls:
            if isinstance(node.target, InplaceOp) and node.phase is Phase.BACKWARD:
                assert node.args[0].phase is Phase.BACKWARD, "the backward writes its own alone"
        return True

    assert holds(check) > ENOUGH


@pytest.mark.draws(long=520)
@pytest.mark.rules("JNT-10", "SEQ-3")
def test_the_same_program_is_recorded_the_same_again() -> None:
    def check(journey: Journey) -> bool:
        _, inputs = inputs_of(journey.case)
        again = stages_of(body_of(journey.case), *inputs)["joint"]
        assert again.code == journey.joint.code
        return True

    assert holds(check) > ENOUGH


# -------------------------------------------------------------------------------------- by cases
@pytest.mark.rules("JNT-2")
@pytest.mark.parametrize("cloned", [False, True])
def test_a_written_input_is_differentiated_as_it_came(cloned: bool) -> None:
    """A clone that the user takes changes nothing, and the graph has none else."""

    def written(x: Any) -> Any:
        y = x.clone() if cloned else x
        y.mul_(3)
        return (y * y).sum()

    start = leaf(2.0, -3.0)
    grads = []
    for function in (written, al.compile(written)):
        (grad,) = gradients(function(start * 1), [start])
        grads.append(grad.tolist())
    assert grads == [[36.0, -54.0]] * 2
    graph = stages_of(written, start * 1)["joint"]
    assert sum(node.target.name == "clone" for node in graph.calls) == cloned


@pytest.mark.rules("JNT-3")
def test_gradients_stop_at_the_inputs() -> None:
    """What an argument was computed from is the caller's: the graph does not know it."""
    x = leaf(1.0, 2.0)
    y, z = x.sin(), x.cos()
    joint = stages_of(lambda y, z: y * z, y, z)["joint"]
    assert {str(role) for role, _ in joint.outputs_with(Gradient)} == {
        "grad_primals_0",
        "grad_primals_1",
    }
    assert not any(node.target.name in ("sin", "cos") for node in joint.calls)
    al.compile(lambda y, z: y * z)(y, z).sum().backward()
    assert np.allclose(x.grad.tolist(), np.cos(2 * np.array([1.0, 2.0])))


@pytest.mark.rules("JNT-3")
def test_there_is_no_backward_without_an_input_that_requires_grad() -> None:
    compiled = al.compile(lambda x: x * 2)
    assert not compiled(al.ones(2)).requires_grad
    assert compiled.entries[0].partition.backward is None


@pytest.mark.rules("JNT-9")
@pytest.mark.parametrize("low", [al.float16, al.bfloat16])
def test_dtypes_of_a_backward_are_eagers_op_by_op(low: Any) -> None:
    def mixed(w: Any) -> Any:
        y = (w.to(low) * 3).sin()
        return (y.to(al.float32) * w).sum()

    def seen(function: Any) -> Any:
        w = al.tensor([0.3, -1.7], requires_grad=True)
        (first,) = gradients(function(w), [w], create_graph=True)
        (second,) = gradients(first.sum(), [w])
        return first.dtype, first.tolist(), second.dtype, second.tolist()

    assert seen(mixed) == seen(al.compile(mixed))
    joint = stages_of(mixed, al.ones(2, requires_grad=True))["joint"]
    cosines = [node.meta for node in joint.calls if node.target.name == "cos"]
    assert [meta.dtype for meta in cosines] == [low]


@pytest.mark.rules("JNT-10", "HOOK-3")
def test_hooks_on_tensors_inside_are_part_of_the_graph() -> None:
    def hooked(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad.exp())
        return y.sum()

    compiled = al.compile(hooked)
    x = leaf(1.0, 2.0)
    for _ in range(2):
        compiled(x).backward()
    assert np.allclose(x.grad.tolist(), 4 * np.e)
    backward: Any = compiled.entries[0].partition.backward
    assert "exp" in {node.target.name for node in backward.calls}


@pytest.mark.rules("JNT-10")
def test_hooks_run_in_the_thread_that_compiles() -> None:
    """Whatever they are run for: tried, recorded, or run since they change what is outside."""
    threads: set[int] = set()

    def hook(grad: Any) -> Any:
        threads.add(threading.get_ident())
        return grad * 2

    def hooked(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y.sum()

    x = leaf(1.0, 2.0)
    al.compile(hooked)(x).backward()
    assert (threads, x.grad.tolist()) == ({threading.get_ident()}, [4.0, 4.0])


@pytest.mark.rules("JNT-11")
@pytest.mark.parametrize("tangent", [0.0, float("nan"), float("inf"), 1.0])
@pytest.mark.parametrize("expanded", [False, True])
def test_a_tangent_of_any_value_is_computed_with(tangent: float, expanded: bool) -> None:
    """Zeros are no absence: 0 times infinity is nan, as in eager."""
    calls = 0

    def counted(graph: Any, examples: Any) -> Any:
        nonlocal calls
        calls += 1
        return nop(graph, examples)

    def function(x: Any) -> Any:
        return x.sqrt() * 2

    given = al.tensor(tangent, dtype=al.float64).expand(2)
    given = given if expanded else given.contiguous()
    compiled = al.aot_function(function, nop, counted)
    grads = []
    for called in (function, compiled, compiled):
        x = leaf(0.0, 4.0)
        called(x).backward(given)
        grads.append(str(x.grad.tolist()))
    assert len(set(grads)) == 1
    x = leaf(0.0, 4.0)
    compiled(x).backward(al.ones(2, dtype=al.float64))
    assert calls == 1


@pytest.mark.rules("JNT-12")
def test_a_function_that_only_writes_has_a_backward() -> None:
    def scale(x: Any, w: Any) -> None:
        x.mul_(w)

    for function in (scale, al.compile(scale)):
        x, w = al.tensor([2.0, 3.0], dtype=al.float64), leaf(5.0, 7.0)
        assert function(x, w) is None
        assert x.requires_grad
        (x * x).sum().backward()
        assert w.grad.tolist() == [2 * 10.0 * 2, 2 * 21.0 * 3]


class Counting:
    """A compiler that counts, and can be told to fail."""

    def __init__(self) -> None:
        self.calls, self.fails = 0, 0

    def __call__(self, graph: Any, examples: Any) -> Any:
        self.calls += 1
        if self.calls <= self.fails:
            raise KeyError("no such thing")
        return nop(graph, examples)


@pytest.mark.rules("JNT-13")
@pytest.mark.parametrize("mode", [al.no_grad, al.enable_grad])
def test_the_backward_is_compiled_when_it_is_first_needed(mode: Any) -> None:
    compiler = Counting()
    compiled = al.aot_function(lambda x: (x * x).sum(), nop, compiler)
    x = leaf(1.0, 2.0)
    losses = [compiled(x) for _ in range(3)]
    assert compiler.calls == 0
    for loss in losses:
        with mode():
            before = al.is_grad_enabled()
            loss.backward()
            assert al.is_grad_enabled() == before
    assert (compiler.calls, x.grad.tolist()) == (1, [6.0, 12.0])


@pytest.mark.rules("JNT-13")
def test_a_compiler_that_fails_is_asked_again_at_the_next_backward() -> None:
    compiler = Counting()
    compiler.fails = 1
    compiled = al.aot_function(lambda x: (x * x).sum(), nop, compiler)
    x: Any = leaf(1.0, 2.0)
    loss = compiled(x)
    with pytest.raises(al.AotliteError):
        loss.backward()
    left: Any = x.grad
    assert left is None
    loss.backward()
    assert (compiler.calls, x.grad.tolist()) == (2, [2.0, 4.0])


@pytest.mark.rules("JNT-14")
def test_the_same_backward_gives_the_same_bits() -> None:
    """Sums of many terms of very different size, in an order that is always the same."""
    drawn = np.random.default_rng(0)
    rows = al.tensor((drawn.normal(size=(64, 300)) * 10.0 ** drawn.integers(-8, 8, 300)).tolist())
    weight = al.tensor(drawn.normal(size=300).tolist(), requires_grad=True)
    index = al.tensor(drawn.integers(0, 64, 500).tolist())

    def function(w: Any) -> Any:
        return ((rows * w).softmax(0).index_select(0, index) @ w).exp().sum()

    compiled = al.compile(function)
    found = [gradients(compiled(weight), [weight])[0].numpy().tobytes() for _ in range(4)]
    assert len(set(found)) == 1
    assert not hasattr(al, "use_deterministic_algorithms")


@pytest.mark.rules("JNT-15")
def test_only_the_results_that_need_what_was_overwritten_raise() -> None:
    def spoilt(x: Any) -> Any:
        y = x.exp()
        z = y.sum()
        y.zero_()
        return z, (x * 3).sum()

    for function in (spoilt, al.compile(spoilt)):
        x = leaf(0.0, 1.0)
        z, fine = function(x)
        assert np.isclose(z.item(), 1 + np.e)
        fine.backward(retain_graph=True)
        with pytest.raises(al.AutogradError, match="^ExpBackward: a saved tensor"):
            z.backward()
        assert x.grad.tolist() == [3.0, 3.0]
