"""HOOK-2, HOOK-3: what a hook does in Python happens at each backward, whatever it is.

Hooks are drawn as text, of lines that compute and lines that read, tell or change something; what
they read changes between a call and its backward.
"""

from __future__ import annotations

import heapq
import math
import operator
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.stages.s1_capture.hooks.purity import more_than_computes
from aotlite.stages.s1_capture.hooks.reachable import Known, reached
from tests.rules.helpers.hook_programs import both, leaf

Call = Callable[..., Any]

COMPUTES = (
    "grad = grad * 2",
    "grad = grad * factor",
    "grad = grad * weight",
    "grad.mul_(3)",
    "grad[0] = 0.5",
    "grad *= 1.5",
    "grad = al.where(grad > 0, grad, -grad)",
    "grad = sum([grad, grad])",
    "grad = helped(grad)",
    "grad = grad * math.sqrt(4.0)",
    "grad = operator.mul(grad, np.float32(2))",
    "grad = next_to(grad) if isinstance(grad, al.Tensor) else None",
    "with al.no_grad(): grad = grad + 1",
    "grad = [each * 2 for each in (grad, grad)][1]",
    "assert grad.shape == (2,), grad.shape",
    "grad = al.nn.functional.relu(grad) + 1",
)
DOES_MORE = (
    "log.append(1)",
    "log.append(grad.tolist())",
    "log += [2]",
    "state.n += 1",
    "state.n = state.n",
    "grad = grad * state.n",
    "state.total = grad.tolist()",
    "grad = grad * items[0]",
    "items[0] = items[0]",
    "items[0] += 1",
    "operator.setitem(items, 0, 7)",
    "grad = grad * slots.n",
    "slots.n += 1",
    "letters[0] = (letters[0] + 1) % 256",
    "grad = grad * (1 + letters[0])",
    "big[0] += 1",
    "grad = grad * float(big[0] + 1)",
    "local.n = getattr(local, 'n', 0) + 1",
    "rebind()",
    "seen.add(3)",
    "table.setdefault('a', 1)",
    "heapq.heappush(items, 9)",
    "grad = grad * next(numbers)",
    "random.random()",
    "warnings.warn('a hook')",
    "sys.stdout.write('told ')",
    "print('printed')",
    "grad = grad * method()",
    "setattr(state, 'n', 3)",
    "Kept.n += 1",
    "grad = grad * Kept().twice()",
    "try: grad = grad + grad.sum().item()\nexcept Exception: grad = grad * 0",
    "if grad.sum() > 3: grad = grad * 2",
    "function.calls = getattr(function, 'calls', 0) + 1",
    "grad = grad * function.factor",
    "import heapq as h; h.heappush(items, 4)",
)


