"""`autograd.grad` and `backward` with all their arguments, as PyTorch has them. Rule TEN-44."""

from contextlib import nullcontext

import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def test_backward_can_be_for_some_inputs_only(lib):
    """TEN-44: leaves collect, others retain their gradient; the rest is left alone."""
    x, w = leaf(lib), leaf(lib, value=3.0)
    y = x * w
    (y * 2).sum().backward(inputs=[x, y])
    assert [[6, 6], None, [2, 2]] == values(x.grad, w.grad, y.grad)
    lib.autograd.backward([(x * w).sum()], inputs=w)
    assert [[6, 6], [1, 1]] == values(x.grad, w.grad)
    unused = leaf(lib)
    (x * 2).sum().backward(inputs=[unused])
    assert unused.grad is None


@pytest.mark.parametrize("compiled", [False, True], ids=["engine", "compiled"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("way", ["grad", "backward"])
def test_hooks_that_lead_to_no_input_are_those_of_the_only_root(lib, way, asked, several, compiled):
    """TEN-44: with several roots there is a node in front of them, which leads to useful ones."""
    if compiled and lib is not al:
        return
    a, b, log = leaf(lib), leaf(lib), []
    y = a * 2
    z, v = y.sin(), b * 3
    for name, each in {"a": a, "y": y, "z": z, "v": v, "b": b}.items():
        each.register_hook(lambda grad, name=name: log.append(name))
    roots = [z, v] if several else [z]
    ones = [lib.ones(2) for _ in roots]
    with al.compiled_autograd.enable("reference") if compiled else nullcontext():
        if way == "grad":
            lib.autograd.grad(roots, [(a, b)[asked]], ones, allow_unused=True)
        else:
            lib.autograd.backward(roots, ones, inputs=[(a, b)[asked]])
    met = ["z", "y", "a"] if not asked else ["v", "b"] if several else ["z"]
    assert met == log


def test_inputs_of_a_backward_are_checked(lib):
    """TEN-44."""
    x = leaf(lib)
    with raises(lib, RuntimeError, "^backward: argument 'inputs' is empty, expected a tensor"):
        (x * 2).sum().backward(inputs=[])
    with raises(lib, RuntimeError, "^backward: input 0 .f32.2.. does not require grad, expected"):
        (x * 2).sum().backward(inputs=[lib.ones(2)])
    assert x.grad is None


def test_a_given_leaf_takes_its_gradient_over_as_in_any_backward():
    """TEN-29, TEN-44: no copy where nobody else holds it."""
    x = leaf(al)
    (x * 2).sum().backward(inputs=[x])
    buffer = x.grad.storage.buffer
    (x * 2).sum().backward(inputs=[x])
    assert (True, [[4, 4]]) == (x.grad.storage.buffer is buffer, values(x.grad))


def test_unused_inputs_are_refused_none_or_zeros(lib):
    """TEN-28, TEN-44."""
    x, unused = leaf(lib), leaf(lib, 3)
    y = (x * 2).sum()
    with raises(lib, RuntimeError, "^grad: input 1 is not used by the outputs, expected"):
        lib.autograd.grad(y, [x, unused], retain_graph=True)
    found = lib.autograd.grad(y, [x, unused], retain_graph=True, allow_unused=True)
    assert [[2, 2], None] == values(*found)
    found = lib.autograd.grad(y, [x, unused], materialize_grads=True)
    assert [[2, 2], [0, 0, 0]] == values(*found)
    with raises(lib, ValueError, "^grad: argument 'allow_unused' is False, expected True or"):
        lib.autograd.grad(y, x, allow_unused=False, materialize_grads=True)


def test_edges_stand_for_tensors(lib):
    """TEN-44: as inputs and as outputs, which then need a gradient."""
    x = leaf(lib)
    y = x * 2
    edge = lib.autograd.graph.get_gradient_edge(y)
    assert (y.grad_fn, 0) == (edge.node, edge.output_nr)
    assert [[1, 1]] == values(*lib.autograd.grad(y.sum(), edge, retain_graph=True))
    ones = lib.ones(2, dtype=lib.float64)
    del y
    assert [[2, 2]] == values(*lib.autograd.grad(edge, x, ones, retain_graph=True))
    with raises(lib, RuntimeError, "^get_gradient_edge: the tensor does not require grad"):
        lib.autograd.graph.get_gradient_edge(ones)


def test_an_edge_needs_a_gradient():
    """TEN-44: it has no shape that one could be made for."""
    edge = al.autograd.graph.get_gradient_edge(leaf(al) * 2)
    with pytest.raises(al.ArgumentError, match="^grad: the gradient of .* is None, expected a te"):
        al.autograd.grad(edge, leaf(al))


def test_only_what_leads_to_the_inputs_is_computed():
    """TEN-44: a value that only another gradient needs may have been written."""
    x, w = leaf(al) * 1, leaf(al)
    y = x * w
    x.add_(1)  # x is needed for the gradient of w alone
    x0 = y.grad_fn.next_functions[0]
    edge = al.autograd.graph.GradientEdge(*x0)
    (found,) = al.autograd.grad(y.sum(), edge, retain_graph=True)
    assert [[1, 1]] == values(found)
    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        al.autograd.grad(y.sum(), w)


def test_create_graph_goes_through_every_kind_of_node(lib):
    """TEN-17, TEN-30: writes through views and own functions alike."""

    class Cubed(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad * ctx.saved_tensors[0] ** 2

    x = leaf(lib, value=2.0)
    y = x * 1
    y[:1].mul_(x[1:])
    z = Cubed.apply(y)
    (first,) = lib.autograd.grad(z.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    # y = [x0 x1, x1], z = y^3: first = [3 x0^2 x1^3, 3 x1^2 + 3 x0^3 x1^2]
    assert [[96, 12 + 96]] == values(first)
    assert [[96 + 144, 144 + 12 + 96]] == values(second)


def test_a_hook_works_in_each_backward_that_passes(lib):
    """TEN-39: in that of the gradient, too, where it passes the tensor again."""
    x, log = leaf(lib, value=2.0), []
    y = x * x
    y.register_hook(lambda grad: log.append(grad.tolist()))
    (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    lib.autograd.grad(first.sum(), x)
    assert [[8, 8], [8, 8]] == log


def test_a_graph_is_freed_unless_it_is_retained(lib):
    """TEN-12: whichever way the backward is asked for."""
    x = leaf(lib)
    y = (x * x).sum()
    y.backward(inputs=[x], retain_graph=True)
    lib.autograd.grad(y, x)
    with raises(lib, RuntimeError, "^MulBackward: the values saved .* are freed"):
        y.backward(inputs=[x])


def _through_its_history(x, w):
    (x * x).sum().backward()
    return x * 2


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (_through_its_history, "backward\\(\\) into the .grad of a tensor from outside"),
        (lambda x, w: al.autograd.grad((x * x).sum(), w), "the gradient of a tensor from outside"),
        (
            lambda x, w: al.autograd.grad((x * x).sum(), [x, w], allow_unused=True),
            "the gradient of a tensor from outside by another, which it was computed from,",
        ),
    ],
    ids=["backward", "grad", "grad of both"],
)
def test_what_passes_the_history_of_an_argument_is_refused_in_a_capture(body, what):
    """CAP-6: it is no part of the graph, so that the gradient would be lost."""
    w = leaf(al)
    for x, end in ((w * 3, w), (w[:1], w), ((base := w * 1)[:1], base)):
        with pytest.raises(al.UnsupportedError, match=what):
            al.compile(body)(x, end)
        body(x, end)


def test_gradients_of_arguments_that_are_no_leaves_are_found_in_a_capture():
    """CAP-6 refuses none that does not leave the function."""

    def f(x, y, w):
        return al.autograd.grad((x * y * w).sum(), [x, w], create_graph=True)

    for run in (f, al.compile(f)):
        w = leaf(al)
        x, y = w * 2, w * 3
        assert [[15, 15], [6, 6]] == values(*run(x, y, leaf(al, value=5.0)))


def test_a_gradient_is_of_an_input_at_least(lib):
    x = leaf(lib)
    with raises(lib, (RuntimeError, ValueError), "^grad: argument 'inputs' is empty, expected a"):
        lib.autograd.grad((x * 2).sum(), [])


def test_a_tensor_is_not_its_own_gradient(lib):
    x = leaf(lib)
    with raises(lib, RuntimeError, "^grad: the value is the tensor itself, expected another"):
        x.grad = x
    assert x.grad is None


def test_elements_in_one_place_share_the_gradient_of_as_strided() -> None:
    """As in PyTorch: each has its part, so that what an expand adds up is right again (TEN-36)."""
    same = al.ones(1, 1).expand(4, 2).detach().requires_grad_()
    same.as_strided((1, 1), (2, 3)).neg().sum().backward()
    assert same.grad.tolist() == [[-0.125, -0.125]] * 4
    window = al.arange(4.0).as_strided((2, 2), (1, 1)).detach().requires_grad_()
    (window.as_strided((3,), (1,)) * al.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert window.grad.tolist() == [[1.0, 1.0], [1.0, 3.0]]
