"""Hooks of tensors, nodes and leaves, and gradients that are retained, as PyTorch has them.

Rules TEN-39 to TEN-41.
"""

import gc
import weakref

import numpy as np
import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def noting(log, name, result=None):
    """A hook that notes its first argument's numbers and gives `result(grad)`."""

    def hook(grad):
        log.append((name, None if grad is None else grad.tolist()))
        return None if result is None else result(grad)

    return hook


def test_hooks_run_in_the_order_of_registration_and_replace_the_gradient(lib):
    """TEN-39: each sees what the one before gave; of a leaf they run before it collects."""
    x, log = leaf(lib), []
    y = x * 2
    y.register_hook(noting(log, "first", lambda g: g * 3))
    y.register_hook(noting(log, "second"))
    x.register_hook(noting(log, "leaf", lambda g: -g))
    y.sum().backward()
    assert [("first", [1, 1]), ("second", [3, 3]), ("leaf", [6, 6])] == log
    assert [[-6, -6]] == values(x.grad)


def test_a_hook_sees_the_whole_gradient_once(lib):
    """TEN-39: the sum of all that arrives."""
    x, log = leaf(lib), []
    y = x * 2
    y.register_hook(noting(log, "y"))
    (y * 3 + y * 4).sum().backward()
    assert [("y", [7, 7])] == log


def test_a_hook_of_one_of_several_results_gets_none_where_nothing_arrives(lib):
    """TEN-39: the node runs, since another of its results has a gradient."""
    x, log = leaf(lib, 4), []
    first, second = (x * 1).split(2)
    first.register_hook(noting(log, "first"))
    second.register_hook(noting(log, "second"))
    first.sum().backward()
    assert [("first", [1, 1])] == [each for each in log if each[1] is not None]


def test_a_removed_hook_is_not_called(lib):
    """TEN-39: removing twice is harmless, and a handle is a context manager."""
    x, log = leaf(lib), []
    y = x * 2
    handle = y.register_hook(noting(log, "removed"))
    handle.remove()
    handle.remove()
    with y.register_hook(noting(log, "block")):
        y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert [("block", [1, 1])] == log


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (
            lambda lib: lib.ones(3),
            RuntimeError,
            "what '<lambda>' returned is f32.3., expected",
        ),
        (
            lambda lib: lib.ones(2),
            RuntimeError,
            "what '<lambda>' returned is f32.*, expected",
        ),
        (
            lambda lib: 3,
            TypeError,
            "what '<lambda>' returned is 3, expected a tensor or None",
        ),
    ],
    ids=["shape", "dtype", "type"],
)
def test_what_a_hook_returns_is_like_the_gradient(lib, result, kind, text):
    """TEN-39."""
    y = leaf(lib) * 2
    y.register_hook(lambda grad: result(lib))
    with raises(lib, kind, text):
        y.sum().backward()


def test_hooks_need_a_tensor_that_requires_grad(lib):
    """TEN-39 to TEN-41."""
    plain = lib.ones(2)
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        with raises(lib, RuntimeError, f"^{name}: the tensor does not require grad, expected"):
            getattr(plain, name)(print)
    with raises(lib, RuntimeError, "^retain_grad: the tensor does not require grad, expected"):
        plain.retain_grad()
    with raises(lib, RuntimeError, "^register_post.*: the tensor is not a leaf, expected a leaf"):
        (leaf(lib) * 2).register_post_accumulate_grad_hook(print)


def test_a_hook_is_a_function():
    """TEN-39."""
    with pytest.raises(al.ArgumentError, match="the hook is 3, expected a function"):
        leaf(al).register_hook(3)


def test_hooks_at_one_node_run_in_their_order(lib):
    """TEN-39: tensor hooks, then the retained gradient, then the node's own, node, and after it."""
    x, log = leaf(lib), []
    y = x * 2
    y.register_hook(lambda g: log.append(("tensor", y.grad)))
    y.grad_fn.register_prehook(lambda g: log.append(("pre", values(y.grad))))
    y.grad_fn.register_hook(lambda i, o: log.append(("post", values(i[0]), values(*o))))
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    assert [("tensor", None), ("pre", [[3, 3]]), ("post", [[6, 6]], [[3, 3]])] == log


