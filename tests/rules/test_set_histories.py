"""`set_` of a tensor with a history, under no_grad: eager, compiled, and PyTorch's. TEN-26."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.testing import assert_same_effects

pytestmark = pytest.mark.rules("TEN-26")


def put(lib: Any, y: Any, q: Any) -> None:
    with lib.no_grad():
        y.set_(q)


def read(lib: Any, y: Any, q: Any) -> Any:
    put(lib, y, q)
    return (y * y).sum()


def read_before_and_after(lib: Any, y: Any, q: Any) -> Any:
    before = y.sum()
    put(lib, y, q)
    return before + (y * 3).sum()


def saved_before(lib: Any, y: Any, q: Any) -> Any:
    """What was saved of it is another value: an error of the backward."""
    total = (y * y).sum()
    put(lib, y, q)
    return total


def seen_before(lib: Any, y: Any, q: Any) -> Any:
    """The view stays where it was, and its gradient goes where it did."""
    view = y[:1]
    put(lib, y, q)
    return (view * 2).sum() + (y * y).sum()


def seen_after(lib: Any, y: Any, q: Any) -> Any:
    put(lib, y, q)
    return y[0] * 2


def twice(lib: Any, y: Any, q: Any) -> Any:
    put(lib, y, q)
    put(lib, y, q * 2)
    return (y * y).sum()


def written_after(lib: Any, y: Any, q: Any) -> Any:
    put(lib, y, q)
    y.mul_(2)
    return (y * y).sum()


def written_before(lib: Any, y: Any, q: Any) -> Any:
    y.mul_(2)
    put(lib, y, q)
    return (y * y).sum()


def a_view(lib: Any, y: Any, q: Any) -> Any:
    """A view that is put elsewhere keeps its way to its base."""
    view = y.view(2)
    put(lib, view, q)
    return (view * view).sum() + y.sum()


BODIES = [
    read, read_before_and_after, saved_before, seen_before, seen_after, twice, written_after,
    written_before, a_view,
]  # fmt: skip
Body = Callable[[Any, Any, Any], Any]


def inside(body: Body) -> Body:
    """The tensor that is put elsewhere is the function's own."""
    return lambda lib, x, q: body(lib, x * 3, q)


def shown(lib: Any, function: Callable[[Any, Any], Any], *, own: bool) -> list[Any]:
    """Values, the gradient, and what the caller sees of the tensor; or the error's class."""
    x = lib.tensor([1.0, 2.0], dtype=lib.float64).requires_grad_()
    q = lib.tensor([5.0, 6.0], dtype=lib.float64)
    y = x if own else x * 3
    total = function(y, q)
    found = [total.item(), q.tolist(), y.is_leaf, y.requires_grad, y.tolist()]
    try:
        total.backward()
    except RuntimeError:
        return [*found, "an error"]
    return [*found, x.grad.tolist()]


@pytest.mark.parametrize("own", [False, True], ids=["argument", "own"])
@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
def test_a_tensor_that_is_put_elsewhere_keeps_its_history(body: Body, own: bool) -> None:
    run = inside(body) if own else body
    function: Callable[[Any, Any], Any] = lambda y, q: run(al, y, q)
    eager = shown(al, function, own=own)
    if body in (written_after, written_before) and not own:
        with pytest.raises(al.UnsupportedError, match="onto other memory by set_ and requires"):
            shown(al, al.compile(function, backend="reference"), own=own)
        return
    assert eager == shown(al, al.compile(function, backend="reference"), own=own)


@pytest.mark.torch
@pytest.mark.parametrize("own", [False, True], ids=["argument", "own"])
@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
def test_what_is_put_elsewhere_has_pytorchs_gradient(body: Body, own: bool, torch: Any) -> None:
    run = inside(body) if own else body
    mine = shown(al, lambda y, q: run(al, y, q), own=own)
    assert shown(torch, lambda y, q: run(torch, y, q), own=own) == mine


def test_the_history_of_a_compiled_calls_argument_is_the_callers() -> None:
    """Its tape node is the one that it had, and its later uses reach the leaf."""
    x = al.tensor([1.0, 2.0], requires_grad=True)
    y, q = x * 3, al.tensor([5.0, 6.0])
    node = y.grad_fn
    al.compile(lambda y, q: read(al, y, q), backend="reference")(y, q)
    assert node is y.grad_fn and y.is_set_to(q)
    (y * y).sum().backward()
    assert x.grad is not None and [30, 36] == x.grad.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_memory_of_another_shape_does_not_take_the_history(compiled: bool) -> None:
    """Its gradients would not fit: PyTorch says so in the backward, after the tensor has moved."""
    x = al.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    function: Any = lambda y, q: put(al, y, q)
    run = al.compile(function, backend="reference") if compiled else function
    with pytest.raises(al.AutogradError) as caught:
        run(y, al.ones(3))
    assert "set_: the source has shape (3,), expected (2,), that of a tensor with a history" in str(
        caught.value
    )
    assert [3, 6] == y.tolist() and 0 == y._version


@pytest.mark.rules("TEN-26")
def test_a_view_made_under_no_grad_is_put_elsewhere() -> None:
    """The write that `set_` counts comes behind the last look at the view's history."""

    def put(x: Any) -> Any:
        view = x.permute((1, 0))
        view.set_(x)
        return view * 2.0

    x = al.ones(2, 3, requires_grad=True) * 3.0
    with al.no_grad():
        expected = put(x)
        found = al.compile(put, backend="reference")(x)
    assert expected.tolist() == found.tolist()
    assert expected.requires_grad is found.requires_grad


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "t_": lambda x, y: y.t_(),
    "unsqueeze_": lambda x, y: y.unsqueeze_(0),
    "as_strided_": lambda x, y: y.as_strided_((2, 2), (1, 1)),
    "set_": lambda x, y: y.set_(x),
}


@pytest.mark.rules("FUN-18", "GEN-2")
@pytest.mark.parametrize("computes", [False, True])
@pytest.mark.parametrize(
    ("order", "refused"),
    [
        (("set_",), False),
        (("set_", "t_"), False),
        (("set_", "set_"), False),
        (("t_", "t_", "set_"), False),
        (("t_", "set_"), True),
        (("t_", "set_", "t_"), True),
        (("unsqueeze_", "set_"), True),
        (("as_strided_", "set_"), True),
    ],
)
def test_a_leaf_of_another_geometry_is_put_nowhere(
    order: tuple[str, ...], refused: bool, computes: bool
) -> None:
    """Gradients of views of before have that geometry in eager, and fit by chance alone."""

    def inputs() -> Any:
        y = al.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        return al.tensor([[5.0, 6.0], [7.0, 8.0]]), y

    for place in range(len(order)):

        def f(x: Any, y: Any, place: int = place) -> Any:
            for number, name in enumerate(order):
                if number == place:
                    view = y.select(0, 0)
                with al.no_grad():
                    CHANGES[name](x, y)
            return view * 2 if computes else view

        if refused:
            with pytest.raises(al.UnsupportedError, match=f"changes its geometry by {order[0]}"):
                al.compile(f)(*inputs())
        else:
            assert_same_effects(f, al.compile(f), inputs)
