"""DSP-1 to DSP-8: a block in which a method of the user's computes each op."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.subclasses import TwoTensor
from tests.end_to_end.helpers.cases import cases
from tests.end_to_end.helpers.worlds import World, body_of, differences, run_call

pytestmark = pytest.mark.rules("DSP-1")


class Names(al.DispatchMode):
    """Computes each op, and keeps its name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __tensor_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **kwargs or {})


class Gives(al.DispatchMode):
    """Gives what a function says."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __tensor_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.function(func, *args)


def of_eager(mine: World, other: World) -> list[str]:
    """Differences of two eager runs: what an error has left of its inputs is not compared."""
    return [each for each in differences(mine, other) if not each.startswith("touched")]


@pytest.mark.rules("DSP-2", "DSP-3", "DSP-4", "DSP-5", "DSP-7")
@pytest.mark.draws(long=400)
@given(case=cases(), depth=st.integers(1, 2))
@settings(max_examples=12, deadline=None)
def test_a_mode_that_computes_each_op_changes_nothing(case: Any, depth: int) -> None:
    """∀ programs with views, writes and errors: in the mode, forward and backward, and compiled."""
    body = body_of(case)

    def moded(*inputs: Any) -> Any:
        if depth == 1:
            with Names():
                return body(*inputs)
        with Names(), Names():
            return body(*inputs)

    compiled = al.compile(moded, backend="reference")
    for number in range(len(case.calls)):
        plain = run_call(case, number, body)
        with Names():
            assert [] == of_eager(run_call(case, number, body), plain)
        assert [] == of_eager(run_call(case, number, moded), plain)
        assert [] == differences(run_call(case, number, compiled), run_call(case, number, moded))


def halves(func: Any, *args: Any) -> Any:
    out = func(*args)
    return out * 0.5 if func in (al.ops.mul, al.ops.exp, al.ops.sin) else out


@pytest.mark.rules("DSP-5", "DSP-7")
@pytest.mark.draws(long=400)
@given(st.lists(st.sampled_from(["exp", "sin", "square", "view", "write", "max"]), max_size=5))
@settings(max_examples=25, deadline=None)
def test_results_that_a_mode_changes_are_those_of_the_graph(names: list[str]) -> None:
    """∀ functions in a mode that gives other values: the compiled one has eager's bits."""

    def run(x: Any) -> Any:
        with Gives(halves):
            for name in names:
                match name:
                    case "exp" | "sin":
                        x = getattr(x, name)()
                    case "square":
                        x = x * x
                    case "view":
                        x = x.view(2, -1).t().reshape(-1)
                    case "write":
                        x = x.clone().mul_(3)
                    case "max":
                        x = x - x.view(2, 2).max(0)[0].sum()
        return x.sum()

    found = []
    for call in (run, al.compile(run, backend="reference")):
        x: Any = al.tensor([0.5, -1.0, 0.25, 2.0], requires_grad=True)
        y = call(x)
        y.backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert repr(found[0]) == repr(found[1])


@pytest.mark.rules("DSP-2")
def test_gradients_and_factories_are_seen() -> None:
    x = al.ones(2, requires_grad=True)
    with Names() as names:
        y = (x * al.ones(2)).t_().unsqueeze_(0)
        y.exp_().sum().backward()
        assert y[0, 0].item() == pytest.approx(2.71828, 1e-4)
    forward = ["full", "mul", "t_", "unsqueeze_", "exp_", "sum"]
    assert names.seen[:6] == forward
    assert "expand" in names.seen[6:] and names.seen.count("mul") > 1
    assert x.grad is not None


@pytest.mark.rules("DSP-3")
def test_the_innermost_mode_is_asked_first_and_is_off_in_its_method() -> None:
    doubles = Gives(lambda func, *args: func(*args) * 2)
    with Names() as names, doubles:
        assert (al.ones(1) + 1).tolist() == [6.0]
    assert names.seen == ["full", "mul", "add", "mul"]
    with doubles, Names() as names:
        assert (al.ones(1) + 1).tolist() == [6.0]
    assert names.seen == ["full", "add"]


@pytest.mark.rules("DSP-3")
def test_what_a_mode_leaves_goes_to_the_next_and_to_the_classes() -> None:
    leaves = Gives(lambda func, *args: NotImplemented)
    of_pairs = Gives(
        lambda func, *args: NotImplemented if isinstance(args[0], TwoTensor) else func(*args)
    )
    pair = TwoTensor(al.ones(1), al.zeros(1))
    with Names() as names, leaves:
        assert (al.ones(1) + 1).tolist() == [2.0]
    assert names.seen == ["full", "add"]
    with of_pairs:
        assert (pair + 1).b.tolist() == [1.0]
    with leaves, pytest.raises(al.SubclassError, match="add: Gives gives NotImplemented"):
        pair.a + 1


