"""GRD-4: past `recompile_limit` a call that no entry is valid for runs eagerly, and says so."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd


def scaled(x: Any, n: Any) -> Any:
    return x * n


def told(action: Callable[[], Any]) -> list[str]:
    """The warnings of an action, as texts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert {RuntimeWarning} >= {each.category for each in caught}
    assert {__file__} >= {each.filename for each in caught}, "the caller's line is named"
    return [str(each.message) for each in caught]


X = al.arange(3.0)
END = (
    "Pass what changes at each call as a tensor, or raise recompile_limit; a size that changes is "
    "a symbol, unless dynamic=False or a line fixes it: mark_dynamic(argument, dim) names it. "
    "(GRD-4)"
)


@pytest.mark.rules("GRD-4")
def test_the_33rd_number_runs_eagerly_and_is_named() -> None:
    compiled = al.compile(scaled, dynamic=False)
    for n in range(32):
        compiled(X, n)
    (text,) = told(lambda: [compiled(X, n) for n in range(32, 40)])
    assert text == (
        "compile: scaled has 32 entries and none is valid for this call, expected at most 32 "
        "(recompile_limit): such calls run eagerly from now on. argument 1 is 32, expected 0, 1, 2 "
        f"or one of 29 more (32 of 32 entries). {END}"
    )
    assert 32 == len(compiled.entries)
    with al.inspect.counting() as ran:
        assert [0.0, 50.0, 100.0] == compiled(X, 50).tolist()
    assert (0, 1, 0) == (ran.captures, ran.eager_ops, sum(ran.graphs.values()))


@pytest.mark.rules("GRD-4")
@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (
            [(al.ones(k, 2), 1) for k in (3, 4)],
            (al.ones(5, 2), 1),
            "size 0 of argument 0 is 5, expected 3 or 4 (2 of 2 entries)",
        ),
        (
            [(al.ones(k, 1 + k), 1) for k in (3, 4)],
            (al.ones(5, 6), 1),
            "size 0 of argument 0 is 5, expected 3 or 4 and size 1 of argument 0 is 6, expected 4 "
            "or 5 (2 of 2 entries)",
        ),
        (
            [(X, 0.5), (X, 1.5)],
            (X, 2.5),
            "argument 1 is 2.5, expected 0.5 or 1.5 (2 of 2 entries)",
        ),
        (
            [(X, 0.5), (X, al.ones(3))],
            (X, 2.5),
            "argument 1 is 2.5, expected 0.5 or f32[3] (2 of 2 entries)",
        ),
        (
            [(al.ones(2, 2), 1), (X, 2)],
            (X, 1),
            "argument 0 is f32[3], expected f32[2, 2] (1 of 2 entries); argument 1 is 1, expected "
            "2 (1 of 2 entries)",
        ),
        (
            [(X, {"a": 1}), (X, {"b": 1})],
            (X, {"c": 1}),
            "the form of the arguments is PyTreeSpec(((*, {'c': *}), {}), NoneIsLeaf), expected "
            "PyTreeSpec(((*, {'a': *}), {}), NoneIsLeaf) or PyTreeSpec(((*, {'b': *}), {}), "
            "NoneIsLeaf) (2 of 2 entries)",
        ),
    ],
)
def test_the_guard_that_keeps_failing_is_named(first: Any, then: Any, expected: str) -> None:
    def function(x: Any, n: Any) -> Any:
        return x * next(iter(n.values())) if isinstance(n, dict) else x * n

    compiled = al.compile(function, dynamic=False, recompile_limit=2)
    for each in first:
        compiled(*each)
    (text,) = told(lambda: compiled(*then))
    assert f"run eagerly from now on. {expected}. {END}" in text


@pytest.mark.rules("GRD-4")
def test_entries_go_on_being_used_where_their_guards_hold() -> None:
    compiled = al.compile(scaled, dynamic=False, recompile_limit=2)
    told(lambda: [compiled(X, n) for n in (1, 2, 3)])
    with al.inspect.counting() as ran:
        assert [0.0, 2.0, 4.0] == compiled(X, 2).tolist()
        assert [0.0, 3.0, 6.0] == compiled(X, 3).tolist()
    assert (0, 1, {0: 1}) == (ran.captures, ran.eager_ops, dict(ran.graphs))


def test_a_function_that_is_the_like_of_another_warns_for_itself() -> None:
    def beyond() -> None:
        compiled = al.compile(scaled, dynamic=False, recompile_limit=1)
        for n in (1, 2, 3):
            compiled(X, n)

    assert 2 == len(told(lambda: [each() for each in (beyond, beyond)]))


def test_a_warning_that_is_an_error_is_raised_once() -> None:
    compiled = al.compile(scaled, dynamic=False, recompile_limit=1)
    compiled(X, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="run eagerly from now on"):
            compiled(X, 2)
        assert [0.0, 2.0, 4.0] == compiled(X, 2).tolist()


def test_what_is_prepared_past_the_limit_is_not_compiled() -> None:
    compiled = al.compile(scaled, dynamic=False, recompile_limit=1)
    compiled.prepare(X, 1)
    assert 1 == len(told(lambda: [each(X, 2) for each in (compiled.prepare, compiled)]))
    assert 1 == len(compiled.entries)


def test_threads_are_told_once_together() -> None:
    compiled = al.compile(scaled, dynamic=False, recompile_limit=4)
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(first: int) -> None:
        start.wait()
        for n in range(first, first + 40):
            if compiled(X, n).tolist() != [0.0, n, 2.0 * n]:
                wrong.append(n)

    def all_of_them() -> None:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        all_of_them()
    assert ([], 4, 1) == (wrong, len(compiled.entries), len(caught))


