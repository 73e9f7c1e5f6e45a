"""Hooks on what is saved for the backward, and anomaly mode. Rules TEN-42, TEN-43, SAV-7, GEN-8."""

import traceback

import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def test_what_is_saved_is_packed_and_unpacked(lib):
    """TEN-42: under no_grad; what comes out has the history of what went in."""
    x, seen = leaf(lib, value=2.0), []

    def pack(tensor):
        seen.append((tensor.tolist(), tensor.requires_grad, lib.is_grad_enabled()))
        return tensor.tolist()

    def unpack(kept):
        return lib.tensor(kept, dtype=lib.float64)

    with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp()
    (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    assert [([2, 2], True, False)] * 2 == seen[:2]
    expected = y.detach() * 4
    assert values(expected, y.detach() * 18) == values(first, second)


def test_the_innermost_hooks_count_and_end_with_their_block(lib):
    """TEN-42."""
    x, log = leaf(lib), []

    def hooks(name):
        return lambda t: log.append(name) or t, lambda t: t

    saved = lib.autograd.graph.saved_tensors_hooks
    with saved(*hooks("outer")):
        with saved(*hooks("inner")):
            x * x
        x.exp()
    x * x
    assert ["inner", "inner", "outer"] == log


def test_packed_values_are_not_checked_for_writes(lib):
    """TEN-42: the hooks have their own copy, or answer for it."""
    x, w = leaf(lib) * 2, leaf(lib)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x * w
    with lib.no_grad():
        x.mul_(5)
    y.sum().backward()
    assert [[2, 2]] == values(w.grad)


def test_bad_hooks_are_refused(lib):
    """TEN-42."""
    x = leaf(lib)
    saved = lib.autograd.graph.saved_tensors_hooks
    with saved(lambda t: t.mul_(2), lambda t: t):
        with raises(lib, RuntimeError, "the pack hook modified its argument in place, expected"):
            (x * 1).exp()
    with saved(lambda t: t, lambda t: 3):
        y = x * x
    with raises(lib, TypeError, "the unpack hook returned int, expected a tensor"):
        y.sum().backward()


def test_hooks_can_be_forbidden(lib):
    """TEN-42: with the message that is given."""
    graph = lib.autograd.graph
    hooks = graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with graph.disable_saved_tensors_hooks("not here"), raises(lib, RuntimeError, "^not here$"):
        with hooks:
            pass
    with hooks, raises(lib, RuntimeError, "^not here$"):
        with graph.disable_saved_tensors_hooks("not here"):
            pass


def test_functions_save_through_the_hooks(lib):
    """TEN-42."""
    log = []

    class Squared(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad * x

    def pack(t):
        log.append("pack")
        return t

    x = leaf(lib, value=3.0)
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t * 10):
        y = Squared.apply(x)
    y.sum().backward()
    assert (["pack"], [[60, 60]]) == (log, values(x.grad))


@pytest.mark.rules("SAV-7", "GEN-8")
def test_a_compiled_call_packs_what_it_saves_and_not_while_it_is_captured():
    """SAV-7, GEN-8: the hooks meet real values only, on each call alike."""
    f = al.compile(lambda x, w: (x * w).sin())
    counts = []
    for _ in range(2):
        packed = []
        x, w = leaf(al, value=2.0), leaf(al, value=3.0)
        with al.autograd.graph.saved_tensors_hooks(
            lambda t, packed=packed: packed.append(t.tolist()) or t.clone(), lambda t: t
        ):
            y = f(x, w)
        y.sum().backward()
        counts.append(len(packed))
        reference = leaf(al, value=2.0)
        (reference * 3).sin().sum().backward()
        assert values(reference.grad) == values(x.grad)
    assert counts[0] == counts[1] > 0


def test_hooks_inside_a_captured_function_are_recorded():
    """TEN-42: what they compute is part of the graphs."""

    def f(x, w):
        with al.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t * 5):
            return x * w

    x, w = leaf(al, value=2.0), leaf(al, value=3.0)
    al.compile(f)(x, w).sum().backward()
    assert [[30, 30], [20, 20]] == values(x.grad, w.grad)


