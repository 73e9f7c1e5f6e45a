"""META-8: views whose gradient does not go by their base keep it, and share memory all the same."""

import itertools

import pytest

import aotlite as al


class Tenfold(al.autograd.Function):
    """A view of its argument, with a gradient that no view has."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return (grad * 10).view(ctx.shape)


class Both(al.autograd.Function):
    """Two views of its argument."""

    @staticmethod
    def forward(ctx, x):
        return x.t(), x[0]

    @staticmethod
    def backward(ctx, whole, row):
        grad = (whole * 10).t().clone()
        grad[0].add_(row * 100)
        return grad


class Alike(al.autograd.Function):
    """The argument's memory by detach(), which is no view."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


def hooked(x):
    view = x.view(-1)
    view.register_hook(lambda grad: grad * 7)
    return view


MADE = {
    "a view": lambda x: (Tenfold.apply(x),),
    "two views": Both.apply,
    "the same memory": lambda x: (Alike.apply(x),),
    "a view with a hook": lambda x: (hooked(x),),
}
FURTHER = {
    "itself": lambda views: views,
    "the last": lambda views: views[-1:],
    "a view of it": lambda views: (views[0][1:],),
    "it and a view of it": lambda views: (views[0], views[0][1:]),
    "a product": lambda views: (views[0] * 2, *views[1:]),
}
OF = {
    "the input": lambda x: (x, ()),
    "an intermediate": lambda x: (x * 2, ()),
    "a result": lambda x: (lambda y: (y, (y,)))(x * 2),
    "a view of the input": lambda x: (x[:2], ()),
}
AFTER = {
    "nothing": lambda x, views: None,
    "a view is written": lambda x, views: views[-1].mul_(3),
    "the input is written": lambda x, views: x.mul_(3),
    "a view is written under no_grad": lambda x, views: al.no_grad()(views[-1].mul_)(3),
}


def state(tensor, others):
    return (
        tensor.tolist(),
        tensor.stride(),
        tensor.requires_grad,
        tensor.is_leaf,
        tensor._version,
        [tensor._base is other for other in others],
        [tensor.storage is other.storage for other in others],
        tensor._kind,
    )


def story(f, after):
    """What happens in a call, by a write afterwards, and in a backward."""
    leaf = al.arange(6.0).view(3, 2).clone().requires_grad_()
    x = leaf * 1
    found = []
    try:
        views = f(x)
        found.append([state(each, [x, *views]) for each in views])
        after(x, views)
        found.append([state(each, [x, *views]) for each in views])
        sum((k + 2) * (each * each).sum() for k, each in enumerate(views)).backward()
        found.append(leaf.grad.tolist())
    except al.AotliteError as error:
        found.append(type(error).__name__)
    return found


@pytest.mark.rules("META-8", "META-6", "RT-6")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("made", MADE)
def test_views_with_a_gradient_of_their_own_are_those_of_eager(made, of):
    """All of made x further x of x after: memory, kind, versions, gradients, errors."""
    refused = []
    for further, after in itertools.product(FURTHER, AFTER):

        def f(x, further=further):
            source, more = OF[of](x)
            return (*FURTHER[further](MADE[made](source)), *more)

        eager = story(f, AFTER[after])
        compiled = story(al.compile(f), AFTER[after])
        if compiled == ["UnsupportedError"]:
            refused.append(further)
        else:
            assert eager == compiled, (made, further, of, after)
    expected = {"a view of it"} if made == "the same memory" else set()
    assert expected >= set(refused)


@pytest.mark.rules("META-8", "GEN-5")
def test_a_view_with_a_gradient_of_its_own_makes_a_training_graph():
    f = al.compile(lambda x: Tenfold.apply(x))
    f(al.ones(2, 2).requires_grad_())
    assert f.partition.backward is not None


@pytest.mark.rules("META-8")
def test_a_leaf_on_the_memory_of_another_result_is_a_leaf():
    def f(x):
        y = x * 2
        return y, y.detach().requires_grad_()

    found = []
    for run in (f, al.compile(f)):
        x = al.ones(2).requires_grad_()
        y, leaf = run(x)
        (leaf * 3).sum().backward()
        y.sum().backward()
        found.append((state(leaf, [y]), leaf.grad.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.rules("META-8", "GEN-2")
def test_a_view_of_what_detach_gave_with_a_history_of_its_own_is_refused():
    """Unless what it is a view of is a result, too: nothing else carries the history for both."""

    def f(x, w):
        alone = x.detach()
        alone.mul_(w)
        return alone[0]

    x = al.ones(2)
    with pytest.raises(al.UnsupportedError, match="^analyze: output 0 is a view of what detach"):
        al.compile(f)(x, al.ones(2).requires_grad_())
    assert ([1.0, 1.0], 0) == (x.tolist(), x._version)
