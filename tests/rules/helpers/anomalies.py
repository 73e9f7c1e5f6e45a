"""Random functions whose backwards compute nan, and the errors of anomaly mode."""

from __future__ import annotations

import itertools
import linecache
import random
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al

Call = Callable[..., Any]

_FILES = itertools.count()
SPECIAL = [0.0, 0.0, 1.0, -1.0, 2.0, float("inf"), -2.0, 0.5]

ONE = [
    "{a}.sqrt()", "{a}.log()", "{a} * 0", "{a}.exp()", "{a}.abs()", "{a} / 2", "{a}.relu()",
    "{a}.reciprocal()", "{a} ** 2", "{a} ** 0.5", "{a}.clone()", "{a}.t()", "{a}.detach()",
    "{a}.sigmoid()", "{a}.log1p()", "{a}.sum(0, keepdim=True).expand(2, 2)", "{a}.contiguous()",
    "{a}.view(4).view(2, 2)", "{a}[0].expand(2, 2)", "-{a}", "{a}.softmax(1)", "{a}.amax(0) + {a}",
    "{a}.tanh()", "al.where({a} > 0, {a}.sqrt(), {a})", "{a}.norm() * {a}", "{a}.mean() + {a}",
]  # fmt: skip
TWO = [
    "{a} * {b}", "{a} / {b}", "{a} + {b}", "{a} - {b}", "{a} @ {b}", "al.maximum({a}, {b})",
    "al.where({a} > {b}, {a}, {b})", "al.stack([{a}, {b}]).sum(0)", "al.hypot({a}, {b})",
    "al.atan2({a}, {b})", "al.cat([{a}, {b}])[1:3]", "{a}.lerp({b}, 0.5)",
]  # fmt: skip
WRITES = ["{a}.mul_({b})", "{a}[0].sqrt_()", "{a}.add_(1)", "{a}[:, 0].copy_({b}[0])"]


def source(rng: random.Random, *, writes: bool = True) -> str:
    """A function `f(x, w)` of matrices of two rows, a line for each op."""
    names = ["x", "w"]
    lines = []
    for k in range(rng.randint(2, 7)):
        a, b = rng.choice(names), rng.choice(names[-3:])
        kind = rng.random()
        inner = [name for name in names if name not in "xw"]
        if kind < 0.15 and inner and writes:
            lines.append(rng.choice(WRITES).format(a=rng.choice(inner), b=b))
            continue
        text = rng.choice(ONE if kind < 0.6 else TWO).format(a=a, b=b)
        names.append(f"v{k}")
        lines.append(f"v{k} = {text}")
    last = names[-1]
    results = rng.choice([last, f"({last}).sum()", f"{last}, {rng.choice(names[2:] or ['x'])} * 1"])
    lines.append(f"return {results}")
    return "def f(x, w):\n" + "".join(f"    {line}\n" for line in lines)


def function_of(text: str) -> Call:
    """The function of a text, whose lines tracebacks know."""
    file = f"<anomaly {next(_FILES)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"al": al}
    exec(compile(text, file, "exec"), scope)
    function: Call = scope["f"]
    return function


def leaves(rng: random.Random) -> tuple[Any, ...]:
    """Two matrices that require grad, of numbers at which derivatives are at an end."""
    made = [[rng.choice(SPECIAL) for _ in range(4)] for _ in range(2)]
    return tuple(
        al.tensor(each, dtype=al.float64).view(2, 2).detach().requires_grad_() for each in made
    )


def said(error: Exception) -> tuple[str, str, list[str]]:
    """The error's type, text and notes."""
    return type(error).__name__, str(error), list(getattr(error, "__notes__", ()))


def outcome(function: Call, args: tuple[Any, ...], after: Call) -> Any:
    """The outcome of a call and its backward: gradients, or the error."""
    try:
        results = function(*args)
    except al.AotliteError as error:  # not of the backward: notes of a capture are others
        return type(error).__name__, str(error), []
    return outcome_of(results, args, after)


def outcome_of(results: Any, args: tuple[Any, ...], after: Call) -> Any:
    """The outcome of a backward from these results: gradients, or the error."""
    every = results if isinstance(results, tuple) else (results,)
    roots = [each for each in every if each.requires_grad]
    try:
        found = after(roots, args) if roots else []
    except al.AotliteError as error:
        traceback.clear_frames(error.__traceback__)
        return said(error)
    return [None if grad is None else _shown(grad) for grad in found]


def _shown(grad: Any) -> Any:
    return repr(np.asarray(grad.detach().numpy()).round(9).tolist())


def by_backward(roots: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """The `.grad` of the leaves."""
    al.autograd.backward(roots, [al.ones_like(each) for each in roots])
    return [each.grad for each in args]


def by_grad(roots: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """The gradient of one leaf: what leads to the other alone is not run."""
    ones = [al.ones_like(each) for each in roots]
    return list(al.autograd.grad(roots, args[:1], ones, allow_unused=True))


def by_one_result(roots: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """A gradient that arrives for one of the results."""
    return by_backward(roots[-1:], args)


def by_second_order(roots: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """Gradients of gradients."""
    ones = [al.ones_like(each) for each in roots]
    found = al.autograd.grad(roots, args, ones, create_graph=True, allow_unused=True)
    again = [each for each in found if each is not None and each.requires_grad]
    if not again:
        return list(found)
    ones = [al.ones_like(each) for each in again]
    return list(al.autograd.grad(again, args, ones, allow_unused=True))


WAYS: list[Call] = [by_backward, by_grad, by_one_result, by_second_order]
