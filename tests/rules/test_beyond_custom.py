"""Custom functions whose views PyTorch mistakes, by the smallest program (META-8)."""

import pytest


def times(lib, factor):
    """A function that views its argument, with a gradient of its own."""

    class Times(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return factor * g

    return Times.apply


@pytest.mark.rules("META-8")
def test_a_view_of_a_custom_functions_view_keeps_its_backward(way):
    """PyTorch looks at the last node only, and replays plain views."""
    apply = times(way.lib, 10)
    x = way.leaf([[1.0, 2.0]])
    way.compiled(lambda x: apply(x).view(-1))(x.mul(1)).sum().backward()
    way.shows(x.grad.tolist(), [[10, 10]], pytorch=[[1, 1]])
