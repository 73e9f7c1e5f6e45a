"""JNT-8: in anomaly mode a compiled call runs the function eagerly, and says what eager says."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor
from tests.rules.helpers.anomalies import (
    WAYS,
    by_backward,
    by_one_result,
    by_second_order,
    function_of,
    leaves,
    outcome,
    outcome_of,
    said,
    source,
)

Call = Callable[..., Any]
detecting: Any = al.autograd.detect_anomaly


# ------------------------------------------------------------------------------ random programs
def check_programs(seeds: range, *, known: bool) -> int:
    """Compares outcomes in the mode; returns how many are nans. With `known`, the function was
    compiled before the mode was on."""
    nans = 0
    for seed in seeds:
        text = source(random.Random(seed))
        for way in WAYS:
            function = function_of(text)
            compiled = al.compile(function, backend="reference")
            if known:
                outcome(compiled, leaves(random.Random(seed)), lambda roots, args: [])
            before, found = len(compiled.entries), []
            with detecting():
                for each in (function, compiled):
                    found.append(outcome(each, leaves(random.Random(seed)), way))
            assert found[0] == found[1], f"{seed} {way.__name__}\n{text}"
            assert len(compiled.entries) == before
            nans += "has a nan" in str(found[0])
    return nans


@pytest.mark.rules("JNT-8", "TEN-43")
@pytest.mark.parametrize("known", [False, True])
def test_random_backwards_say_what_eagers_say(known: bool) -> None:
    """Which op, which gradient, and all lines of both stacks; gradients where nothing is wrong."""
    assert check_programs(range(14), known=known) > 7


def check_late_modes(seeds: range, backend: str) -> int:
    """Compares backwards in the mode, of calls before it, with backwards outside of it; returns
    how many are nans."""
    nans = 0
    for seed in seeds:
        text = source(random.Random(seed))
        for way in (by_backward, by_one_result):
            found = []
            for mode in (nullcontext(), detecting()):
                args = leaves(random.Random(seed))
                compiled = al.compile(function_of(text), backend=backend)
                try:
                    results = compiled(*args)
                except al.AotliteError:
                    break
                with mode:
                    found.append(outcome_of(results, args, way))
            if len(found) < 2 or found[0] == found[1]:
                continue
            outside, (kind, words, notes) = found
            assert "was made before anomaly mode was on" in notes[-1], f"{seed}\n{text}"
            if isinstance(outside, tuple):
                assert (*outside[:2], outside[2]) == (kind, words, notes[:-1]), f"{seed}\n{text}"
            else:
                assert "nan" in str(outside) and "has a nan" in words, f"{seed}\n{text}"
                nans += words.startswith("CompiledBackward")
    return nans


@pytest.mark.rules("JNT-8", "TEN-43")
def test_calls_before_the_mode_have_their_last_gradients_checked() -> None:
    """A backward in the mode gives what one outside of it gives, or names the call at a nan."""
    assert check_late_modes(range(100, 112), "auto") > 1


@pytest.mark.long
@pytest.mark.rules("JNT-8")
def test_many_random_backwards_say_what_eagers_say() -> None:
    assert check_programs(range(1000, 4000), known=False) > 2000
    assert check_programs(range(4000, 5000), known=True) > 600
    assert check_late_modes(range(1000, 4000), "reference") > 600


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
    """The gradients have none: the op in between is named."""
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
def test_a_call_before_the_mode_is_named_as_a_whole() -> None:
    """Also the one that needs no engine. No gradient is stored."""
    x = start()
    loss = al.compile(zero_root)(x)
    with detecting():
        error = raised(loss.backward)
    assert str(error).startswith("CompiledBackward: gradient 0 of those it computed has a nan")
    assert notes_of(error) == [
        "CompiledBackward was made before anomaly mode was on: turn it on around the forward to "
        "see where. (TEN-43)"
    ]
    assert x.grad is None
    compiled = al.compile(masked)(start())
    with detecting():
        compiled.backward()  # a nan within the call alone is not seen


@pytest.mark.rules("JNT-8")
def test_nans_are_let_be_where_none_are_looked_for() -> None:
    x = start()
    with detecting(check_nan=False):
        al.compile(zero_root)(x).backward()
    assert al.isnan(x.grad).all().item()


@pytest.mark.rules("JNT-8", "GRD-1")
def test_a_call_in_the_mode_compiles_nothing_and_runs_no_entry() -> None:
    """The function runs at each call; what was compiled serves again behind the mode."""
    runs: list[Any] = []

    def f(x: Any) -> Any:
        runs.append(x)
        return x * 2

    for known in (False, True):
        for fast in (False, True):
            compiled = al.compile(f, fast_paths=fast)
            if known:
                compiled(start())
            runs.clear()
            for mode in (detecting(), detecting(check_nan=False)):
                with mode:
                    x = start()
                    assert compiled(x).grad_fn.name() == "MulBackward"
                    assert runs.pop() is x
            assert len(compiled.entries) == known
            compiled(start())
            compiled(start())
            assert len(compiled.entries) == 1 and len(runs) == (not known)


@pytest.mark.rules("JNT-8", "GRD-4")
def test_an_entry_says_that_the_mode_is_on() -> None:
    compiled = al.compile(zero_root)
    compiled(start())
    with detecting():
        reason = compiled.entries[0].guarded.why_not([start()])
    assert str(reason) == "the mode is anomaly mode, expected none that runs calls eagerly"


@pytest.mark.rules("JNT-8")
def test_what_is_prepared_in_the_mode_serves_calls_outside_of_it() -> None:
    """A backward that the function runs itself is not checked in it."""
    compiled = al.compile(asks)
    with detecting():
        compiled.prepare(start())
        compiled.prepare(start())
    assert al.isnan(compiled(start())).all().item()
    assert len(compiled.entries) == 1


@pytest.mark.rules("JNT-8")
def test_options_and_other_faces_do_not_matter_in_the_mode() -> None:
    """No compiler, pass, decomposition or check runs; `aot` calls the function, too."""

    def refused(*args: Any) -> Any:
        raise AssertionError("not called in anomaly mode")

    table = {al.ops.sqrt: refused}
    made: list[Call] = [
        al.compile(zero_root, backend=refused),
        al.compile(zero_root, passes=[refused]),
        al.compile(zero_root, decompositions=table),
        al.compile(zero_root, partition=refused),
        al.compile(zero_root, verify=True, stages={"joint": refused}),
        al.compile(zero_root, recompile_limit=1, recompile_limit_is_error=True),
        al.aot_function(zero_root, refused),
        lambda x: al.aot_function(lambda x, n: zero_root(x) * n, refused, static_argnums=1)(x, 2),
    ]
    for called in made:
        with detecting():
            error = raised(lambda f=called: f(start()).backward())
        assert str(error).startswith("MulBackward: gradient 0"), called
        assert "    scaled = x * 0" in notes_of(error)[0].splitlines()


@pytest.mark.rules("JNT-8")
def test_arguments_are_what_the_function_is_given() -> None:
    """Containers, keywords, ndarrays and Modules, in their eager form."""
    layer = al.nn.Linear(2, 1)
    compiled = al.compile(lambda d, *, w: (type(d["a"]).__name__, d["a"].sum() * w))
    with detecting():
        found = [each(al.ones(3, 2)).grad_fn.name() for each in (layer, al.compile(layer))]
        assert found[0] == found[1]
        array = al.ones(2).numpy()
        assert compiled({"a": array}, w=2.0)[0] == "ndarray"
        kind, found = compiled({"a": start()}, w=2.0)
        assert (kind, found.tolist()) == ("Tensor", 0.0)


# ------------------------------------------------------------------------------- errors
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
    """The notes are eager's, at each call; the compiled one's outside of the mode stay."""
    compiled = al.compile(function)

    def run(called: Call) -> None:
        found = called(start())
        loss = found[0] + found[1].sum() if type(found) is tuple else found
        loss.backward()

    with detecting():
        eager, *others = [said(raised(lambda f=f: run(f))) for f in (function, compiled, compiled)]
    assert others == [eager, eager]
    outside = [raised(lambda: run(compiled)) for _ in range(2)]
    assert [said(each)[:2] for each in outside] == [eager[:2]] * 2
    told = [note for each in outside for note in notes_of(each) if "forward of" in note]
    assert told == [] or function is calls_failing


@pytest.mark.rules("JNT-8", "JNT-15")
def test_an_error_of_a_call_before_the_mode_names_the_call() -> None:
    """At each backward: the error itself is that of the plan, without notes."""
    compiled = al.compile(overwritten)
    compiled(start())
    for _ in range(2):
        loss = compiled(start())
        with detecting():
            error = raised(loss.backward)
        assert [note.split(":")[0] for note in notes_of(error)][-1:] == [
            "CompiledBackward was made before anomaly mode was on"
        ]
        assert sum("before anomaly mode" in note for note in notes_of(error)) == 1


class Asking(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad if grad.sum().item() else grad * 2


def calls_asking(x: Any) -> Any:
    y = Asking.apply(x)
    return y.sum()


@pytest.mark.rules("JNT-8", "CAP-13")
def test_an_error_while_a_backward_is_recorded_names_the_forward_line() -> None:
    """In no mode: the call compiles. In the mode nothing is recorded, and nothing is wrong."""
    for function in (calls_asking, calls_failing):
        error = raised(lambda f=function: al.compile(f)(start()))
        (note,) = [note for note in notes_of(error) if "forward of" in note]
        assert note.startswith(f"The forward of {function.__name__[6:].title()}Backward:\n  File")
        assert note.endswith("    return x * 2")
    x = start()
    with detecting():
        al.compile(calls_asking)(x).backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.rules("JNT-8", "SAV-2")
def test_an_input_that_was_written_is_named_with_the_op_that_saved_it() -> None:
    def squares(x: Any) -> Any:
        return (x * x).sum()

    found = []
    for function in (squares, al.compile(squares)):
        x = start()
        with detecting():
            loss = function(x)
            with al.no_grad():
                x.add_(1)
            found.append(said(raised(loss.backward)))
    assert found[0] == found[1]
    assert found[0][1].startswith("MulBackward: a saved tensor")
    assert found[0][2][-1].endswith("return (x * x).sum()")


@pytest.mark.rules("JNT-8")
def test_both_places_are_told() -> None:
    """The error's own stack has the place where the backward was called. No frame is ours."""
    with detecting():
        loss = al.compile(zero_root)(start())
        error = raised(lambda: loss.backward())
    called = [frame.line for frame in traceback.extract_tb(error.__traceback__)]
    assert "error = raised(lambda: loss.backward())" in called
    lines = notes_of(error)[0].splitlines()
    assert lines[-4:-2] == [lines[-4], "    loss = al.compile(zero_root)(start())"]
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


