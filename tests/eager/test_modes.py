"""Grad mode and inference mode as blocks, decorators and around generators, as PyTorch has them.

Rules TRC-9, TEN-11, TEN-21, TEN-22, TEN-23.
"""

import numpy as np
import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def modes(lib):
    return lib.is_grad_enabled(), lib.is_inference_mode_enabled()


# ----------------------------------------------------------------------------------------- modes
def test_modes_nest_and_are_restored(lib):
    """TRC-9."""
    seen = []
    with lib.no_grad():
        seen.append(modes(lib))
        with lib.enable_grad():
            seen.append(modes(lib))
        with lib.inference_mode():
            seen.append(modes(lib))
            with lib.inference_mode(False):
                seen.append(modes(lib))
        seen.append(modes(lib))
    off, on, inside = (False, False), (True, False), (False, True)
    assert [off, on, inside, on, off] == seen
    assert on == modes(lib)


def test_a_mode_is_restored_after_an_error(lib):
    """TRC-9."""
    for mode in (lib.no_grad, lib.inference_mode, lambda: lib.set_grad_enabled(False)):
        with pytest.raises(KeyError), mode():
            raise KeyError
        assert (True, False) == modes(lib)


def test_modes_decorate_functions_with_and_without_parentheses(lib):
    """TRC-9."""

    def seen():
        return modes(lib)

    assert (False, False) == lib.no_grad()(seen)() == lib.no_grad(seen)()
    assert (False, True) == lib.inference_mode()(seen)() == lib.inference_mode(seen)()
    with lib.no_grad():
        assert (True, False) == lib.enable_grad()(seen)() == lib.inference_mode(mode=False)(seen)()
    assert (False, False) == lib.set_grad_enabled(False)(seen)()
    assert ("seen", (True, False)) == (lib.no_grad()(seen).__name__, modes(lib))


def test_set_grad_enabled_acts_at_once(lib):
    """TRC-9."""
    lib.set_grad_enabled(False)
    try:
        assert not lib.is_grad_enabled()
    finally:
        lib.set_grad_enabled(True)


def test_a_decorated_generator_has_the_mode_and_its_caller_does_not(lib):
    """TRC-9: also when values are sent in, errors thrown in, and it is closed."""
    seen = []

    @lib.no_grad()
    def counting():
        try:
            sent = yield lib.is_grad_enabled()
            seen.append((sent, lib.is_grad_enabled()))
            try:
                yield 2
            except KeyError:
                seen.append(("thrown", lib.is_grad_enabled()))
            yield 3
        finally:
            seen.append(("closed", lib.is_grad_enabled()))

    run = counting()
    found = [next(run), lib.is_grad_enabled(), run.send("sent"), lib.is_grad_enabled()]
    found += [run.throw(KeyError()), lib.is_grad_enabled()]
    run.close()
    assert [False, True, 2, True, 3, True] == found
    assert [("sent", False), ("thrown", False), ("closed", False)] == seen


def test_a_decorated_generator_gives_its_result(lib):
    """TRC-9."""

    @lib.no_grad()
    def made():
        yield 1
        return 2

    def outer():
        return (yield from made())

    run = outer()
    assert 1 == next(run)
    with pytest.raises(StopIteration) as end:
        next(run)
    assert 2 == end.value.value


# -------------------------------------------------------------------------------- inference mode
def made_inside(lib):
    with lib.inference_mode():
        return lib.ones(4, dtype=lib.float64)


def test_what_is_made_inside_is_an_inference_tensor(lib):
    """TEN-22: views and detached aliases of it too, wherever they are made; a clone is not."""
    normal = lib.ones(4, dtype=lib.float64)
    with lib.inference_mode():
        made = lib.ones(4)
        inside = [made, made[:2], normal * 2, normal.clone(), lib.from_numpy(np.ones(2))]
        ordinary = [normal[:2], normal.detach(), normal]
    assert [True] * 5 + [False] * 3 == [t.is_inference() for t in inside + ordinary]
    outside = [made[:2], made.detach(), made.clone(), made * 2]
    assert [True, True, False, False] == [t.is_inference() for t in outside]


def test_an_inference_tensor_does_not_count_writes(lib):
    """TEN-11."""
    with lib.inference_mode():
        made = lib.ones(4)
        made.add_(1)
        with raises(lib, RuntimeError, "^version: the tensor is an inference tensor, expected one"):
            made._version  # noqa: B018  (asking raises)
    assert [[2, 2, 2, 2]] == values(made)


def test_ordinary_tensors_count_their_writes_inside(lib):
    """TEN-22: through views that are taken inside, too."""
    normal, tracked = lib.ones(4), leaf(lib)
    with lib.inference_mode():
        normal[:2].add_(1)
        normal.mul_(2)
        tracked.add_(1)
    assert (2, 1, True) == (normal._version, tracked._version, tracked.is_leaf)


def test_an_inference_tensor_is_not_written_outside(lib):
    """TEN-22: not by in-place ops, geometry ops, item assignment or `out=`; bytes stay."""
    made = made_inside(lib)
    other = lib.ones(4, dtype=lib.float64)
    text = "the tensor is an inference tensor, expected an ordinary one outside"

    def assign():
        made[0] = 5.0

    for write in (
        lambda: made.add_(1),
        lambda: made[:2].add_(1),
        assign,
        lambda: lib.add(other, 1, out=made),
        lambda: made.unsqueeze_(0),
    ):
        with raises(lib, RuntimeError, text):
            write()
    if lib is al:  # PyTorch has written when it raises
        assert ([[1, 1, 1, 1]], (4,)) == (values(made), tuple(made.shape))


