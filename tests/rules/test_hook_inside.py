"""HOOK-1 to HOOK-4: hooks that a compiled function registers, and gradients retained in it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import aotlite as al
from tests.rules.helpers.hook_programs import both, drawn, leaf, world

Call = Callable[..., Any]
BACKENDS = ("reference", "auto")


# ------------------------------------------------------------------------------------------- laws
def agree(seed: int, capsys: Any) -> str:
    """What became of a drawn program; AssertionError where it is another compiled."""
    program = drawn(Random(seed))
    its, printed = world(program, compiled=False), capsys.readouterr().out
    try:
        mine = world(program, compiled=True)
    except al.UnsupportedError as error:
        return str(error)
    assert its == mine, f"{seed}: {program}"
    assert sorted(printed.split()) == sorted(capsys.readouterr().out.split()), f"{seed}: {program}"
    return "runs"


@pytest.mark.rules("HOOK-1", "HOOK-2", "HOOK-3", "HOOK-4")
def test_random_functions_with_hooks_inside_are_eagers(capsys: Any) -> None:
    found = [agree(seed, capsys) for seed in (*range(80), 1241, 1558, 1803, 2406, 2754)]
    assert found.count("runs") > 0.85 * len(found)


@pytest.mark.long
@pytest.mark.rules("HOOK-1", "HOOK-2", "HOOK-3", "HOOK-4")
def test_many_random_functions_with_hooks_inside_are_eagers(capsys: Any) -> None:
    found = [agree(seed, capsys) for seed in range(10_000, 30_000)]
    assert found.count("runs") > 0.85 * len(found)


# ----------------------------------------------------------------------------------------- HOOK-1
@pytest.mark.rules("HOOK-1")
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_call_registers_its_hook_on_its_own_tensor(backend: str) -> None:
    """Several calls with one leaf add hooks up, as eager's do."""
    log: list[Any] = []

    def hook(grad: Any) -> Any:
        log.append(grad.tolist())
        return grad * 2

    def f(w: Any) -> Any:
        w.register_hook(hook)
        return w * 3

    def story(run: Call) -> Any:
        log.clear()
        w, other = leaf(1.0, 2.0), leaf(5.0, 6.0)
        for each in (w, other, w):
            run(each).sum().backward()
        return log.copy(), w.grad.tolist(), other.grad.tolist()

    compiled = both(f, story, backend)
    assert 1 == len(compiled.entries)


@pytest.mark.rules("HOOK-1")
def test_a_hook_on_a_parameter_is_registered_on_the_modules_own() -> None:
    class Model(al.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight: Any = al.nn.Parameter(al.ones(2))
            self.seen: list[float] = []

        def forward(self, x: Any) -> Any:
            self.weight.register_hook(lambda grad: self.seen.append(grad.sum().item()))
            return self.weight * x

    found = []
    for is_compiled in (False, True):
        model = Model()
        run = al.compile(model) if is_compiled else model
        for _ in range(2):
            run(al.ones(2)).sum().backward()
        found.append((model.seen, model.weight.grad.tolist()))
    assert found[0] == found[1] == ([2.0, 2.0, 2.0], [2.0, 2.0])


@pytest.mark.rules("HOOK-1", "HOOK-6")
def test_a_hook_of_an_argument_stays_with_the_value_that_it_had() -> None:
    """The one before the write sees what goes outside; the one after it what comes from there."""
    log: list[Any] = []

    def f(x: Any) -> Any:
        x.register_hook(lambda grad: log.append(("before", grad.tolist())))
        x.mul_(3)
        x.register_hook(lambda grad: log.append(("after", grad.tolist())))
        return x * 2

    def story(run: Call) -> Any:
        log.clear()
        w = leaf(1.0, 2.0)
        x = w * 1
        result = run(x)
        (result + 5 * x).sum().backward()
        return log.copy(), w.grad.tolist()

    both(f, story)


@pytest.mark.rules("HOOK-1")
def test_a_result_has_its_hook_where_its_gradient_is_asked_for() -> None:
    """`autograd.grad` with respect to the result itself, too."""

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad * 10)
        return y

    def story(run: Call) -> Any:
        x = leaf(1.0, 2.0)
        y = run(x)
        loss = (y * 3).sum()
        alone: Any = al.autograd.grad(loss, [y], retain_graph=True)
        both: Any = al.autograd.grad(loss, [y, x])
        return [g.tolist() for g in (*alone, *both)]

    both(f, story)


