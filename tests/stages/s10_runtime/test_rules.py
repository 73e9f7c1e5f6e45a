"""Worked examples of the rules of stage 10: writes, aliases, tangents, saved values, guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al


def leaf(*values: float) -> Any:
    return al.tensor(list(values), dtype=al.float64, requires_grad=True)


def plain(*values: float) -> Any:
    return al.tensor(list(values), dtype=al.float64)


# --------------------------------------------------------------------------------- RT, in order
@pytest.mark.rules("RT-1")
def test_a_result_that_views_an_updated_input_sees_the_new_data() -> None:
    """RT-1: writes come before aliased results."""
    x = plain(1, 2, 3, 4)

    @al.compile
    def function(x: Any) -> Any:
        x.mul_(2)
        return x[1:]

    view = function(x)
    assert [4.0, 6.0, 8.0] == view.tolist()
    view.mul_(10)
    assert [2.0, 40.0, 60.0, 80.0] == x.tolist()


@pytest.mark.rules("RT-2")
def test_an_updated_input_carries_its_history_to_the_caller() -> None:
    """RT-2."""
    w = leaf(1, 2)
    x = w * 1
    al.compile(lambda x: x.mul_(3))(x)
    (x * x).sum().backward()
    assert [18.0, 36.0] == w.grad.tolist()


@pytest.mark.rules("RT-3")
def test_geometry_and_data_of_an_input_both_change() -> None:
    """RT-3."""
    x = al.arange(6, dtype=al.float64).view(2, 3).clone()
    other = x.view(-1)
    al.compile(lambda x: x.t_().mul_(2))(x)
    assert ((3, 2), (1, 3)) == (x.shape, x.stride())
    assert [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] == other.tolist()


@pytest.mark.rules("RT-4")
def test_a_leaf_is_written_where_eager_allows_it() -> None:
    """RT-4: it stays a leaf, its history unchanged."""
    x = leaf(1, 2)
    al.compile(lambda x: x.detach().mul_(2))(x)
    assert [2.0, 4.0] == x.tolist()
    assert x.is_leaf
    assert x.requires_grad


@pytest.mark.rules("RT-6")
def test_aliased_results_are_views_of_the_callers_tensors() -> None:
    """RT-6."""
    x = leaf(1, 2) * 1
    view, same = al.compile(lambda x: (x[0], x))(x)
    assert view.base is x
    assert same is x
    assert view.storage is x.storage


@pytest.mark.rules("RT-6")
def test_a_view_made_under_no_grad_is_one_afterwards() -> None:
    """RT-6: it requires grad, has a base and no node, and may not be written with grad on."""
    x = leaf(1, 2) * 1

    @al.compile
    def function(x: Any) -> Any:
        with al.no_grad():
            return x[:1]

    view = function(x)
    assert view.requires_grad
    assert view.base is x
    assert view.grad_fn is None
    with pytest.raises(al.AutogradError, match="under no_grad"):
        view.mul_(2)


@pytest.mark.rules("RT-7")
def test_rebuilt_views_have_the_nodes_of_views() -> None:
    """RT-7: replayed, not as_strided."""
    x = leaf(1, 2, 3, 4) * 1
    view = al.compile(lambda x: x.view(2, 2).t())(x)
    assert "TBackward" == view.grad_fn.name()


@pytest.mark.rules("RT-8", "FUN-16", "META-10")
def test_results_may_be_written_by_their_holder() -> None:
    """RT-8."""
    x = leaf(1, 2)
    flat, turned = al.compile(lambda x: ((x * 2).view(-1, 1), x * 3))(x)
    flat.mul_(2)
    turned.mul_(2)
    (flat.sum() + turned.sum()).backward()
    assert [10.0, 10.0] == x.grad.tolist()


@pytest.mark.rules("RT-9")
def test_an_input_without_a_gradient_is_not_walked() -> None:
    """RT-9: the history of `y`, freed before, is not entered."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = w * w
    y.sum().backward()
    al.compile(lambda x, y: x * y.detach())(x, y).sum().backward()
    assert [9.0, 16.0] == x.grad.tolist()


