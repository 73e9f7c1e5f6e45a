"""Tape nodes keep what their gradient formulas read, and nothing else."""

from __future__ import annotations

import weakref
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.eager.autograd.differentiable_views import view_node
from aotlite.eager.base.tape.view_chain import ViewStep
from aotlite.ir.errors import GraphError
from aotlite.ir.op import OPS, Formula, Source, Vjp


def tensors_kept(node: Any) -> list[Any]:
    return [saved.tensor for saved in node.kept_tensors()]


@pytest.fixture
def x() -> Any:
    return al.ones(2, 2, requires_grad=True)


def test_an_operand_that_no_formula_reads_is_let_go(x):
    y = (x * 1.0).sin()
    inner = weakref.ref(y)
    total = y + 2.0
    del y
    assert inner() is None
    assert total.grad_fn is not None


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda x, y: x * y, 2),
        (lambda x, y: x * y.detach(), 1),
        (lambda x, y: x * 3.0, 0),
        (lambda x, y: x.exp(), 1),
        (lambda x, y: x + y, 0),
        (lambda x, y: al.cat((x, y)), 0),
        (lambda x, y: x.t(), 0),
    ],
    ids=["mul", "mul by a constant", "mul by a number", "exp", "add", "cat", "t"],
)
def test_a_node_saves_what_the_asked_gradients_read(x, call, count):
    assert count == len(tensors_kept(call(x, x * 2.0).grad_fn))


def test_only_a_node_that_saved_something_is_released(x):
    added, squared = x + 1.0, x * x
    for result in (added, squared):
        result.sum().backward()
    added.grad_fn.run([al.ones(2, 2)])
    with pytest.raises(al.AutogradError, match="^MulBackward: the values saved for the backward"):
        squared.grad_fn.run([al.ones(2, 2)])


def test_a_view_whose_gradient_reads_values_is_refused():
    """Its history is remade from geometry alone when its base was written."""
    op = OPS["t"]
    reads_values = Formula(lambda grad, self: grad, ((Source.GRAD, 0), (Source.OPERAND, 0)))
    wrong = attrs.evolve(op, vjp=Vjp({0: reads_values}))
    meta = al.ones(2, 2).meta
    node = (al.ones(2, 2, requires_grad=True) * 1.0).grad_fn
    with pytest.raises(GraphError, match=r"^t: its gradient reads the operand's values, expected"):
        view_node(ViewStep(wrong, (), meta, meta), (node, 0))