def test_hooks_at_a_leaf_run_in_their_order(lib):
    """TEN-39: tensor, before accumulation, after it with `.grad` written, after the node."""
    x, log = leaf(lib), []
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    node.register_hook(lambda inputs, outputs: log.append(("post", inputs, values(*outputs))))
    node.register_prehook(lambda grads: log.append(("pre", values(*grads), x.grad)))
    x.register_post_accumulate_grad_hook(lambda p: log.append(("collected", values(p.grad))))
    x.register_hook(noting(log, "tensor"))
    y.sum().backward()
    expected = [
        ("tensor", [2, 2]),
        ("pre", [[2, 2]], None),
        ("collected", [[2, 2]]),
        ("post", (), [[2, 2]]),
    ]
    assert expected == log


def test_hooks_of_a_node_replace_all_its_gradients(lib):
    """TEN-39: a tuple of as many, anything else is refused."""
    x, w = leaf(lib), leaf(lib, value=5.0)
    y = x * w
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, None))
    y.sum().backward()
    assert [[51, 51], None] == values(x.grad, w.grad)
    for hook, kind, text in (
        (lambda g: g[0], TypeError, "returned is .*, expected a tuple"),
        (lambda g: (g[0], g[0]), RuntimeError, "returned 2 gradients, expected 1"),
    ):
        y = x * w
        y.grad_fn.register_prehook(hook)
        with raises(lib, kind, text):
            y.sum().backward()


def test_nodes_show_where_gradients_go(lib):
    """TEN-39."""
    x = leaf(lib)
    y = x * lib.ones(2, dtype=lib.float64)
    (node, index), nowhere = y.grad_fn.next_functions
    assert ((None, 0), 0, True, ()) == (nowhere, index, node.variable is x, node.next_functions)
    assert "AccumulateGrad" in node.name()
    assert "MulBackward" in y.grad_fn.name()
    y.grad_fn.metadata["key"] = 3
    assert {"key": 3} == y.grad_fn.metadata


# ------------------------------------------------------------------------------ retained gradients
def test_a_tensor_keeps_its_gradient_and_adds_later_ones(lib):
    """TEN-40."""
    x = leaf(lib)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert ([[2, 2]], True, False) == (values(y.grad), y.retains_grad, x.retains_grad)


def test_a_leaf_retains_nothing_more(lib):
    """TEN-40."""
    x = leaf(lib)
    x.retain_grad()
    assert not x.retains_grad
    x.sum().backward()
    assert [[1, 1]] == values(x.grad)


def test_a_write_takes_the_retained_gradient_along_and_leaves_hooks(lib):
    """TEN-40."""
    x, log = leaf(lib), []
    y = x * 2
    y.retain_grad()
    y.register_hook(noting(log, "before"))
    y.mul_(3)
    y.register_hook(noting(log, "after"))
    y.sum().backward()
    assert [("after", [1, 1]), ("before", [3, 3])] == log
    assert ([[1, 1], [6, 6]], True) == (values(y.grad, x.grad), y.retains_grad)


def test_a_base_written_through_a_view_keeps_the_gradient_of_its_new_value(lib):
    """TEN-40: though nobody asks for the base's history before the backward."""
    x = leaf(lib, 4)
    y = x * 2
    y.retain_grad()
    part = y[:2]
    part.mul_(5)
    (part * 2).sum().backward()
    assert [[2, 2, 0, 0], [20, 20, 0, 0]] == values(y.grad, x.grad)


def test_a_view_keeps_the_gradient_of_its_value_after_a_write_of_its_base(lib):
    """TEN-40."""
    x = leaf(lib, 4)
    y = x * 2
    view = y[:2]
    view.retain_grad()
    y.mul_(5)
    (view * 2).sum().backward()
    assert [[2, 2], [20, 20, 0, 0]] == values(view.grad, x.grad)


