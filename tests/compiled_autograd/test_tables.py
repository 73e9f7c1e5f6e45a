"""CAG-6, CAG-7: each question that tables ask of a tape is the only one that tells some tape.

A structure is made known; then comes a tape that differs from it in one respect.
"""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from aotlite.eager.base.modes import STATE
from aotlite.subclasses import TwoTensor
from tests.compiled_autograd.test_attacks import P, Program, T, outcome

pytestmark = pytest.mark.rules("CAG-6", "CAG-7")


class Two(al.autograd.Function):
    """Two results, of any number of operands."""

    @staticmethod
    def forward(ctx: Any, *xs: Any) -> Any:
        ctx.count = len(xs)
        return xs[0] * 2, xs[-1] * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        return (first * 2 + second * 5, *[second * 3] * (ctx.count - 1))


def after(known: Program, other: Program) -> None:
    """A tape that differs from one that is known leaves what it leaves by the engine."""
    tapes = CompiledAutograd.of("reference")
    with disable():
        expected = outcome(other, 0)
    with enable(tapes):
        for number in range(3):
            known(number)
        assert tapes.counters.captures == 1
        assert tapes._recent
        assert outcome(other, 0) == expected


def test_the_number_of_a_result() -> None:
    def program(index: int) -> Any:
        x = P(1, 2)
        (Two.apply(x)[index] * 7).sum().backward()
        return x.grad

    after(lambda number: program(0), lambda number: program(1))


def test_the_number_of_edges() -> None:
    """The nodes of a user's function have one form, whatever their operands are."""

    def program(first: int, second: int) -> Any:
        x, w = P(1, 2), P(3, 4)
        parts = Two.apply(*(x, w)[:first])[0], Two.apply(*(x, w)[:second])[1]
        (parts[0] * parts[1].detach() + parts[1]).sum().backward()
        return x.grad, w.grad

    after(lambda number: program(2, 1), lambda number: program(1, 2))
    after(lambda number: program(1, 1), lambda number: program(2, 2))


def test_a_hook_of_a_leaf_that_is_called_when_its_gradient_is_there() -> None:
    def program(hooked: bool) -> Any:
        x, seen = P(1, 2), []
        if hooked:
            x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
        (x * x).sum().backward()
        return x.grad, seen

    after(lambda number: program(False), lambda number: program(True))


@pytest.mark.parametrize("times", [1, 2])
def test_a_leaf_that_was_turned(times: int) -> None:
    def program(times: int) -> Any:
        x = al.arange(6.0).view(2, 3).clone().requires_grad_()
        loss = (x * 2).sum()
        with al.no_grad():
            for _ in range(times):
                x.t_()
        loss.backward()
        return x.grad, str(x.grad.meta)

    after(lambda number: program(0), lambda number: program(times))


def test_a_gradient_that_somebody_else_has() -> None:
    """The engine adds to it before the other node reads it, and so raises."""

    def program(shared: bool) -> Any:
        x, y, w = P(1, 1), P(2, 2), T(5, 6)
        z = y * w
        x.grad = w.detach() if shared else T(1, 1)
        (z + x).sum().backward()
        return x.grad, y.grad

    after(lambda number: program(False), lambda number: program(True))


def test_the_layout_of_the_first_gradient() -> None:
    def program(gradient: Any) -> Any:
        x = al.ones(2, 2).requires_grad_()
        y = x * 1
        g: Any = al.autograd.grad(y, [x], gradient)[0]
        return str(g.meta), g

    square = T(1, 2, 3, 4).view(2, 2)
    after(lambda number: program(square), lambda number: program(square.t()))


@pytest.mark.parametrize("asked", ["yx", "xx", "x", "xy ", "x z", "xz", "xyz"])
def test_the_sinks(asked: str) -> None:
    """One that is not reached may be one that is, and the other way round."""

    def program(asked: str) -> Any:
        leaves = {"x": P(1, 2), "y": P(3, 4), "z": P(5, 6)}
        loss = (leaves["x"] * leaves["y"]).sum()
        inputs = [leaves[name] for name in asked.replace(" ", "")]
        return al.autograd.grad(loss, inputs, allow_unused=True)

    after(lambda number: program("xy" if asked != "xyz" else "xzz"), lambda number: program(asked))
    after(lambda number: program("xz"), lambda number: program("xy"))


