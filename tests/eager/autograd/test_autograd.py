"""`backward` and `grad` as a user calls them, and the tape's meaning of leaf and history."""

import copy
from typing import Any

import pytest

import aotlite as al

autograd: Any = al.autograd
"""For calls with what is no tensor, which a type checker would refuse."""


def leaf(*values):
    return al.tensor([float(v) for v in values], dtype=al.float64, requires_grad=True)


def test_a_leaf_is_what_no_node_made():
    """TEN-14."""
    x, plain = leaf(1), al.ones(1)
    y = x * 2
    assert [True, True, False] == [t.is_leaf for t in (x, plain, y)]
    assert [True, False, True] == [t.requires_grad for t in (x, plain, y)]
    assert [None, None] == [x.grad_fn, plain.grad_fn]


def test_integers_do_not_require_grad():
    """TEN-14."""
    with pytest.raises(
        al.DTypeError, match="^requires_grad_: the dtype is int64, expected a floating"
    ):
        al.tensor([1]).requires_grad_()


def test_requires_grad_of_a_result_is_not_turned_off():
    """TEN-14."""
    y = leaf(1) * 2
    with pytest.raises(al.AutogradError, match="^requires_grad_: the tensor is not a leaf"):
        y.requires_grad_(False)
    assert y.requires_grad_() is y
    assert leaf(1).requires_grad_(False).requires_grad is False


def test_no_history_is_made_under_no_grad():
    """TEN-21."""
    x = leaf(1)
    with al.no_grad():
        assert not (x * 2).requires_grad
        with al.enable_grad():
            assert (x * 2).requires_grad


def test_grad_gives_gradients_and_leaves_grad_alone():
    x, y = leaf(1, 2), leaf(3, 4)
    middle = x * y
    found = al.autograd.grad(middle.sum() * 2, [middle, x])
    assert [[2, 2], [6, 8]] == [g.tolist() for g in found]
    assert (None, None) == (x.grad, y.grad)


def test_grad_of_an_unused_input_is_an_error_or_none():
    x, y = leaf(1), leaf(2)
    with pytest.raises(al.AutogradError, match="^grad: input 1 is not used by the outputs"):
        al.autograd.grad(x * 2, [x, y])
    assert al.autograd.grad(x * 2, [y], allow_unused=True) == (None,)
    with pytest.raises(
        al.AutogradError, match=r"^grad: input 0 \(f32\[1\]\) does not require grad"
    ):
        al.autograd.grad(x * 2, [al.ones(1)])


def test_derivatives_of_every_order():
    """x**3 through a product, its square through a write: 3x**2, 6x, 6."""
    x = leaf(2)
    y = x * x
    y.mul_(x)
    orders = [y]
    for _ in range(3):
        orders.append(al.autograd.grad(orders[-1], x, create_graph=True)[0])
    assert [8, 12, 12, 6] == [value.item() for value in orders]


def test_derivatives_of_a_write_through_a_view_of_second_order():
    """TEN-17: the slice-assign node's backward is made of differentiable ops."""
    x, w = leaf(1, 2), leaf(3)
    b = x * x
    b[:1].mul_(w)
    (first,) = al.autograd.grad((b * b).sum(), x, create_graph=True)
    (second,) = al.autograd.grad(first.sum(), x)
    # d2/dx2 of w**2 x**4 and of x**4
    assert [9 * 12, 12 * 4] == second.tolist()


def test_the_adjoint_of_windows_counts_from_its_first_element():
    """A gradient that is a contiguous part of something larger has a storage offset."""
    a = al.ones(2, 2, requires_grad=True)
    z = a.strided_accumulate((4,), (1, 2), 0)
    given = al.tensor([1.0, 10, 100, 1000, 5, 6])[2:]
    assert [[100, 5], [1000, 6]] == al.autograd.grad(z, a, given)[0].tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: y.backward(), r"^backward: the tensor has shape \(2,\), expected one element"),
        (lambda y: y.backward(al.ones(3)), r"the gradient has shape \(3,\), expected \(2,\)"),
        (
            lambda y: y.backward([1.0, 2.0]),
            r"^backward: a gradient is \[1.0, 2.0\], expected a tensor",
        ),
        (lambda y: al.ones(2).backward(al.ones(2)), "does not require grad and has no history"),
        (lambda y: al.autograd.backward([y], []), "0 gradients are given for 1 tensors"),
        (lambda y: autograd.backward([3.0]), r"^backward: an output is 3.0, expected a tensor"),
        (lambda y: autograd.grad(y.sum(), [None]), "^grad: an input is None, expected a tensor"),
    ],
)
def test_what_cannot_be_differentiated_is_named(call, message):
    with pytest.raises(al.AotliteError, match=message):
        call(leaf(1, 2) * 2)


