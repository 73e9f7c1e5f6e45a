"""Functions with a gradient of their own, as PyTorch has them. Rules TEN-19, TEN-30, TEN-31."""

import gc
import weakref

import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def function(lib, forward, backward, **more):
    """A function of these static methods."""
    methods = {"forward": forward, "backward": backward, **more}
    body = {name: staticmethod(each) for name, each in methods.items()}
    return type("Own", (lib.autograd.Function,), body)


def tripled(ctx, grad):
    return grad * 3


# ---------------------------------------------------------------------------------- what is passed
def test_the_backward_gets_what_the_forward_kept(lib):
    """TEN-30: saved tensors with their history, and attributes."""

    def forward(ctx, x, k):
        ctx.k = k
        y = x * k
        ctx.save_for_backward(x, None, y)
        return y

    def backward(ctx, grad):
        x, nothing, y = ctx.saved_tensors
        assert (None, True, True) == (nothing, x is given, y.grad_fn is out.grad_fn)
        assert (True, False) == ctx.needs_input_grad
        return grad * ctx.k, None

    own = function(lib, forward, backward)
    given = leaf(lib)
    out = own.apply(given, 5.0)
    assert (5.0, "OwnBackward") == (out.grad_fn.k, out.grad_fn.name())
    assert values(given, out) == values(*[t for t in out.grad_fn.saved_tensors if t is not None])
    out.sum().backward()
    assert [[5, 5]] == values(given.grad)


def test_setup_context_sees_all_arguments_and_defaults(lib):
    """TEN-30: the forward has no `ctx` then."""
    seen = []

    def setup(ctx, inputs, output):
        seen.append((inputs[1:], output.requires_grad, lib.is_grad_enabled()))
        ctx.save_for_backward(output)

    own = function(
        lib,
        lambda x, k=4.0: x * k,
        lambda ctx, grad: (grad * ctx.saved_tensors[0], None),
        setup_context=setup,
    )
    x = leaf(lib)
    own.apply(x).sum().backward()
    assert [((4.0,), False, False)] == seen
    assert [[4, 4]] == values(x.grad)


def test_arguments_by_name_are_arguments_at_their_places(lib):
    """TEN-30: they have a gradient like the others."""
    own = function(lib, lambda ctx, x, w=None: x * w, lambda ctx, grad: (grad, grad * 7))
    x, w = leaf(lib), leaf(lib)
    own.apply(x, w=w).sum().backward()
    own.apply(lib.ones(2, dtype=lib.float64), w=w).sum().backward()
    assert [[1, 1], [14, 14]] == values(x.grad, w.grad)


def test_arguments_that_do_not_fit_are_named():
    """TEN-30."""
    own = function(al, lambda ctx, x, *, w=None: x, tripled)
    with pytest.raises(al.ArgumentError, match="^Own: the arguments do not fit .*expected those"):
        own.apply(leaf(al), v=2)
    with pytest.raises(al.ArgumentError, match="^Own: argument 'w', which has no place, requires"):
        own.apply(leaf(al), w=leaf(al))


def test_results_that_are_no_tensors_pass(lib):
    """TEN-30: and get None for a gradient, tensors without one zeros."""
    seen = []

    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y, x * 3, x > 0, "text", None, 5

    def backward(ctx, *grads):
        seen.append([None if g is None else g.tolist() for g in grads])
        return grads[1] * 3

    x = leaf(lib)
    y, z, positive, *rest = function(lib, forward, backward).apply(x)
    assert ["text", None, 5] == rest
    assert [False, True, False] == [t.requires_grad for t in (y, z, positive)]
    z.sum().backward()
    assert [[[0, 0], [1, 1], [False, False], None, None, None]] == seen
    assert [[3, 3]] == values(x.grad)


def test_absent_gradients_are_none_where_zeros_are_not_wanted(lib):
    """TEN-30."""

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    seen = []

    def backward(ctx, first, second):
        seen.append(first)
        return second * 3

    x = leaf(lib)
    function(lib, forward, backward).apply(x)[1].sum().backward()
    assert ([None], [[3, 3]]) == (seen, values(x.grad))


def test_without_a_gradient_to_compute_there_is_no_node(lib):
    """TEN-30: for inputs that do not require grad, and under no_grad."""
    own = function(lib, lambda ctx, x: x * 2, tripled)
    x = leaf(lib)
    with lib.no_grad():
        outs = [own.apply(x)]
    outs.append(own.apply(x.detach()))
    assert [(False, None)] * 2 == [(t.requires_grad, t.grad_fn) for t in outs]