def test_a_transposed_tensor_keeps_the_gradient_of_its_new_form():
    """TEN-40: geometry ops, too, where PyTorch's gradient has the form that the tensor had."""
    y = leaf(al, 2, 3) * 2
    y.retain_grad()
    y.t_()
    (y * al.ones(3, 2, dtype=al.float64)).sum().backward()
    assert ((3, 2), True) == (y.grad.shape, y.retains_grad)


def test_retaining_does_not_keep_the_tensor_alive():
    """TEN-13, TEN-40."""
    gc.disable()
    try:
        x = leaf(al)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda grad: None)
        gone, node = weakref.ref(y), weakref.ref(y.grad_fn)
        z = y * 2
        del y
        assert gone() is None
        del z
        assert node() is None
    finally:
        gc.enable()


# ----------------------------------------------------------------------------------------- leaves
def test_a_hook_of_a_leaf_survives_what_the_leaf_goes_through(lib):
    """TEN-41: turning requires_grad off and on."""
    x = leaf(lib)
    x.register_hook(lambda grad: grad * 2)
    x.requires_grad_(False)
    x.requires_grad_(True)
    (x * 1).sum().backward()
    assert [[2, 2]] == values(x.grad)


def test_a_hook_of_a_leaf_moves_with_a_change_of_its_geometry():
    """TEN-24, TEN-41: its gradient has the new geometry."""
    x, log = leaf(al, 2, 3), []
    early = x * 2
    x.register_hook(lambda grad: log.append(grad.shape))
    with al.no_grad():
        x.t_()
    (early.sum() + (x * 3).sum()).backward()
    assert ([(3, 2)], [[5.0, 5.0]] * 3) == (log, x.grad.tolist())


def test_grad_of_a_leaf_runs_its_hooks_and_collects_nothing(lib):
    """TEN-39: but not the hooks of the node, which does not run."""
    x, log = leaf(lib), []
    node = lib.autograd.graph.get_gradient_edge(x).node
    node.register_prehook(lambda grads: log.append("pre"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("collected"))
    x.register_hook(noting(log, "tensor", lambda g: g * 5))
    (found,) = lib.autograd.grad((x * 2).sum(), x)
    assert ([[10, 10], None], [("tensor", [2, 2])]) == (values(found, x.grad), log)


def test_a_gradient_asked_for_is_always_the_one_after_the_hooks():
    """TEN-39: in PyTorch it is the one before them if the tensor's node runs, too."""
    x = leaf(al)
    y = x * 2
    loss = (y * 5).sum()
    y.register_hook(lambda grad: grad * 3)
    (alone,) = al.autograd.grad(loss, [y], retain_graph=True)
    _, beside = al.autograd.grad(loss, [x, y])
    assert [[15, 15], [15, 15]] == values(alone, beside)


def test_a_compiled_backward_calls_the_hooks_of_leaves_and_results():
    """TEN-41: the short way for a single node is not taken then."""
    x, w, log = leaf(al), leaf(al), []
    f = al.compile(lambda x, w: (x * w).sum())
    x.register_hook(noting(log, "x", lambda g: g * 2))
    w.register_post_accumulate_grad_hook(lambda p: log.append(("w", p.grad.tolist())))
    y = f(x, w)
    y.register_hook(noting(log, "y", lambda g: g * 10))
    y.grad_fn.register_prehook(lambda grads: log.append(("pre", values(*grads))))
    y.backward()
    assert ("y", 1.0) == log[0]
    assert ("pre", [10.0]) == log[1]
    assert [("w", [10, 10]), ("x", [10, 10])] == sorted(log[2:])
    assert [[20, 20], [10, 10]] == values(x.grad, w.grad)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_hook_inside_a_captured_function_works_on_each_call(compiled):
    """TEN-41: what it computes is part of the backward graph."""

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * grad.sum())
        return (y * 3).sum()

    run = al.compile(f) if compiled else f
    for size in (2, 2, 3):
        x = leaf(al, size)
        run(x).backward()
        assert [[18.0 * size] * size] == values(x.grad)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.register_hook([].append),
        lambda x: x.register_post_accumulate_grad_hook([].append),
        lambda x: (x * 2).retain_grad(),
        al.autograd.graph.increment_version,
        lambda x: (x * 2).grad_fn.next_functions[0][0].register_hook(print),
        lambda x: (x * 2).grad_fn.next_functions[0][0].register_prehook(print),
    ],
    ids=["hook", "post hook", "retain", "version", "node hook", "node prehook"],
)
def test_what_a_capture_cannot_do_again_is_refused_with_its_line(use):
    """TEN-41: each call would have to do it, with a list of its own."""

    def f(x):
        use(x)
        return x * 2

    x = leaf(al)
    with pytest.raises(al.UnsupportedError, match="cannot be captured") as error:
        al.compile(f)(x)
    assert any("test_hooks.py" in note for note in error.value.__notes__)
    f(x)


