"""Programs of a few steps, drawn as plain data: what a short program can do to a tensor's memory,
history and hooks, each step on any value that there is, on arguments of every kind.

What `aotlite.testing` draws is broad; these are short, and have the steps that no other library
has to have: hooks, custom functions, leaves made inside, memory that grows or is left.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite import autograd
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Saved
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import Setting, observe

REFUSED = (al.UnsupportedError, al.AliasError)


class _Twice(autograd.Function):
    """x -> 2 x, with 3 for its derivative: a gradient that leaves it out is seen."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3


class _Window(autograd.Function):
    """x -> a view of x, with 5 for its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 5


def _without_grad(action: Callable[..., Any]) -> Callable[..., Any]:
    def run(*tensors: Any) -> Any:
        with al.no_grad():
            return action(*tensors)

    return run


def _hooked(a: Any) -> None:
    a.register_hook(lambda grad: grad * 7)


def _leaf(a: Any) -> Any:
    return a.detach().requires_grad_()


def _gradient(a: Any, b: Any) -> Any:
    return autograd.grad(a.sum(), b)[0]


STEPS: dict[str, tuple[Callable[..., Any], int]] = {
    "product": (lambda a: a * a, 1),
    "sum": (lambda a, b: a[:2] + b[:2], 2),
    "clone": (lambda a: a.clone(), 1),
    "part": (lambda a: a[:2], 1),
    "later part": (lambda a: a[1:], 1),
    "whole": (lambda a: a.view_as(a), 1),
    "detach": (lambda a: a.detach(), 1),
    "leaf": (_leaf, 1),
    "twice": (_Twice.apply, 1),
    "window": (_Window.apply, 1),
    "gradient": (_gradient, 2),
    "hook": (_hooked, 1),
    "write": (lambda a: a.mul_(2), 1),
    "write bytes": (_without_grad(lambda a: a.mul_(2)), 1),
    "copy": (lambda a, b: a[:2].copy_(b[:2]), 2),
    "copy all": (lambda a, b: a.copy_(b), 2),
    "detach_": (lambda a: a.detach_(), 1),
    "requires_grad_": (lambda a: a.requires_grad_(), 1),
    "grow": (_without_grad(lambda a: a.resize_(6)), 1),
    "shrink": (_without_grad(lambda a: a.resize_(2)), 1),
    "reach": (_without_grad(lambda a: a.as_strided_((2,), (1,), 1)), 1),
    "set": (_without_grad(lambda a, b: a.set_(b)), 2),
}
"""What is done, and to how many values. What gives no tensor that is new adds none."""


# ---------------------------------------------------------------------------------------- arguments
def _numbers(start: int = 1) -> Any:
    return al.arange(start, start + 4, dtype=al.float64)


def _plain() -> tuple[list[Any], list[int]]:
    return [_numbers(), _numbers(5)], [0, 1]


def _leaves() -> tuple[list[Any], list[int]]:
    return [_numbers().requires_grad_(), _numbers(5)], [0, 1]


def _made() -> tuple[list[Any], list[int]]:
    leaf, other = _numbers().requires_grad_(), _numbers(5).requires_grad_()
    return [leaf, other, leaf * 1, other * 1], [2, 3]


def _leaf_and_made() -> tuple[list[Any], list[int]]:
    leaf = _numbers().requires_grad_()
    return [leaf, leaf * 3], [0, 1]


def _view_family() -> tuple[list[Any], list[int]]:
    leaf = al.arange(6, dtype=al.float64).requires_grad_()
    base = leaf * 1
    return [leaf, base, base[:4], base[2:]], [2, 3]


def _repeating_view_family() -> tuple[list[Any], list[int]]:
    leaf = al.arange(3, dtype=al.float64).requires_grad_()
    base = (leaf * 1)[:1].expand(4)
    return [leaf, base, base[:3], base[1:]], [2, 3]


def _columns() -> tuple[list[Any], list[int]]:
    """Parts, each with one place for an element, of a base that has one for two; and a leaf."""
    base = al.arange(4, dtype=al.float64).unsqueeze(1).expand(4, 2).detach()
    return [base, base[:, 0], _numbers().requires_grad_(), base[:, 1]], [1, 2, 3]


def _parts() -> tuple[list[Any], list[int]]:
    base = al.arange(6, dtype=al.float64)
    return [base, base[:4], base[2:]], [1, 2]


def _read_only() -> tuple[list[Any], list[int]]:
    array = np.arange(4.0)
    array.flags.writeable = False
    return [al.from_numpy(array), _numbers()], [0, 1]


ARGUMENTS: dict[str, Callable[[], tuple[list[Any], list[int]]]] = {
    "plain": _plain,
    "leaves": _leaves,
    "made": _made,
    "leaf and made": _leaf_and_made,
    "view family": _view_family,
    "repeating view family": _repeating_view_family,
    "columns": _columns,
    "parts": _parts,
    "read-only": _read_only,
}
"""All values that there are, and which of them are passed."""


# ----------------------------------------------------------------------------------------- programs
@attrs.frozen
class Small:
    """`steps` are (what, operand, operand), operands among the values that there are then."""

    arguments: str
    steps: tuple[tuple[str, int, int], ...]
    results: tuple[int, ...]
    """The numbers of the results, counted from the newest value."""
    grad: bool = True
    keeps: bool = False
    """Whether writes may stay in the graph."""

    def __call__(self, *arguments: Any) -> list[Any]:
        values = list(arguments)
        for what, i, k in self.steps:
            action, count = STEPS[what]
            given = [values[place % len(values)] for place in (i, k)[:count]]
            made = action(*given)
            if made is not None and all(made is not value for value in values):
                values.append(made)
        return [values[-1 - place % len(values)] for place in self.results]

    def world(self, body: Callable[..., Any]) -> Observation:
        """The observation of a call, a backward and a write."""
        values, passed = ARGUMENTS[self.arguments]()
        write = (0, "mul_")
        return observe(
            LIBRARY, Setting(values, [values[i] for i in passed], self.grad, write), body
        )


def drawn(rng: Random) -> Small:
    """A program of a few kinds of steps, so that each comes together with each; most operands are
    the newest value or an argument.
    """
    kinds = rng.sample(list(STEPS), 5)
    steps = []
    for number in range(rng.choice((2, 3, 3, 4, 4, 5))):
        places = (0, 1, number + 1, number + 1, rng.randrange(number + 2))
        steps.append((rng.choice(kinds), rng.choice(places), rng.choice(places)))
    results = rng.choice(((0,), (0, 1), (1,), (0, 1, 2), (2, 0)))
    name = rng.choice(list(ARGUMENTS))
    return Small(name, tuple(steps), results, rng.random() < 0.8, rng.random() < 0.2)


def outcome(program: Small) -> tuple[list[str], str | None]:
    """The differences between the compiled and the eager program; or the refusal."""
    its = program.world(program)
    compiled = al.compile(program, keep_inference_input_mutations=program.keeps)
    mine = program.world(compiled)
    if isinstance(mine.error, REFUSED):
        text = str(mine.error)
        found = [] if mine.untouched else ["refused, and touched"]
        if its.error is None and not _has_reason(text, program):
            found.append(f"refused without a reason: {text}")
        return found, text
    return [*differences(mine, its), *_faults(compiled)], None


_LEAVES = {"leaves", "leaf and made", "columns"}
_REASONS: tuple[tuple[str, set[str]], ...] = (
    ("resize_|by set_|set_ puts", {"grow", "shrink", "set"}),
    ("after as_strided_", {"reach"}),
    ("a hook on|the hook|hooks", {"hook"}),
    ("what detach|made a leaf|a leaf that", {"leaf", "detach", "detach_", "requires_grad_"}),
    ("the gradient of a tensor from outside", {"gradient"}),
)
"""Text of a refusal -> the steps of which the program must have one."""


def _has_reason(text: str, program: Small) -> bool:
    steps = {what for what, _, _ in program.steps}
    if "after as_strided_" in text and program.arguments not in _LEAVES:
        return False
    return any(re.search(pattern, text) and steps & needed for pattern, needed in _REASONS)


def _faults(compiled: Any) -> list[str]:
    """The faults of the records of a compiled function: META-26, SAV-4."""
    found = []
    for entry in compiled.entries:
        found += entry.meta.differences(pickle.loads(pickle.dumps(entry.meta)))
        partition = entry.partition
        outputs = list(zip(partition.forward.output_roles, partition.forward.outputs, strict=True))
        on = Counter(storage_root(value) for _, value in outputs if isinstance(value, Node))
        alone = {
            role
            for role, value in outputs
            if isinstance(role, Saved)
            and on[storage_root(value)] == 1
            and storage_root(value).op == "call"
        }
        if alone != set(partition.donated):
            found.append(f"donated: {partition.donated}, alone in their memory: {alone}")
    return found