def test_grad_takes_tensors_of_the_leafs_shape_and_dtype():
    x = leaf(1, 2)
    for value in (al.ones(3, dtype=al.float64), al.ones(2)):
        with pytest.raises(
            al.AutogradError, match="^grad: the value is f.* expected the shape and dtype"
        ):
            x.grad = value
    with pytest.raises(al.ArgumentError, match="^grad: the value is 3, expected a tensor or None"):
        x.grad = 3
    x.grad = al.ones(2, dtype=al.float64)
    x.grad = None
    assert x.grad is None


def test_a_complex_result_needs_a_gradient():
    """A complex number has no direction of descent."""
    x = al.tensor([1j], requires_grad=True)
    with pytest.raises(
        al.AutogradError, match="^backward: the tensor is complex64, expected a real"
    ):
        (x * 2).backward()


def test_only_leaves_are_copied_deeply():
    x = leaf(1)
    twin = copy.deepcopy(x)
    assert twin.requires_grad and twin is not x and twin.storage is not x.storage
    with pytest.raises(al.AutogradError, match="^deepcopy: the tensor is not a leaf"):
        copy.deepcopy(x * 2)


MIXED = {
    "product": lambda x, z: x * z,
    "product from the left": lambda x, z: z * x,
    "product with a number": lambda x, z: x * 1j,
    "sum": lambda x, z: x + z,
    "difference": lambda x, z: x - z,
    "difference from the left": lambda x, z: z - x,
    "difference from a number": lambda x, z: 2j - x,
    "quotient": lambda x, z: x / z,
    "quotient from the left": lambda x, z: z / x,
    "power": lambda x, z: x**z,
    "power from the left": lambda x, z: z**x,
    "power of a number": lambda x, z: 2j**x,
    "broadcast": lambda x, z: x[:1] * z,
    "cast": lambda x, z: x.to(z.dtype) * z,
    "copy": lambda x, z: z.clone().copy_(x) * z,
    "part of a copy": lambda x, z: z.clone()[:1].copy_(x[:1]) * z,
    "sum in place": lambda x, z: z.clone().add_(x) * z,
}


@pytest.mark.torch
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.filterwarnings("error")
def test_the_gradient_of_a_real_operand_of_a_complex_result_is_its_real_part(torch, name):
    """TEN-36; the absolute value, so that what arrives has both parts."""
    found = []
    for library in (torch, al):
        x = library.tensor([0.5, 2.0], dtype=library.float64).requires_grad_()
        z = library.tensor([1 - 2j, 0.5 + 1j], dtype=library.complex128)
        MIXED[name](x, z).abs().sum().backward()
        assert x.grad.dtype is library.float64
        found.append(x.grad.tolist())
    # Logarithms of complex numbers round differently in the two libraries.
    assert found[0] == pytest.approx(found[1], rel=1e-14)


def test_a_real_operand_of_a_complex_product_is_compiled_as_eager():
    def loss(x):
        return (x * (1 + 2j)).abs().sum()

    x = al.tensor([1.0, -2.0], dtype=al.float64).requires_grad_()
    y = x.detach().clone().requires_grad_()
    loss(x).backward()
    al.compile(loss)(y).backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_the_real_part_of_a_real_tensor_is_itself_and_of_a_complex_one_a_view():
    x, z = al.tensor([1.0]), al.tensor([1 - 2j], dtype=al.complex128).requires_grad_()
    assert x.real is x
    part = z.real
    assert ([1.0], al.float64) == (part.tolist(), part.dtype)
    assert part.base is z
    part.sum().backward()
    assert [1 + 0j] == z.grad.tolist()


def test_a_real_result_takes_no_complex_gradient():
    x = al.ones(1).requires_grad_()
    message = "backward: the gradient of a float32 tensor is complex64, expected a real one"
    with pytest.raises(al.AutogradError, match=message):
        x.backward(al.ones(1, dtype=al.complex64))
