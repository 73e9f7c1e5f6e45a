"""Random functions that use the `.grad` of leaves and go backward inside, called again and again.

Between the calls somebody else puts other tensors there: none, new ones, one for two leaves, views
of one memory. What eager and compiled sessions show is compared in `test_dbl_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

import aotlite as al

Numbers = tuple[int, int, int]
Step = tuple[str, Numbers]
"""An action, and the numbers of three operands."""


def of(values: list[Any], number: int) -> Any:
    return values[number % len(values)]


class Run:
    """One call of a session's function."""

    def __init__(self, leaves: list[Any], x: Any) -> None:
        self.leaves = leaves
        self.values = [x]

    def with_history(self, number: int) -> Any:
        """A value of the function's own, or None."""
        found = [value for value in self.values if value.requires_grad and not value.is_leaf]
        return of(found, number) if found else None

    def do(self, step: Step) -> None:
        name, (a, b, c) = step
        _STEPS[name](self, of(self.leaves, a), b, c)

    def compute(self, leaf: Any, b: int, c: int) -> None:
        other = of([*self.values, *self.leaves], b)
        ways: tuple[Callable[[], Any], ...] = (
            lambda: (leaf * other).sin(),
            lambda: leaf * leaf + other,
            lambda: leaf.t() - other,
            lambda: leaf[0] * other.sum(),
        )
        self.values.append(of(list(ways), c)())

    def backward(self, leaf: Any, b: int, c: int) -> None:
        value = self.with_history(b)
        if value is not None:
            value.sum().backward(retain_graph=True, create_graph=c % 5 == 0)

    def ask(self, leaf: Any, b: int, c: int) -> None:
        value = self.with_history(b)
        if value is not None and leaf.requires_grad:
            keeps: Any = {"retain_graph": True, "create_graph": bool(c % 2), "allow_unused": True}
            found = al.autograd.grad(value.sum(), [leaf], **keeps)
            self.values += [each for each in found if each is not None]

    def read(self, leaf: Any, b: int, c: int) -> None:
        if leaf.grad is not None:
            self.values.append((leaf.grad, leaf.grad * 2, leaf.grad[0])[b % 3])

    def look(self, leaf: Any, b: int, c: int) -> None:
        self.values.append(self.values[0] + (1 if leaf.grad is None else 2))

    def write(self, leaf: Any, b: int, c: int) -> None:
        if leaf.grad is not None:
            with al.no_grad():
                leaf.grad.mul_(0.5) if b % 2 else leaf.grad.zero_()

    def update(self, leaf: Any, b: int, c: int) -> None:
        if leaf.grad is not None:
            with al.no_grad():
                leaf.sub_(leaf.grad * 0.25)
            self.values = [value.detach() for value in self.values]

    def clear(self, leaf: Any, b: int, c: int) -> None:
        leaf.grad = None

    def put(self, leaf: Any, b: int, c: int) -> None:
        leaf.grad = al.full((2, 2), float(b), dtype=al.float64)

    def give(self, leaf: Any, b: int, c: int) -> None:
        """One leaf's gradient to another, or to itself."""
        of(self.leaves, b).grad = leaf.grad

    def swap(self, leaf: Any, b: int, c: int) -> None:
        other = of(self.leaves, b)
        leaf.grad, other.grad = other.grad, leaf.grad

    def aside(self, leaf: Any, b: int, c: int) -> None:
        """A backward of which the gradient that was there knows nothing."""
        before, leaf.grad = leaf.grad, None
        if leaf.requires_grad:
            (leaf * leaf * b).sum().backward()
            self.values.append(leaf.grad)
        leaf.grad = before

    def own(self, leaf: Any, b: int, c: int) -> None:
        made = leaf.detach().clone().requires_grad_()
        (made * made * b).sum().backward()
        self.values.append(made.grad)


_STEPS: dict[str, Any] = {
    name: getattr(Run, name)
    for name in (
        *("compute", "backward", "ask", "read", "look", "write", "update", "clear", "put"),
        *("give", "swap", "aside", "own"),
    )
}


Arrangement = tuple[str, ...]
"""For each leaf what lies at its `.grad` before a call."""


