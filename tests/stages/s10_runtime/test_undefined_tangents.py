"""Gradients where only some results are differentiated: TAN-8, absent is not zero."""

import math

import pytest

import aotlite as al
from aotlite.ir.graph.role import Output, Primal
from aotlite.ir.graph.verify import verify
from aotlite.stages.s10_runtime.backward.undefined_tangents import without_tangents


def gradients(function, make, chosen):
    """The None pattern and values of the leaves' gradients after a backward from some results."""
    leaves = make()
    results = function(*leaves)
    al.autograd.backward([results[i] for i in chosen], [al.ones(results[i].shape) for i in chosen])
    return [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


def leaf(*values):
    return al.tensor(list(values), requires_grad=True)


def infinite_slope(x):
    return x.log(), x * 2.0


def separate(a, b):
    return a.sin(), b.cos()


def shared(a, b):
    y = a * b
    return y.sum(), (y * a).view(-1), b + a


def written(a, b):
    y = a * 1.0
    y[:1].copy_(b[1:])
    y[1:].mul_(b[:1])
    return y.sum(), y * b, b.exp()


def pooled(a, b):
    both = al.cat([a, b]).view(1, 1, 2, 2)
    values, _ = al.ops.max_pool2d_with_indices(both, (2, 2))
    return values.view(-1), al.stack([a, b]).amax((0,)), (a @ b).view(1)


@pytest.mark.rules("TAN-8", "TAN-1")
@pytest.mark.parametrize("function", [separate, shared, written, pooled])
@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_gradients_of_any_choice_of_results_are_eagers(function, chosen):
    def make():
        return [leaf(1.0, 2.0), leaf(3.0, 5.0)]

    chosen = tuple(i for i in chosen if i < len(function(*make())))
    if chosen:
        eager = gradients(function, make, chosen)
        assert eager == gradients(al.compile(function), make, chosen)


@pytest.mark.rules("TAN-8")
def test_an_infinite_slope_that_nobody_asks_for_stays_out():
    """Zeros for the absent tangent would give 0 / 0."""
    assert [[2.0]] == gradients(al.compile(infinite_slope), lambda: [leaf(0.0)], (1,))
    assert [[math.inf]] == gradients(al.compile(infinite_slope), lambda: [leaf(0.0)], (0,))


@pytest.mark.rules("TAN-8")
def test_each_choice_is_specialized_once():
    lowered = []

    def lower(graph, backend):
        lowered.append(graph.name)
        return backend.compile(graph)

    compiled = al.compile(separate, stages={"lower": lower})
    for chosen in ((0,), (0,), (1,), (0, 1), (1,)):
        gradients(compiled, lambda: [leaf(1.0), leaf(2.0)], chosen)
    assert 4 == len(lowered)


@pytest.mark.rules("TAN-8")
def test_a_specialized_graph_is_smaller_and_verifies():
    compiled = al.compile(shared)
    compiled(leaf(1.0, 2.0), leaf(3.0, 5.0))
    backward = compiled.backward_graph
    for absent in ({Output(0)}, {Output(1)}, {Output(0), Output(2)}):
        graph = without_tangents(backward, frozenset(absent), {Primal(0), Primal(1)})
        verify(graph, functional=True)
        assert len(graph.calls) < len(backward.calls)
        assert graph.output_roles == backward.output_roles


class Nothing(al.autograd.Function):
    """Doubles its argument; its backward gives no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


TAKEN = {
    "by an index": lambda x: x.index_select(0, al.tensor([2, 0, 1])),
    "by a tensor": lambda x: x[al.tensor([0, 0])],
    "gathered": lambda x: x.gather(0, al.tensor([1, 1])),
    "one": lambda x: x[0],
    "a slice": lambda x: x[1:],
    "the largest": lambda x: x.topk(2).values,
    "a window": lambda x: x.as_strided((2,), (1,), 0),
    "windows": lambda x: x.unfold(0, 2, 1),
}


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize("name", TAKEN)
def test_what_puts_an_absent_gradient_into_zeros_gives_none(name):
    """The input is reached by another result, whose backward has nothing to give."""

    def f(x):
        return TAKEN[name](x) * 1, Nothing.apply(x)

    found = []
    for way in (f, al.compile(f, backend="reference")):
        for k in (0, 1):
            x = al.arange(3.0).requires_grad_()
            way(x)[k].sum().backward()
            found.append(None if x.grad is None else x.grad.tolist())
    assert found[:2] == found[2:]
    assert found[1] is None
