"""The history of multi-output views: one tape node, which joins the gradients of the parts."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import aotlite as al
from aotlite.ir.graph.role import Output, Primal
from aotlite.stages.s10_runtime.backward.undefined_tangents import without_tangents
from aotlite.testing import assert_same_effects

WAYS = {
    "split": lambda x, dim: x.split(2, dim),
    "sizes": lambda x, dim: x.split([1, 0, x.shape[dim] - 1], dim),
    "chunk": lambda x, dim: x.chunk(2, dim),
    "unbind": lambda x, dim: x.unbind(dim),
    "whole": lambda x, dim: x.split(x.shape[dim], dim),
}
SHAPES = [(3,), (5, 2), (2, 3, 4)]


@st.composite
def uses(draw):
    """(way, shape, dim, which parts are used how often)."""
    way, shape = draw(st.sampled_from(list(WAYS))), draw(st.sampled_from(SHAPES))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    count = len(WAYS[way](al.ones(shape), dim))
    times = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return way, shape, dim, times if any(times) else [1] * count


def numbers(shape, seed=0):
    """Numbers, zeros of both signs among them."""
    found = np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)
    return np.where(
        found == 0, np.copysign(0.0, np.cos(np.arange(found.size))).reshape(shape), found
    )


def of_uses(way, dim, times):
    """A function of x and one factor for each use: the parts, each times its factor."""

    def function(x, *factors):
        rest = iter(factors)
        parts = WAYS[way](x, dim)
        return [part * next(rest) for part, n in zip(parts, times, strict=True) for _ in range(n)]

    return function


def gradient(function, x, factors, chosen):
    """The bytes and layout of the gradient of x for ones at the chosen results."""
    leaf = al.tensor(x).requires_grad_()
    results = function(leaf, *map(al.tensor, factors))
    found = al.autograd.grad(
        [results[i] for i in chosen],
        leaf,
        [al.ones(results[i].shape, dtype=al.float64) for i in chosen],
    )[0]
    return found.numpy().tobytes(), found.stride()


def joined(way, shape, dim, times, factors, chosen):
    """The gradient by NumPy: each part the sum of its uses' factors, zeros where there is none."""
    whole = al.zeros(*shape, dtype=al.float64)
    place = 0
    for part, n in zip(WAYS[way](whole, dim), times, strict=True):
        used = [factors[place + i] for i in range(n) if place + i in chosen]
        place += n
        if used:  # eager adds up the last use first
            total = used[-1]
            for factor in reversed(used[:-1]):
                total = total + factor
            part.numpy()[...] = total
    return whole.numpy().tobytes(), whole.stride()


def drawn(way, shape, dim, times):
    parts = WAYS[way](al.ones(shape), dim)
    shapes = [part.shape for part, n in zip(parts, times, strict=True) for _ in range(n)]
    return numbers(shape), [numbers(each, seed) for seed, each in enumerate(shapes, 1)]


@settings(max_examples=30)
@given(uses(), st.data())
@example(("split", (5, 2), 0, [1, 0, 1]), None)
@example(("unbind", (5, 2), 0, [0, 0, 1, 0, 0]), None)
def test_the_gradient_of_parts_is_theirs_joined_bit_by_bit(use, data):
    """Zeros keep their signs: no zeros are added to a part (as in PyTorch)."""
    way, shape, dim, times = use
    x, factors = drawn(way, shape, dim, times)
    every = range(len(factors))
    chosen = (
        list(every)
        if data is None
        else sorted(data.draw(st.sets(st.sampled_from(every), min_size=1)))
    )
    expected = joined(way, shape, dim, times, factors, chosen)
    function = of_uses(way, dim, times)
    assert expected == gradient(function, x, factors, chosen)
    for partition in ("default", "min_cut"):
        compiled = al.compile(function, partition=partition, verify=True)
        assert expected == gradient(compiled, x, factors, chosen)
        assert expected == gradient(compiled, x, factors, chosen)


@settings(max_examples=30)
@given(uses())
def test_second_derivatives_through_parts_are_eagers(use):
    way, shape, dim, times = use
    x, factors = drawn(way, shape, dim, times)

    def cubes(function):
        leaf = al.tensor(x).requires_grad_()
        total = sum((each * each * each).sum() for each in function(leaf, *map(al.tensor, factors)))
        (first,) = al.autograd.grad(total, leaf, create_graph=True)
        (first * first).sum().backward()
        return first.tolist(), leaf.grad.tolist()

    function = of_uses(way, dim, times)
    assert cubes(function) == cubes(al.compile(function))


@pytest.mark.parametrize("layout", ["parts in columns", "the whole in columns"])
def test_the_gradient_of_parts_is_in_rows(layout):
    """Whatever the layouts of the parts' gradients, and whichever arrive."""
    x = al.ones(4, 3)
    x = x.t().clone().t() if layout == "the whole in columns" else x
    x.requires_grad_()
    parts = x.split(2)
    given = [al.ones(3, 2).t(), al.ones(3, 2).t()]
    (found,) = al.autograd.grad(parts, x, given, retain_graph=True)
    assert (3, 1) == found.stride()
    assert (3, 1) == al.autograd.grad(parts[0], x, given[0])[0].stride()


