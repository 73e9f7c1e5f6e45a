"""The backward engine: order, absence, adoption, freeing.

Rules TEN-12, TEN-13, TEN-27 to TEN-29.
"""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.engine import run_backward
from aotlite.eager.base.modes import STATE


def leaf(*values):
    return al.tensor([float(v) for v in values], dtype=al.float64, requires_grad=True)


def share(a, b):
    """Whether two tensors' memory overlaps."""
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


def test_nodes_run_youngest_first_and_a_leaf_collects_once():
    """TEN-27: as soon as its last edge is served, and not before."""
    x, a, b = leaf(1), leaf(2), leaf(3)
    left, right = x * a, x * b
    total = left + right
    order = []
    recorder = SimpleNamespace(run_before=order.append, summed=lambda add, *args: add(*args))
    run_backward([(edge_of(total), al.ones(1, dtype=al.float64))], recorder=recorder)
    expected = [
        total.grad_fn,
        right.grad_fn,
        edge_of(b)[0],
        left.grad_fn,
        edge_of(x)[0],
        edge_of(a)[0],
    ]
    assert {node.name() for node in expected} == {node.name() for node in order}
    assert [n for n in expected if n.edges] == [n for n in order if n.edges]
    assert order.index(edge_of(b)[0]) < order.index(left.grad_fn)
    assert [5] == x.grad.tolist()


def test_what_the_loss_does_not_reach_has_no_gradient():
    """TEN-28."""
    a, b = leaf(1), leaf(2)
    a * b
    a.sum().backward()
    assert ([1], None) == (a.grad.tolist(), b.grad)


def test_an_output_of_several_that_got_no_gradient_counts_as_zeros():
    """TEN-28: the op's formula gets zeros for it, and its leaf a gradient."""
    x = leaf(1, 2, 3)
    parts = x.split(1)
    parts[1].sum().backward()
    assert [0, 1, 0] == x.grad.tolist()


def test_a_second_backward_needs_a_retained_graph():
    """TEN-12."""
    x = leaf(2)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert [8] == x.grad.tolist()
    with pytest.raises(
        al.AutogradError, match="^MulBackward: the values saved .* are freed"
    ) as raised:
        y.backward()
    assert any("retain_graph=True" in note for note in raised.value.__notes__)
    assert [8] == x.grad.tolist()


def test_a_value_saved_and_then_written_is_refused_with_its_versions():
    """TEN-12."""
    w, x = leaf(1, 2), al.ones(2, dtype=al.float64)
    y = x * w
    x.add_(1)
    message = r"^MulBackward: a saved tensor f64\[2\] is at version 1, expected version 0"
    with pytest.raises(al.AutogradError, match=message):
        y.sum().backward()
    assert w.grad is None


@pytest.mark.parametrize("write", ["data", "geometry", "detached", "sibling"])
def test_every_write_of_the_family_is_noticed(write):
    """TEN-4, TEN-10, TEN-12."""
    w, b = leaf(1, 2), al.ones(2, 2, dtype=al.float64)
    y = b[0] * w
    with al.no_grad():
        {
            "data": lambda: b.add_(1),
            "geometry": lambda: b.t_(),
            "detached": lambda: b.detach()[1].add_(1),
            "sibling": lambda: b[1].zero_(),
        }[write]()
    with pytest.raises(al.AutogradError, match="modified in place"):
        y.sum().backward()


def test_a_result_saved_for_its_own_backward_keeps_nothing_alive():
    """TEN-13: no reference cycle, neither through results nor from a leaf to its collector."""
    gc.disable()
    try:
        x = leaf(1)
        y = x.exp()
        y.backward(retain_graph=True)
        z = (x * 1)[:1].mul_(x)
        twice = (x * 1).mul_(x)
        twice.mul_(twice)
        seen = [weakref.ref(t) for t in (x, y, z, twice)]
        del x, y, z, twice
        assert [None] * 4 == [ref() for ref in seen]
    finally:
        gc.enable()


def test_the_gradient_of_a_leaf_that_is_gone_is_dropped():
    x, y = leaf(1), leaf(2)
    z = x * y
    del x
    z.backward()
    assert [1] == y.grad.tolist()


def test_a_chain_of_50000_nodes_runs_and_is_freed_without_recursion():
    """Also where the nodes are rewrites of a base, each with the one before in it."""
    x = leaf(1)
    y = x
    for _ in range(50_000):
        y = y + 1
    y.backward()
    assert [1] == x.grad.tolist()
    b = x * 1
    for _ in range(500):
        b[:1].add_(1)
    b.backward()
    assert [2] == x.grad.tolist()


# ----------------------------------------------------------------------------------- adoption
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x + 0,
        lambda x: x.view(2, 2).view(4),
        lambda x: x.clone(),
        lambda x: x.detach() + x,
        lambda x: x.t(),
        lambda x: x.to(al.float64),
        lambda x: x * 2,
    ],
)
@pytest.mark.parametrize("build", [False, True])
def test_a_gradient_handed_in_never_becomes_the_grad_of_a_leaf(function, build):
    """TEN-29."""
    x = leaf(1, 2, 3, 4)
    given = al.ones(4, dtype=al.float64)
    function(x).backward(given, create_graph=build)
    before = x.grad.tolist()
    assert not share(x.grad, given)
    x.grad.detach().add_(5)
    given.add_(7)
    assert [v + 5 for v in before] == x.grad.tolist()


