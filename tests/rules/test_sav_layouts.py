"""What is saved has the layout that the backward expects, and is checked if eager checks it."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.interpreter import Interpreter
from aotlite.ir.role import Saved


def kept(x, w):
    """Saves values of several layouts."""
    y = (x.t() * w).exp()
    return (y.sin() * y[:, :1]).sum(), y.t()


def turned(array):
    """The same numbers in column-major order."""
    return np.array(array, order="F")


def gapped(array):
    """The same numbers with others between them."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


@pytest.mark.rules("SAV-6")
@pytest.mark.parametrize("lay_out", [turned, gapped])
def test_saved_values_have_the_layout_that_the_backward_expects(lay_out):
    """Whatever layout a forward compiler chose for what it returns."""
    seen = []

    def forward(graph, inputs):
        return lambda *arrays: [lay_out(each) for each in Interpreter(graph).run(*arrays)]

    def backward(graph, inputs):
        saved = [i for i, n in enumerate(graph.placeholders) if isinstance(n.role, Saved)]
        expected = [n.meta for n in graph.placeholders]

        def run(*arrays):
            for i in saved:
                size = expected[i].dtype.itemsize
                strides = tuple(step // size for step in arrays[i].strides)
                seen.append((strides, expected[i].stride, arrays[i].shape))
            return list(Interpreter(graph).run(*arrays))

        return run

    found = []
    for function in (kept, al.aot_function(kept, forward, backward)):
        x = (al.arange(6.0).view(2, 3) / 4).requires_grad_()
        w = (al.arange(6.0).view(3, 2) / 4).requires_grad_()
        loss, y = function(x, w)
        (loss + y.sum()).backward()
        found.append((loss.item(), y.tolist(), y.stride(), x.grad.tolist(), w.grad.tolist()))
    for a, b in zip(found[0], found[1], strict=True):
        assert np.allclose(a, b, rtol=1e-6)
    assert seen
    for strides, expected, shape in seen:
        triples = zip(strides, expected, shape, strict=True)
        assert all(size < 2 or step == wanted for step, wanted, size in triples)


class Keeps(al.autograd.Function):
    """Keeps its argument as an attribute, beside what it saves."""

    @staticmethod
    def forward(ctx, x, w, saves):
        ctx.x = x
        if saves:
            ctx.save_for_backward(x)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0] if ctx.saved_tensors else ctx.x
        return None, grad * x, None


@pytest.mark.rules("SAV-3")
@pytest.mark.parametrize("compiles", [False, True])
def test_what_a_function_keeps_for_itself_is_read_as_it_then_is(compiles):
    """The gradient has the new value, and nobody complains."""
    apply = al.compile(Keeps.apply) if compiles else Keeps.apply
    for _ in range(2):
        x, w = al.ones(2), al.ones(2, requires_grad=True)
        y = apply(x, w, False)
        x.add_(1)
        y.sum().backward()
        assert [2.0, 2.0] == w.grad.tolist()


@pytest.mark.rules("SAV-3", "SAV-2")
@pytest.mark.parametrize("compiles", [False, True])
def test_what_a_function_saves_is_checked(compiles):
    apply = al.compile(Keeps.apply) if compiles else Keeps.apply
    x, w = al.ones(2), al.ones(2, requires_grad=True)
    y = apply(x, w, True)
    x.add_(1)
    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        y.sum().backward()