@pytest.mark.parametrize(
    ("way", "name"), [("split", "Split"), ("sizes", "SplitWithSizes"), ("unbind", "Unbind")]
)
def test_parts_have_one_tape_node(way, name):
    first, *_, last = WAYS[way](al.ones(5, 2).requires_grad_(), 0)
    assert first.grad_fn is last.grad_fn
    assert f"{name}Backward" == first.grad_fn.name()


def hooked(x):
    first, _, last = x.split(2)
    first.register_hook(lambda grad: grad * 2)
    return (first * 3).sum() + (last * last).sum(), last


@pytest.mark.parametrize("is_compiled", [False, True])
def test_hooks_and_retained_gradients_are_those_of_each_part(is_compiled):
    x = al.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).requires_grad_()
    total, last = (al.compile(hooked) if is_compiled else hooked)(x)
    last.retain_grad()
    if is_compiled:  # `last` is a view that the call has made, with a history beside the total's
        (total + last.sum() * 0).backward()
        assert [0.0] == last.grad.tolist()
    else:
        total.backward()
        assert [10.0] == last.grad.tolist()
    assert [6.0, 6.0, 0.0, 0.0, 10.0] == x.grad.tolist()


def test_a_gradient_for_a_part_ends_there():
    x = al.ones(4).requires_grad_()
    first, last = x.split(2)
    (found,) = al.autograd.grad((first * 3).sum() + (last * 5).sum(), last)
    assert [5.0, 5.0] == found.tolist()


def test_a_hook_that_returns_no_gradients_leaves_none():
    x = al.ones(4).requires_grad_()
    first, _ = x.split(2)
    first.grad_fn.register_prehook(lambda grads: (None, None))
    first.sum().backward()
    assert x.grad is None


def test_the_backward_of_a_split_is_one_cat():
    compiled = al.compile(lambda x: [part.sin() for part in x.split(2)], backend="reference")
    compiled(al.ones(6).requires_grad_())
    assert ["cos", "mul"] * 3 + ["cat"] == [n.target.name for n in compiled.backward_graph.calls]
    compiled = al.compile(
        lambda x: sum(part.sin().sum() for part in x.unbind()), backend="reference"
    )
    compiled(al.ones(3).requires_grad_())
    assert ["cos", "mul"] * 3 + ["stack"] == [n.target.name for n in compiled.backward_graph.calls]


@pytest.mark.rules("TAN-8")
def test_absent_parts_are_one_tensor_of_zeros():
    compiled = al.compile(lambda x: [part.sin() for part in x.unbind()], backend="reference")
    compiled(al.ones(9).requires_grad_())
    absent = frozenset(map(Output, range(9))) - {Output(2), Output(5)}
    graph = without_tangents(compiled.backward_graph, absent, {Primal(0)})
    names = ["cos", "mul", "cos", "mul", "full", "stack"]
    assert names == [node.target.name for node in graph.calls]


@pytest.mark.rules("RT-6")
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("source", ["argument", "intermediate", "view"])
def test_results_that_are_parts_have_eagers_tape_node(way, source):
    """One node for all results of one call, another for those of a second call."""

    def function(x):
        x = {"argument": x, "intermediate": x * 2, "view": x.t()}[source]
        first, second = WAYS[way](x, 0), WAYS[way](x, 0)
        return first[0], first[-1], second[0], first[0].unsqueeze(0)

    def names(results):
        nodes = [each.grad_fn for each in results]
        return [node.name() for node in nodes], [[a is b for a in nodes] for b in nodes]

    leaf = al.ones(4, 3).requires_grad_()
    assert names(function(leaf)) == names(al.compile(function)(leaf))


@pytest.mark.rules("TEN-21")
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_parts_whose_gradient_goes_nowhere_have_their_views_name(way, is_compiled):
    def function(x):
        with al.no_grad():
            quiet = x.view(4, 3)
        return WAYS[way](quiet, 0)[0], WAYS[way](x.view(4, 3), 0)[0]

    quiet, usual = (al.compile(function) if is_compiled else function)(al.ones(12).requires_grad_())
    assert quiet.grad_fn.name() == usual.grad_fn.name()
    assert quiet.grad_fn.next_functions == ((None, 0),)
    assert usual.grad_fn.next_functions[0][0] is not None


@pytest.mark.rules("RT-6", "FUN-18")
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("put", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("first", [False, True])
def test_parts_of_an_argument_have_it_for_a_base_whatever_it_is_put_onto(way, put, first):
    """A part that the argument is put onto is made of other memory than the results are."""

    def function(x):
        if first:
            x.set_(x)
        parts = WAYS[way](x, 0)
        for index in put:
            x.set_(parts[index])
        return parts[0], parts[1]

    assert_same_effects(function, al.compile(function), lambda: al.arange(12.0).view(4, 3))
