"""TAN-1, TAN-2, TAN-3, TAN-7 to TAN-9: gradients that arrive in any layout, or not at all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.role import Tangent


def several(x: Any, w: Any) -> Any:
    return x * w, (x + w).t(), x.exp()


def updated(x: Any, w: Any) -> Any:
    x.mul_(w)
    return x, x.t() * 2, (w * 3).view(-1).view(3, 2)


def bases(x: Any, w: Any) -> Any:
    y = x * w
    return y.t(), y.view(-1).view(3, 2), w.sin()


def parts(x: Any, w: Any) -> Any:
    y = (x * w).t()
    return y[:2].t(), x.view(-1)[::2].view(1, 3).t(), w.t().clone()


def expanded(x: Any, w: Any) -> Any:
    return (x[:1] * 2).expand(2, 3), w[:, :1].expand(2, 3), (x * w).t()


class Dead(al.autograd.Function):
    """A result that requires grad, from which no gradient goes on."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        return x + w

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None


def dead(x: Any, w: Any) -> Any:
    return Dead.apply(x, w), Dead.apply(w, x).t(), Dead.apply(x, x)[:1]


def partly_dead(x: Any, w: Any) -> Any:
    return Dead.apply(x, w), x * w, Dead.apply(x * 2, w) * w.detach()


FUNCTIONS = (several, updated, bases, parts, expanded, dead, partly_dead)


def gapped(grad: Any) -> Any:
    room = al.zeros(*[2 * n + 1 for n in grad.shape])
    view = room[tuple(slice(1, None, 2) for _ in grad.shape)]
    return view.copy_(grad)


LAYOUTS = {
    "as it is": lambda grad: grad,
    "transposed": lambda grad: grad.t().clone().t(),
    "with gaps": gapped,
    "one element": lambda grad: al.tensor(2.0).expand(grad.shape),
    "of another dtype": lambda grad: grad.to(al.float64),
}