@pytest.mark.rules("HOOK-1", "DBL-1")
@pytest.mark.parametrize("saves", [False, True])
def test_a_derivative_never_passes_by_the_hook_of_a_result(saves: bool) -> None:
    """`exp` saves its result: a second derivative comes back to it."""

    def f(x: Any) -> Any:
        y = x.exp() if saves else x * x
        y.register_hook(lambda grad: grad * 2)
        return y

    def story(run: Call) -> Any:
        x = leaf(1.0, 2.0)
        grads: Any = al.autograd.grad(run(x).sum(), [x], create_graph=True)
        second: Any = al.autograd.grad(grads[0].sum(), [x])
        return [each.tolist() for each in (*grads, *second)]

    if saves:
        with pytest.raises(al.AutogradError) as caught:
            story(al.compile(f))
        assert "passes hooks of results" in caught.value.__notes__[0]
    else:
        both(f, story)


@pytest.mark.rules("HOOK-1", "HOOK-5")
def test_hooks_of_results_are_called_in_eagers_order_and_only_where_a_gradient_arrives() -> None:
    """All results of a call share one tape node."""
    log: list[str] = []

    def f(x: Any) -> Any:
        a = x * 2
        b = x * 3
        a.register_hook(lambda grad: log.append("a"))
        b.register_hook(lambda grad: log.append("b"))
        a.register_hook(lambda grad: log.append("a again"))
        return a, b

    def story(run: Call) -> Any:
        log.clear()
        a, b = run(leaf(1.0))
        a.sum().backward(retain_graph=True)
        log.append("both")
        (a + b).sum().backward()
        return log.copy()

    both(f, story)
    assert ["a", "a again", "both", "b", "a", "a again"] == log


@pytest.mark.rules("HOOK-1")
def test_a_leaf_calls_what_is_behind_accumulation() -> None:
    log: list[Any] = []

    def f(w: Any) -> Any:
        w.register_post_accumulate_grad_hook(lambda leaf: log.append(repr(leaf.grad)))
        return w * w

    def story(run: Call) -> Any:
        log.clear()
        w = leaf(3.0)
        run(w).sum().backward()
        return log.copy(), w.grad.tolist()

    both(f, story)


@pytest.mark.rules("HOOK-1", "CAG-10")
@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a * b * c,
        lambda a, b, c: (a * c) * b,
        lambda a, b, c: c.exp() * (b * a),
        lambda a, b, c: (b * a.exp()) + c * a,
    ],
)
def test_leaves_get_their_gradients_in_eagers_order(f: Call) -> None:
    def story(run: Call) -> Any:
        log: list[int] = []
        leaves = [leaf(1.0, 2.0) for _ in range(3)]
        for k, each in enumerate(leaves):
            each.register_post_accumulate_grad_hook(lambda _, k=k: log.append(k))
        run(*leaves).sum().backward()
        return log

    both(f, story)


@pytest.mark.rules("HOOK-1")
def test_a_hook_that_is_removed_inside_is_nowhere_else() -> None:
    """It serves a backward inside, at each call."""

    def f(w: Any) -> Any:
        with w.register_hook(lambda grad: grad * 5):
            (w * 3).sum().backward()
        return w * 2

    def story(run: Call) -> Any:
        w = leaf(1.0)
        for _ in range(3):
            run(w).sum().backward()
        return w.grad.tolist()

    compiled = both(f, story)
    assert () == compiled.meta.hooks


@pytest.mark.rules("HOOK-1")
def test_a_handle_that_leaves_the_function_says_what_it_is() -> None:
    kept: list[Any] = []
    w = leaf(1.0)
    outside = w.register_hook(lambda grad: None)

    def f(w: Any) -> Any:
        kept.append(w.register_hook(lambda grad: grad * 5))
        return w * 2

    al.compile(f)(w)
    with pytest.raises(al.UnsupportedError, match="registered in a compiled function"):
        kept[0].remove()
    with pytest.raises(al.UnsupportedError, match="removing a hook from outside"):
        al.compile(lambda w: (outside.remove(), w * 2)[1])(w)
    outside.remove()


