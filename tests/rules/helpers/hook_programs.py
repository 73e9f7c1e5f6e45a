"""Random functions that register hooks inside, and all that a user can observe of them.

A program is a list of steps on values; its hooks change gradients, note them in a list outside,
raise, write, remove themselves. `world(program, compiled)` calls it a few times, goes backward
behind it in a way that the program says, and gives a picture that is equal where nothing can be
told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import attrs

import aotlite as al

Call = Callable[..., Any]
STATE: dict[str, int] = {}
LAST: Any = None
"""What hooks of other modules change here."""

OPS: dict[str, tuple[Callable[..., Any], int]] = {
    "double": (lambda a: a * 2, 1),
    "sin": (lambda a: a.sin(), 1),
    "product": (lambda a, b: a * b, 2),
    "sum": (lambda a, b: a + b, 2),
    "view": (lambda a: a.view((2, 2)).view((4,)), 1),
    "copy": (lambda a: a * 1, 1),
    "detach": (lambda a: a.detach(), 1),
    "write": (lambda a: a.mul_(3), 1),
    "write part": (lambda a: a[1:3].add_(1), 1),
    "flip": (lambda a: a.flip([0]), 1),
}
HOOKS = ("scale", "note", "note value", "note and scale", "print", "closed over",
         "removed", "retain", "accumulated", "counts")  # fmt: skip
WAYS = ("backward", "backward", "twice", "grad", "some")


@attrs.frozen
class Hooked:
    """A function of two tensors, as steps: (name, operands); hooks are named `hook:kind`."""

    kinds: tuple[str, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    results: tuple[int, ...]
    way: str

    def __str__(self) -> str:
        steps = " ".join(f"{name}{list(operands)}" for name, operands in self.steps)
        return f"{self.kinds} {steps} -> {self.results}, {self.way}"


def drawn(rng: Random) -> Hooked:
    """A program; what it does may raise.

    One that raises in a backward has no other hooks: which of them were called before depends on
    which are called by the engine (docs/limits.md).
    """
    hooks = HOOKS if rng.random() < 0.7 else ("raise",)
    kinds = tuple([rng.choice(("leaf", "leaf", "made", "plain", "view")) for _ in range(2)])
    count = 2
    steps: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(rng.randint(2, 7)):
        if rng.random() < 0.45:
            steps.append((f"hook:{rng.choice(hooks)}", (rng.randrange(count),)))
            continue
        name = rng.choice(list(OPS))
        operands = tuple([rng.randrange(count) for _ in range(OPS[name][1])])
        steps.append((name, operands))
        count += not name.startswith("write")
    results = tuple([rng.randrange(count) for _ in range(rng.choice((1, 1, 2)))])
    return Hooked(kinds, tuple(steps), results, rng.choice(WAYS))


class Outside:
    """The outside values that hooks of a program read or write."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.counts: dict[int, int] = {}


def function_of(program: Hooked, outside: Outside) -> Callable[..., Any]:
    """The program as a function that can be compiled."""
    log, counts = outside.log, outside.counts

    def hook(kind: str, number: int, tensor: Any) -> Any:
        if kind == "scale":
            return tensor.register_hook(lambda grad: grad * 5)
        if kind == "note":
            return tensor.register_hook(log.append)
        if kind == "note value":
            return tensor.register_hook(lambda grad: log.append((number, grad.sum().item())))
        if kind == "note and scale":

            def scaled(grad: Any) -> Any:
                log.append(number)
                return grad * 7

            return tensor.register_hook(scaled)
        if kind == "print":
            return tensor.register_hook(print)
        if kind == "closed over":
            factor = tensor.detach().cos()
            return tensor.register_hook(lambda grad: grad * factor)
        if kind == "removed":
            tensor.register_hook(lambda grad: log.append("never")).remove()
            return None
        if kind == "retain":
            return tensor.retain_grad()
        if kind == "accumulated":
            return tensor.register_post_accumulate_grad_hook(
                lambda leaf: log.append((number, leaf.grad.tolist()))
            )
        if kind == "counts":

            def counted(grad: Any) -> Any:
                counts[number] = counts.get(number, 0) + 1
                return grad * counts[number]

            return tensor.register_hook(counted)

        def fails(grad: Any) -> Any:
            counts[0] = counts.get(0, 0) + 1
            if counts[0] == 2:
                raise ValueError("the second time")

        return tensor.register_hook(fails)

    def run(a: Any, b: Any) -> Any:
        values = [a, b]
        for number, (name, operands) in enumerate(program.steps):
            given = [values[k] for k in operands]
            if name.startswith("hook:"):
                hook(name[5:], number, *given)
            else:
                found = OPS[name][0](*given)
                if not name.startswith("write"):
                    values.append(found)
        return [values[k] for k in program.results]

    return run


