"""GEN: order of stages and of a call, training or inference, modes, and what compiling leaves."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph.role import Gradient, Tangent
from aotlite.ir.graph.verify import verify
from aotlite.ir.op import GeometryOp, InplaceOp
from tests.end_to_end.helpers.worlds import body_of
from tests.rules.helpers.meta_oracle import kinds, on_both, run_eagerly
from tests.stages.helpers.journeys import Journey, inputs_of

ENOUGH = 20


# --------------------------------------------------------------------------------------- orders
@pytest.mark.rules("GEN-4")
def test_writes_become_values_after_the_tape_was_continued() -> None:
    """Captured and joint graphs write as the function does; behind them no graph writes."""
    writing = differentiable = 0
    for journey in on_both():
        names = [name for name in journey.stages if name[0].isdigit()]
        assert sorted(names, key=lambda name: int(name.split()[0])) == names
        written = [type(node.target) for node in journey.captured.calls]
        joint = [type(node.target) for node in journey.joint.calls]
        if not journey.stages["3 convention"].bases:  # whose members are views, to begin with
            assert joint[: len(written)] == written  # the joint graph goes on from the captured
        writing += InplaceOp in written or GeometryOp in written
        differentiable += any(isinstance(n.role, Tangent) for n in journey.joint.placeholders)
        for graph in (journey.pure, journey.simple, journey.partition.forward):
            assert 0 == verify(graph, functional=True)
    assert writing > ENOUGH
    assert differentiable > ENOUGH


PARTS = (
    ("flatten", ("= leaves",)),
    ("check", ("if not (",)),
    ("refuse", ("raise read_only(",)),
    ("edges", ("edges = (", "ends = [")),
    ("forward", ("quiet_call(run.call", "= run.call(")),
    ("history", ("node = CompiledBackward(",)),
    ("writes", ("take_history(", "write_window(", "write_seen(", ".array[...] = ")),
    ("versions", (".storage.version = ",)),
    ("results", ("= rebuilt(", "= plain_view(")),
    ("links", ("node.saved_versions = ",)),
    ("geometries", ("change_geometry_of(",)),
    ("mode", ("    STATE.grad_mode = ",)),
    ("return", ("    return (",)),
)
"""The parts of a run-time function in order, by the text that shows each."""


def order_of(source: str) -> list[str]:
    found: list[str] = []
    lines = source[source.index("def ") :].splitlines()
    for line in lines:
        for name, texts in PARTS:
            if any(text in line for text in texts) and name not in found[-1:]:
                found.append(name)
    return found


@pytest.mark.rules("GEN-3", "RT-1")
def test_a_call_does_its_parts_in_order_and_each_once() -> None:
    """Read from the generated functions; what there is nothing to do for is left out."""
    names = [name for name, _ in PARTS]
    met: set[str] = set()
    for journey in on_both():
        found = order_of(journey.compiled.source)
        assert sorted(set(found), key=names.index) == found, journey.compiled.source
        assert {"check", "return"} <= set(found)
        met |= set(found)

    def leaves_a_mode(x: Any) -> Any:
        al.set_grad_enabled(False)
        return x * 2

    compiled = al.compile(leaves_a_mode)
    with nullcontext() if al.is_grad_enabled() else al.enable_grad():
        compiled(al.ones(2))
    al.set_grad_enabled(True)
    met |= set(order_of(compiled.source))
    assert set(names) == met


# ------------------------------------------------------------------------- training or inference
@pytest.mark.rules("GEN-5")
def test_a_backward_is_made_where_eager_has_a_history_that_no_view_brings() -> None:
    """Results on an input's storage get their history when they are rebuilt; others need one."""
    trained = 0

    def needs(journey: Journey) -> bool | None:
        run = run_eagerly(journey.case)
        if any(run.owners(x) != {run.number(x)} for x in run.inputs):
            return None  # whose write it was is not seen
        if not any(before[3] for before in run.before):
            return False
        for (kind, *_), result in zip(kinds(run), run.results, strict=True):
            new = kind in ("Plain", "AliasOfBase", "AliasOfOutput")
            if new and result.requires_grad and (result.base is not None or result.grad_fn):
                base = result if result.base is None else result.base
                if base.requires_grad and base.grad_fn is not None:
                    return True
        for x in run.inputs:
            written = run.writes.get(id(x.storage))
            root = x if x.base is None else x.base
            if written and written.with_history and root.requires_grad and root.grad_fn:
                return True
        return False

    for journey in on_both():
        expected = needs(journey)
        if expected is None or any(x._kind is not None for x in inputs_of(journey.case)[1]):
            continue
        assert expected == journey.meta.training, str(journey.case)
        assert journey.meta.training == bool(journey.joint.outputs_with(Gradient))
        trained += expected
    assert trained > ENOUGH