def test_a_write_by_other_means_can_be_counted(lib):
    """TEN-12."""
    x, w = lib.ones(2, dtype=lib.float64), leaf(lib)
    y = x * w
    lib.autograd.graph.increment_version([x])
    with raises(lib, RuntimeError, "is at version 1, expected version 0"):
        y.sum().backward()


# ------------------------------------------------------------------------------------ anomaly mode
def failing(lib):
    """A function whose backward raises."""

    class Failing(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("from the backward")

    return Failing


def the_forward_line(x):
    return failing(al).apply(x)


def test_an_error_in_a_backward_shows_both_stacks():
    """TEN-43: its own, and in a note the forward's, which ends in the user's line."""
    with al.autograd.detect_anomaly():
        y = the_forward_line(leaf(al))
        with pytest.raises(KeyError) as error:
            y.sum().backward()
    (note,) = error.value.__notes__
    assert note.startswith("The forward of FailingBackward, most recent call last:\n")
    assert note.endswith("return failing(al).apply(x)")
    stack = traceback.extract_tb(error.value.__traceback__)
    assert "backward" == stack[-1].name


@pytest.mark.filterwarnings("ignore")  # PyTorch prints the forward's stack as one
def test_a_nan_is_an_error_that_shows_the_forward(lib):
    """TEN-43."""
    with lib.autograd.detect_anomaly():
        y = (lib.zeros(2, requires_grad=True) * 0).sqrt()
        with raises(lib, RuntimeError, "^MulBackward: gradient 0 .* has a nan, expected none"):
            y.sum().backward()
    x = lib.zeros(2, requires_grad=True)
    with lib.autograd.detect_anomaly(check_nan=False):
        (x * 0).sqrt().sum().backward()
    (x * 0).sqrt().sum().backward()


def test_an_error_in_a_backward_of_a_backward_shows_all_three():
    """TEN-43: the node was made in the backward of another, whose forward is shown as well."""
    x, ones = leaf(al), al.ones(2, dtype=al.float64)
    with al.autograd.detect_anomaly():
        y = x.exp()
        (first,) = al.autograd.grad(y, x, ones, create_graph=True)
        ones.add_(1)
        with pytest.raises(al.AutogradError, match="^MulBackward: a saved tensor") as error:
            first.sum().backward()
    text = "\n".join(error.value.__notes__)
    assert "y = x.exp()" in text
    assert "That was in the backward of ExpBackward:" in text
    assert "al.autograd.grad(y, x" in text


def test_an_error_without_anomaly_mode_in_the_forward_says_so():
    """TEN-43."""
    y = failing(al).apply(leaf(al))
    with al.autograd.detect_anomaly(), pytest.raises(KeyError) as error:
        y.sum().backward()
    assert "turn it on around the forward" in error.value.__notes__[0]


@pytest.mark.filterwarnings("ignore")
def test_the_mode_is_off_after_its_block(lib):
    """TEN-43: also where it was set by a call."""
    x = lib.zeros(2, requires_grad=True)
    lib.autograd.set_detect_anomaly(True)
    try:
        with raises(lib, RuntimeError, "has a nan"):
            (x * 0).sqrt().sum().backward()
    finally:
        lib.autograd.set_detect_anomaly(False)
    with lib.autograd.set_detect_anomaly(True):
        pass
    (x * 0).sqrt().sum().backward()


def test_a_compiled_call_shows_where_it_was_called():
    """TEN-43, JNT-8: and the line of the op."""
    f = al.compile(lambda x: (x * 0).sqrt())
    x = al.zeros(2, requires_grad=True)
    with al.autograd.detect_anomaly():
        y = f(x)
        with pytest.raises(al.AutogradError, match="^MulBackward: gradient 0") as error:
            y.sum().backward()
    assert "y = f(x)" in error.value.__notes__[0]
    assert error.value.__notes__[0].endswith("f = al.compile(lambda x: (x * 0).sqrt())")
