"""A leaf takes over a gradient that is a wrapper, parts and all, where nobody else has it (SUB-24).

Seen by the copies of the class that are not made, and by writes that nobody else may see.
"""

import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.subclasses import TwoTensor

pytestmark = pytest.mark.rules("SUB-24", "TEN-29")


class Counted(TwoTensor):
    """A pair that counts the copies that are made of it."""

    copies = 0

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in ("clone", "restride"):
            cls.copies += 1
        return super().__tensor_dispatch__(func, types, args, kwargs)


def pair(value: float = 1.0, **options: Any) -> Any:
    return Counted(al.full((4,), value), al.full((4,), 2 * value), **options)


def copies_of(run: Any) -> int:
    before = Counted.copies
    run()
    return Counted.copies - before


@pytest.mark.parametrize("compiled", [False, True])
def test_a_fresh_gradient_is_taken_over(compiled: bool) -> None:
    """SUB-24: no copy is made of it."""
    function = al.compile(lambda x: x * 3.0) if compiled else lambda x: x * 3.0
    x, ones = pair(requires_grad=True), pair()
    function(x).backward(ones)
    x.grad = None
    assert copies_of(lambda: function(x).backward(ones)) == 0
    assert x.grad.a.tolist() == [3.0] * 4
    assert x.grad.b.tolist() == [6.0] * 4
    assert type(x.grad) is Counted
    assert x.grad.grad_fn is None


def test_many_other_classes_make_no_difference() -> None:
    """What is known of classes is bounded, and was once known of the first ones alone."""
    for number in range(300):
        kind: Any = type(f"Pair{number}", (TwoTensor,), {})
        kind(al.ones(1), al.ones(1)) * 2
    new: Any = type("Counted", (Counted,), {"copies": 0})
    x = new(al.ones(4), al.ones(4), requires_grad=True)
    (x * 3.0).backward(new(al.ones(4), al.ones(4)))
    assert new.copies == 0
    assert x.grad.a.tolist() == [3.0] * 4


WAYS = {
    "itself": lambda x, keep: x,
    "a view": lambda x, keep: x.view(2, 2).view(4),
    "twice": lambda x, keep: x + x,
    "a product": lambda x, keep: x * 2.0,
    "a hook holds it": lambda x, keep: _hooked(x * 2.0, x, keep.append),
    "a hook holds a part": lambda x, keep: _hooked(x * 2.0, x, lambda g: keep.append(g.a)),
    "a hook holds a view of a part": lambda x, keep: _hooked(
        x * 2.0, x, lambda g: keep.append(g.b[:2])
    ),
    "a hook holds an alias": lambda x, keep: _hooked(x * 2.0, x, lambda g: keep.append(g.detach())),
    "a hook holds its memory": lambda x, keep: _hooked(
        x * 2.0, x, lambda g: keep.append(g.a.numpy())
    ),
    "a hook holds its array": lambda x, keep: _hooked(
        x * 2.0, x, lambda g: keep.append(al.from_numpy(g.a.array))
    ),
    "a hook holds its dictionary": lambda x, keep: _hooked(
        x * 2.0, x, lambda g: keep.append(vars(g))
    ),
    "a hook gives what it keeps": lambda x, keep: _hooked(x * 2.0, x, lambda g: _kept(g * 1, keep)),
    "one part twice": lambda x, keep: _hooked(x * 2.0, x, lambda g: Counted(g.a, g.a)),
    "two parts of one memory": lambda x, keep: _hooked(x * 2.0, x, _of_one_memory),
    "repeated elements": lambda x, keep: x.sum().expand(4) + 0 * x,
}


def _kept(grad: Any, keep: list[Any]) -> Any:
    keep.append(grad)
    return grad


def _hooked(result: Any, x: Any, hook: Any) -> Any:
    def quiet(grad: Any) -> Any:
        found = hook(grad)
        return found if isinstance(found, al.Tensor) else None

    x.register_hook(quiet)
    return result


def _of_one_memory(grad: Any) -> Any:
    memory = al.stack([grad.a, grad.b])
    return Counted(memory[0], memory[1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["a", "b"])
def test_a_write_of_a_gradient_is_seen_by_nobody_else(way: str, part: str) -> None:
    """SUB-24: not by what was handed in, by what hooks kept, nor by the other part."""
    keep: list[Any] = []
    x, given = pair(requires_grad=True), pair()
    WAYS[way](x, keep).backward(given)
    others = [given.a, given.b, x.a, x.b, x.grad.b if part == "a" else x.grad.a]
    others += [each for held in keep for each in _dense(held)]
    before = [each.tolist() for each in others]
    getattr(x.grad, part).add_(7)
    assert [each.tolist() for each in others] == before


def _dense(held: Any) -> list[Any]:
    if isinstance(held, dict):
        return list(held.values())
    return [held.a, held.b] if isinstance(held, Counted) else [held]


class Listed(TwoTensor):
    """Keeps its parts in a list, which an alias of it shares."""

    parts: list[Any]

    def __new__(cls, a: Any, b: Any = None, parts: Any = None) -> Any:
        made: Any = al.Tensor._make_wrapper_subclass(cls, a.shape, a.stride(), dtype=a.dtype)
        made.parts = [a, b] if parts is None else parts
        return made

    a = property(lambda self: self.parts[0])
    b = property(lambda self: self.parts[1])

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ == "detach":
            return cls(args[0].a, args[0].b, args[0].parts)
        return super().__tensor_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_in_a_container_may_be_anybodys(compiled: bool) -> None:
    """SUB-24: a hook keeps an alias, which has the same list; it is of the first backward."""
    function = al.compile(lambda x: x * 2) if compiled else lambda x: x * 2
    kept: list[Any] = []
    x = Listed(al.ones(4), al.ones(4)).requires_grad_()
    x.register_hook(lambda grad: kept.append(grad.detach()))
    for _ in range(2):
        function(x).backward(Listed(al.ones(4), al.ones(4)))
    assert kept[0].a.tolist() == [2.0] * 4
    assert x.grad.a.tolist() == [4.0] * 4


@pytest.mark.parametrize("dense", [False, True])
def test_a_gradient_that_somebody_refers_to_weakly_is_copied(dense: bool) -> None:
    """SUB-24: what a hook saw is gone with it."""
    kept: list[Any] = []
    x = al.ones(4).requires_grad_() if dense else pair(requires_grad=True)
    x.register_hook(lambda grad: kept.append(weakref.ref(grad)))
    (x * 2).backward(al.ones(4) if dense else pair())
    assert kept[0]() is not x.grad


@given(st.lists(st.sampled_from(["+", "*", "view", "keep"]), max_size=4), st.booleans())
def test_two_leaves_never_share_a_gradient(steps: list[str], compiled: bool) -> None:
    """SUB-24: whatever is between them and the result."""

    def program(x: Any, y: Any) -> Any:
        out = x + y
        for step in steps:
            if step == "+":
                out = out + x
            elif step == "*":
                out = out * 2.0
            elif step == "view":
                out = out.view(2, 2).view(4)
        return (out, out.view(2, 2)) if "keep" in steps else (out,)

    function = al.compile(program, backend="reference") if compiled else program
    x, y = pair(requires_grad=True), pair(2.0, requires_grad=True)
    al.autograd.backward(
        [out.sum() for out in function(x, y)], [pair().sum()] * (1 + ("keep" in steps))
    )
    before = y.grad.a.tolist(), y.grad.b.tolist(), x.grad.b.tolist()
    x.grad.a.add_(1)
    assert before == (y.grad.a.tolist(), y.grad.b.tolist(), x.grad.b.tolist())