def test_the_result_that_a_sink_is() -> None:
    def program(index: int) -> Any:
        x = P(1, 2)
        both = Two.apply(x)
        return al.autograd.grad((both[0] * both[1]).sum(), [both[index]])

    after(lambda number: program(0), lambda number: program(1))


def test_gradients_that_are_collected_or_added() -> None:
    def program(added: bool) -> Any:
        x = P(1, 2)
        loss = (x * x).sum()
        if added:
            return loss.backward(inputs=[x]), x.grad
        return al.autograd.grad(loss, [x]), x.grad

    after(lambda number: program(True), lambda number: program(False))
    after(lambda number: program(False), lambda number: program(True))


def test_a_node_of_which_nothing_is_read_that_has_run_before() -> None:
    """The gradient of the summand alone is asked for, which reads no factor."""

    def program(again: bool) -> Any:
        b, a, c = al.ones(2, 2).requires_grad_(), al.ones(2, 2).requires_grad_(), al.ones(2, 2)
        y = al.addmm(b, a, c)
        if again:
            with disable():
                y.sum().backward()
        return al.autograd.grad((y * 2).sum(), [b])

    after(lambda number: program(False), lambda number: program(True))


@pytest.mark.parametrize("typed", [False, True])
def test_wrappers(typed: bool) -> None:
    """Whether there were any when the structure became known, or not."""

    def plain(number: int) -> Any:
        x = P(1, 2)
        with patch.object(STATE, "wrappers", typed):
            (x * T(3, 4)).backward(T(1, 1))
        return x.grad

    def saved(number: int) -> Any:
        x = P(1, 2)
        (x * TwoTensor(T(3, 4), T(5, 6))).backward(TwoTensor(T(1, 1), T(2, 2)))
        return x.grad

    def leaf(number: int) -> Any:
        x = TwoTensor(P(1, 2).detach(), P(3, 4).detach(), requires_grad=True)
        (x * T(3, 4)).backward(TwoTensor(T(1, 1), T(2, 2)))
        return x.grad

    for other in (saved, leaf):
        after(plain, other)


def test_gradients_that_one_kernel_computes_are_memory_of_two_leaves() -> None:
    """One is a view of the other where both are what one op gives."""

    def program(number: int) -> Any:
        x, w, c = P(1, 2, 3, 4), al.ones(2, 2).requires_grad_(), T(5, 6, 7, 8)
        ((x.view(2, 2) + w) * c.view(2, 2)).sum().backward()
        with al.no_grad():
            x.grad.add_(1)
        return x.grad, w.grad

    after(program, program)


def test_what_was_saved_is_let_go_by_the_kernels() -> None:
    """Nobody else holds what they read, so that they can drop it when it is read no more."""
    tapes = CompiledAutograd.of("reference")
    x = P(1, 2)

    def loss() -> Any:
        return (x.exp() * T(3, 4)).sum()

    with enable(tapes):
        for _ in range(3):
            loss().backward()
    whole: Any = tapes._recent[0].whole
    compute = whole.kernels.called
    gone: list[bool] = []

    def called(values: list[Any]) -> Any:
        found = compute(list(values))
        held = [weakref.ref(value) for value in values]
        values.clear()
        gone.extend(each() is None for each in held)
        return found

    whole.kernels = SimpleNamespace(called=called)
    gc.disable()
    try:
        with enable(tapes):
            loss().backward()
    finally:
        gc.enable()
    assert True in gone


def test_hooks_that_come_while_a_structure_becomes_known() -> None:
    """CAG-6: what a hook adds to a tape is not part of what its structure was."""

    def program(adds: bool) -> Any:
        x, seen = P(1, 2), []
        y = x * 1

        def hook(grad: Any) -> None:
            if adds:
                x.register_hook(lambda grad: seen.append(grad.tolist()))

        y.register_hook(hook)
        y.sum().backward()
        return seen

    tapes = CompiledAutograd.of("reference")
    with enable(tapes):
        found = [program(adds) for adds in (False, True, True, False, True)]
    assert [[], [[1.0, 1.0]], [[1.0, 1.0]], [], [[1.0, 1.0]]] == found
    assert (tapes.counters.captures, tapes.counters.branches) == (1, 1)
