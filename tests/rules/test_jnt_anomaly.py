"""JNT-8: anomaly mode says of compiled functions what it says of eager ones."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.stages.s10_runtime.backward import anomaly
from tests.rules.helpers.anomalies import WAYS, by_backward, function_of, leaves, outcome, source

Call = Callable[..., Any]
detecting: Any = al.autograd.detect_anomaly


# ------------------------------------------------------------------------------ random programs
BY_ITS_OP = "a write through a view is named by its op"


def check_programs(seeds: range, backend: str, *, in_mode: bool = True) -> Counter[str]:
    """Compares, and counts what came of each backward."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        text = source(random.Random(seed))
        for way in WAYS:
            function = function_of(text)
            compiled = al.compile(function, backend=backend)
            if not in_mode:
                outcome(compiled, leaves(random.Random(seed)), lambda roots, args: [])
            said = []
            with detecting():
                for each in (function, compiled):
                    said.append(outcome(each, leaves(random.Random(seed)), way))
            seen[kind_of(*said)] += 1
            if kind_of(*said) == "compared":
                assert said[0] == said[1], f"{seed} {way.__name__}\n{text}"
            elif kind_of(*said) == BY_ITS_OP:
                assert said[0][:2] == said[1][:2], f"{seed} {way.__name__}\n{text}"
            seen["nan"] += "nan" in str(said[0][1:2])
    return seen


def kind_of(eager: Any, compiled: Any) -> str:
    """What is other than in eager, and known to be."""
    late = isinstance(compiled, tuple) and "at version" in compiled[1]
    if late and isinstance(eager, tuple) and "has a nan" in eager[1]:
        return "the error that comes anyway came first"
    if late and isinstance(eager, list):
        return "the error is of a gradient that is not asked for"
    if isinstance(eager, tuple) and any("SliceAssign" in line for line in eager[2]):
        return BY_ITS_OP
    return "compared"


@pytest.mark.rules("JNT-8", "TEN-43")
def test_random_backwards_say_what_eagers_say() -> None:
    """Which op, which gradient, and all lines of both stacks; gradients where nothing is wrong."""
    seen = check_programs(range(50), "reference")
    assert seen["nan"] > 30
    assert seen["compared"] > 0.9 * 50 * len(WAYS)


@pytest.mark.rules("JNT-8", "TEN-43")
def test_functions_that_were_compiled_outside_of_the_mode_say_the_same() -> None:
    """Also those whose kernels are fused."""
    assert check_programs(range(100, 115), "auto", in_mode=False)["nan"] > 6


@pytest.mark.long
@pytest.mark.rules("JNT-8")
@pytest.mark.parametrize("in_mode", [True, False], ids=["in the mode", "outside"])
def test_many_random_backwards_say_what_eagers_say(in_mode: bool) -> None:
    seen = check_programs(range(1000, 4000), "reference", in_mode=in_mode)
    print(dict(seen))
    assert seen["nan"] > 2000


# ----------------------------------------------------------------------------------- hand cases
def zero_root(x: Any) -> Any:
    scaled = x * 0
    return scaled.sqrt().sum()


def masked(x: Any) -> Any:
    """The nan is gone again before the end."""
    inner = al.where(x > 1, x, al.zeros_like(x)) * 0
    return inner.sqrt().sum() + x.sum()


def start() -> Any:
    return al.zeros(2, dtype=al.float64, requires_grad=True)


def raised(run: Call) -> Exception:
    with pytest.raises(Exception) as caught:
        run()
    return caught.value


def notes_of(error: Exception) -> list[str]:
    return list(getattr(error, "__notes__", ()))


@pytest.mark.rules("JNT-8")
def test_a_nan_that_no_gradient_shows_is_found() -> None:
    """What the compiled backward gives has none: it is looked at within."""
    compiled = al.compile(masked)
    x = start()
    compiled(x).backward()
    assert x.grad.tolist() == [1.0, 1.0]
    for function in (masked, compiled):
        with detecting():
            error = raised(function(start()).backward)
        assert str(error).startswith("MulBackward: gradient 0")
        assert notes_of(error)[0].endswith("inner = al.where(x > 1, x, al.zeros_like(x)) * 0")