class Slots:
    """An object without a dictionary."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 2

    def read(self) -> int:
        return self.n


def next_to(grad: Any) -> Any:
    return grad.flip([0]) * 0.5


def surroundings() -> dict[str, Any]:
    """What the lines name."""

    class Kept:
        n = 1

        def twice(self) -> int:
            return 2 * self.n

    def function() -> None:
        pass

    slots = Slots()
    around = {
        "log": [], "state": types.SimpleNamespace(n=1), "items": [2], "slots": slots,
        "letters": bytearray(b"a"), "big": np.zeros(20_000), "local": threading.local(),
        "seen": set(), "table": {}, "numbers": iter(range(1, 1000)), "Kept": Kept,
        "method": slots.read, "function": function, "factor": 3.0, "count": 0,
        "weight": al.tensor([2.0, 0.5]), "next_to": next_to, "al": al, "np": np, "math": math,
        "operator": operator, "heapq": heapq, "random": random, "sys": sys, "warnings": warnings,
    }  # fmt: skip
    function.factor = 2.0  # type: ignore[attr-defined]
    exec("def rebind():\n def inside():\n  global count\n  count += 1\n inside()", around)
    exec("def helped(grad, by=2):\n return next_to(grad) * by * factor", around)
    return around


def hook_of(lines: tuple[str, ...], around: dict[str, Any]) -> Call:
    body = "\n".join(" " + part for line in lines for part in line.split("\n"))
    end = " return grad" if "grad = " in body else " return None"
    declared = " global log\n" if "log +=" in body else ""
    exec(f"def hook(grad):\n{declared}{body}\n{end}", around)
    hook: Call = around["hook"]
    return hook


def known(hook: Call) -> Known:
    """What a function that reaches the hook by name knows."""
    functions = [each for each in reached([hook]) if isinstance(each, types.FunctionType)]
    return Known([hook], functions)


def changed_outside(around: dict[str, Any], number: int) -> None:
    """What the surroundings do between a call and its backward."""
    around["state"].n = number
    around["items"][0] = number + 1
    around["slots"].n = number
    around["letters"][0] = number
    around["big"][0] = number
    around["Kept"].n = number
    around["function"].factor = number


def picture(around: dict[str, Any]) -> Any:
    return (
        list(around["log"]), vars(around["state"]).copy(), list(around["items"]),
        around["slots"].n, bytes(around["letters"]), around["big"][0],
        getattr(around["local"], "n", None), around["seen"].copy(), dict(around["table"]),
        around["count"], around["Kept"].n, vars(around["function"]).copy(),
        next(around["numbers"]), hash(random.getstate()), around["weight"].tolist(),
    )  # fmt: skip


PLACES: dict[str, Callable[[Any, Call], Any]] = {
    "inside": lambda x, hook: ((y := x * 2).register_hook(hook), y * y)[1],
    "result": lambda x, hook: ((y := x * 2).register_hook(hook), y)[1],
    "argument": lambda x, hook: (x.register_hook(hook), x * 3)[1],
}


def world(
    lines: tuple[str, ...], place: str, compiled: bool, capsys: Any, recwarn: Any
) -> list[Any]:
    """What is there after each of a few calls and backwards."""
    around = surroundings()
    hook = hook_of(lines, around)
    random.seed(5)
    capsys.readouterr()  # of one that raised before
    recwarn.clear()
    f: Call = types.FunctionType(
        (lambda x: PLACES[place](x, hook)).__code__,
        {"PLACES": PLACES, "place": place, "hook": hook},
        closure=(types.CellType(hook), types.CellType(place)),
    )
    run = al.compile(f, backend="reference") if compiled else f
    found: list[Any] = []
    for number in (3, 3, 5):
        x = leaf(0.5, 1.5)
        result = run(x)
        found.append((result.tolist(), picture(around)))
        for again in (1, 0):
            changed_outside(around, number + again)
            try:
                result.sum().backward(retain_graph=bool(again))
            except al.AliasError as error:  # it writes an expanded gradient
                return [*found, str(error), picture(around)]
        told = capsys.readouterr().out, [str(each.message) for each in recwarn]
        recwarn.clear()
        found.append((x.grad.tolist(), picture(around), told))
    return found


def agree(seed: int, capsys: Any, recwarn: Any) -> bool:
    """Whether a drawn hook only computes; AssertionError where it is another compiled."""
    rng = Random(seed)
    more = rng.choice((0, 1, 1, 2, 3))
    lines = rng.choices(COMPUTES, k=rng.randint(0 if more else 1, 3)) + rng.sample(
        DOES_MORE, k=more
    )
    rng.shuffle(lines)
    place = rng.choice(list(PLACES))
    given = tuple(lines), place
    its = world(*given, False, capsys, recwarn)
    assert its == world(*given, True, capsys, recwarn), given
    return not more


@pytest.mark.rules("HOOK-2", "HOOK-3")
def test_random_python_in_hooks_is_eagers(capsys: Any, recwarn: Any) -> None:
    warnings.simplefilter("always")
    found = [agree(seed, capsys, recwarn) for seed in range(50)]
    assert 2 < sum(found) < 25


@pytest.mark.long
@pytest.mark.rules("HOOK-2", "HOOK-3")
def test_much_random_python_in_hooks_is_eagers(capsys: Any, recwarn: Any) -> None:
    warnings.simplefilter("always")
    found = [agree(seed, capsys, recwarn) for seed in range(1000, 11_000)]
    assert 1000 < sum(found) < 5000


@pytest.mark.rules("HOOK-2")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("line", DOES_MORE)
def test_each_kind_of_python_is_eagers(line: str, capsys: Any, recwarn: Any) -> None:
    warnings.simplefilter("always")
    for place in PLACES:
        its = world((line,), place, False, capsys, recwarn)
        assert its == world((line,), place, True, capsys, recwarn)


@pytest.mark.rules("HOOK-3")
@pytest.mark.parametrize("line", COMPUTES)
def test_what_only_computes_is_part_of_the_graph(line: str) -> None:
    hook = hook_of((line,), surroundings())
    assert more_than_computes(hook, known(hook)) is None
    compiled: Any = al.compile(lambda x: PLACES["inside"](x, hook), backend="reference")
    compiled(leaf(0.5, 1.5)).sum().backward()
    names = [node.target.name for node in compiled.backward_graph.calls]
    assert not [name for name in names if "callback" in name]


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("line", DOES_MORE)
def test_what_does_more_is_not_recorded(line: str) -> None:
    asks = line.startswith(("if", "try"))
    hook = hook_of((line,), surroundings())
    assert (more_than_computes(hook, known(hook)) is None) is asks
    compiled: Any = al.compile(lambda x: PLACES["inside"](x, hook), backend="reference")
    warnings.simplefilter("ignore")
    compiled(leaf(0.5, 1.5)).sum().backward()
    names = [node.target.name for node in compiled.backward_graph.calls]
    assert [name for name in names if "callback" in name]


class Net(al.nn.Module):
    """A module whose methods are hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: Any = al.nn.Parameter(al.tensor([2.0, 3.0]))
        self.scale = 2.0
        self.log: list[Any] = []
        self.inner = al.nn.ReLU()

    @property
    def twice(self) -> float:
        return self.scale * 2

    def scaled(self, grad: Any) -> Any:
        return grad * self.scale * self.weight.detach()

    def asks(self, grad: Any) -> Any:
        return grad * self.twice

    @property
    def counted(self) -> float:
        self.log.append("counted")
        return self.scale

    def counts(self, grad: Any) -> Any:
        return grad * self.counted

    def called(self, grad: Any) -> Any:
        return self.inner(grad) + 1

    def noted(self, grad: Any) -> Any:
        self.log.append(grad.sum().item())
        return grad * self.twice

    def forward(self, x: Any, way: str) -> Any:
        y = x * self.weight
        mask = y.detach() > 0.7
        hooks: dict[str, Call] = {
            "scaled": self.scaled,
            "called": self.called,
            "asks": self.asks,
            "counts": self.counts,
            "noted": self.noted,
            "masked": lambda grad: self.scaled(grad) * mask,
            "listed": lambda grad, kept=[mask, mask]: grad * kept[1],
        }
        y.register_hook(hooks[way])
        return (y * y).sum()