@pytest.mark.rules("RT-10", "GEN-2")
def test_an_error_in_the_forward_leaves_inputs_untouched() -> None:
    """RT-10: no step of the epilogue runs."""

    class Failing:
        name = "failing"

        def compile(self, graph: Any) -> Any:
            def run(windows: Any) -> Any:
                raise RuntimeError("no memory")

            return run

    x = plain(1, 2)
    with pytest.raises(RuntimeError, match="no memory"):
        al.compile(lambda x: x.mul_(2).sum(), backend=Failing())(x)
    assert [1.0, 2.0] == x.tolist()
    assert 0 == x.version


# ------------------------------------------------------------------------------------ tangents
@pytest.mark.rules("TAN-3")
def test_a_tangent_in_another_layout_is_brought_to_the_expected_one() -> None:
    """TAN-3."""
    x = leaf(1, 2, 3, 4).view(2, 2).detach().requires_grad_()
    gradient = al.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=al.float64).t()
    al.compile(lambda x: x * 2)(x).backward(gradient)
    assert [[2.0, 6.0], [4.0, 8.0]] == x.grad.tolist()


@pytest.mark.rules("TAN-3")
def test_a_tangent_that_overlaps_itself_is_accepted() -> None:
    x = leaf(1, 2, 3)
    al.compile(lambda x: x * 2)(x).backward(plain(1).expand(3))
    assert [2.0, 2.0, 2.0] == x.grad.tolist()


@pytest.mark.rules("TAN-9")
def test_a_tangent_of_another_shape_is_refused_before_compiled_code_runs() -> None:
    """TAN-9."""
    x = leaf(1, 2)
    result = al.compile(lambda x: x * 2)(x)
    with pytest.raises(al.AotliteError):
        result.backward(plain(1, 2, 3))
    assert x.grad is None


@pytest.mark.rules("TAN-8")
def test_inputs_that_only_absent_tangents_reach_have_no_gradient() -> None:
    """TAN-8."""
    a, b = leaf(1), leaf(2)
    first, _ = al.compile(lambda a, b: (a.sin(), b.sin()))(a, b)
    first.backward(plain(1))
    assert a.grad is not None
    assert b.grad is None


def test_a_gradient_is_nobodys_memory_but_its_own() -> None:
    """TEN-29: writing a gradient changes neither saved values nor the other gradient."""
    a, b = leaf(1, 2), leaf(3, 4)
    result = al.compile(lambda a, b: a + b)(a, b)
    given = plain(1, 1)
    result.backward(given, retain_graph=True)
    a.grad.mul_(5)
    assert [1.0, 1.0] == b.grad.tolist()
    assert [1.0, 1.0] == given.tolist()


# --------------------------------------------------------------------------------- saved values
@pytest.mark.rules("SAV-2")
@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.detach().mul_(2)])
def test_a_saved_input_written_before_the_backward_is_found(write: Any) -> None:
    """SAV-2."""
    x, w = plain(1, 2), leaf(3, 4)
    result = al.compile(lambda x, w: x * w)(x, w)
    write(x)
    with pytest.raises(
        al.AutogradError, match=r"saved tensor f64\[2\] \(primals_0\) is at version 1"
    ):
        result.sum().backward()


@pytest.mark.rules("SAV-2")
def test_a_saved_result_written_before_the_backward_is_found() -> None:
    """SAV-2: exp saves its result."""
    x = leaf(1, 2)
    result = al.compile(lambda x: x.exp())(x)
    with al.no_grad():
        result.add_(1)
    with pytest.raises(al.AutogradError, match=r"\(output_0\)"):
        result.sum().backward()


@pytest.mark.rules("SAV-2")
def test_a_value_that_is_not_saved_may_be_written() -> None:
    x, w = plain(1, 2), leaf(3, 4)
    result = al.compile(lambda x, w: x + w)(x, w)
    x.mul_(2)
    result.sum().backward()
    assert [1.0, 1.0] == w.grad.tolist()


@pytest.mark.rules("SAV-5", "SAV-1")
def test_a_retained_backward_runs_again_and_adds() -> None:
    """SAV-5."""
    x = leaf(1, 2)
    result = al.compile(lambda x: (x * x).sum())(x)
    result.backward(retain_graph=True)
    result.backward()
    assert [4.0, 8.0] == x.grad.tolist()
    with pytest.raises(al.AutogradError, match="freed"):
        result.backward()