def test_an_inference_tensor_is_not_saved_for_a_backward(lib):
    """TEN-22: but it may be an operand whose value no gradient needs."""
    made, w = made_inside(lib), leaf(lib, 4)
    with raises(lib, RuntimeError, "^backward: a tensor to save, f64.4., is an inference tensor"):
        made * w
    (made + w).sum().backward()
    (made.clone() * w).sum().backward()
    assert [[2, 2, 2, 2]] == values(w.grad)


def test_an_inference_tensor_requires_grad_only_inside(lib):
    """TEN-22."""
    with lib.inference_mode():
        assert lib.ones(2).requires_grad_().requires_grad
    with raises(lib, RuntimeError, "^requires_grad_: the tensor is an inference tensor, expected"):
        made_inside(lib).requires_grad_()


def test_nothing_has_a_history_inside(lib):
    """TEN-22: not even under enable_grad."""
    w = leaf(lib)
    with lib.inference_mode():
        assert not (w * 2).requires_grad
        with lib.enable_grad():
            assert not (w * 2).requires_grad
        with raises(lib, RuntimeError, "^backward: the tensor f64.. does not require grad"):
            (w * 2).sum().backward()
        with lib.inference_mode(False):
            (w * 2).sum().backward()
    assert [[2, 2]] == values(w.grad)


def test_a_view_taken_inside_is_not_written_where_that_makes_history(lib):
    """TEN-19, TEN-22: under no_grad it is, but its history is not asked for afterwards."""
    base, plain = leaf(lib, 4) * 1, lib.ones(4, dtype=lib.float64)
    with lib.inference_mode():
        view, other = base[:2], plain[:2]
        view.add_(1)
    assert view.requires_grad
    with raises(lib, RuntimeError, "made under no_grad or in inference_mode, expected a view"):
        view.mul_(2)
    other.mul_(2)
    with raises(lib, RuntimeError, "made under no_grad or in inference_mode, expected a view"):
        other.mul_(leaf(lib))
    assert [[2, 2, 1, 1]] == values(plain)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_call_inside_gives_inference_tensors(compiled):
    """TEN-22: compiled as in eager; the same function outside gives ordinary ones."""

    def f(x):
        x.add_(1)
        return x * 2, x[:1], x

    run = al.compile(f) if compiled else f
    normal = al.ones(2)
    for _ in range(2):
        with al.inference_mode():
            inside = run(normal), run(al.ones(2))
        outside = run(normal)
    assert [True, False, False] == [t.is_inference() for t in inside[0]]
    assert [True] * 3 == [t.is_inference() for t in inside[1]]
    assert [False] * 3 == [t.is_inference() for t in outside]
    assert 4 == normal.version


def test_a_compiled_call_meets_an_inference_tensor_as_eager_does():
    """TEN-22: an entry for ordinary tensors is not valid for it."""
    write, save = al.compile(lambda x: x.add_(1)), al.compile(lambda x, w: x * w)
    write(al.ones(4, dtype=al.float64))
    save(al.ones(4, dtype=al.float64), leaf(al, 4))
    made = made_inside(al)
    for call in (lambda: write(made), lambda: write(made[:]), lambda: save(made, leaf(al, 4))):
        with pytest.raises(al.AutogradError, match="is an inference tensor"):
            call()
    assert [[1, 1, 1, 1]] == values(made)


@pytest.mark.rules("GEN-2")
def test_the_mode_cannot_change_inside_a_captured_function():
    """TEN-22."""

    def f(x):
        with al.inference_mode():
            return x * 2

    with pytest.raises(al.UnsupportedError, match="inference_mode cannot be captured"):
        al.compile(f)(al.ones(2))
    assert (True, False) == modes(al)


# --------------------------------------------------------------------------- detach_, leaf views
def test_detach_takes_a_tensor_out_of_its_history(lib):
    """TEN-23: the object itself; it counts as no write."""
    x = leaf(lib)
    y = x * 2
    z = y * 3
    assert y.detach_() is y
    assert (None, False, 0) == (y.grad_fn, y.requires_grad, y._version)
    z.sum().backward()
    assert [[6, 6]] == values(x.grad)
    assert not x.detach_().requires_grad


def test_a_view_is_not_detached_in_place(lib):
    """TEN-23: whether it requires grad or not."""
    for base in (lib.ones(4), leaf(lib, 4) * 1):
        with raises(lib, RuntimeError, "^detach_: the tensor is a view, expected one that is not"):
            base[:2].detach_()


def test_a_detached_base_that_is_written_later_gives_its_views_the_new_history(lib):
    """TEN-18, TEN-23."""
    x, w = leaf(lib, 4), leaf(lib, 4, value=3.0)
    y = x * 1
    view = y[:2]
    y.detach_()
    y.mul_(w)
    (view * 1).sum().backward()
    assert [None, [1, 1, 0, 0]] == values(x.grad, w.grad)


def test_a_view_of_a_tensor_without_grad_can_be_a_leaf(lib):
    """TEN-23: its base stays as it is and may be written, which the leaf sees."""
    base = lib.ones(4, dtype=lib.float64)
    view = base[:2].requires_grad_()
    (view * 2).sum().backward()
    base.add_(1)
    assert (False, True) == (base.requires_grad, view.is_leaf)
    assert [[2, 2], [2, 2]] == values(view, view.grad)