@pytest.mark.rules("JNT-8")
def test_nothing_has_happened_where_a_nan_is_found() -> None:
    """The backward can be run again outside of the mode, and gives what it gives."""
    compiled = al.compile(zero_root)
    x = start()
    with detecting():
        loss = compiled(x)
        raised(loss.backward)
        assert x.grad is None
    loss.backward()
    assert al.isnan(x.grad).all().item()


@pytest.mark.rules("JNT-8", "TEN-43")
def test_a_call_before_the_mode_is_looked_at_too() -> None:
    """Also the one that needs no engine."""
    for function in (zero_root, al.compile(zero_root)):
        loss = function(start())
        with detecting():
            error = raised(loss.backward)
        assert "has a nan" in str(error)
        assert "before anomaly mode was on" in notes_of(error)[0]
    assert "scaled = x * 0" in notes_of(error)[0]


@pytest.mark.rules("JNT-8")
def test_nans_are_let_be_where_none_are_looked_for() -> None:
    x = start()
    with detecting(check_nan=False):
        al.compile(zero_root)(x).backward()
    assert al.isnan(x.grad).all().item()


@pytest.mark.rules("JNT-8")
def test_nothing_is_made_outside_of_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(anomaly.CompiledAnomalyTraces, "look", lambda *args: looked.append(args))
    compiled = al.compile(zero_root)
    compiled(start()).backward()
    assert looked == []
    with detecting(), pytest.raises(al.AutogradError, match=r"^CompiledBackward"):
        compiled(start()).backward()
    assert len(looked) == 1