class Between:
    """The changes of the leaves' gradients between two calls."""

    def __init__(self, leaves: list[Any]) -> None:
        self.leaves = leaves
        self.held: list[Any] = []

    def arrange(self, kinds: Arrangement, value: float) -> None:
        """Puts what is named at each; leaves with "one" share a tensor."""
        before = [leaf.grad for leaf in self.leaves]
        one = al.full((2, 2), value, dtype=al.float64)
        for number, (leaf, kind) in enumerate(zip(self.leaves, kinds, strict=False)):
            match kind:
                case "none":
                    leaf.grad = None
                case "new":
                    leaf.grad = al.full((2, 2), value + number, dtype=al.float64)
                case "one":
                    leaf.grad = one
                case "a view":
                    leaf.grad = one.t()
                case "the next leaf's":
                    leaf.grad = before[(number + 1) % len(before)]
                case "a part":
                    self.held.append(al.ones(3, 2, dtype=al.float64))
                    leaf.grad = self.held[-1][1:]
                case "held":
                    self.held += [] if leaf.grad is None else [leaf.grad]
                case "frozen" | "thawed":
                    leaf.requires_grad_(kind == "thawed")


_KINDS = ("kept", "none", "new", "new", "one", "one", "a view", "the next leaf's", "a part", "held")
"""Often new ones, and often shared."""


@attrs.frozen
class Session:
    """A function's steps, and what lies at the `.grad`s before each call."""

    leaves: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    before: tuple[Arrangement, ...]

    def function(self, leaves: list[Any], x: Any) -> list[Any]:
        run = Run(leaves, x)
        for step in self.steps:
            run.do(step)
        return [of(run.values, number) for number in self.results]

    def play(self, compile: Callable[[Any], Any]) -> list[Any]:
        """The observation after each call; a refusal or an error ends the session."""
        function = compile(self.function)
        leaves = [(al.arange(4.0).double().view(2, 2) / (3 + i) + 0.1 * i) for i in range(3)]
        leaves[2] = leaves[2].t()
        leaves = [leaf.requires_grad_() for leaf in leaves[: self.leaves]]
        x, between = al.ones(2, 2, dtype=al.float64) * 0.5, Between(leaves)
        found: list[Any] = []
        for number, kinds in enumerate(self.before):
            between.arrange(kinds, 3.0 + 4 * number)
            try:
                results = function(leaves, x)
            except (al.AutogradError, al.UnsupportedError) as error:
                return [*found, type(error).__name__]
            found.append(_seen([*results, *leaves, x, *between.held], leaves))
        return found


def _seen(tensors: list[Any], leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Facts and identities, and apart from these the numbers."""
    tensors = [*tensors, *(leaf.grad for leaf in leaves if leaf.grad is not None)]
    facts = [(t.stride(), t.requires_grad, t.is_leaf, t.version) for t in tensors]
    grads = [leaf.grad for leaf in leaves]
    same = [[t is other for other in [*tensors, *leaves, *grads]] for t in tensors]
    return (facts, same, [g is None for g in grads]), [t.tolist() for t in tensors]


def alike(eager: list[Any], compiled: list[Any]) -> bool:
    """Sums of several gradients may be formed in another order: the last bits do not count."""
    if len(eager) != len(compiled):
        return False
    for one, other in zip(eager, compiled, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            return bool(one == other)
        if one[0] != other[0]:
            return False
        for a, b in zip(one[1], other[1], strict=True):
            if not np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True):
                return False
    return True


_NUMBERS = st.tuples(*[st.integers(0, 5)] * 3)


_OFTEN = ("give", "swap", "backward", "aside")
_STEP = st.tuples(st.sampled_from([*_STEPS, *_OFTEN]), _NUMBERS)
_KIND = st.sampled_from([*_KINDS, "frozen", "thawed"])

sessions = st.builds(
    Session,
    st.integers(1, 3),
    st.lists(_STEP, min_size=1, max_size=6).map(tuple),
    st.lists(st.integers(0, 9), max_size=2).map(tuple),
    st.lists(st.tuples(_KIND, _KIND, _KIND), min_size=2, max_size=5).map(tuple),
)