def test_memory_of_an_array_handed_in_is_not_adopted():
    """TEN-29."""
    host = np.ones(2)
    x = leaf(1, 2)
    x.backward(al.from_numpy(host))
    x.grad.add_(1)
    assert [1, 1] == host.tolist()


@pytest.mark.parametrize("how", [lambda grad: grad.detach().numpy(), lambda grad: grad.array])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_whose_memory_was_handed_out_is_not_adopted(compiled, how):
    """TEN-29: a hook holds the array of the gradient, and nothing that the engine can count."""
    function = al.compile(lambda x: x * 2) if compiled else lambda x: x * 2
    for build in (False, True):
        x, held = leaf(1, 2), []
        x.register_hook(lambda grad, held=held: held.append(how(grad)))
        function(x).backward(al.ones(2, dtype=al.float64), create_graph=build)
        x.grad.detach().add_(7)
        assert held[0].tolist() == [2, 2]


def test_a_gradient_on_memory_that_others_have_is_not_adopted():
    """TEN-29: the tensor is the engine's alone, its storage is not."""
    x = leaf(1, 2)
    given = al.ones(2, dtype=al.float64)
    edge_of(x)[0].run([given.detach()])
    assert [1, 1] == x.grad.tolist()
    assert not share(x.grad, given)


def test_two_leaves_of_one_add_have_memory_of_their_own():
    """TEN-29."""
    a, b = leaf(1, 2), leaf(3, 4)
    ((a + b) * 2).sum().backward()
    assert not share(a.grad, b.grad)
    a.grad.add_(1)
    assert [2, 2] == b.grad.tolist()


def test_a_fresh_gradient_is_adopted():
    """TEN-29: nobody else can hold it. Seen by the copies that are not made."""
    x = al.ones(1 << 16, requires_grad=True)
    y = x * 2
    made = []
    node = y.grad_fn
    run = type(node).run

    def spied(self, grads):
        found = run(self, grads)
        made.append(id(found[0].storage.buffer))
        return found

    type(node).run = spied
    try:
        y.backward(al.ones(1 << 16))
    finally:
        type(node).run = run
    assert made == [id(x.grad.storage.buffer)]


def test_a_gradient_takes_the_layout_of_its_leaf():
    """TEN-29: the leaf's strides if it is dense, else contiguous."""
    for leafs in (al.ones(2, 3), al.ones(3, 2).t(), al.ones(2, 6)[:, ::2]):
        x = leafs.detach().requires_grad_()
        x.t().backward(al.ones(3, 2))
        expected = x.stride() if x.meta.dense else (3, 1)
        assert expected == x.grad.stride()


def test_later_gradients_are_added_in_place_unless_a_graph_is_built():
    """TEN-29."""
    x = leaf(1, 2)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first and [5, 5] == first.tolist()
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not first and x.grad.requires_grad
    assert [5, 5] == first.tolist()


def test_one_tensor_in_two_places_gets_both_shares():
    x = leaf(1, 2)
    (x + x).sum().backward()
    assert [2, 2] == x.grad.tolist()


# ------------------------------------------------------------------------------------- failures
def test_an_error_in_the_middle_of_a_backward_restores_the_modes():
    x = leaf(1)
    saved = x * 1
    y = saved * x
    with al.no_grad():
        saved.add_(1)
    for mode in (True, False):
        with al.set_grad_enabled(mode):
            with pytest.raises(al.AutogradError):
                y.backward(create_graph=not mode)
            assert mode == STATE.grad_mode
    assert STATE.grad_mode


def test_modes_are_restored_after_an_exception():
    for block in (al.no_grad, al.enable_grad, lambda: al.set_grad_enabled(False)):
        with pytest.raises(ZeroDivisionError), block():
            1 / 0  # noqa: B018
        assert al.is_grad_enabled()

    @al.no_grad()
    def failing():
        assert not al.is_grad_enabled()
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            failing()
        assert al.is_grad_enabled()


@pytest.mark.parametrize("op", ["sqrt_", "exp_", "tanh_", "sigmoid_", "reciprocal_"])
def test_an_op_that_saves_its_result_and_wrote_a_view_is_differentiated_twice(lib, op):
    """TEN-17: the result's node runs once more, behind the write's, which has let go by then."""
    x = lib.tensor([[4.0, 9.0], [2.0, 3.0]], dtype=lib.float64, requires_grad=True)
    y = x * 1
    getattr(y[0], op)()
    (first,) = lib.autograd.grad((y * y).sum(), [x], create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), [x])
    direct = lib.tensor([4.0, 9.0], dtype=lib.float64, requires_grad=True)
    row = getattr(direct, op.rstrip("_"))()
    (expected,) = lib.autograd.grad((row * row).sum(), [direct], create_graph=True)
    assert np.allclose(first[0].tolist(), expected.tolist())
    (expected,) = lib.autograd.grad(expected.sum(), [direct])
    assert np.allclose(second[0].tolist(), expected.tolist())