@pytest.mark.rules("HOOK-3", "CAP-4")
@pytest.mark.parametrize("way", ["scaled", "called", "asks", "counts", "noted", "masked", "listed"])
def test_methods_of_modules_are_hooks(way: str) -> None:
    """What they read of the module is guarded; one that appends to its list is called."""
    found = []
    for is_compiled in (False, True):
        net = Net()
        run: Any = al.compile(net, backend="reference") if is_compiled else net
        for scale in (2.0, 2.0, 5.0):
            net.scale = scale
            x = leaf(0.5, 1.5)
            run(x, way).backward()
            found.append((x.grad.tolist(), net.weight.grad.tolist(), net.log.copy()))
        if is_compiled:
            names = [node.target.name for node in run.backward_graph.calls]
            assert any("callback" in name for name in names) is (way in ("counts", "noted"))
    assert found[:3] == found[3:]


@pytest.mark.rules("HOOK-2", "CAP-3")
@pytest.mark.parametrize("way", ["variable", "attribute", "made"])
def test_variables_of_a_hook_are_compared_or_read_when_it_is_called(way: str) -> None:
    """A hook that is found at a plain object is called: nothing compares its variables."""
    factor = 2.0

    def hook(grad: Any) -> Any:
        return grad * factor

    def make() -> Call:
        return lambda grad: grad * factor

    holder = types.SimpleNamespace(hook=hook, make=make)
    found = []
    for is_compiled in (False, True):

        def f(x: Any) -> Any:
            y = x * 2
            chosen = {"variable": lambda: hook, "attribute": lambda: holder.hook}
            y.register_hook(chosen[way]() if way in chosen else holder.make())
            return y * y

        run = al.compile(f) if is_compiled else f
        for value in (2.0, 2.0, 5.0):
            factor = value
            x = leaf(0.5, 1.5)
            run(x).sum().backward()
            found.append(x.grad.tolist())
    assert found[:3] == found[3:]


