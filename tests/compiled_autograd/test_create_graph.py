"""CAG-16: a backward with `create_graph=True` is one compiled function with derivatives."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Aotlite, Program, execute

pytestmark = pytest.mark.rules("CAG-16")


def second_order(program: Program, tapes: Any) -> Any:
    """The gradients of a program, and those of their squares; or the error."""
    setup: list[Any] = []
    execute(Aotlite(), program.setup, setup)
    values = [setup[i] for i in program.inputs]
    execute(Aotlite(), program.body, values)
    tensors = [v for v in (*setup, *values) if isinstance(v, al.Tensor) and v.requires_grad]
    ends = list({id(t): t for t in tensors if t.is_leaf}.values())
    results: Any = [values[i] for i in program.outputs]
    results = [r for r in results if isinstance(r, al.Tensor) and r.requires_grad]
    with nullcontext() if tapes is None else enable(tapes):
        try:
            given_grads = [al.ones(r.shape, dtype=r.dtype) for r in results]
            first: Any = al.autograd.grad(
                results, ends, given_grads, create_graph=True, allow_unused=True
            )
            pairs = [(g is not None and g.requires_grad) for g in first]
            squares = [(g * g).sum() for g in first if g is not None and g.requires_grad]
            second: Any = []
            if squares:
                second = al.autograd.grad(squares, ends, allow_unused=True)
            return pairs, [None if g is None else g.tolist() for g in (*first, *second)]
        except Exception as error:
            return type(error), str(error)


REFERENCE = CompiledAutograd.of("reference")


@pytest.mark.draws(long=2000)
@settings(max_examples=40, deadline=None)
@given(programs())
def test_second_orders_are_those_of_the_engine(program: Program) -> None:
    """∀ programs with views and writes. Sums may be in another order in a compiled function."""
    try:
        expected = second_order(program, None)
    except (al.AotliteError, TypeError, ValueError):
        return
    for _ in range(2):
        found = second_order(program, REFERENCE)
        assert expected[0] == found[0]
        if isinstance(expected[1], str):
            assert expected == found
            continue
        for mine, its in zip(found[1], expected[1], strict=True):
            assert (mine is None) == (its is None)
            if mine is not None:
                np.testing.assert_allclose(mine, its, rtol=1e-5, equal_nan=True)


def numbers(*values: float) -> Any:
    return al.tensor(values, requires_grad=True)


def test_three_orders_and_accumulation() -> None:
    def program() -> Any:
        x, w = numbers(1.0, 2.0), numbers(0.5, 0.25)
        y = ((x * w).exp() * x).sum()
        first: Any = al.autograd.grad(y, [x, w], create_graph=True)
        second: Any = al.autograd.grad((first[0] * first[1]).sum(), [x, w], create_graph=True)
        third: Any = al.autograd.grad(second[0].sum(), [x, w])
        (x * x * w).sum().backward(create_graph=True)
        (x.grad * x.grad).sum().backward()
        return [g.tolist() for g in (*first, *second, *third, x.grad, w.grad)]

    expected = program()
    tapes = CompiledAutograd.of("reference")
    for _ in range(2):
        with enable(tapes):
            np.testing.assert_allclose(program(), expected, rtol=1e-5)
    assert tapes.counters.whole == 4
    (reason,) = tapes.fallbacks
    assert reason == "create_graph=True: no formula of CompiledBackward is recorded"


def test_a_compiler_sees_the_tape_and_its_derivative() -> None:
    seen: list[str] = []

    def compiler(graph: Any) -> Any:
        seen.append(graph.name)
        return graph

    x = numbers(1.0, 2.0)
    with enable(compiler):
        (first,) = al.autograd.grad(x.exp().sum(), x, create_graph=True)
        with disable():
            (second,) = al.autograd.grad(first.sum(), x)  # type: ignore[union-attr]
    assert seen == ["tape_forward", "tape_backward"]
    assert second is not None and second.tolist() == x.exp().tolist()


def test_hooks_leave_it_to_the_engine() -> None:
    x, log = numbers(1.0, 2.0), []
    x.register_hook(lambda g: log.append(g.tolist()))
    tapes = CompiledAutograd.of("reference", hooks="call")
    with enable(tapes):
        (x * x * x).sum().backward(create_graph=True)
        (x.grad * 1).sum().backward()
    assert log == [[3.0, 12.0], [6.0, 12.0]]
    assert dict(tapes.fallbacks) == {"create_graph=True: the tape has hooks": 1}


def test_a_written_saved_value_is_the_error_of_the_engine() -> None:
    x = numbers(1.0, 2.0)
    y = x.exp()
    z = (y * y).sum()
    y.detach().add_(1)
    with enable("reference"), pytest.raises(al.AutogradError, match="MulBackward: a saved tensor"):
        al.autograd.grad(z, x, create_graph=True)