def enters_and_asks(x: Any) -> Any:
    with detecting():
        return asks(x)


def enters_for_the_forward(x: Any) -> Any:
    with detecting():
        loss = zero_root(x)
    loss.backward()
    return loss.detach()


@pytest.mark.rules("JNT-8", "DBL-3")
@pytest.mark.parametrize("inside", [step, asks])
def test_a_backward_that_the_function_runs_is_eagers_in_the_mode(inside: Call) -> None:
    compiled = al.compile(inside)
    for _ in range(2):
        with detecting():
            errors = [said(raised(lambda f=f: f(start()))) for f in (inside, compiled)]
        assert errors[0] == errors[1]
        assert errors[0][2][0].splitlines()[-1] == "    scaled = x * 0"
        compiled(start())  # outside of the mode it is an entry, which looks at nothing
    assert len(compiled.entries) == 1


@pytest.mark.rules("JNT-8", "DBL-3", "TOK-1")
@pytest.mark.parametrize("inside", [enters, enters_and_asks])
def test_a_function_that_enters_the_mode_is_compiled_and_checked_at_each_call(inside: Call) -> None:
    compiled = al.compile(inside)
    expected = raised(lambda: inside(start()))
    for _ in range(2):
        error = raised(lambda: compiled(start()))
        assert str(error) == str(expected)
        assert notes_of(error)[0].splitlines()[-1] == "    scaled = x * 0"
        assert notes_of(error)[1].startswith("Its backward is run by the function itself")
    assert len(compiled.entries) == 1
    with detecting():  # then it is not compiled
        assert said(raised(lambda: compiled(start())))[:2] == said(expected)[:2]
    good = al.ones(2, dtype=al.float64, requires_grad=True)
    root = al.compile(lambda x: _within(lambda: al.autograd.grad((x * x).sum(), [x])[0]))
    assert root(good).tolist() == [2.0, 2.0]