@pytest.mark.rules("HOOK-1", "META-26")
def test_what_each_call_registers_is_said_and_pickled() -> None:
    def f(w: Any) -> Any:
        w.register_hook(abs)
        w.register_post_accumulate_grad_hook(functools.partial(print, end=""))
        y = w * 2
        y.retain_grad()
        return y

    compiled = al.compile(f)
    compiled(leaf(1.0))
    lines = {line for line in compiled.meta.explain().splitlines() if "Each call" in line}
    assert {
        "Each call lets result 0 retain its gradient.",
        "Each call registers a hook on the gradient of argument 0: abs.",
        "Each call registers a hook on the accumulated gradient of argument 0: partial.",
    } == lines
    assert [] == compiled.meta.differences(pickle.loads(pickle.dumps(compiled.meta)))


# ----------------------------------------------------------------------------------------- HOOK-4
@pytest.mark.rules("HOOK-4")
def test_arguments_and_results_retain_their_gradients() -> None:
    def f(x: Any) -> Any:
        x.retain_grad()
        y = x * 2
        y.retain_grad()
        return y

    def story(run: Call) -> Any:
        w = leaf(1.0, 2.0)
        x = w * 1
        y = run(x)
        y.exp().sum().backward()
        return x.retains_grad, y.retains_grad, x.grad.tolist(), y.grad.tolist(), w.grad.tolist()

    both(f, story)


@pytest.mark.rules("HOOK-4", "HOOK-6")
def test_a_write_takes_the_retained_gradient_along() -> None:
    def f(x: Any) -> Any:
        x.retain_grad()
        x.mul_(2)
        y = x * 3
        y.retain_grad()
        y.add_(1)
        return y

    def story(run: Call) -> Any:
        w = leaf(1.0, 2.0)
        x = w * 1
        y = run(x)
        (y * y).sum().backward()
        return y.grad.tolist(), w.grad.tolist(), x.retains_grad

    def of_result(x: Any) -> Any:
        y = x * 3
        y.retain_grad()
        y.add_(1)
        return y

    with pytest.raises(al.UnsupportedError, match="retain_grad"):  # y is computed from x
        story(al.compile(f))
    both(of_result, lambda run: story(lambda x: run(x)))


@pytest.mark.rules("HOOK-4", "TAN-8", "HOOK-6")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hooked", [False, True])
def test_a_result_from_which_another_is_computed_retains_the_sum(
    hooked: bool, backend: str
) -> None:
    """Of what comes from outside and inside, behind its hooks; whatever results are used."""

    def f(x: Any) -> Any:
        y = x * 2
        factor = (x + 1).detach()
        if hooked:
            y.register_hook(lambda grad: grad * factor)
        y.retain_grad()
        return y, y * y, x + 1

    def story(run: Call) -> Any:
        found = []
        for used in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
            x = leaf(1.0, 2.0)
            results = run(x)
            loss = sum((results[k] * (k + 2)).sum() for k in used)
            loss.backward(retain_graph=True)
            loss.backward()
            y = results[0]
            shown = None if y.grad is None else y.grad.tolist()
            found.append((y.retains_grad, shown, x.grad.tolist()))
        x = leaf(1.0, 2.0)
        y, square, _ = run(x)
        y.mul_(3)
        (y * 5).sum().backward()
        asked = leaf(1.0, 2.0)
        kept, square, _ = run(asked)
        [grad] = al.autograd.grad(square.sum(), [asked])
        return found, y.grad.tolist(), kept.grad.tolist(), grad.tolist(), asked.grad  # type: ignore[union-attr]

    compiled = both(f, story, backend)
    with al.compiled_autograd.enable("reference"):
        y, square, _ = compiled(leaf(1.0, 2.0))
        (y + square).sum().backward()
    assert y.grad.tolist() == ([10.0, 27.0] if hooked else [5.0, 9.0])


@pytest.mark.rules("HOOK-4")
def test_a_result_that_is_gone_retains_nothing() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.retain_grad()
        return y, y * 3

    x = leaf(1.0)
    _, result = al.compile(f)(x)
    del _
    result.sum().backward()
    assert [6.0] == x.grad.tolist()


@pytest.mark.rules("HOOK-4", "DBL-3")
def test_a_backward_inside_gives_intermediates_their_gradients() -> None:
    def f(x: Any) -> Any:
        y = x.exp()
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad * 2

    def story(run: Call) -> Any:
        x = leaf(0.0, 1.0)
        return run(x).tolist(), x.grad.tolist()

    both(f, story)