def test_gradients_of_gradients_go_through_the_backward(lib):
    """TEN-30: what it computes has a history."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x

    x = leaf(lib, value=2.0)
    own = function(lib, forward, backward)
    (first,) = lib.autograd.grad(own.apply(x).sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    assert [[12, 12], [12, 12]] == values(first, second)


def test_one_tensor_in_two_slots_gets_both_contributions(lib):
    """TEN-31."""
    own = function(lib, lambda ctx, a, b: a + b, lambda ctx, grad: (grad, 3 * grad))
    x = leaf(lib)
    own.apply(x, x).sum().backward()
    assert [[4, 4]] == values(x.grad)


def test_a_result_returned_twice_has_one_history(lib):
    """TEN-30: that of its last place."""

    def forward(ctx, x):
        y = x * 2
        return y, y

    x = leaf(lib)
    a, b = function(lib, forward, lambda ctx, a, b: a + 2 * b).apply(x)
    (a + b).sum().backward()
    assert (True, [[4, 4]]) == (a is b, values(x.grad))


# --------------------------------------------------------------------------- views and writes
def test_an_input_that_is_returned_becomes_a_view(lib):
    """TEN-19: so that it has a history of its own, and writing it is refused."""
    x = leaf(lib)
    own = function(lib, lambda ctx, x: x, tripled)
    y = own.apply(x)
    assert (False, False, True) == (y is x, y.is_leaf, x.is_leaf)
    y.sum().backward()
    assert [[3, 3]] == values(x.grad)
    with raises(lib, RuntimeError, "^mul_: the tensor is a view made in a custom function, or"):
        own.apply(x * 1).mul_(2)


def test_the_same_input_returned_twice_is_two_views(lib):
    """TEN-19."""
    x = leaf(lib)
    a, b = function(lib, lambda ctx, x: (x, x), lambda ctx, a, b: a + 2 * b).apply(x)
    (a + b).sum().backward()
    assert (False, [[3, 3]]) == (a is b, values(x.grad))
    with raises(lib, RuntimeError, "^mul_: the tensor is an output of an op that returns several"):
        a.mul_(2)


@pytest.mark.rules("META-8")
def test_a_view_made_in_a_forward_has_the_gradient_of_the_backward(lib):
    """TEN-19, META-8: after a write of its base its history may not be asked for."""
    own = function(lib, lambda ctx, x: x.view(-1), lambda ctx, g: g.view(2, 2) * 3)
    x = leaf(lib, 2, 2)
    own.apply(x).view(-1).sum().backward()
    assert [[[3, 3]] * 2] == values(x.grad)
    base = x * 1
    y = own.apply(base)
    with raises(lib, RuntimeError, "^mul_: the tensor is a view made in a custom function"):
        y.view(2, 2).mul_(2)
    base.mul_(2)
    with raises(lib, RuntimeError, "^view: the tensor is a view made in a custom function"):
        y.grad_fn  # noqa: B018  (asking raises)


def test_an_input_that_the_forward_writes_gets_its_history(lib):
    """TEN-30: one count for the write, and one for the mark."""

    def forward(ctx, x, w):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    own = function(lib, forward, lambda ctx, grad: (grad * 2, grad * 0 + 5))
    x, w = leaf(lib), leaf(lib)
    y = x * 1
    out = own.apply(y, w)
    out.sum().backward()
    assert (True, 2) == (out is y, y._version)
    assert [[2, 2], [5, 5]] == values(x.grad, w.grad)
    x, w = leaf(lib, 4), leaf(lib)
    y = x * 1
    own.apply(y[:2], w)
    y.sum().backward()
    assert [[2, 2, 1, 1], [5, 5]] == values(x.grad, w.grad)
    with raises(lib, RuntimeError, "^Own: the tensor is a leaf that requires grad, expected"):
        own.apply(leaf(lib), w)


def test_what_is_marked_dirty_is_returned(lib):
    """TEN-30."""

    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    with raises(lib, RuntimeError, "^Own: a tensor marked dirty is not returned, expected"):
        function(lib, forward, tripled).apply(leaf(lib) * 1)


# ------------------------------------------------------------------------- what backwards return
BAD = [
    (lambda lib, g: g, "returned 1 gradients, expected 2, one for each argument"),
    (lambda lib, g: None, "returned 1 gradients, expected 2"),
    (lambda lib, g: (g, g, g), "returned 3 gradients, expected 2"),
    (lambda lib, g: (lib.ones(3), None), "gradient 0 .* has shape .3,., expected one that sums"),
    (lambda lib, g: (lib.ones(1), None), "gradient 0 .* has shape .1,., expected one that sums"),
    (lambda lib, g: (g, g), "gradient 1 .* expected None, since the argument is not a tensor"),
    (lambda lib, g: (g * 1j, None), "gradient 0 .* is complex128, expected a real one"),
]


@pytest.mark.parametrize(("result", "text"), BAD, ids=[text[:30] for _, text in BAD])
def test_what_a_backward_returns_is_checked(lib, result, text):
    """TEN-30: nothing is collected then."""
    own = function(lib, lambda ctx, x, k: x * k, lambda ctx, grad: result(lib, grad))
    x = leaf(lib)
    with raises(lib, RuntimeError, "^OwnBackward: .*" + text):
        own.apply(x, 2).sum().backward()
    assert x.grad is None


def test_gradients_are_tensors():
    """TEN-30."""
    own = function(al, lambda ctx, x: x * 2, lambda ctx, grad: 3)
    with pytest.raises(al.DTypeError, match="^OwnBackward: gradient 0 .* is 3, expected a tensor"):
        own.apply(leaf(al)).sum().backward()


def test_gradients_are_fitted_to_the_arguments(lib):
    """TEN-30: summed where they were broadcast, cast, and surplus Nones dropped."""

    def backward(ctx, grad):
        return lib.ones(3, 2), lib.ones(2), None, None

    x, y = leaf(lib), leaf(lib)
    function(lib, lambda ctx, x, y: x * y, backward).apply(x, y).sum().backward()
    assert [[3, 3], [1, 1]] == values(x.grad, y.grad)
    assert {lib.float64} == {x.grad.dtype, y.grad.dtype}


def test_a_backward_that_writes_its_argument_is_refused():
    """TEN-31: others may hold the same gradient. In PyTorch they silently get the wrong one."""
    own = function(al, lambda ctx, x: x * 2, lambda ctx, grad: grad.mul_(2))
    with pytest.raises(al.AutogradError, match="gradient 0 was modified in place by the backward"):
        (own.apply(leaf(al)) * 2).sum().backward()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_misuse_is_named(lib):
    """TEN-30."""
    own = function(lib, lambda ctx, x: x * 2, tripled)
    with raises(lib, RuntimeError, "^Own: an instance is called, expected Own.apply"):
        own()(leaf(lib))

    def forward(ctx, x):
        ctx.save_for_backward(3)
        return x

    with raises(lib, TypeError, "^save_for_backward: argument 0 is 3, expected a tensor or None"):
        function(lib, forward, tripled).apply(leaf(lib))


@pytest.mark.parametrize("missing", ["forward", "backward"])
def test_a_missing_method_is_named(missing):
    """TEN-30."""
    body = {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(tripled)}
    del body[missing]
    own = type("Own", (al.autograd.Function,), body)
    with pytest.raises(al.AotliteError, match=f"^Function: '{missing}' is missing, expected"):
        own.apply(leaf(al)).sum().backward()


# ------------------------------------------------------------------------------- saved tensors
def test_saved_tensors_are_checked_and_freed(lib):
    """TEN-12, TEN-30."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    own = function(lib, forward, tripled)
    x = leaf(lib) * 1
    y = own.apply(x)
    y.sum().backward()
    with raises(lib, RuntimeError, "^OwnBackward: the values saved .* are freed"):
        y.grad_fn.saved_tensors  # noqa: B018  (asking raises)
    y = own.apply(x)
    x.add_(1)
    with raises(lib, RuntimeError, "^OwnBackward: a saved tensor f64.2. is at version 1, expected"):
        y.grad_fn.saved_tensors  # noqa: B018  (asking raises)


