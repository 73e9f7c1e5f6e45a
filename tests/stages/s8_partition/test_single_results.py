"""Of an op with several results the single results are saved (PART-11)."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.autograd import Function


class _Sorted(Function):
    """Sorted numbers; the backward sorts again, for the places."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sort(0)[0] * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad.gather(0, x.sort(0)[1].sort(0)[1])


@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_a_result_that_only_the_backward_asks_for_is_saved(partition: str) -> None:
    """The two sorts are merged, and of the forward's the backward wants what that did not take."""
    x: Any = al.tensor([3.0, 1.0, 2.0]).requires_grad_()
    compiled = al.compile(_Sorted.apply, backend="reference", partition=partition)
    compiled(x).backward(al.tensor([10.0, 20.0, 30.0]))
    assert [30.0, 10.0, 20.0] == x.grad.tolist()
    calls = [node.target.name for node in compiled.forward_graph.calls]
    assert 1 == calls.count("sort") - (partition == "min_cut")