@pytest.mark.parametrize("where", ["register_hook", "register_prehook"])
def test_a_hook_on_the_node_of_an_argument_that_is_no_leaf_is_refused(where):
    """TEN-41: the history outside is no part of the capture, and the hook would be lost."""
    f = al.compile(lambda x: (getattr(x.grad_fn, where)(print), x * 2)[1])
    with pytest.raises(al.UnsupportedError, match=f"{where} of the node of a tensor from outside"):
        f(leaf(al) * 3)


def test_to_retain_the_gradient_of_a_leaf_says_nothing_in_a_capture_either():
    """TEN-40."""

    def f(x):
        x.retain_grad()
        inner = x.detach().requires_grad_()
        other = x.detach().requires_grad_()
        (inner * other * 2).sum().backward(inputs=[inner])
        return inner.grad * x, other.grad is None

    for run in (f, al.compile(f)):
        x = leaf(al, value=3.0)
        y, alone = run(x)
        y.sum().backward()
        assert (True, [[18, 18], [6, 6]]) == (alone, values(y, x.grad))


@pytest.mark.rules("META-8")
def test_a_view_that_is_returned_keeps_its_hooks_from_inside():
    """TEN-41: it is made anew at each call, and its gradient still passes them."""

    def f(x):
        part = x[:2]
        part.register_hook(lambda grad: grad * 2)
        return part[:1]

    for run in (f, al.compile(f)):
        x = leaf(al, 4)
        part = run(x)
        assert part._base is x
        part.sum().backward()
        assert [[2, 0, 0, 0]] == values(x.grad)

    def g(x):
        part = (x * 2)[:2]
        part.register_hook(lambda grad: grad * 2)
        return part * 3

    x = leaf(al, 4)
    al.compile(g)(x).sum().backward()
    assert [[12, 12, 0, 0]] == values(x.grad)


# ----------------------------------------------------------------------------------- saved values
def test_a_node_shows_what_it_saved_by_name(lib):
    """TEN-42."""
    x = leaf(lib)
    y = x.exp()
    z = x * y
    assert [y.tolist(), x.tolist(), y.tolist()] == [
        y.grad_fn._saved_result.tolist(),
        z.grad_fn._saved_self.tolist(),
        z.grad_fn._saved_other.tolist(),
    ]
    z.grad_fn._raw_saved_self.register_hooks(lambda t: t * 3, lambda t: t)
    y2 = z.detach()
    del y2
    with pytest.raises(AttributeError):
        z.grad_fn._saved_nothing  # noqa: B018  (asking raises)
    z.sum().backward()
    with raises(lib, RuntimeError, "the values saved for the backward are freed"):
        z.grad_fn._saved_self  # noqa: B018  (asking raises)
    np.testing.assert_allclose(x.grad.detach().numpy(), np.e * (1 + 3), rtol=1e-12)
