"""HOOK-5, HOOK-6: the order in which a backward calls hooks, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import aotlite as al

OPS: dict[str, tuple[Callable[..., Any], int]] = {
    "double": (lambda a: a * 2, 1),
    "product": (lambda a, b: a * b, 2),
    "sum": (lambda a, b: a + b, 2),
    "view": (lambda a: a.view((2, 2)).view((4,)), 1),
    "reversed": (lambda a: a.flip([0]), 1),
    "half": (lambda a: a.chunk(2)[1].repeat(2), 1),
    "write": (lambda a: a.mul_(3), 1),
}
HOOKS = ("tensor", "scale", "retain", "before", "behind", "accumulated", "before leaf",
         "behind leaf")  # fmt: skip


def story(lib: Any, seed: int) -> list[Any]:
    """Which hooks a backward of a random program calls, with what; gradients, and what is None."""
    rng, log = Random(seed), list[Any]()
    alive: list[Any] = []

    def shown(grad: Any) -> Any:
        return None if grad is None else [round(each, 9) for each in grad.tolist()]

    def note(tag: Any) -> Callable[..., None]:
        return lambda *grads: log.append((tag, [_shown_all(each, shown) for each in grads]))

    leaves = [lib.arange(4, dtype=lib.float64).add_(k + 1).requires_grad_() for k in range(3)]
    values = [*leaves, leaves[0] * 1]
    hooked: set[int] = set()
    for number in range(rng.randint(3, 8)):
        name = rng.choice([*OPS, *HOOKS, *HOOKS])
        if name in OPS:
            operands = [rng.randrange(len(values)) for _ in range(OPS[name][1])]
            if name == "write":
                operands = [max(operands[0], 3)]
            found = OPS[name][0](*[values[k] for k in operands])
            if name != "write":
                values.append(found)
        else:
            index = rng.randrange(len(values))
            hooked.add(index)
            alive.append(_register(name, number, values[index], note))
    results = [values[-1], values[rng.randrange(len(values))]]
    way = rng.choice(["backward", "backward", "grad", "into"])
    loss = results[0].sum() + (results[1] * 2).sum()
    ends = rng.sample(leaves, 2)
    if way == "grad":
        log.append([shown(g) for g in lib.autograd.grad(loss, ends, allow_unused=True)])
    elif way == "into":
        loss.backward(inputs=ends)
    else:
        loss.backward(retain_graph=True)
        loss.backward()
    kept = [value for value in values if value.is_leaf or value.retains_grad]
    return [*log, [shown(value.grad) for value in kept]]


def _shown_all(grads: Any, shown: Callable[[Any], Any]) -> Any:
    if isinstance(grads, tuple):
        return [shown(each) for each in grads]
    is_leaf = grads is not None and grads.is_leaf and grads.requires_grad
    return shown(grads.grad if is_leaf else grads)


def _register(name: str, number: int, tensor: Any, note: Callable[[Any], Any]) -> Any:
    """Puts a hook there; gives the node that it is on, which nobody else may hold in PyTorch."""
    tag = (name, number)
    if name == "tensor":
        tensor.register_hook(note(tag))
    elif name == "scale":
        tensor.register_hook(lambda grad: (note(tag)(grad), grad * 5)[1])
    elif name == "retain":
        tensor.retain_grad()
    elif name == "before" and tensor.grad_fn is not None:
        tensor.grad_fn.register_prehook(note(tag))
    elif name == "behind" and tensor.grad_fn is not None:
        tensor.grad_fn.register_hook(lambda into, out: note(tag)(tuple(out)))
    elif name == "accumulated" and tensor.is_leaf:
        tensor.register_post_accumulate_grad_hook(note(tag))
    elif tensor.is_leaf and name.endswith("leaf"):
        node = tensor.view_as(tensor).grad_fn.next_functions[0][0]
        if name == "before leaf":
            node.register_prehook(note(tag))
        else:
            node.register_hook(lambda into, out: note(tag)(tuple(out)))
        return node
    return None


@pytest.mark.rules("HOOK-5", "HOOK-6")
def test_random_backwards_call_hooks_as_pytorch_does(torch: Any) -> None:
    agreed = 0
    for seed in range(600):
        its = _outcome(torch, seed)
        if its is not None:
            assert its == _outcome(al, seed), seed
            agreed += any(type(each) is tuple for each in its)
    assert agreed > 300


def _outcome(lib: Any, seed: int) -> Any:
    try:
        return story(lib, seed)
    except (RuntimeError, al.AutogradError):
        return None


@pytest.mark.rules("HOOK-5")
def test_the_order_at_one_node() -> None:
    """Tensor hooks, the retained gradient, before the node, the node, behind it."""
    log: list[Any] = []
    x = al.ones(2, requires_grad=True)
    y = x * 2
    node: Any = y.grad_fn
    node.register_hook(lambda into, out: log.append("behind"))
    node.register_prehook(lambda grads: log.append(("before", y.grad is not None)))
    y.retain_grad()
    y.register_hook(lambda grad: log.append(("first", y.grad is None)))
    y.register_hook(lambda grad: log.append(("second", y.grad is None)))
    x.register_hook(lambda grad: log.append("leaf"))
    y.sum().backward()
    assert [("first", True), ("second", True), ("before", True), "behind", "leaf"] == log


@pytest.mark.rules("HOOK-5")
def test_a_gradient_that_is_asked_for_is_the_one_behind_the_hooks() -> None:
    """Whatever else is asked for."""
    x = al.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: grad * 5)
    loss = y.sum()
    alone: Any = al.autograd.grad(loss, [y], retain_graph=True)
    both: Any = al.autograd.grad(loss, [x, y])
    assert [[5.0, 5.0]] == [g.tolist() for g in alone]
    assert [[10.0, 10.0], [5.0, 5.0]] == [g.tolist() for g in both]


@pytest.mark.rules("HOOK-6")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_write_takes_the_retained_gradient_along_and_leaves_the_hooks(compiled: bool) -> None:
    """Of a result, written after the call, too."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: seen.append(grad.tolist()))
        y.retain_grad()
        return y

    y = (al.compile(f) if compiled else f)(al.ones(2, requires_grad=True))
    y.mul_(3)
    (y * 7).sum().backward()
    assert [7.0, 7.0] == y.grad.tolist()
    assert [[21.0, 21.0]] == seen
