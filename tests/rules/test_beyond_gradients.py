"""Flaws of PyTorch's gradients that are none here, each by its smallest program (TAN, SAV, TEN)."""

from contextlib import nullcontext

import pytest

import aotlite as al
from aotlite.partition import min_cut_rematerialization_partition


@pytest.mark.rules("TAN-8")
def test_a_gradient_that_does_not_arrive_is_none(way):
    """#131794: in PyTorch it is zeros. A22."""
    a, b = way.leaf([0.0]), way.leaf([0.0])
    first, _ = way.compiled(lambda a, b: (a.sin(), b.sin()))(a, b)
    first.sum().backward()
    grads = [None if x.grad is None else x.grad.tolist() for x in (a, b)]
    way.shows(grads, [[1], None], pytorch=[[1], [0]])


@pytest.mark.rules("SAV-2")
def test_a_write_of_what_a_saved_view_looks_at_is_seen(way):
    """#197887: in PyTorch where the backend makes the view anew."""
    x, w = way.tensor([[1.0, 2.0]]), way.leaf([[3.0, 4.0]])
    got = way.copying(lambda x, w: x.t() @ w)(x, w)
    x.add_(1)
    told = way.outcome(lambda: got.sum().backward())
    way.shows(told, "raises RuntimeError", pytorch=None)


@pytest.mark.rules("SAV-2")
def test_a_write_of_a_saved_input_is_seen(way):
    x, w = way.tensor([1.0, 2.0]), way.leaf([3.0, 4.0])
    got = way.compiled(lambda x, w: x * w)(x, w)
    x.add_(1)
    assert way.outcome(lambda: got.sum().backward()) == "raises RuntimeError"


def donated(way):
    """A block in which PyTorch's backwards may overwrite what was saved."""
    if way.is_ours:
        return nullcontext()
    import torch._functorch.config as config

    return config.patch(donated_buffer=True)


@pytest.mark.rules("SAV-4", "SAV-5")
def test_a_backward_that_retains_may_run_again(way):
    """With donated buffers PyTorch refuses the first."""
    x = way.leaf([0.0, 0.0])
    with donated(way):
        call = way.compiled(lambda x: x.exp().sin())
        call(x).sum().backward()
        got = call(x).sum()
        told = way.outcome(lambda: [got.backward(retain_graph=True) for _ in range(2)])
    way.shows(told, [None, None], pytorch="raises RuntimeError")


@pytest.mark.rules("FUN-14")
def test_a_leaf_that_is_written_through_detach(way):
    """A4: the gradient is that at the new values."""
    x = way.leaf([1.0, 2.0])

    def write(x):
        x.detach().mul_(2)
        return x * x

    got = way.compiled(write)(x)
    got.sum().backward()
    assert ([4, 16], [2, 4], [4, 8]) == (got.tolist(), x.tolist(), x.grad.tolist())


@pytest.mark.rules("PART-31")
def test_an_input_that_is_written_is_not_saved(way):
    """A28: min-cut in PyTorch saves the input, which is zero when the gradient is computed."""
    x, w = way.tensor([1.0, 2.0]), way.leaf([3.0, 4.0])

    def write(x, w):
        y = (x + 1) * w
        x.zero_()
        return y

    if not way.compiles:
        call = write
    elif way.is_ours:
        call = al.compile(write, partition=min_cut_rematerialization_partition)
    else:
        from torch._functorch import partitioners

        theirs = partitioners.min_cut_rematerialization_partition
        call = way.compiled(write, partition_fn=theirs)
    call(x, w).sum().backward()
    way.shows(w.grad.tolist(), [2, 3], pytorch=[1, 1])