def test_nothing_waits_for_the_garbage_collector():
    """TEN-13: a saved result does not hold its node, nor a context the node that holds it."""

    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, y)
        ctx.mark_non_differentiable(x)
        return y

    gc.disable()
    try:
        y = function(al, forward, tripled).apply(leaf(al))
        gone = weakref.ref(y.grad_fn)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_an_inner_value_that_is_differentiated_again_is_refused():
    """TEN-31: its gradient is not known. PyTorch takes it for a constant."""

    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(x, square)
        return square * x

    def backward(ctx, grad):
        _, square = ctx.saved_tensors
        return grad * 3 * square

    own = function(al, forward, backward)
    x = leaf(al, value=2.0)
    own.apply(x).sum().backward()
    assert [[12, 12]] == values(x.grad)
    (first,) = al.autograd.grad(own.apply(x).sum(), x, create_graph=True)
    with pytest.raises(al.AutogradError, match="neither an argument nor a result") as error:
        al.autograd.grad(first.sum(), x)
    assert any("Return it as another result" in note for note in error.value.__notes__)


def test_a_backward_marked_for_once_is_not_differentiated_again(lib):
    """TEN-30."""

    def backward(ctx, grad):
        assert not lib.is_grad_enabled()
        return grad * 2

    once = lib.autograd.function.once_differentiable(backward)
    x = leaf(lib)
    y = function(lib, lambda ctx, x: x * 2, once).apply(x)
    (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    assert [[8, 8]] == values(first)
    with raises(lib, RuntimeError, "is marked with once_differentiable, expected first"):
        first.sum().backward()


# ------------------------------------------------------------------------------------ compiled
def scaled(ctx, x, k):
    ctx.k = k
    ctx.save_for_backward(x)
    return x.view_as(x)


def scaled_back(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * ctx.k * x, None


SCALED = function(al, scaled, scaled_back)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, w: (SCALED.apply(x * w, 3) * w).sum(),
        lambda x, w: SCALED.apply(x * w, 3).sum(),
        lambda x, w: SCALED.apply(x, 2).exp() * w,
        lambda x, w: SCALED.apply(x * w, 3),
        lambda x, w: SCALED.apply((x * w)[:1], 3),
    ],
    ids=["inside", "to a sum", "of an input", "returned", "a part, returned"],
)
def test_a_compiled_function_calls_own_backwards_as_eager_does(body):
    """TEN-30: their Python runs while the backward is recorded."""
    grads = []
    for run in (body, al.compile(body)):
        for _ in range(2):
            x, w = leaf(al, value=2.0), leaf(al, value=3.0)
            out = run(x, w)
            out.backward(al.full(out.shape, 2.0, dtype=al.float64))
            grads.append(values(out, x.grad, w.grad))
    assert grads[0] == grads[1] == grads[2] == grads[3]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("way", ["grad", "backward"])
