"""RT-1 to RT-8: what is put back after the forward, in every combination, is what eager leaves."""

import itertools
from typing import Any

import pytest

import aotlite as al

ACTIONS = {
    "nothing": lambda x, w: None,
    "a write": lambda x, w: x.mul_(w),
    "a write of numbers": lambda x, w: x.add_(1),
    "a write under no_grad": lambda x, w: al.no_grad()(x.mul_)(3),
    "a write by detach": lambda x, w: x.detach().mul_(3),
    "a write of a part": lambda x, w: x[:, 1:].mul_(w[:, 1:]),
    "a geometry": lambda x, w: x.t_(),
    "a geometry and back": lambda x, w: x.t_().t_(),
    "a write and a geometry": lambda x, w: x.mul_(w).t_(),
    "a geometry and a write": lambda x, w: x.t_().add_(1),
}
RESULTS = {
    "itself": lambda x, before: (x,),
    "a view": lambda x, before: (x[0], x.t()),
    "a view from before": lambda x, before: (before,),
    "views of what is made": lambda x, before: (lambda y: (y.t(), y.view(-1)))(x * 2),
    "what is made and a view": lambda x, before: (lambda y: (y, y[1:], y.detach()))(x * 2),
    "all of it": lambda x, before: (x[1:], x * 2, x, before, x[1:]),
}
KINDS = {
    "plain": (False, lambda leaf: leaf[:4].view(2, 2).clone()),
    "a non-leaf": (True, lambda leaf: leaf[:4].view(2, 2) * 1),
    "a leaf": (True, lambda leaf: leaf.view(2, 4)[:, :2].detach().clone().requires_grad_()),
    "a view": (True, lambda leaf: (leaf * 1)[2:6].view(2, 2)),
}
"""Whether the leaf that an input is made of requires grad, and how it is made."""


def state(tensor: Any, known: list[Any]) -> Any:
    """What can be told of a tensor, and where it stands among others."""
    return (
        tensor.tolist(),
        tensor.stride(),
        tensor.requires_grad,
        tensor.is_leaf,
        tensor._version,
        [tensor is other for other in known],
        [tensor.storage is other.storage for other in known],
        None if tensor._base is None else [tensor._base is other for other in known],
    )


def is_rebuilt(result: Any, x: Any) -> bool:
    if result is x or result._base is None:
        return False
    return result._base is x or result._base is x._base


def story(run: Any, kind: str) -> list[Any]:
    tracked, make = KINDS[kind]
    leaf = al.arange(8.0).requires_grad_(tracked)
    x, w = make(leaf), al.full((2, 2), 1.5).requires_grad_()
    seen: list[Any] = []
    try:
        results = run(x, w)
        known = [x, *results]
        seen.append([state(each, known) for each in known])
        nodes = [r.grad_fn.name() for r in results if is_rebuilt(r, x) and r.grad_fn is not None]
        seen.append(nodes)
        loss = sum((k + 1) * (r * r).sum() for k, r in enumerate(results) if r.requires_grad)
        if isinstance(loss, al.Tensor):
            sources = [each for each in (w, leaf, x) if each.requires_grad and each.is_leaf]
            found = al.autograd.grad(loss, sources, allow_unused=True)
            seen.append([None if grad is None else grad.tolist() for grad in found])
    except al.AotliteError as error:
        seen.append(type(error))
    return seen


@pytest.mark.rules("RT-1", "RT-2", "RT-3", "RT-4", "RT-6", "RT-7", "RT-8", "META-11")
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "general"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_put_back_is_what_eager_leaves(kind: str, fast: bool) -> None:
    """All actions x all results: bytes, geometry, versions, identity, nodes of views, gradients."""
    compared = 0
    for action, result in itertools.product(ACTIONS, RESULTS):

        def f(x: Any, w: Any, action: str = action, result: str = result) -> Any:
            before = x.view(-1)
            ACTIONS[action](x, w)
            return RESULTS[result](x, before)

        eager = story(f, kind)
        compiled = story(al.compile(f, fast_paths=fast), kind)
        if isinstance(eager[0], type):
            assert eager[0] is compiled[0], (action, result)
            continue
        assert eager == compiled, (action, result)
        compared += 1
    assert compared >= 18


@pytest.mark.rules("RT-9")
@pytest.mark.parametrize(
    "use",
    [
        lambda x, y: x * y.detach(),
        lambda x, y: x + al.no_grad()(y.mul)(2),
        lambda x, y: x * y.shape[0],
        lambda x, y: (x * 2, y.detach().add_(1))[0],
    ],
)
def test_histories_that_no_gradient_reaches_may_be_used_up(use):
    """As in eager, no second backward is walked through what an input was made of."""
    for run in (use, al.compile(use)):
        x, w = al.ones(2).requires_grad_(), al.ones(2).requires_grad_()
        used_up = w.exp()
        used_up.sum().backward()
        run(x, used_up).sum().backward()
        assert x.grad is not None


@pytest.mark.rules("RT-10")
@pytest.mark.parametrize("training", [True, False])
def test_a_failing_forward_leaves_every_input_as_it_was(training):
    """Whatever the function would have written, changed or drawn."""

    def failing(graph):
        def run(values):
            raise MemoryError("out of memory")

        return run

    class Backend:
        name = "failing"

        def compile(self, graph):
            return failing(graph)

    def f(x, y, z):
        x.mul_(z)
        y.t_()
        z.detach().zero_()
        al.rand(2)
        return x[0]

    leaf = al.ones(2, 3).requires_grad_(training)
    x, y, z = al.ones(2, 3) * 2, al.ones(2, 3), leaf * 1
    before = [(t.tolist(), t.stride(), t._version, t.grad_fn) for t in (x, y, z)]
    state = al.random.get_rng_state()
    with pytest.raises(MemoryError):
        al.compile(f, backend=Backend())(x, y, z)
    assert before == [(t.tolist(), t.stride(), t._version, t.grad_fn) for t in (x, y, z)]
    assert state == al.random.get_rng_state()


@pytest.mark.rules("RT-5")
def test_a_write_before_other_memory_is_put_under_an_input_reaches_the_old_memory():
    def f(x, y):
        x.mul_(2)
        with al.no_grad():
            x.set_(y.clone())
        x.add_(1)
        return x * 1

    found = []
    for run in (f, al.compile(f)):
        x, y = al.ones(3), al.full((3,), 5.0)
        outside = x.detach()
        found.append((run(x, y).tolist(), outside.tolist(), x.tolist(), y.tolist()))
    assert found[0] == found[1] == ([6.0] * 3, [2.0] * 3, [6.0] * 3, [5.0] * 3)