def pair_of(lib):
    """A function of two tensors with gradients of its own."""

    class Pair(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, 3 * g

    return Pair.apply


@pytest.mark.rules("TEN-31")
def test_one_tensor_in_two_places_of_a_custom_function_has_both_gradients(way):
    """#181146."""
    apply = pair_of(way.lib)
    x = way.leaf([1.0, 2.0])
    way.compiled(lambda x: apply(x, x))(x).sum().backward()
    assert [4, 4] == x.grad.tolist()


@pytest.mark.rules("TEN-31")
def test_an_inner_value_that_a_custom_function_saved_is_not_differentiated_again(way):
    """#76185, #104040: PyTorch takes it for a constant; the second derivative of x^6 is 480."""

    class Cube(way.lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            square = x * x
            ctx.save_for_backward(square)
            return square * x

        @staticmethod
        def backward(ctx, g):
            (square,) = ctx.saved_tensors
            return 3 * square * g

    x = way.leaf([2.0])
    call = way.compiled(lambda x: Cube.apply(x))

    def second():
        (first,) = way.lib.autograd.grad((call(x) ** 2).sum(), x, create_graph=True)
        return [g.tolist() for g in way.lib.autograd.grad(first.sum(), x)]

    way.shows(way.outcome(second), "raises RuntimeError", eager=[[288]])


@pytest.mark.rules("TEN-31")
def test_a_backward_that_writes_its_gradient_is_refused(way):
    """#81417: PyTorch writes what others hold."""

    class Writes(way.lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            g.mul_(2)
            return g

    x, given = way.leaf([1.0]), way.tensor([1.0])

    def run():
        way.compiled(lambda x: Writes.apply(x))(x).backward(given)
        return given.tolist()

    way.shows(way.outcome(run), "raises RuntimeError", eager=[2], pytorch=[1])


def gradient_beside(lib, *, written_first):
    """The gradient of a sum of two uses, one through a backward that writes, and what was given."""

    class Writes(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.mul_(2)

    x, given = lib.tensor([1.0], requires_grad=True), lib.tensor([1.0])
    uses = [Writes.apply, lambda x: x * 1]
    first, second = [use(x) for use in (uses if written_first else uses[::-1])]
    (first + second).backward(given)
    return x.grad.tolist(), given.tolist()


@pytest.mark.torch
@pytest.mark.rules("TEN-31")
def test_what_a_backward_that_writes_its_gradient_gives_depends_on_the_order_in_pytorch(torch):
    """3 is right. This is why such a write is refused here, as the page of differences says."""
    assert ([3], [2]) == gradient_beside(torch, written_first=True)
    assert ([4], [2]) == gradient_beside(torch, written_first=False)


@pytest.mark.rules("TEN-31")
@pytest.mark.parametrize("written_first", [True, False])
def test_a_backward_that_writes_what_others_hold_is_refused_in_any_order(written_first):
    with pytest.raises(al.AutogradError, match="gradient 0 was modified in place by the backward"):
        gradient_beside(al, written_first=written_first)


@pytest.mark.rules("TEN-35")
def test_the_conjugate_is_a_copy(way):
    x = way.lib.tensor([1 + 2j])
    y = way.compiled(lambda x: x.conj())(x)
    x.zero_()
    way.shows(y.tolist(), [1 - 2j], eager=[0], pytorch=[0])


@pytest.mark.rules("TEN-35")
def test_a_write_to_a_conjugate_does_not_reach_its_tensor(way):
    """Decision 0029: what reaches it is a write of the conjugate."""

    def through(x):
        x.conj().mul_(2j)
        return x.clone()

    x = way.lib.tensor([1 + 2j])
    way.shows(way.compiled(through)(x).tolist(), [1 + 2j], eager=[4 - 2j], pytorch=[4 - 2j])

    def said(x):
        x.conj_physical_()
        x.mul_(2j)
        x.conj_physical_()
        return x.clone()

    x = way.lib.tensor([1 + 2j])
    result = way.compiled(said)(x).resolve_conj().resolve_neg()
    assert result.tolist() == [4 - 2j]
    assert not result.is_conj() and not result.is_neg()


@pytest.mark.rules("FUN-33")
def test_what_a_backward_writes_is_the_callers_tensor(way):
    """#172956, #174124: in PyTorch the caller's tensor has changed when the call returns."""

    class Counted(way.lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.count = x.detach() * 0
            ctx.mark_non_differentiable(ctx.count)
            return x * 2, ctx.count

        @staticmethod
        def backward(ctx, g, _):
            ctx.count.add_(1)
            return g * 2

    x = way.leaf([1.0, 2.0])

    def run():
        got, count = way.compiled(lambda x: Counted.apply(x))(x)
        before = count.tolist()
        got.sum().backward()
        return before, count.tolist(), x.grad.tolist()

    way.shows(way.outcome(run), ([0, 0], [1, 1], [2, 2]), pytorch=([1, 1], [1, 1], [2, 2]))