@pytest.mark.rules("GEN-5")
def test_worked_cases_of_training_and_inference() -> None:
    """Views of inputs make no backward; what a write made differentiable at exit does."""

    def training(function: Any, *inputs: Any) -> bool:
        compiled = al.compile(function)
        compiled(*inputs)
        return bool(compiled.meta.training)

    def grad_on_inside(x: Any) -> Any:
        with al.enable_grad():
            return x * 2

    leaf = al.ones(2, 2, requires_grad=True)
    assert not training(lambda x: x.view(-1), leaf)
    assert not training(lambda x: x, leaf)
    assert not training(lambda x: x.unbind(0), leaf)
    assert not training(lambda x: x.detach() * 2, leaf)
    assert training(lambda x, w: x.mul_(w), al.ones(2, 2), leaf)
    with al.no_grad():
        assert training(grad_on_inside, leaf)
        assert not training(lambda x: x * 2, leaf)
    view = al.compile(lambda x: x.view(-1))(leaf)
    assert view.grad_fn is not None and view.base is leaf


# ---------------------------------------------------------------------------------------- modes
MODES = {"grad": nullcontext, "no_grad": al.no_grad, "inference": al.inference_mode}


@pytest.mark.rules("GEN-6")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("ambient", MODES)
def test_graphs_run_with_grad_off_and_the_mode_is_as_before(ambient: str, training: bool) -> None:
    """The forward in every mode, the backward too, also under create_graph's mode."""
    seen: list[tuple[str, bool]] = []

    compiled = al.compile(lambda x: (x * x).sum(), backend=watching(seen))
    with MODES[ambient]():
        x = al.ones(3, requires_grad=training and ambient == "grad")
        before = al.is_grad_enabled()
        result = compiled(x)
        assert before == al.is_grad_enabled()
    if result.requires_grad:
        result.backward()
        assert x.grad is not None and [2.0, 2.0, 2.0] == x.grad.tolist()
    expected = [("forward", False)] + [("backward", False)] * (training and ambient == "grad")
    assert expected == seen


def watching(seen: list[tuple[str, bool]]) -> Any:
    """A backend that notes the grad mode at each run, and computes by the interpreter."""
    from aotlite.ir.run.interpreter import run_graph

    def backend(graph: Any) -> Any:
        name = "backward" if "backward" in graph.name else "forward"

        def run(*arrays: Any) -> Any:
            seen.append((name, al.is_grad_enabled()))
            return run_graph(graph, *arrays)

        return run

    return backend


@pytest.mark.rules("GEN-6")
def test_an_entry_serves_the_mode_that_it_was_compiled_in() -> None:
    """One that was compiled for training would give results that require grad under no_grad."""
    compiled = al.compile(lambda x: x * 2)
    x = al.ones(2, requires_grad=True)
    assert compiled(x).requires_grad
    with al.no_grad():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad
    assert 2 == len(compiled.entries)


# ------------------------------------------------------------------------------------ compiling
def state_of(x: Any) -> Any:
    grad = None if x.grad is None else x.grad.tolist()
    return x.detach().tolist(), x.shape, x.stride(), x.requires_grad, x.version, x._node, grad


@pytest.mark.rules("GEN-8")
def test_compiling_without_running_leaves_everything_as_it_was() -> None:
    """Bytes, geometry, versions, histories, gradients, the generator, the grad mode."""
    for journey in on_both()[::3]:
        setup, inputs = inputs_of(journey.case)
        before = [state_of(x) for x in setup], al.get_rng_state(), al.is_grad_enabled()
        al.compile(body_of(journey.case)).prepare(*inputs)
        assert before == ([state_of(x) for x in setup], al.get_rng_state(), al.is_grad_enabled())


@pytest.mark.rules("GEN-8")
def test_compiling_calls_no_hook_of_the_callers_and_draws_nothing() -> None:
    called: list[str] = []

    def packed(tensor: Any) -> Any:
        called.append("pack")
        return tensor

    x = al.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: called.append("hook"))
    al.manual_seed(7)
    state = al.get_rng_state()

    def function(y: Any) -> Any:
        return (y * al.rand(3)).exp().sum()

    compiled = al.compile(function)
    with al.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        compiled.prepare(y)
    assert [] == called
    assert state == al.get_rng_state()
    al.manual_seed(7)
    expected = function(y).item()
    al.manual_seed(7)
    assert expected == compiled(y).item()