def test_a_backward_may_run_a_backward_of_its_own(compiled, way):
    """TEN-30: recomputing what was not saved."""

    def forward(ctx, body, *args):
        ctx.body = body
        ctx.save_for_backward(*args)
        return body(*args)

    def backward(ctx, grad):
        args = [each.detach().requires_grad_() for each in ctx.saved_tensors]
        with al.enable_grad():
            out = ctx.body(*args)
        if way == "grad":
            return (None, *al.autograd.grad(out, args, grad))
        out.backward(grad)
        return (None, *[each.grad for each in args])

    own = function(al, forward, backward)

    def plain(x, w):
        return ((x * 2 * w).sin() * w).sum()

    def recomputed(x, w):
        return (own.apply(lambda x, w: (x * w).sin(), x * 2, w) * w).sum()

    found = []
    for run in (plain, al.compile(recomputed) if compiled else recomputed):
        x, w = leaf(al), leaf(al, value=2.0)
        run(x, w).backward()
        found.append(values(x.grad, w.grad))
    for expected, given in zip(*found, strict=True):
        assert given == pytest.approx(expected, rel=1e-14)


@pytest.mark.rules("FUN-38")
def test_a_compiled_function_with_a_write_in_a_forward():
    """TEN-30: the input's new history is the function's."""

    def forward(ctx, x, w):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    own = function(al, forward, lambda ctx, grad: (grad * 2, grad * 5))
    found = []
    for run in (own.apply, al.compile(own.apply)):
        x, w = leaf(al), leaf(al)
        y = x * 1
        out = run(y, w)
        (y * 3).sum().backward()
        found.append((out is y, y.version, values(y, x.grad, w.grad)))
    assert found[0] == found[1]


@pytest.mark.rules("META-8")
def test_a_view_with_a_gradient_of_its_own_shares_memory_and_keeps_its_backward():
    """META-8: rebuilt as a plain view of the input it would lose the backward."""
    found = []
    for run in (SCALED.apply, al.compile(lambda x, factor: SCALED.apply(x, factor))):
        x = leaf(al)
        view = run(x, 3)
        view.sum().backward()
        found.append((view._base is x, values(view, x.grad)))
    assert found[0] == found[1]


def test_a_function_has_one_backward(lib):
    """TEN-30: by one of its two names."""

    class Both(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

        vjp = backward

    with raises(lib, RuntimeError, "^Both: both 'backward' and 'vjp' are there, expected one"):
        Both.apply(leaf(lib)).sum().backward()