def _within(run: Call) -> Any:
    with detecting():
        return run()


@pytest.mark.rules("JNT-8", "DBL-3")
def test_the_mode_may_be_entered_for_the_forward_alone() -> None:
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
    off = al.compile(lambda x: (al.autograd.set_detect_anomaly(False), x * 2)[1])
    assert off(start()).tolist() == [0.0, 0.0]
    with detecting():  # where it is so already, nothing changes
        assert al.compile(lasting)(start()).tolist() == [0.0, 0.0]


# ------------------------------------------------------------------------- all kinds of calls
def with_an_effect(x: Any) -> Any:
    y = x * 0
    y.register_hook(lambda grad: al.effects.callback(lambda array: None, grad))
    return y.sqrt().sum()


def with_a_draw(x: Any) -> Any:
    return (al.nn.functional.dropout(x, 0.5) * 0).sqrt().sum()


def with_wrappers(x: Any) -> Any:
    return (TwoTensor(x, x * 1) * 0).sqrt().sum()


def in_a_region(x: Any) -> Any:
    return al.checkpoint(zero_root, x)


def that_writes(x: Any) -> Any:
    y = x * 1
    y[:1].mul_(0)
    return y.sqrt().sum()


@pytest.mark.rules("JNT-8")
@pytest.mark.parametrize(
    "function", [with_an_effect, with_a_draw, with_wrappers, in_a_region, that_writes]
)
def test_every_kind_of_call_says_what_eager_says(function: Call) -> None:
    found = []
    for called in (function, al.compile(function)):
        al.manual_seed(0)
        with detecting():
            found.append(outcome(called, (start(),), by_backward))
    assert found[0] == found[1]