def _with(held: Any) -> Call:
    """A function whose hook uses a tensor that it makes, and something from outside."""

    def f(x: Any) -> Any:
        y = x * 2
        mask = y.detach() > 0
        y.register_hook(lambda grad: grad * mask * held.n)
        return y * y

    return f


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize(
    ("f", "text"),
    [
        (_with(types.SimpleNamespace(n=2)), "reaches a SimpleNamespace"),
        (_with(Slots()), "reaches a Slots"),
        (_with(next_to), "reads the attribute|no attribute"),
        (
            lambda x: ((y := x * 2).register_hook(lambda g: (warnings.warn, g * y)[1]), y)[1],
            "reaches 'warnings'",
        ),
        (
            lambda x: ((y := x * 2).register_hook(lambda g, a=[]: (a.append(1), g * y)[1]), y)[1],
            "may change a list",
        ),
    ],
    ids=["object", "slots", "function", "module", "list"],
)
def test_a_hook_that_uses_tensors_of_the_function_may_only_compute(f: Call, text: str) -> None:
    with pytest.raises((al.UnsupportedError, AttributeError), match=text):
        al.compile(f)(leaf(0.5, 1.5))


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (lambda grad: setattr(grad, "requires_grad", True), "'setattr'"),
        (lambda grad: al.set_num_threads(1), "set_num_threads"),
        (lambda grad: grad.grad_fn, "'grad_fn'"),
        (lambda grad: grad.__class__, "'__class__'"),
        (lambda grad: np.random.rand(), "random"),
        (lambda grad: al.default_generator, "Generator"),
        (operator.methodcaller("neg"), "methodcaller"),
        (print, "'print'"),
    ],
)
def test_what_a_hook_may_do_besides_is_said(hook: Call, text: str) -> None:
    against = more_than_computes(hook, known(hook))
    assert against is not None
    assert text in against


@pytest.mark.rules("HOOK-2", "TAN-3")
def test_a_hook_that_is_called_sees_eagers_layout() -> None:
    """An expanded gradient cannot be written, in eager and compiled alike."""
    log: list[Any] = []

    def hook(grad: Any) -> None:
        log.append((tuple(grad.shape), grad.stride(), grad.tolist()))

    def f(x: Any) -> Any:
        y = x * 2
        parts = (y, y.t() * 3, y.sum(0), y.exp().t())
        for each in parts:
            each.register_hook(hook)
        return sum(each.sum() for each in parts) + (y.t() @ y).sum()

    def story(run: Call) -> Any:
        log.clear()
        x = al.arange(6.0).view((2, 3)).requires_grad_()
        run(x).backward()
        return log.copy(), x.grad.tolist()

    both(f, story)
    assert (0, 0) in [stride for _, stride, _ in log]
    log = [1]
    writing = al.compile(lambda x: (y := x * 2, y.register_hook(writes), y.sum())[2])

    def writes(grad: Any) -> None:
        grad.mul_(log[0])

    with pytest.raises(al.AliasError):
        writing(leaf(1.0, 2.0)).backward()