def test_ndarrays_stay_ndarrays_past_the_limit() -> None:
    """An entry gives what NumPy gives, arrays that it was given among it; so does a call beyond."""

    def scaled_and_absolute(a: Any, n: float) -> Any:
        a *= n
        return a, abs(a)

    compiled = al.compile(scaled_and_absolute, dynamic=False, recompile_limit=1)
    a, b = np.ones(2, np.float32), np.ones(2, np.float32)
    compiled(a, 2.0)
    first: Any = []
    told(lambda: first.append(compiled(b, 3.0)))
    written, result = first[0]
    assert written is b
    assert [3.0, 3.0] == b.tolist()
    assert np.ndarray is type(result)


# -------------------------------------------------------------------------------- other faces
@pytest.mark.rules("GRD-4")
def test_static_arguments_past_the_limit_run_eagerly() -> None:
    compiled: Any = al.aot_function(scaled, al.compilers.nop, static_argnums=1, recompile_limit=2)
    (text,) = told(lambda: [compiled(X, n) for n in range(5)])
    assert text == (
        "aot_function: there are 2 variants by static arguments, expected at most 2 "
        "(recompile_limit): such calls run eagerly from now on. Static argument 1 is 2, which none "
        f"of them was made for. {END}"
    )
    assert 2 == len(compiled.variants)
    assert [0.0, 9.0, 18.0] == compiled(X, 9).tolist()
    assert [] == told(lambda: [compiled(al.ones(k), 1) for k in range(5)]), "one function, told"


def test_modules_past_the_limit_run_eagerly() -> None:
    layer: Any = al.nn.Linear(2, 1)
    compiled = al.aot_module(layer, al.compilers.nop, dynamic=False, recompile_limit=2)
    texts = told(lambda: [compiled(al.ones(k, 2)).sum().backward() for k in range(1, 5)])
    assert 1 == len(texts)
    assert "is 3, expected 1 or 2 (2 of 2 entries)" in texts[0]
    assert [[10.0, 10.0]] == layer.weight.grad.tolist()


@pytest.mark.rules("GRD-4", "CAG-6")
def test_compiled_backwards_past_the_limit_raise_where_that_is_asked_for() -> None:
    tapes = CompiledAutograd.of("reference", recompile_limit=2, recompile_limit_is_error=True)
    w: Any = al.ones(2).requires_grad_()
    with al.compiled_autograd.enable(tapes):
        for step in range(2):
            (w * (0.5 + step)).sin().sum().backward()
        with pytest.raises(
            al.GuardError,
            match=r"^compiled_autograd: tapes of the same ops were captured 2 times, the last one "
            r"since NodeCall 2 is mul of f32\[2\], 3\.0, and was mul of f32\[2\], 1\.5, "
            r"expected at most 2 \(recompile_limit\)",
        ) as caught:
            (w * 3.0).sin().sum().backward()
    assert ["A number that changes at each step can be a tensor. (CAG-6)"] == (
        caught.value.__notes__
    )


def test_stages_are_shown_of_a_function_past_its_limit() -> None:
    compiled = al.compile(scaled, dynamic=False, recompile_limit=1)
    told(lambda: [compiled(X, n) for n in (1, 2)])
    assert "7" in al.inspect.stages_of(compiled, X, 7)["simplify"].code
    assert [1] == [len(compiled.entries)]


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_the_switch_is_true_or_false(value: Any) -> None:
    with pytest.raises(al.ArgumentError) as caught:
        al.compile(scaled, dynamic=False, recompile_limit_is_error=value)
    assert str(caught.value) == (
        f"compile: recompile_limit_is_error is {value!r}, expected True or False"
    )


# ----------------------------------------------------------------------------------- the law
def body(x: Any, w: Any, n: Any) -> Any:
    """Views, writes, randomness, printing, errors: all that a call can do."""
    if n == 3:
        al.ones(2) + al.ones(3)  # raises before anything is written (GEN-2)
    x[0].mul_(n)
    noise = al.rand(2)
    return x.view(-1)[:2], (x * w + noise.sum()).sum(), x, n


def observed(function: Any, calls: list[tuple[int, int, bool]]) -> list[Any]:
    """What a session shows: values, versions, identities, aliases, gradients, errors."""
    al.manual_seed(3)
    w: Any = al.ones(2).requires_grad_()
    seen: list[Any] = []
    for rows, n, history in calls:
        x = al.ones(rows, 2)
        x = x.requires_grad_() * 1.0 if history else x
        try:
            view, loss, same, number = function(x, w, n)
        except al.AotliteError as error:
            seen.append((type(error), str(error), x.tolist(), x._version))
            continue
        loss.backward()
        view.detach()[:1].zero_()
        seen.append((x.tolist(), x._version, same is x, number, view._base is x))
        seen.append((loss.item(), w.grad.tolist(), view.grad_fn is None, al.rand(1).item()))
    return seen


CALL = st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans())


@pytest.mark.slow("compiles a function past its limit")
@pytest.mark.rules("GRD-4")
@pytest.mark.draws(long=500)
@given(st.lists(CALL, min_size=2, max_size=8), st.integers(1, 3))
def test_a_session_past_the_limit_is_eagers(calls: Any, limit: int) -> None:
    expected = observed(body, calls)
    compiled = al.compile(body, dynamic=False, recompile_limit=limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert expected == observed(compiled, calls)
    assert limit >= len(compiled.entries)
