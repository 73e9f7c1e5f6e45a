"""CAG-30: which backwards of custom functions are recorded, and that none is baked in silently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable

pytestmark = pytest.mark.rules("CAG-30")

Backward = Callable[..., Any]


def function(backward: Backward, saves: bool = True) -> Any:
    """A `Function` that squares, with this backward; `ctx.k` is a number."""

    def forward(ctx: Any, x: Any, k: Any) -> Any:
        if saves:
            ctx.save_for_backward(x)
        ctx.k, ctx.x = k, x.detach()
        return x * x

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Custom", (al.autograd.Function,), members)


def gradient(made: Any, k: Any, tapes: CompiledAutograd | None, hook: Any = None) -> Any:
    w: Any = al.tensor([1.0, 2.0], requires_grad=True)
    y = made.apply(w * 1, k)
    if hook is not None:
        y.register_hook(hook)
    loss = (y * 3).sum()
    if tapes is None:
        loss.backward()
    else:
        with enable(tapes):
            loss.backward()
    return w.grad.tolist(), w.grad.version


def checked(backward: Backward, *ks: Any) -> CompiledAutograd:
    """The compiler after calls with each k, each as by the engine."""
    made, tapes = function(backward), CompiledAutograd.of("reference", hooks="call")
    for k in ks or (1, 1):
        assert gradient(made, k, None) == gradient(made, k, tapes)
    assert tapes.counters.whole == tapes.counters.calls
    return tapes


def calls(tapes: CompiledAutograd) -> list[str]:
    return [node.target.name for node in tapes.graphs[-1].calls]


# ------------------------------------------------------------------------------------ recorded
def _plain(ctx: Any, grad: Any) -> Any:
    (x,) = ctx.saved_tensors
    if not ctx.needs_input_grad[0]:
        return None, None
    return grad * x * math.sqrt(4), None


def _written(ctx: Any, grad: Any) -> Any:
    (x,) = ctx.saved_tensors
    found = grad.clone()
    found[:1] = 0
    found.mul_(x)
    return found, None


@al.autograd.function.once_differentiable
def _once(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] * 2, None


def _of_number(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] * ctx.k, None


@pytest.mark.parametrize("backward", [_plain, _written, _once, _of_number])
def test_a_backward_of_ops_becomes_ops(backward: Backward) -> None:
    tapes = checked(backward)
    assert not tapes.called
    assert not any("call" in name for name in calls(tapes))
    assert (tapes.counters.captures, tapes.counters.hits) == (1, 1)


def test_a_number_of_ctx_is_in_the_key() -> None:
    tapes = checked(_of_number, 2, 3, 2, 2.0, -0.0, 0.0)
    assert (tapes.counters.captures, tapes.counters.hits) == (5, 1)


# --------------------------------------------------------------------------------- what changes
scale = 2.0


def _helper(x: Any) -> Any:
    return x * scale


def _scaled(ctx: Any, grad: Any) -> Any:
    return _helper(grad) * ctx.saved_tensors[0], None


def _set(name: str, value: Any) -> None:
    globals()[name] = value


def test_variables_that_change_between_tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, the function that is called, what that function calls."""
    made, tapes = function(_scaled), CompiledAutograd.of("reference", hooks="call")
    told: list[int] = []
    for name, value in [
        ("scale", 2.0),
        ("scale", 3.0),
        ("_helper", lambda x: x * x),
        ("_helper", lambda x: (told.__iadd__([1]), x)[1]),
        ("_helper", lambda x: x.exp() * scale),
        ("scale", [1.0]),
    ]:
        monkeypatch.setitem(globals(), name, value)
        try:
            expected: Any = gradient(made, 1, None)
        except Exception as error:
            with pytest.raises(type(error)):
                gradient(made, 1, tapes)
            continue
        assert expected == gradient(made, 1, tapes)
    assert len(told) == 2
    assert [reason for reason in tapes.called if "told" in reason or "__iadd__" in reason]