def arguments(program: Hooked) -> tuple[list[Any], list[Any]]:
    """The tensors that are passed, and the leaves behind them."""
    leaves, passed = [], []
    for k, kind in enumerate(program.kinds):
        leaf = al.arange(4, dtype=al.float64).add_(k + 1)
        if kind != "plain":
            leaf.requires_grad_()
        leaves.append(leaf)
        double = leaf if kind in ("leaf", "plain") else leaf * 2
        passed.append(double.flip([0]).view((2, 2)).view((4,)) if kind == "view" else double)
    return passed, leaves


def world(program: Hooked, *, compiled: bool, calls: int = 2) -> list[Any]:
    """The picture after each call and its backward; raises UnsupportedError for a refusal."""
    outside = Outside()
    function = function_of(program, outside)
    called = al.compile(function, backend="reference") if compiled else function
    found: list[Any] = []
    passed, leaves = arguments(program)
    for number in range(calls):
        if number % 2:  # of the same leaves: hooks on them add up
            passed = [x if x is leaf else leaf * 2 for x, leaf in zip(passed, leaves, strict=True)]
        try:
            results = called(*passed)
        except al.AutogradError:  # a capture that raises has written nothing
            return [*found, "raises"]
        try:
            outcome = _backward(program, results, leaves)
        except (al.AutogradError, ValueError) as error:  # which leaves got theirs is not told
            return [*found, type(error).__name__]
        every = [*passed, *leaves, *results]
        found.append((outcome, [_picture(each) for each in every]))
        found.append(sorted([_logged(each) for each in outside.log]))
    return found


def _backward(program: Hooked, results: list[Any], leaves: list[Any]) -> Any:
    way = program.way
    own = [r for r in {id(r): r for r in results}.values() if r.requires_grad]
    if way == "some":
        own = own[:1]
    if not own:
        return "nothing"
    loss = sum((r * (2 + k)).sum() for k, r in enumerate(own))
    if way == "grad":
        ends = [leaf for leaf in leaves if leaf.requires_grad]
        moves = "view" in str(program) or "closed" in str(program)  # hooks that stay inside
        if len(results) == 1 and not moves:
            ends += own
        return [_shown(g) for g in al.autograd.grad(loss, ends, allow_unused=True)]
    loss.backward(retain_graph=way == "twice")
    if way == "twice":
        loss.backward()
    return "done"


def _picture(tensor: Any) -> Any:
    grad = tensor.grad
    return tensor.tolist(), tensor.requires_grad, tensor.is_leaf, tensor.retains_grad, _shown(grad)


def _logged(thing: Any) -> str:
    return repr(tuple(map(_shown, thing)) if type(thing) is tuple else _shown(thing))


def _shown(thing: Any) -> Any:
    """Sums may be formed in another order."""
    if isinstance(thing, al.Tensor):
        return [float(f"{each:.12g}") for each in thing.tolist()]
    return float(f"{thing:.12g}") if type(thing) is float else thing


def leaf(*values: float) -> Any:
    """A leaf that requires grad."""
    return al.tensor(list(values), requires_grad=True)


def both(function: Call, story: Callable[[Call], Any], backend: str = "reference") -> Any:
    """Checks that a story of a function is the same compiled; the compiled one."""
    compiled = al.compile(function, backend=backend)
    its, mine = story(function), story(compiled)
    assert its == mine
    assert its  # a story of nothing would always be the same
    return compiled
