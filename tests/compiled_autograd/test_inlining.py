"""CAG-11, CAG-12, CAG-14, CAG-22, CAG-23: compiled functions on the tape, graphs, lifetimes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable
from aotlite.eager import dispatch as dispatching
from aotlite.subclasses import TwoTensor

pytestmark = pytest.mark.rules("CAG-11")


def leaf(*shape: int) -> Any:
    return (al.arange(12.0)[: al.empty(shape).numel()].view(shape) * 0.1 + 0.3).requires_grad_()


def grads_of(program: Callable[..., Any], tapes: Any) -> Any:
    leaves = [leaf(3, 3), leaf(3, 3), leaf(3)]
    result = program(*leaves)
    with al.compiled_autograd.disable() if tapes is None else enable(tapes):
        result.sum().backward()
    return [None if each.grad is None else each.grad.tolist() for each in leaves]


def close(found: Any, expected: Any) -> bool:
    return all(
        (a is None) == (b is None) and (a is None or np.allclose(a, b, rtol=1e-5))
        for a, b in zip(found, expected, strict=True)
    )


layer = al.compile(lambda x, w, b: (x @ w + b).relu(), backend="reference")
two = al.compile(lambda x, w: (x * w, x.sin()), backend="reference")
writing = al.compile(lambda x, w: (x * 1).mul_(w), backend="reference")
printing = al.compile(
    lambda x, w: al.effects.callback(lambda a: a, x.detach(), results="f32[3, 3]") * w,
    backend="reference",
)
drawing = al.compile(lambda x: al.nn.functional.dropout(x, 0.5), backend="reference")


class Cube(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3 * ctx.saved_tensors[0] * ctx.saved_tensors[0]


def seeded(x: Any) -> Any:
    al.manual_seed(5)
    return drawing(x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "one": layer,
    "the same twice": lambda x, w, b: layer(layer(x, w, b), w, b),
    "between ops": lambda x, w, b: layer((x * w).sin(), w, b).exp() + x,
    "one of two results": lambda x, w, b: two(x, w)[0] + b,
    "the other": lambda x, w, b: two(x, w)[1] + b,
    "both": lambda x, w, b: two(x, w)[0] * two(x, w)[1] + b,
    "written inside": lambda x, w, b: writing(x, w) + b,
    "an effect": lambda x, w, b: printing(x, w) + b,
    "a draw": lambda x, w, b: seeded(x * w) + b,
    "a user's function": lambda x, w, b: Cube.apply(x * w) + b,
    "a region": lambda x, w, b: al.checkpoint(lambda x: (x @ w).sin(), x) + b,
    "a region of a compiled one": lambda x, w, b: al.checkpoint(lambda x: layer(x, w, b), x),
}


@pytest.mark.rules("CAG-11", "CAG-12", "CAG-23")
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_functions_on_the_tape(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    expected = grads_of(program, None)
    tapes = CompiledAutograd.of(backend)
    for _ in range(3):
        assert close(grads_of(program, tapes), expected)
    assert tapes.counters.captures == 1


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("fast", [False, True])
def test_saved_values_travel_as_their_own_backward_has_them(backend: str, fast: bool) -> None:
    """As windows where a compiled function takes the general ways."""
    function = al.compile(
        lambda x, w, b: (x @ w.t() + b).sin() * x[0], backend="reference", fast_paths=fast
    )
    expected = grads_of(function, None)
    tapes = CompiledAutograd.of(backend)
    for _ in range(4):
        assert close(grads_of(function, tapes), expected)


def test_graphs_are_pasted_and_their_ops_joined() -> None:
    """No call of the compiled backward is left, and each occurrence has values of its own."""
    tapes = CompiledAutograd.of("reference")
    grads_of(PROGRAMS["the same twice"], tapes)
    (graph,) = tapes.graphs
    names = [node.target.name for node in graph.calls]
    assert names.count("relu_backward") == 2
    roles: list[Any] = [node.role for node in graph.placeholders]
    places = [role.place for role in roles]
    assert len(set(places)) == len(places)
    assert sum("compiledbackward" in place for place in places) >= 4


@pytest.mark.rules("CAG-22")
def test_nodes_say_of_which_tape_node_they_are() -> None:
    shown: dict[str, Any] = {}
    with enable("reference", observer=lambda stage, graph: shown.setdefault(stage, graph)) as tapes:
        x = leaf(3)
        (x.sin() * x).sum().backward()
    tags = [node.tags.get("node") for node in shown["1 capture"].calls if not node.is_sum]
    assert "SinBackward (NodeCall 2)" in tags
    assert "MulBackward (NodeCall 1)" in tags
    assert None not in tags
    assert [str(node.role) for node in tapes.graphs[0].placeholders] == [
        f"inputs_{k}" for k in range(len(tapes.graphs[0].placeholders))
    ]


@pytest.mark.rules("CAG-2")
def test_an_example_of_a_graph() -> None:
    tapes = CompiledAutograd.of("reference")
    x, w = leaf(3), leaf(3)
    with enable(tapes):
        (x * w).sum().backward()
    assert [line.strip() for line in tapes.graphs[0].code.splitlines()] == [
        "def tape(",
        "inputs_0: \"f32[] = Lifted(index=0, place='grad_0')\",",
        "inputs_1: \"f32[3] = Lifted(index=1, place='mul_1_0')\",",
        "inputs_2: \"f32[3] = Lifted(index=2, place='mul_1_1')\",",
        "):",
        "view = ops.view(inputs_0, (1,))",
        "expand = ops.expand(view, (3,))",
        "mul = ops.mul(expand, inputs_2)",
        "mul_1 = ops.mul(expand, inputs_1)",
        "return (mul, mul_1)",
    ]


def test_a_saved_value_of_a_compiled_function_that_was_written() -> None:
    tapes = CompiledAutograd.of("reference")
    function = al.compile(lambda x, w: (x * w).sin(), backend="reference")
    for _ in range(3):
        x, w = leaf(3), leaf(3)
        y = function(x, w).sum()
        with al.no_grad():
            w.add_(1)
        with pytest.raises(al.AutogradError, match="modified in place"), enable(tapes):
            y.backward()
        assert x.grad is None


def test_a_replayed_backward_runs_no_eager_op_but_accumulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tapes = CompiledAutograd.of("reference")
    for _ in range(3):
        grads_of(PROGRAMS["between ops"], tapes)
    leaves = [leaf(3, 3), leaf(3, 3), leaf(3)]
    loss = PROGRAMS["between ops"](*leaves).sum()
    ran: list[str] = []

    def watched(handler: Any, op: Any, args: Any, recorder: Any) -> Any:
        ran.append(op.name)
        return handler(op, args, recorder)

    for kind, handler in dispatching._HANDLERS.items():
        monkeypatch.setitem(dispatching._HANDLERS, kind, partial(watched, handler))
    with enable(tapes):
        loss.backward()
    assert ran == ["full"]  # the gradient at the start
    assert tapes.counters.hits == 3


@pytest.mark.rules("CAG-14")
@pytest.mark.parametrize("retain", [False, True])
def test_what_was_saved_is_let_go(retain: bool) -> None:
    """As by the engine, while the backward runs; nothing of a tape is kept."""
    tapes = CompiledAutograd.of("reference")
    for _ in range(3):
        x = leaf(3)
        middle = x.exp()
        alive = weakref.ref(middle.storage)
        loss = (middle.sin() * middle).sum()
        del middle
        with enable(tapes):
            loss.backward(retain_graph=retain)
        gc.collect()
        assert (alive() is not None) == retain
        node = weakref.ref(loss.grad_fn)
        gone = weakref.ref(x)
        del loss, x
        gc.collect()
        assert alive() is None
        assert node() is None
        assert gone() is None


@pytest.mark.rules("CAG-4")
def test_wrappers_are_run_by_the_engine() -> None:
    tapes = CompiledAutograd.of("reference")
    for _ in range(3):
        x: Any = TwoTensor(al.ones(3), al.ones(3) * 2).requires_grad_()
        dense = leaf(3)
        with enable(tapes):
            ((x * x) * 2).backward(TwoTensor(al.ones(3), al.ones(3)))
            (dense * dense).sum().backward()
        assert x.grad.a.tolist() == [4.0] * 3
        assert x.grad.b.tolist() == [8.0] * 3
        assert dense.grad.tolist() == (dense * 2).tolist()
    assert tapes.counters.captures == 2


def test_a_whole_training_step() -> None:
    al.manual_seed(0)
    model = al.nn.Sequential(al.nn.Linear(4, 8), al.nn.ReLU(), al.nn.Linear(8, 2))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = al.randn(16, 4), al.randint(0, 2, (16,))

    def train(tapes: Any) -> list[float]:
        model.load_state_dict(start)
        optimizer = al.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        with al.compiled_autograd.disable() if tapes is None else enable(tapes):
            for _ in range(8):
                optimizer.zero_grad()
                loss = al.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    tapes = CompiledAutograd.of("cpu")
    assert train(tapes) == pytest.approx(train(None), rel=1e-4)
    assert (tapes.counters.captures, tapes.counters.hits) == (1, 7)