@pytest.mark.rules("JNT-8", "SAV-7")
def test_saved_tensor_hooks_pack_what_eager_saves() -> None:
    asked: list[int] = []

    def waves(x: Any) -> Any:
        return (x.sin() * x).sum()

    def unpack(packed: Any) -> Any:
        asked.append(1)
        return packed

    counts = []
    for function in (waves, al.compile(waves)):
        asked.clear()
        x = al.ones(2, dtype=al.float64, requires_grad=True)
        with al.autograd.graph.saved_tensors_hooks(lambda t: t, unpack), detecting():
            by_backward([function(x)], (x,))
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def cubes(x: Any) -> Any:
    return (x**3).sum()


@pytest.mark.rules("JNT-8", "DBL-2")
def test_gradients_of_gradients_of_a_call_before_the_mode() -> None:
    """They are compiled in the mode: a nan names the node of the call that gives it."""
    found = []
    for called in (cubes, al.compile(cubes)):
        x = start()
        y = called(x)
        with detecting():
            found.append(outcome_of(y, (x,), by_second_order))
    assert found[0] == found[1]
    x = start()
    y = al.compile(zero_root)(x * 1)
    with detecting():
        error = raised(lambda: by_second_order([y], (x,)))
    assert str(error).startswith("CompiledBackward: gradient 0")
