"""`is_linear` against what is computed: scaled and added gradients (DBL-1)."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.stages.s7_simplify.linearity import is_linear

MASK = al.tensor([[True, False, True], [False, True, True]])
MATRIX = al.tensor([[1.0, 2.0, 0.0], [0.5, 1.0, 3.0], [2.0, 0.0, 1.0]])

LINEAR = {
    "scaled": lambda grad: grad * 2.0,
    "negated and divided": lambda grad: -grad / 3.0,
    "chosen": lambda grad: al.where(MASK, grad, 0.0),
    "summed": lambda grad: grad.sum(0, keepdim=True).expand(2, 3),
    "turned": lambda grad: grad.t().reshape(2, 3),
    "times a matrix": lambda grad: grad @ MATRIX,
    "put into zeros": lambda grad: al.zeros(2, 3).index_add(0, al.tensor([1, 0]), grad),
    "a part": lambda grad: grad[:1].expand(2, 3),
    "added to itself": lambda grad: grad + grad.flip(0),
    "joined with zeros": lambda grad: al.cat([grad[:1], al.zeros(1, 3).clone()]),
    "chosen beside zeros": lambda grad: al.where(MASK, grad, al.zeros(2, 3) * MATRIX[:2]),
    "reduced over ranks": lambda grad: al.all_reduce([grad, grad * 2.0])[1],
    "gathered": lambda grad: al.all_gather([grad[:1], al.zeros(1, 3)], 0)[0],
    "nothing": lambda grad: None,
}
OTHER = {
    "squared": lambda grad: grad * grad,
    "clamped": lambda grad: grad.clamp(-1.0, 1.0),
    "moved": lambda grad: grad + 1.0,
    "its size": lambda grad: grad.abs(),
    "divided by its sum": lambda grad: grad / grad.sum(),
    "a divisor": lambda grad: 1.0 / grad,
    "chosen by itself": lambda grad: al.where(grad > 0.0, grad, 0.0),
    "the greatest": lambda grad: grad.amax(0, keepdim=True).expand(2, 3),
    "sorted": lambda grad: grad.sort(0)[0],
    "put into ones": lambda grad: al.ones(2, 3).index_add(0, al.tensor([1, 0]), grad),
    "joined with ones": lambda grad: al.cat([grad[:1], al.ones(1, 3)]),
    "the greatest of ranks": lambda grad: al.all_reduce([grad, grad * 2.0], "max")[0],
    "gathered with ones": lambda grad: al.all_gather([grad[:1], al.ones(1, 3)], 0)[0],
    "times itself": lambda grad: grad @ grad.t() @ al.ones(2, 3),
}


def joint_of(hook: Any) -> Any:
    def function(x: Any) -> Any:
        y = x.exp()
        y.register_hook(hook)
        return y * 2.0

    return al.inspect.stages_of(function, al.ones(2, 3).requires_grad_())["simplify"]


@pytest.mark.rules("DBL-1")
@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_is_seen(name: str) -> None:
    assert is_linear(joint_of(LINEAR[name]))


@pytest.mark.rules("DBL-1")
@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_linear_is_seen(name: str) -> None:
    assert not is_linear(joint_of(OTHER[name]))