class Failing(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise KeyError("from the backward")


def calls_failing(x: Any) -> Any:
    y = Failing.apply(x)
    return y.sum()


def overwritten(x: Any) -> Any:
    y = x.exp()
    total = y.sum()
    y.zero_()
    return total


def overwritten_in_part(x: Any) -> Any:
    y = x.exp()
    total = y.sum()
    y.zero_()
    return total, x.sin()


@pytest.mark.rules("JNT-8", "JNT-15")
@pytest.mark.parametrize("function", [calls_failing, overwritten, overwritten_in_part])
def test_an_error_of_a_backward_says_where_the_forward_was(function: Call) -> None:
    """Also one that the compiled backward was to raise; the notes are eager's, at each call."""
    compiled = al.compile(function)

    def run(called: Call) -> None:
        found = called(start())
        loss = found[0] + found[1].sum() if type(found) is tuple else found
        loss.backward()

    with detecting():
        eager, *others = [raised(lambda f=f: run(f)) for f in (function, compiled, compiled)]
    for error in others:
        assert (type(error), str(error)) == (type(eager), str(eager))
        assert notes_of(error) == notes_of(eager)
    outside = raised(lambda: run(compiled))
    assert [note for note in notes_of(outside) if "forward of" in note] == []


@pytest.mark.rules("JNT-8", "SAV-2")
def test_an_input_that_was_written_is_named_with_the_op_that_saved_it() -> None:
    compiled = al.compile(lambda x: (x * x).sum())
    x = start()
    with detecting():
        loss = compiled(x)
        with al.no_grad():
            x.add_(1)
        error = raised(loss.backward)
    assert str(error).startswith("CompiledBackward: a saved tensor f64[2] (primals_0)")
    assert notes_of(error)[1] == "MulBackward has saved it."
    assert notes_of(error)[2].endswith("compiled = al.compile(lambda x: (x * x).sum())")


@pytest.mark.rules("JNT-8")
def test_both_places_are_told() -> None:
    """The error's own stack has the place where the backward was called."""
    with detecting():
        loss = al.compile(zero_root)(start())
        error = raised(lambda: loss.backward())
    called = [frame.line for frame in traceback.extract_tb(error.__traceback__)]
    assert "error = raised(lambda: loss.backward())" in called
    lines = notes_of(error)[0].splitlines()
    assert "    loss = al.compile(zero_root)(start())" in lines
    assert lines[-1] == "    scaled = x * 0"


# ------------------------------------------------------------------------------ backwards inside
def step(x: Any) -> Any:
    loss = zero_root(x)
    loss.backward()
    return loss.detach()


def asks(x: Any) -> Any:
    return al.autograd.grad(zero_root(x), [x])[0]


def enters(x: Any) -> Any:
    with detecting():
        return step(x)


def enters_for_the_forward(x: Any) -> Any:
    with detecting():
        loss = zero_root(x)
    loss.backward()
    return loss.detach()


@pytest.mark.rules("JNT-8", "DBL-3")
@pytest.mark.parametrize("inside", [step, asks])
def test_a_backward_that_the_function_runs_is_looked_at_at_each_call(inside: Call) -> None:
    compiled = al.compile(inside)
    for _ in range(2):
        with detecting():
            errors = [raised(lambda f=f: f(start())) for f in (inside, compiled)]
        assert str(errors[0]) == str(errors[1])
        assert [notes_of(each)[0].splitlines()[-1] for each in errors] == ["    scaled = x * 0"] * 2
        assert "run by the function itself" in notes_of(errors[1])[1]
        compiled(start())  # outside of the mode it is another entry, which looks at nothing
    assert len(compiled.entries) == 2
    with detecting():
        good = al.ones(2, dtype=al.float64, requires_grad=True)
        compiled_good = al.compile(lambda x: al.autograd.grad((x * x).sum(), [x])[0])
        assert compiled_good(good).tolist() == [2.0, 2.0]


@pytest.mark.rules("JNT-8", "DBL-3", "GRD-1")
def test_a_function_that_runs_no_backward_has_one_entry_for_all_modes() -> None:
    compiled = al.compile(lambda x: x * 2)
    compiled(start())
    with detecting():
        compiled(start())
    with detecting(check_nan=False):
        compiled(start())
    assert len(compiled.entries) == 1


@pytest.mark.rules("JNT-8", "DBL-3")
def test_the_mode_may_be_entered_in_the_function() -> None:
    for function in (enters, al.compile(enters)):
        assert str(raised(lambda f=function: f(start()))).startswith("MulBackward: gradient 0")
    x, y = start(), start()
    enters_for_the_forward(x)
    al.compile(enters_for_the_forward)(y)
    assert str(x.grad.tolist()) == str(y.grad.tolist()) == "[nan, nan]"


def lasting(x: Any) -> Any:
    al.autograd.set_detect_anomaly(True)
    return x * 2


@pytest.mark.rules("JNT-8", "TRC-9")
def test_a_mode_that_would_outlast_the_function_is_refused() -> None:
    with pytest.raises(al.UnsupportedError, match="set_detect_anomaly cannot be captured"):
        al.compile(lasting)(start())
    with detecting():  # where it is so already, nothing changes
        assert al.compile(lasting)(start()).tolist() == [0.0, 0.0]


# ------------------------------------------------------------------------------- what is less
@pytest.mark.rules("JNT-8")
def test_of_a_backward_with_effects_the_gradients_it_gives_are_looked_at() -> None:
    def printing(x: Any) -> Any:
        y = x * 0
        y.register_hook(lambda grad: al.effects.callback(lambda array: None, grad))
        return y.sqrt().sum()

    with detecting():
        loss = al.compile(printing)(start())
        assert str(raised(loss.backward)).startswith("CompiledBackward: gradient 0")


@pytest.mark.rules("JNT-8")
def test_a_pass_that_rewrites_the_backward_leaves_a_look_at_what_is_left() -> None:
    """Decompositions make other ops; the nan is named by the first op that follows."""
    table = {al.ops.sqrt: lambda x: al.ops.pow(x, 0.5)}
    with detecting():
        loss = al.compile(zero_root, decompositions=table)(start())
        assert "has a nan" in str(raised(loss.backward))


@pytest.mark.rules("JNT-8")
def test_saved_tensor_hooks_are_not_asked_twice() -> None:
    asked: list[int] = []

    def unpack(packed: Any) -> Any:
        asked.append(1)
        return packed

    counts = []
    for on in (False, True):
        asked.clear()
        x = al.ones(2, dtype=al.float64, requires_grad=True)
        with al.autograd.graph.saved_tensors_hooks(lambda t: t, unpack), detecting(check_nan=on):
            by_backward([al.compile(lambda x: (x.sin() * x).sum())(x)], (x,))
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0