@pytest.mark.rules("DSP-3")
def test_a_mode_without_an_end_is_an_error() -> None:
    def again(func: Any, *args: Any) -> Any:
        with mode:
            return func(*args)

    mode, x = Gives(again), al.ones(1)
    with mode, pytest.raises(al.ProtocolError, match="mul: Gives.__tensor_dispatch__ runs ops wi"):
        x * 2
    with Names() as names:
        x * 2
    assert names.seen == ["mul"]


WRONG = [
    (lambda func, *args: 3, lambda x: x * 2, "mul: Gives.* gives 3, expected a tensor"),
    (lambda func, *args: args[0], lambda x: x * 2, "gives 'an operand', expected a new tensor"),
    (lambda func, *args: al.ones(7), lambda x: x * 2, "gives f32.7., expected shape and dtype"),
    (lambda func, *args: func(*args).clone(), lambda x: x.view(2, 1), "a tensor with other memory"),
    (lambda func, *args: args[0][1:], lambda x: x[:1], "a view f32.1. at offset 1', expected"),
    (
        lambda func, *args: args[0].clone(),
        lambda x: x.mul_(2),
        "the tensor that is written, itself",
    ),
    (lambda func, *args: args[0], lambda x: x.unsqueeze_(0), "at offset 0', expected"),
    (lambda func, *args: (1,), lambda x: x.chunk(2), "expected a tuple of 2 views"),
]


@pytest.mark.rules("DSP-4")
@pytest.mark.parametrize(("gives", "call", "message"), WRONG)
def test_what_is_no_result_of_the_op_is_refused(gives: Any, call: Any, message: str) -> None:
    x = al.ones(2)
    with Gives(gives), pytest.raises(al.ProtocolError, match=message):
        call(x)
    assert (x.tolist(), x.version) == ([1.0, 1.0], 0)


@pytest.mark.rules("DSP-5")
def test_a_history_that_a_mode_makes_is_not_the_ops() -> None:
    w = al.ones(2, requires_grad=True)

    def own(func: Any, *args: Any) -> Any:
        with al.enable_grad():
            return func(*args) * w

    x: Any = al.ones(2, requires_grad=True)
    with Gives(own):
        y, free = x * 3, al.ones(2) * 3
    assert not free.requires_grad
    y.sum().backward()
    assert (x.grad.tolist(), w.grad) == ([3.0, 3.0], None)


@pytest.mark.rules("DSP-5")
def test_a_write_counts_once() -> None:
    x = al.ones(2)
    with Gives(lambda func, *args: args[0]):
        x.mul_(2)
    assert (x.tolist(), x.version) == ([1.0, 1.0], 1)
    with Names():
        x.mul_(2)
    assert (x.tolist(), x.version) == ([2.0, 2.0], 2)


@pytest.mark.rules("DSP-6")
def test_a_compiled_call_in_a_mode_is_eager() -> None:
    compiled = al.compile(lambda x: (x * 2).exp(), backend="reference")
    x = al.ones(2, requires_grad=True)
    with Names() as names:
        compiled(x)
    assert (names.seen, compiled.entries) == (["mul", "exp"], [])
    before = compiled(x)
    with Names() as names:
        compiled(x)
        reason = compiled.entries[0].guarded.why_not([x])
        before.sum().backward()
    assert str(reason) == "the mode is a DispatchMode, expected none that runs calls eagerly"
    assert names.seen[:3] == ["mul", "exp", "sum"]
    assert x.grad is not None and len(compiled.entries) == 1


@pytest.mark.rules("DSP-6")
def test_compiled_autograd_leaves_backwards_to_the_engine() -> None:
    tapes = al.compiled_autograd.CompiledAutograd.of("reference")
    x = al.ones(2, requires_grad=True)
    with al.compiled_autograd.enable(tapes), Names() as names:
        (x * 2).sum().backward()
    assert (tapes.counters.skipped, names.seen.count("mul")) == (1, 2)
    assert al.is_grad_enabled() is True


@pytest.mark.rules("DSP-7")
def test_a_mode_that_stays_on_is_refused() -> None:
    def stays(x: Any) -> Any:
        Names().__enter__()
        return x * 2

    with pytest.raises(al.UnsupportedError, match="a DispatchMode that stays on cannot be capt"):
        al.compile(stays)(al.ones(2))
    al.ones(2) * 2  # no mode is on


@pytest.mark.rules("DSP-8")
def test_a_capture_is_not_seen_from_outside() -> None:
    compiled = al.compile(lambda x: (x * 2).exp(), backend="reference")
    x = al.ones(2, requires_grad=True)
    with Names() as names:
        compiled.prepare(x)
    assert not {"mul", "exp"} & set(names.seen)
    assert len(compiled.entries) == 1


def test_mistakes_are_named() -> None:
    with pytest.raises(al.ProtocolError, match="DispatchMode has no __tensor_dispatch__"):
        al.DispatchMode().__enter__()
    with pytest.raises(al.ArgumentError, match="Names is left, expected a mode that this thread"):
        Names().__exit__()


def test_a_mode_is_of_its_thread() -> None:
    with Names() as names:
        thread = threading.Thread(target=lambda: al.ones(2) * 2)
        thread.start()
        thread.join()
    assert names.seen == []
