"""SAV-1, SAV-2, SAV-5: what is saved is checked, retained and let go as by eager's tape."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al


def product(x: Any, y: Any, w: Any) -> Any:
    return (x * w * y,)


def through_views(x: Any, y: Any, w: Any) -> Any:
    return ((x.t() * w).exp(), x[:1])


def of_parts(x: Any, y: Any, w: Any) -> Any:
    return (x[:1] * w[:1], y[:, 0] * w[:, 0])


def of_results(x: Any, y: Any, w: Any) -> Any:
    first = (w * 2).exp()
    return (first, first.sin() * x, y)


def written_inside(x: Any, y: Any, w: Any) -> Any:
    z = x * w
    y.add_(1)
    return (z * y,)


def of_sizes_alone(x: Any, y: Any, w: Any) -> Any:
    return (x.expand(3, 2, 2) + w, (y + w).sum())


FUNCTIONS = (product, through_views, of_parts, of_results, written_inside, of_sizes_alone)
WRITTEN = ("x", "y", "w", "result 0", "result -1", "a view of x", "a detached alias of y")


def outcome(run: Any, written: str, which: int) -> list[Any]:
    x, y = al.ones(2, 2), al.ones(2, 2) * 2
    leaf = al.ones(2, 2).requires_grad_()
    w = leaf * 3
    results = run(x, y, w)
    target = {
        "x": x,
        "y": y,
        "w": w,
        "result 0": results[0],
        "result -1": results[-1],
        "a view of x": x[0],
        "a detached alias of y": y.detach(),
    }[written]
    loss = results[which].sum()
    with al.no_grad():
        target.add_(1)
    try:
        loss.backward()
        return [None if leaf.grad is None else leaf.grad.tolist()]
    except al.AutogradError as error:
        return [type(error)]


@pytest.mark.rules("SAV-2")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_write_between_call_and_backward_is_noticed_where_eager_notices_it(function, partition):
    """All choices of what is written and of the result that is differentiated."""
    compiled = al.compile(function, partition=partition)
    errors = 0
    count = len(function(al.ones(2, 2), al.ones(2, 2), al.ones(2, 2)))
    for written, which in itertools.product(WRITTEN, range(count)):
        try:
            eager = outcome(function, written, which)
        except al.AutogradError:  # the result has no history
            continue
        assert eager == outcome(compiled, written, which), (written, which)
        errors += eager == [al.AutogradError]
    assert function is of_sizes_alone or errors


@pytest.mark.draws(long=400)
@pytest.mark.rules("SAV-1", "SAV-5")
@settings(max_examples=66)
@given(
    function=st.sampled_from((product, of_parts, through_views)),
    retained=st.lists(st.booleans(), min_size=1, max_size=4),
    by=st.sampled_from(("backward", "grad")),
)
def test_backwards_run_again_where_the_graph_is_retained(
    function: Any, retained: list[bool], by: str
) -> None:
    """Gradients add up; after one that does not retain the next is an error."""
    found = []
    for run in (function, al.compile(function)):
        w = al.full((2, 2), 1.5).requires_grad_()
        loss = run(al.ones(2, 2), al.ones(2, 2) * 2, w)[0].sum()
        seen: list[Any] = []
        for retain in retained:
            try:
                if by == "grad":
                    (grad,) = al.autograd.grad(loss, w, retain_graph=retain)
                else:
                    loss.backward(retain_graph=retain)
                    grad = w.grad
                assert grad is not None
                seen.append(grad.tolist())
            except al.AutogradError as error:
                seen.append(type(error))
        found.append(seen)
    assert found[0] == found[1]


@pytest.mark.rules("SAV-3")
def test_a_version_that_is_not_checked_is_no_error():
    """The backward reads what it kept as it then is, whichever partition it was cut by."""

    class Own(al.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.w = w.t()
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.w + 1).exp().t(), None

    for partition in ("default", "min_cut"):
        found = []
        for run in (Own.apply, al.compile(Own.apply, partition=partition)):
            x, w = al.ones(2, 3).requires_grad_(), al.zeros(2, 3)
            y = run(x, w)
            w[0].fill_(1.0)
            y.sum().backward()
            found.append(x.grad.tolist())
        assert found[0] == found[1]


@pytest.mark.rules("SAV-2", "TEN-26")
@pytest.mark.parametrize("written", ["argument", "its view", "the other", "nothing"])
@pytest.mark.parametrize("saved", [0, 1])
@pytest.mark.parametrize("swapped", [False, True])
def test_saved_memory_that_an_argument_has_left_is_watched(
    written: str, saved: int, swapped: bool
) -> None:
    """Whichever argument leaves it, and whichever names it."""

    def body(x: Any, view: Any, y: Any, w: Any) -> Any:
        given = (x, view)
        product = given[saved] * w if saved != swapped else None
        given[swapped].set_(y)
        return given[saved] * w if product is None else product

    found = []
    for run in (body, al.compile(body)):
        x, y, w = al.ones(3), al.full((3,), 2.0), al.ones(3).requires_grad_()
        view = x.view(3)
        result = run(x, view, y, w)
        {"argument": x, "its view": view, "the other": y, "nothing": al.ones(3)}[written].add_(1)
        try:
            result.sum().backward()
            assert w.grad is not None
            found.append(w.grad.tolist())
        except al.AutogradError:
            found.append("written")
    assert found[0] == found[1]


def write_argument(x: Any) -> Any:
    y = x.exp() * x
    with al.no_grad():
        x.add_(1)
    return y, x * 2


def write_part(x: Any) -> Any:
    y = x[1:].sin()
    with al.no_grad():
        x.add_(1)
        x[:1].mul_(2)
    return y, y * 3


def write_result(x: Any) -> Any:
    z = x * 2
    w = z.exp() * z
    z.add_(1)
    return w, z


@pytest.mark.rules("SAV-2", "JNT-15")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [write_argument, write_part, write_result])
def test_error_of_a_write_inside_has_the_versions_of_each_call(
    function: Any, dynamic: bool
) -> None:
    def texts(called: Any) -> list[str]:
        x, found = al.ones(3).requires_grad_(), []
        for call in range(3):
            results = called(x)
            if call:
                results[1].detach().add_(1)
            for _ in range(2):
                with pytest.raises(al.AutogradError, match="modified in place") as caught:
                    al.autograd.grad(results[0].sum(), [x])
                found.append(str(caught.value))
                with al.no_grad():
                    x.mul_(1)
        return found

    assert texts(al.compile(function, dynamic=dynamic)) == texts(function)