def gradients(function: Any, chosen: Any, layouts: Any, times: int) -> list[Any]:
    """Values of the leaves' gradients, None where there is none."""
    leaves = [al.linspace(0.5, 2, 6).view(2, 3).clone().requires_grad_() for _ in range(2)]
    results = function(*[leaf * 1 for leaf in leaves])
    for _ in range(times):
        grads = []
        for index, layout in zip(chosen, layouts, strict=False):
            shape = results[index].shape
            fresh = (al.arange(float(results[index].numel())) + index + 1).view(*shape)
            grads.append(LAYOUTS[layout](fresh))
        al.autograd.backward([results[i] for i in chosen], grads, retain_graph=True)
    return [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


@pytest.mark.draws(long=400)
@pytest.mark.rules("TAN-1", "TAN-3", "TAN-8", "TAN-9", "SAV-5")
@settings(max_examples=50)
@given(
    function=st.sampled_from(FUNCTIONS),
    chosen=st.sets(st.sampled_from((0, 1, 2)), min_size=1).map(sorted),
    then=st.sets(st.sampled_from((0, 1, 2)), min_size=1).map(sorted),
    layouts=st.lists(st.sampled_from(list(LAYOUTS)), min_size=3, max_size=3),
    times=st.sampled_from((1, 2)),
)
def test_gradients_in_any_layout_for_any_results_are_those_of_eager(
    function: Any, chosen: Any, then: Any, layouts: Any, times: Any
) -> None:
    """Whichever arrived at the calls before."""
    compiled = al.compile(function)
    for arriving in (chosen, then, (0, 1, 2), chosen):
        expected = gradients(function, arriving, layouts, times)
        found = gradients(compiled, arriving, layouts, times)
        assert [each is None for each in expected] == [each is None for each in found]
        for one, other in zip(expected, found, strict=True):
            if one is not None:
                np.testing.assert_allclose(other, one, rtol=1e-6)


@pytest.mark.rules("TAN-8", "SAV-5")
@settings(max_examples=40)
@given(
    tracked=st.booleans(),
    kinds=st.lists(st.sampled_from(("saves", "reads x", "double")), min_size=1, max_size=3),
    arriving=st.lists(st.sets(st.sampled_from((0, 1, 2)), min_size=1), min_size=1, max_size=3),
)
def test_gradients_that_end_at_a_leaf_made_inside_are_those_of_eager(
    tracked: bool, kinds: list[str], arriving: list[set[int]]
) -> None:
    """Where no input requires grad, the backward leads nowhere, and runs all the same."""

    def f(x: Any) -> Any:
        y = x.detach().clone().requires_grad_()
        made = {"saves": lambda: y.exp(), "reads x": lambda: y * x, "double": lambda: y * 2}
        return [made[kind]() for kind in kinds]

    found = []
    for run in (f, al.compile(f)):
        x = al.linspace(0.5, 2, 3).requires_grad_(tracked)
        for chosen in arriving:
            results = run(x)
            al.autograd.backward([results[i % len(kinds)].sum() for i in sorted(chosen)])
        found.append(None if x.grad is None else x.grad.tolist())
    assert found[0] == found[1]


@pytest.mark.rules("TAN-2", "TAN-1", "META-16")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_tangents_are_expected_in_the_layout_of_their_results(function):
    """In the order of the results that are differentiable; contiguous where a result overlaps."""
    compiled = al.compile(function)
    leaves = [al.ones(2, 3).requires_grad_() * 1 for _ in range(2)]
    results = compiled(*leaves)
    forward = compiled.partition.forward
    given = dict(zip(forward.output_roles, forward.outputs, strict=True))
    expected = {role: given[role].meta for role in compiled.meta.tangents}
    taken = {
        node.role.of: node.meta
        for node in compiled.partition.backward.placeholders
        if isinstance(node.role, Tangent)
    }
    assert list(expected) == list(taken)
    for role, meta in expected.items():
        overlaps = 0 in meta.stride
        assert taken[role].stride == (meta.as_contiguous().stride if overlaps else meta.stride)
    assert len(results) == 3


@pytest.mark.rules("TAN-7", "TAN-8")
def test_a_result_that_nothing_uses_sends_no_zeros():
    """Eager's gradient of what only it reaches is None, and an infinite slope stays out of it."""
    a, b = al.zeros(2).requires_grad_(), al.zeros(2).requires_grad_()
    first, second = al.compile(lambda a, b: (a.sin(), b.log()))(a, b)
    first.sum().backward()
    assert (None, [1.0, 1.0]) == (b.grad, a.grad.tolist())
    assert [float("-inf")] * 2 == second.tolist()


@pytest.mark.rules("TAN-9")
@pytest.mark.parametrize("grad", [al.ones(3), al.ones(2, 2), al.ones(2, dtype=al.complex64)])
def test_a_tangent_that_no_result_can_have_is_refused_as_by_eager(grad):
    """Before compiled code runs: nothing has collected anything."""
    raised = []
    for run in (lambda x: x * 2, al.compile(lambda x: x * 2)):
        x = al.ones(2).requires_grad_()
        try:
            run(x).backward(grad)
        except al.AotliteError as error:
            raised.append(type(error))
        else:
            raised.append(x.grad.dtype)
    assert raised[0] == raised[1]


class Shifted(al.autograd.Function):
    """The identity, whose gradient is no linear function of what arrives."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad + 1 + al.rand(2)


def _hooked(x):
    y = x * 1
    y.register_hook(lambda grad: grad + 1)
    return y * 2


@pytest.mark.rules("TAN-8", "RNG-5")
@pytest.mark.parametrize("arrived", range(1, 8))
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_users_code_that_does_not_run_adds_nothing(arrived, backend):
    """A backward or a hook that adds something adds it where a gradient arrives, and only there."""

    def function(x, y):
        return Shifted.apply(x), _hooked(y) * x, Shifted.apply(Shifted.apply(x * y)).exp()

    found = []
    compiled = al.compile(function, backend=backend)
    for run in (function, compiled, compiled):
        inputs = [al.ones(2).requires_grad_() for _ in range(2)]
        al.manual_seed(3)
        results = run(*inputs)
        sum(r.sum() for k, r in enumerate(results) if arrived >> k & 1).backward()
        grads = [each.grad for each in inputs]
        rounded = [g is not None and g.numpy().round(4).tolist() for g in grads]
        found.append((rounded, al.get_rng_state()))
    assert found[0] == found[1] == found[2]


@pytest.mark.draws(long=240)
@pytest.mark.rules("TAN-8")
@settings(max_examples=40)
@given(
    sums=st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=4),
    arriving=st.lists(st.integers(1, 15), min_size=1, max_size=3),
    backend=st.sampled_from(("reference", "loops")),
)
@example(sums=[{0}, {0, 1}], arriving=[2], backend="reference")
@example(sums=[{0}, {0, 1}], arriving=[2], backend="loops")
def test_gradients_that_are_one_value_are_accumulated_apart(
    sums: list[set[int]], arriving: list[int], backend: str
) -> None:
    """Without some of the gradients, what is left of a sum is the gradient of another input, too:
    each leaf's `.grad` is memory of its own, or a second backward adds to it twice.
    """

    def f(*leaves: Any) -> Any:
        return tuple([sum(leaves[k] for k in each) * 2 for each in sums])

    found = []
    for run in (f, al.compile(f, backend=backend)):
        leaves = [al.ones(2).requires_grad_() for _ in range(3)]
        results = run(*leaves)
        for bits in arriving:
            chosen = [each for k, each in enumerate(results) if bits >> k & 1]
            if chosen:
                loss = sum(chosen).sum()
                loss.backward(retain_graph=True)
                loss.backward(retain_graph=True)
        grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
        for number, grad in enumerate(grads):
            grad.mul_(number + 2)
        found.append([grad.tolist() for grad in grads])
    assert found[0] == found[1]
