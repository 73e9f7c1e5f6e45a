"""`__tensor_function__` and `__tensor_coerce_gradient__`: what classes do above autograd."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError, AutogradError, ProtocolError, ShapeError
from aotlite.subclasses import TwoTensor
from tests.subclasses.helpers.toys import Boxed


class Above(Boxed):
    """A box whose function is what its class attribute says."""

    function: Any = None

    @classmethod
    def __tensor_function__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return cls.function(func, *args)


def kind_of(function: Any) -> Any:
    return type("Kind", (Above,), {"function": staticmethod(function)})


@pytest.mark.rules("SUB-10")
def test_an_op_that_is_others_has_their_gradients() -> None:
    """The tape sees what the function calls, and views are not asked for."""
    asked: list[str] = []

    def function(func: Any, *args: Any) -> Any:
        asked.append(func.__name__)
        return al.ops.neg(args[0]) if func is al.ops.exp else NotImplemented

    x = kind_of(function)(al.ones(2)).requires_grad_()
    y = x.view(2).exp()
    assert (y.inner.tolist(), type(y.grad_fn).__name__, y.grad_fn.name()) == (
        [-1.0, -1.0], "OpNode", "NegBackward",
    )  # fmt: skip
    y.backward(Boxed(al.ones(2)))
    assert x.grad.inner.tolist() == [-1.0, -1.0]
    assert "view" not in asked


@pytest.mark.parametrize(
    ("function", "call", "message"),
    [
        (lambda func, x, *rest: 3, lambda x: x.exp(), "exp: .* gives 3, expected a tensor"),
        (lambda func, x, *rest: al.ones(3), lambda x: x.exp(), r"gives f32\[3\], expected shape"),
        (lambda func, x, *rest: x, lambda x: x.aminmax(), "expected a tuple of 2 tensors"),
        (lambda func, x, *rest: al.ones(2), lambda x: x.exp_(), "expected the tensor that is wr"),
    ],
)
@pytest.mark.rules("SUB-10", "SUB-23")
def test_a_function_that_gives_nonsense_is_named(function: Any, call: Any, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        call(kind_of(function)(al.ones(2)))


@pytest.mark.rules("SUB-10", "SUB-15")
def test_whether_a_write_may_be_is_asked_before_the_function() -> None:
    def function(func: Any, *args: Any) -> Any:
        raise AssertionError("it is asked")

    kind = kind_of(function)
    with pytest.raises(AutogradError, match="a leaf"):
        kind(al.ones(2)).requires_grad_().add_(1)
    with pytest.raises(ShapeError, match="the destination has shape"):
        kind(al.ones(2)).add_(al.ones(3, 2))
    with pytest.raises(AliasError, match="overlaps itself"):
        kind(al.ones(1)).expand(2).add_(1)


@pytest.mark.rules("SUB-15")
def test_an_operand_that_overlaps_the_target_in_part_is_an_error_as_of_tensors() -> None:
    """TEN-7: classes that compute first would not notice."""
    x = TwoTensor(al.arange(3.0), al.arange(3.0))
    for target in (x, x.a):
        with pytest.raises(AliasError, match="overlaps the destination .* in part"):
            target[1:].add_(target[:2])
    assert x[1:].add_(x[1:]).a.tolist() == [2.0, 4.0]


@pytest.mark.rules("SUB-7")
def test_a_copy_onto_itself_counts_and_changes_no_history() -> None:
    x = TwoTensor(al.ones(2), al.ones(2)).requires_grad_()
    y = x * 2
    before = y.grad_fn
    assert y.copy_(y) is y
    assert (y.version, y.grad_fn) == (1, before)


@pytest.mark.rules("SUB-15")
def test_a_class_that_asks_another_to_write_is_counted_once() -> None:
    class Outer(Boxed):
        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(args[0], TwoTensor):
                return func(args[0], args[1].inner)
            return super().__tensor_dispatch__(func, types, args, kwargs)

    x = TwoTensor(al.ones(2), al.zeros(2))
    assert x.add_(Outer(al.ones(2))) is x
    assert (x.version, x.b.tolist()) == (1, [1.0, 1.0])


@pytest.mark.rules("TAN-5")
def test_a_gradient_that_is_given_takes_the_form_of_the_tensor() -> None:
    class Fitting(Boxed):
        def __tensor_coerce_gradient__(self, gradient: Tensor) -> Tensor:
            return gradient if isinstance(gradient, Boxed) else type(self)(gradient * 10)

    x = Fitting(al.ones(2)).requires_grad_()
    x.view(2).backward(al.ones(2))
    assert isinstance(x.grad, Fitting)
    assert x.grad.inner.tolist() == [10.0, 10.0]
    (found,) = al.autograd.grad(x * 1, x, Fitting(al.ones(2)))
    assert isinstance(found, Fitting)
    assert found.inner.tolist() == [1.0, 1.0]


@pytest.mark.rules("SUB-7")
def test_gradients_of_wrappers_lie_as_their_leaves_do() -> None:
    x = TwoTensor(al.ones(2, 3), al.ones(2, 3)).requires_grad_()
    x.t().backward(TwoTensor(al.ones(3, 2), al.ones(3, 2)))
    assert x.grad is not None
    assert (x.grad.stride(), x.grad.a.stride()) == ((3, 1), (3, 1))
