"""HOOK-1 to HOOK-4: hooks that a compiled function registers, and gradients retained in it."""

from __future__ import annotations

import functools
import logging
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import aotlite as al
from tests.rules.hook_programs import drawn, world

Call = Callable[..., Any]
BACKENDS = ("reference", "auto")


def leaf(*values: float) -> Any:
    return al.tensor(list(values), requires_grad=True)


def both(function: Call, story: Callable[[Call], Any], backend: str = "reference") -> Any:
    """Checks that a story of a function is the same compiled; the compiled one."""
    compiled = al.compile(function, backend=backend)
    its, mine = story(function), story(compiled)
    assert its == mine
    assert its  # a story of nothing would always be the same
    return compiled


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
    found = [agree(seed, capsys) for seed in (*range(400), 1241, 1558, 1803, 2406, 2754)]
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


# ----------------------------------------------------------------------------------- HOOK-2, HOOK-3
def says(kind: str, log: list[Any]) -> Call:
    """A hook with an effect, by its kind."""
    counts = {"calls": 0}
    total = __import__("numpy").zeros(2)

    class Meter:
        last = None

        def __call__(self, grad: Any) -> None:
            self.last = grad.tolist()
            log.append(self.last)

    def counted(grad: Any) -> Any:
        counts["calls"] += 1
        return grad * counts["calls"]

    def added(grad: Any) -> None:
        total[:] += grad.array
        log.append(total.tolist())

    def logged(grad: Any) -> None:
        logging.getLogger("aotlite.tests").warning("%s", grad.tolist())

    hooks: dict[str, Call] = {
        "append": log.append,
        "a value": lambda grad: log.append(grad.sum().item()),
        "a branch": lambda grad: grad * 2 if grad.sum() > 3 else None,
        "counts": counted,
        "an array": added,
        "an object": Meter(),
        "a bound method": Meter().__call__,
        "a partial": functools.partial(lambda log, grad: log.append(grad.tolist()), log),
        "prints": print,
        "prints inside": lambda grad: print("gradient", grad),
        "logs": logged,
    }
    return hooks[kind]


KINDS = ("append", "a value", "a branch", "counts", "an array", "an object", "a bound method",
         "a partial", "prints", "prints inside", "logs")  # fmt: skip


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_with_effects_is_called_once_in_each_backward(
    kind: str, backend: str, capsys: Any, caplog: Any
) -> None:
    found = []
    for is_compiled in (False, True):
        log: list[Any] = []
        hook = says(kind, log)

        def f(x: Any, hook: Call = hook) -> Any:
            y = x * 2
            y.register_hook(hook)
            return y * y

        run = al.compile(f, backend=backend) if is_compiled else f
        x = leaf(1.0, 2.0)
        for k in range(3):
            result = run(x)
            assert "" == capsys.readouterr().out  # not when it is compiled
            assert not caplog.records
            result.sum().backward(retain_graph=k == 1)
            if k == 1:
                result.sum().backward()
            shown = capsys.readouterr().out, [r.message for r in caplog.records]
            caplog.clear()
            seen = [each.tolist() if isinstance(each, al.Tensor) else each for each in log]
            found.append((is_compiled, k, seen, shown, x.grad.tolist()))
    assert [each[1:] for each in found[:3]] == [each[1:] for each in found[3:]]
    assert any(each[2] or any(each[3]) or kind in ("a branch", "counts") for each in found)


@pytest.mark.rules("HOOK-2", "TOK-4")
def test_hooks_and_other_effects_take_turns() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: log.append("first made"))
        z = y * 3
        z.register_hook(lambda grad: al.effects.callback(lambda _: log.append("callback"), grad))
        u = z * 4
        u.register_hook(lambda grad: log.append("last made"))
        return u.sum()

    def story(run: Call) -> Any:
        log.clear()
        run(leaf(1.0)).backward()
        return log.copy()

    both(f, story)
    assert ["last made", "callback", "first made"] == log


@pytest.mark.rules("HOOK-3")
def test_a_hook_that_only_computes_is_part_of_the_graph() -> None:
    """It is not called again."""
    calls: list[int] = []

    def f(x: Any, k: Any) -> Any:
        y = x.exp()
        factor = k.sin()
        y.register_hook(lambda grad: grad * factor)
        return y.sum()

    def story(run: Call) -> Any:
        x = leaf(1.0, 2.0)
        run(x, al.tensor([0.5, 2.0])).backward()
        calls.append(1)
        return x.grad.tolist()

    compiled = both(f, story)
    assert not [node for node in compiled.backward_graph.calls if "callback" in node.target.name]


@pytest.mark.rules("HOOK-2", "HOOK-5")
def test_a_hook_behind_one_that_stays_stays() -> None:
    """Each sees what the one before gave."""
    log: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        factor = x.cos().detach()
        y.register_hook(lambda grad: grad * factor)
        y.register_hook(lambda grad: log.append(grad.tolist()))
        return y

    def story(run: Call) -> Any:
        log.clear()
        x = leaf(1.0, 2.0)
        run(x).sum().backward()
        return log.copy(), x.grad.tolist()

    both(f, story)


@pytest.mark.rules("HOOK-2")
def test_what_trying_a_hook_has_changed_is_put_back() -> None:
    """Containers of each kind, attributes, variables, however deep."""
    import collections

    class State:
        count = 0

    state = State()
    deep: dict[str, Any] = {"a": [{1}], "b": collections.deque([1])}

    def hook(grad: Any) -> Any:
        state.count += 1
        deep["a"][0].add(state.count + 10)
        deep["b"].append(state.count)
        deep[f"new {state.count}"] = 1
        return grad * state.count

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y.sum()

    x = leaf(1.0)
    result = al.compile(f)(x)
    assert (0, {"a": [{1}], "b": collections.deque([1])}) == (state.count, deep)
    result.backward()
    assert (1, {1, 11}, [1, 1]) == (state.count, deep["a"][0], list(deep["b"]))
    assert "new 1" in deep