@pytest.mark.rules("META-12")
def test_parts_of_an_input_have_backwards_of_their_own() -> None:
    """META-12: the first backward does not free the second's graph."""
    start = leaf(1, 2)
    first, second = al.compile(lambda x: x.unbind(0))(start * 1)
    first.backward(retain_graph=True)
    assert [1.0, 0.0] == start.grad.tolist()
    second.backward()
    assert [1.0, 1.0] == start.grad.tolist()


# --------------------------------------------------------------------------------------- guards
def entries(*calls: tuple[Any, ...]) -> int:
    """How many entries a function that writes its first argument makes for these calls."""

    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return x + y

    compiled = al.compile(function)
    for call in calls:
        twins = [np.array(each.detach().tolist()) for each in call]
        expected = twins[0] + 1 + (twins[1] + 1 if call[0] is call[1] else twins[1])
        assert expected.tolist() == compiled(*call).tolist()
    return len(compiled.entries)


@pytest.mark.rules("GRD-1")
def test_equal_metadata_shares_an_entry() -> None:
    """GRD-1; so do slices of one tensor that start elsewhere."""
    base = plain(1, 2, 3, 4)
    assert 1 == entries((plain(1, 2), plain(3, 4)), (plain(5, 6), plain(7, 8)))
    assert 1 == entries((base[:2], plain(1, 2)), (base[2:], plain(1, 2)))


@pytest.mark.rules("GRD-1", "DUP-5")
@pytest.mark.parametrize(
    "other",
    [
        lambda: (plain(1, 2, 3), plain(1, 2, 3)),
        lambda: (al.tensor([1.0, 2.0]), al.tensor([3.0, 4.0])),
        lambda: (plain(1, 2), leaf(3, 4)),
        lambda: (leaf(1, 2) * 1, plain(3, 4)),
        lambda: (plain(1, 9, 2, 9)[::2], plain(3, 4)),
        lambda: (plain(1, 2),) * 2,
    ],
    ids=["size", "dtype", "requires_grad", "history", "stride", "same object"],
)
def test_other_metadata_gets_another_entry(other: Any) -> None:
    """GRD-1, DUP-5."""
    assert 2 == entries((plain(1, 2), plain(3, 4)), other())


@pytest.mark.rules("GRD-1", "GEN-6")
def test_grad_mode_is_guarded() -> None:
    """GRD-1: an entry with a backward is not used under no_grad."""
    compiled = al.compile(lambda x: x * 2)
    x = leaf(1, 2)
    assert compiled(x).requires_grad
    with al.no_grad():
        assert not compiled(x).requires_grad
    assert 2 == len(compiled.entries)


@pytest.mark.rules("GRD-2")
def test_overlap_is_guarded() -> None:
    """GRD-2: what was compiled for separate inputs is not used for overlapping ones."""
    base = plain(1, 2, 3, 4)
    compiled = al.compile(lambda x, y: x.add_(1) + y)
    compiled(plain(1, 2), plain(3, 4))
    compiled(base[:2], base[2:])
    assert [7.0, 7.0] == compiled(base[:2], base[1:3]).tolist()
    assert [3.0, 4.0, 3.0, 4.0] == base.tolist()
    assert 3 == len(compiled.entries)


@pytest.mark.rules("DUP-1", "DUP-2")
def test_a_tensor_passed_twice_collects_both_gradients() -> None:
    """DUP-1, DUP-2."""
    a = leaf(3, 4)
    al.compile(lambda x, y: (x * y).sum())(a, a).backward()
    assert [6.0, 8.0] == a.grad.tolist()
    b = plain(3, 4)
    assert [12.0, 16.0] == al.compile(lambda x, y: x.mul_(2) + y)(b, b).tolist()


@pytest.mark.rules("ALI-8")
def test_overlapping_inputs_that_nobody_writes_need_nothing() -> None:
    """ALI-8."""
    base = leaf(1, 2, 3) * 1
    result = al.compile(lambda x, y: x * y)(base[:2], base[1:])
    assert [2.0, 6.0] == result.tolist()