def test_a_variable_that_a_hook_changes_while_the_tape_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine reads it when the node runs. The graph is left, and the reason said."""
    made, tapes = function(_scaled), CompiledAutograd.of("reference", hooks="call")
    for value in (2.0, 5.0):
        found = []
        for compiler in (None, tapes):
            monkeypatch.setitem(globals(), "scale", 2.0)
            found.append(gradient(made, 1, compiler, lambda grad, v=value: _set("scale", v)))
        assert found[0] == found[1]
    (reason,) = tapes.fallbacks
    assert "changed hooks, leaves or variables" in reason


# -------------------------------------------------------------------------------------- called
def _prints(ctx: Any, grad: Any) -> Any:
    print("seen")
    return grad, None


def _branches(ctx: Any, grad: Any) -> Any:
    return (grad * 2 if grad.sum() > 1 else grad), None


def _of_unsaved(ctx: Any, grad: Any) -> Any:
    return grad * ctx.x, None


def _gives_saved(ctx: Any, grad: Any) -> Any:
    return ctx.saved_tensors[0], None


def _writes_saved(ctx: Any, grad: Any) -> Any:
    (x,) = ctx.saved_tensors
    return grad * x.detach().mul_(2), None


def _asks_history(ctx: Any, grad: Any) -> Any:
    return (grad * 2 if ctx.saved_tensors[0].requires_grad else grad), None


def _draws(ctx: Any, grad: Any) -> Any:
    return grad * al.rand(2) * 0, None


def _compares(ctx: Any, grad: Any) -> Any:
    return (grad * 2 if ctx.saved_tensors[0] is grad else grad), None


def _marks(ctx: Any, grad: Any) -> Any:
    ctx.done = True
    return grad, None


@pytest.mark.parametrize(
    ("backward", "reason"),
    [
        (_prints, "it reaches 'print'"),
        (_branches, "it raises"),
        (_of_unsaved, "ctx.x is a tensor that save_for_backward has not saved"),
        (_gives_saved, "it gives a saved tensor"),
        (_writes_saved, "it writes a saved tensor"),
        (_asks_history, "it asks for a history: 'requires_grad'"),
        (_draws, "it draws or has an effect"),
        (_compares, "it compares identities"),
        (_marks, "it sets the attribute 'done'"),
    ],
)
def test_any_other_backward_is_called(backward: Backward, reason: str) -> None:
    made, tapes = function(backward), CompiledAutograd.of("reference", hooks="call")
    for _ in range(2):
        assert gradient(made, 1, None) == gradient(made, 1, tapes)
    assert [each for each in tapes.called if reason in each]
    (call,) = [n for n in tapes.graphs[-1].calls if n.target.name == "with_effect_call_backward"]
    assert reason in call.tags["called"]


def test_a_backward_that_raises_or_writes_its_gradient_raises_as_in_eager() -> None:
    def raises(ctx: Any, grad: Any) -> Any:
        raise ValueError("by a backward")

    def writes(ctx: Any, grad: Any) -> Any:
        return grad.mul_(2), None

    def too_few(ctx: Any, grad: Any) -> Any:
        return grad

    for backward in (raises, writes, too_few):
        made, tapes = function(backward), CompiledAutograd.of("reference", hooks="call")
        with pytest.raises(Exception) as by_engine:
            gradient(made, 1, None)
        with pytest.raises(type(by_engine.value)) as by_graph:
            gradient(made, 1, tapes)
        assert str(by_engine.value) == str(by_graph.value)


@pytest.mark.rules("CAG-27")
def test_a_written_saved_value_is_raised_by_a_call_of_the_graph() -> None:
    """Nodes before it run, and leaves that are ready have their gradients, as in eager."""

    def program(tapes: CompiledAutograd | None) -> Any:
        w: Any = al.tensor([1.0, 2.0], requires_grad=True)
        v: Any = al.tensor([1.0, 2.0], requires_grad=True)
        log: list[Any] = []
        v.register_hook(lambda grad: log.append(grad.tolist()))
        inner = w * 2
        loss = (inner * inner + v).sum()
        inner.detach().add_(1)
        with pytest.raises(al.AutogradError) as raised:
            if tapes is None:
                loss.backward()
            else:
                with enable(tapes):
                    loss.backward()
        return str(raised.value), log, w.grad, v.grad.tolist()

    tapes = CompiledAutograd.of("reference", hooks="call")
    for _ in range(2):
        assert program(None) == program(tapes)
    assert not tapes.fallbacks
    assert tapes.called == {"a saved value was written": 1}