@pytest.mark.rules("HOOK-2", "DBL-1")
def test_the_gradient_behind_a_hook_with_effects_says_why_it_has_no_derivative() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        y = x.exp()
        y.register_hook(log.append)
        return y.sum()

    x = leaf(1.0)
    grads: Any = al.autograd.grad(al.compile(f)(x), [x], create_graph=True)
    with pytest.raises(al.AutogradError) as caught:
        grads[0].sum().backward()
    assert "effects" in "".join(caught.value.__notes__)


@pytest.mark.rules("HOOK-2", "JNT-15")
@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (lambda grad: 1 / 0, ZeroDivisionError),
        (lambda grad: grad.sum(), al.AutogradError),
        (lambda grad: (print(end=""), grad.sum())[1], al.AutogradError),
        (lambda grad: 3.0, al.DTypeError),
        (lambda grad: (print(end=""), 3.0)[1], al.DTypeError),
    ],
    ids=["raises", "shape", "shape later", "number", "number later"],
)
def test_a_hook_that_fails_fails_in_the_backward(hook: Call, error: type[Exception]) -> None:
    """Inside and at the end, compiled and not; the leaf has no gradient."""
    for f in (
        lambda x: (x * 2, (y := x * 2).register_hook(hook), y * 3)[2],
        lambda x: ((y := x * 2).register_hook(hook), y)[1],
    ):
        for run in (f, al.compile(f)):
            x = leaf(1.0, 2.0)
            result = run(x)
            with pytest.raises(error):
                result.sum().backward()
            assert x.grad is None


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


REFUSED: dict[str, tuple[Call, str]] = {
    "a tensor": (
        lambda x: (y := x * 2, x.register_hook(lambda grad: grad * y.detach()))[0],
        "uses a tensor",
    ),
    "a list": (lambda x: (x.register_hook([].append), x * 2)[1], "reaches a list"),
    "a list in a variable": (
        lambda x: (seen := [], x.register_hook(lambda grad: seen.append(grad)), x * 2)[2],
        "variable 'seen'",
    ),
    "an argument": (
        lambda x: (x.register_hook(functools.partial(lambda s, g: None, [])), x * 2)[1],
        "an argument",
    ),
    "retained nowhere": (lambda x: ((y := x * 2).retain_grad(), y * 3)[1], "retain_grad"),
    "a hook of a node": (
        lambda x: ((y := x * 2).grad_fn.register_hook(lambda *grads: print()), y * 3)[1],
        "of a tape node",
    ),
    "a hook of a hook": (
        lambda x: ((y := x * 2).register_hook(lambda g: y.register_hook(abs) and None), y * 3)[1],
        "registers a hook",
    ),
    "effects and a tensor": (
        lambda x: ((y := x * 2).register_hook(lambda g: print(g * y)), y * 3)[1],
        "uses a tensor",
    ),
}


@pytest.mark.rules("HOOK-1", "HOOK-2", "HOOK-4")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_happens(case: str, capsys: Any) -> None:
    function, text = REFUSED[case]
    x = leaf(1.0, 2.0)
    with pytest.raises(al.UnsupportedError, match=text) as caught:
        al.compile(function)(x)
    assert any("test_hook_inside.py" in note for note in caught.value.__notes__)
    assert any("Instead: " in note for note in caught.value.__notes__)
    assert "" == capsys.readouterr().out
    function(x).sum().backward()
    assert x.grad is not None


@pytest.mark.rules("HOOK-1")
def test_a_variable_that_the_function_rebinds_is_not_a_hooks() -> None:
    def f(x: Any) -> Any:
        count = 0

        def hook(grad: Any) -> Any:
            nonlocal count
            count += 1
            return grad * count

        x.register_hook(hook)
        return x * 2

    with pytest.raises(al.UnsupportedError, match="rebinds variable 'count'"):
        al.compile(f)(leaf(1.0))


@pytest.mark.rules("HOOK-1", "HOOK-2", "CAP-3")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("way", ["plain", "a value", "loud"])
def test_what_hooks_change_makes_no_new_entries_and_what_they_read_does(
    inside: bool, way: str, capsys: Any
) -> None:
    """Calls are not told by what their hooks change, but by what else the function reads."""
    log, config = [], {"factor": 2}

    def hook(grad: Any) -> None:
        if way == "loud":
            print(config["factor"])
        log.append(grad.sum().item() if way == "a value" else config["factor"])

    def f(x: Any) -> Any:
        y = x * config["factor"]
        (y if inside else x).register_hook(hook)
        return y * 3

    compiled = al.compile(f)
    for _ in range(4):
        compiled(leaf(1.0)).sum().backward()
    assert 4 == len(log)
    assert 1 == len(compiled.entries)
    config["factor"] = 5
    assert 15.0 == compiled(leaf(1.0)).item()
    assert 2 == len(compiled.entries)


@pytest.mark.rules("HOOK-1", "CAP-3")
def test_another_hook_in_a_variable_is_another_entry() -> None:
    hooks = {"now": lambda grad: grad * 2}

    def f(x: Any) -> Any:
        x.register_hook(hooks["now"])
        return x * 3

    compiled = al.compile(f)
    found = []
    for factor in (2, 7, 7):
        if factor == 7:
            hooks["now"] = seven
        x = leaf(1.0)
        compiled(x).sum().backward()
        found.append(x.grad.tolist())
    assert [[6.0], [21.0], [21.0]] == found


def seven(grad: Any) -> Any:
    return grad * 7
