"""`GradientEdge`: an edge of the tape, which keeps a history alive without the tensor (TEN-44)."""

from __future__ import annotations

from typing import Any, NamedTuple

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import here
from aotlite.ir.errors import AutogradError


class GradientEdge(NamedTuple):
    """Result `output_nr` of a tape node. `autograd.grad` accepts it instead of a tensor."""

    node: TapeNode
    output_nr: int


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The gradient edge of a tensor; that of a leaf leads to its `AccumulateGrad` node.

    >>> import aotlite as al
    >>> x = al.ones(2, requires_grad=True)
    >>> get_gradient_edge(x).node.variable is x
    True
    """
    edge = edge_of(here(tensor))
    if edge is None:
        raise AutogradError(
            "get_gradient_edge: the tensor does not require grad, expected one that does"
        )
    return GradientEdge(*edge)
