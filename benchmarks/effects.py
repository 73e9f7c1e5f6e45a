"""Measures the cost of side effects: calls with an effect, and the same kernels without.

Each effect is a function that has it and a plain one that makes the same calls of NumPy and returns
the new values. The two take turns; their difference is what the run-time function adds: its guards,
the copy of eight numbers into the caller's memory, the view that is made, the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

import aotlite as al
from aotlite.subclasses import TwoTensor
from benchmarks.calls import SIZE, Action

Inputs = list[Any]


@attrs.frozen(kw_only=True)
class Effect:
    """A function with a side effect, and the plain call that it is compared with."""

    name: str
    function: Callable[..., Any]
    plain: Callable[..., Any]
    asked: float
    """The limit in microseconds above the plain call."""
    inputs: Callable[[], Inputs] = attrs.field(kw_only=True, default=lambda: _numbers(2))
    plain_inputs: Callable[[], Inputs] | None = None
    """The inputs of the plain call, if they differ."""
    before: Callable[..., Any] | None = None
    """A function that is applied to the inputs before each call of either kind."""
    differentiate: bool = False
    """Whether both calls compute the gradients of the inputs."""


PART = 1.5
"""Microseconds for a part of a wrapper that is taken out and put in again."""


def _numbers(count: int) -> Inputs:
    """Eight numbers for each input."""
    return [al.linspace(0.5, 1.5, SIZE) * (i + 1) for i in range(count)]


# ------------------------------------------------------------------------------------ the functions
def _mutating(a: Any, b: Any) -> Any:
    a.neg_()
    return a.sin() * b + 1


def _negating(a: Any, b: Any) -> Any:
    return a.neg().sin() * b + 1


def _halves() -> Inputs:
    both = al.linspace(0.5, 1.5, 2 * SIZE)
    return [both[:SIZE], both[SIZE:]]


def _plain(a: Any, b: Any) -> Any:
    return a.sin() * b + 1


def _aliasing(a: Any, b: Any) -> Any:
    return a.sin() * b + 1, a.view(4, 2)


def _with_leaf() -> Inputs:
    return [_numbers(1)[0].requires_grad_(), *_numbers(1)]


def _with_view() -> Inputs:
    (base,) = _numbers(1)
    return [base.view(SIZE), base]


def _one_value(base: Any) -> Any:
    """The computation of `_mutating` on a tensor and its view, without a write."""
    negative = base.neg()
    return negative.sin() * negative + 1


def _overlapping() -> Inputs:
    base = al.linspace(0.5, 1.5, SIZE + 4)
    return [base[:SIZE], base[4:]]


def _one_memory(base: Any) -> Any:
    """The computation of `_mutating` on overlapping views, without a write."""
    negative = base[:8].neg()
    return negative.sin() * base.slice_scatter(negative, 0, 0, 8)[4:] + 1


def _gaining(a: Any, b: Any) -> Any:
    a.copy_(b.cos())
    return a.sin() * b + 1


def _differentiable(a: Any, b: Any) -> Any:
    cosine = b.cos().clone()
    return cosine.sin() * b + 1, cosine


def _forget(a: Any, b: Any) -> None:
    """Drops the history that the last call gave `a`."""
    a.detach_()


def _several(a: Any, b: Any) -> Any:
    a.neg_()
    b.neg_()
    return a.sin() * b + 1, a.view(4, 2), b[2:]


def _negating_both(a: Any, b: Any) -> Any:
    return a.neg().sin() * b.neg() + 1


def _sine(x: Any) -> Any:
    return x.sin()


def _sines(*tensors: Any) -> Any:
    return tuple([each.sin() for each in tensors])


def _pair(grad: bool = False) -> Inputs:
    return [TwoTensor(*_numbers(2), requires_grad=grad)]


def _pair_of_pairs() -> Inputs:
    return [TwoTensor(*_pair(), *_pair())]


def _two_leaves() -> Inputs:
    return [each.requires_grad_() for each in _numbers(2)]


EFFECTS: tuple[Effect, ...] = (
    Effect(name="+ input mutation", function=_mutating, plain=_negating, asked=1.5),
    Effect(
        name="+ input mutation, inputs of one storage",
        function=_mutating,
        plain=_negating,
        asked=1.5,
        inputs=_halves,
    ),
    Effect(name="+ aliased output", function=_aliasing, plain=_plain, asked=1.5),
    Effect(
        name="+ aliased output that requires grad",
        function=_aliasing,
        plain=_plain,
        asked=1.5,
        inputs=_with_leaf,
    ),
    Effect(
        name="+ synthetic base: a tensor and its view",
        function=_mutating,
        plain=_one_value,
        asked=4,
        inputs=_with_view,
        plain_inputs=lambda: _numbers(1),
    ),
    Effect(
        name="+ synthetic base: windows that overlap",
        function=_mutating,
        plain=_one_memory,
        asked=4,
        inputs=_overlapping,
        plain_inputs=lambda: [al.linspace(0.5, 1.5, SIZE + 4)],
    ),
    Effect(
        name="+ input mutation with a gradient",
        function=_gaining,
        plain=_differentiable,
        asked=1.5,
        inputs=lambda: _with_leaf()[::-1],
        before=_forget,
    ),
    Effect(
        name="+ two mutations, two aliased outputs",
        function=_several,
        plain=_negating_both,
        asked=6,
    ),
    # A part is taken out of an argument and put into a result: 1.5 microseconds for each.
    Effect(
        name="+ wrapper of two in and out",
        function=_sine,
        plain=_sines,
        asked=2 * PART,
        inputs=_pair,
        plain_inputs=lambda: _numbers(2),
    ),
    Effect(
        name="+ wrapper of two wrappers of two in and out",
        function=_sine,
        plain=_sines,
        asked=4 * PART,
        inputs=_pair_of_pairs,
        plain_inputs=lambda: _numbers(4),
    ),
    Effect(
        name="+ wrapper of two in and out, with its gradient",
        function=_sine,
        plain=_sines,
        asked=4 * PART,
        inputs=lambda: _pair(grad=True),
        plain_inputs=_two_leaves,
        differentiate=True,
    ),
)


# -------------------------------------------------------------------------------------- the actions
def actions(effect: Effect, peers: Sequence[str]) -> dict[str, Action]:
    """The call with the effect, and the plain one."""
    plain_inputs = effect.plain_inputs or effect.inputs
    return {
        "with": _action(effect, effect.function, effect.inputs()),
        "plain": _action(effect, effect.plain, plain_inputs()),
    }


def _action(effect: Effect, function: Callable[..., Any], inputs: Inputs) -> Action:
    run, before = al.compile(function, verify=0), effect.before
    if effect.differentiate:
        return _differentiated(run, inputs)
    if before is None:
        return lambda: run(*inputs)

    def prepared() -> Any:
        before(*inputs)
        return run(*inputs)

    return prepared


def _differentiated(run: Callable[..., Any], inputs: Inputs) -> Action:
    found = run(*inputs)
    results = list(found) if isinstance(found, tuple) else [found]
    ones = [al.ones_like(each) for each in results]

    def action() -> Any:
        found = run(*inputs)
        results = list(found) if isinstance(found, tuple) else [found]
        return al.autograd.grad(results, inputs, ones)

    return action
