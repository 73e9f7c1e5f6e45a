"""HOOK-2, HOOK-3: hooks on what a compiled function computes inside."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from tests.rules.helpers import hook_programs
from tests.rules.helpers.hook_programs import both, leaf

Call = Callable[..., Any]
BACKENDS = ("reference", "auto")


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


@pytest.mark.rules("HOOK-2")
def test_one_hook_of_several_tensors_is_given_each_gradient_as_it_is() -> None:
    """Of other shapes and dtypes."""
    log: list[Any] = []

    def hook(grad: Any) -> None:
        log.append((tuple(grad.shape), str(grad.dtype), grad.tolist()))

    def f(x: Any) -> Any:
        y = x * 2
        wide = y.view((1, 2)).double() * 3
        total = wide.sum() * 2
        for each in (y, wide, total):
            each.register_hook(hook)
        return total * total

    def story(run: Call) -> Any:
        log.clear()
        x = leaf(1.0, 2.0)
        run(x).backward()
        return log.copy(), x.grad.tolist()

    both(f, story)
    assert 3 == len(log)


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


COUNT = 0


class Tally:
    """Counts in its class, by a method that prints."""

    total = 0

    def __call__(self, grad: Any) -> Any:
        return self.add(grad)

    def add(self, grad: Any) -> Any:
        Tally.total += 1
        self.say()
        return grad * Tally.total

    def quiet(self, grad: Any) -> Any:
        type(self).total += 1
        return grad * Tally.total

    def say(self) -> None:
        print("total", self.total)


def in_a_global(grad: Any) -> Any:
    global COUNT
    COUNT += 1
    return grad * COUNT


def in_a_module(grad: Any) -> Any:
    hook_programs.STATE["count"] = hook_programs.STATE.get("count", 0) + 1
    hook_programs.LAST = grad * hook_programs.STATE["count"]
    return hook_programs.LAST


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("where", ["global", "module", "class", "object", "method"])
def test_hidden_places_of_state_are_found(where: str, capsys: Any) -> None:
    """Nothing is there when it has been compiled, and nothing is printed."""
    global COUNT
    tally = Tally()
    hooks: dict[str, Call] = {
        "global": in_a_global,
        "module": in_a_module,
        "class": tally.quiet,
        "object": tally,
        "method": tally.add,
    }
    hook = hooks[where]

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * y

    found = []
    for run in (f, al.compile(f)):
        COUNT = Tally.total = 0
        hook_programs.STATE.clear()
        hook_programs.LAST = None
        x = leaf(1.0)
        result = run(x)
        assert ("", 0, 0) == (capsys.readouterr().out, COUNT, Tally.total)
        assert {} == hook_programs.STATE
        assert hook_programs.LAST is None
        for _ in range(3):
            result.sum().backward(retain_graph=True)
        found.append((x.grad.tolist(), capsys.readouterr().out, COUNT, Tally.total))
    assert found[0] == found[1]
    assert [[8.0 + 16.0 + 24.0]] == [each for each, *_ in found[:1]] or where != "global"


def nothing(*found: Any) -> None:
    """What a hook returns that leaves its gradient alone."""


def _sets_gradient(w: Any) -> Call:
    def hook(grad: Any) -> None:
        w.grad = grad.detach() * 2

    return hook


def _steps(w: Any) -> Call:
    optimizer = al.optim.SGD([w], lr=0.1)

    def hook(grad: Any) -> None:
        w.grad = grad.detach()
        optimizer.step()

    return hook


def _goes_backward(w: Any) -> Call:
    def hook(grad: Any) -> None:
        with al.enable_grad():
            (w * w * grad).sum().backward()

    return hook


def _registers(w: Any) -> Call:
    return lambda grad: nothing(w.register_hook(lambda grad: grad * 7))


def _removes(w: Any) -> Call:
    handle = w.register_hook(lambda grad: grad * 7)
    return lambda grad: handle.remove()


def _writes_and_counts(w: Any) -> Call:
    counts: list[int] = []

    def hook(grad: Any) -> Any:
        counts.append(1)
        w.detach().add_(grad)
        return grad * len(counts)

    return hook


DOINGS: dict[str, Callable[[Any], Call]] = {
    "sets a gradient": _sets_gradient,
    "steps an optimizer": _steps,
    "goes backward": _goes_backward,
    "registers a hook": _registers,
    "removes a hook": _removes,
    "writes and counts": _writes_and_counts,
    "writes": lambda w: lambda grad: nothing(w.detach().add_(grad)),
    "makes a leaf": lambda w: lambda grad: nothing(w.requires_grad_(False)),
    "seeds": lambda w: lambda grad: nothing(al.manual_seed(7)),
    "reads a gradient": lambda w: lambda grad: grad * w.grad,
    "reads a gradient and tells": lambda w: lambda grad: (print(end=""), grad * w.grad)[1],
}


@pytest.mark.rules("HOOK-2", "CAG-24")
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("doing", DOINGS)
def test_a_hook_does_to_tensors_outside_what_it_does_in_eager(doing: str, inner: bool) -> None:
    """At each backward, and not when it is compiled."""

    def story(is_compiled: bool) -> Any:
        w = leaf(1.0, 2.0)
        w.grad = al.tensor([5.0, 6.0])
        hook = DOINGS[doing](w)

        def f(x: Any) -> Any:
            y = x * 2
            y.register_hook(hook)
            return y * y if inner else y

        run = al.compile(f) if is_compiled else f
        found: list[Any] = []
        al.manual_seed(3)
        for _ in range(3):
            x = leaf(0.5, 1.5)
            result = run(x)
            found.append((w.tolist(), w.grad.tolist(), al.get_rng_state()))
            result.sum().backward(retain_graph=True)
            result.sum().backward()
            w.grad = al.tensor([7.0, 8.0])
            (w * w).sum().backward() if w.requires_grad else None
            found.append((w.tolist(), w.grad.tolist(), x.grad.tolist(), al.get_rng_state()))
        return found, w.version, w.requires_grad

    assert story(False) == story(True)


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
