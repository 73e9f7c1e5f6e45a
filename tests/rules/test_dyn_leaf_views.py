"""SYN-13: leaves that are views have symbols for their sizes, and are eager's at all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pytest

import aotlite as al
from tests.end_to_end.size_calls import Arguments, is_same, observed

SIZES = (4, 3, 6, 0, 1)


def numbers(*shape: int) -> Any:
    return (al.arange(prod(shape)).to(al.float32) * 0.5 - 1.0).view(shape).clone()


def leaf(base: Any, view: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A base that requires no grad, and a view of it that does."""
    return base, view(base).requires_grad_()


def _under_no_grad(n: int) -> tuple[Any, Any]:
    base = numbers(n, 3).requires_grad_()
    with al.no_grad():
        return base, base.t().requires_grad_()


def _whose_base_is_a_leaf_too(n: int) -> tuple[Any, Any]:
    base, view = leaf(numbers(n, 3), lambda b: b.t())
    return base.requires_grad_(), view


def _view_of_such_a_leaf(n: int) -> tuple[Any, Any]:
    base, view = leaf(numbers(n, 3), lambda b: b.t())
    return base, view[1:]


def _expanded(n: int) -> tuple[Any, Any]:
    base = numbers(n, 1)
    return base, base.expand(n, 5)


def _detached(n: int) -> Any:
    return (numbers(n, 3).requires_grad_() * 1).detach()


VIEWS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "t": lambda n: leaf(numbers(n, 5), lambda b: b.t()),
    "transpose": lambda n: leaf(numbers(n, 2, 3), lambda b: b.transpose(0, 2)),
    "narrow": lambda n: leaf(numbers(n + 3, 4), lambda b: b.narrow(0, 2, n)),
    "a step": lambda n: leaf(numbers(2 * n, 4), lambda b: b[::2]),
    "expand": lambda n: leaf(numbers(n, 1), lambda b: b.expand(n, 5)),
    "as_strided": lambda n: leaf(numbers(4 * n + 3), lambda b: b.as_strided((n, 2), (4, 1), 3)),
    "unsqueeze": lambda n: leaf(numbers(n, 3), lambda b: b.unsqueeze(1)),
    "select": lambda n: leaf(numbers(n, 3), lambda b: b[:, 1]),
    "of a detached one": lambda n: leaf(_detached(n), lambda b: b.t()),
    "diagonal": lambda n: leaf(numbers(n, n), lambda b: b.diagonal()),
    "expand, no leaf": _expanded,
    "under no_grad": _under_no_grad,
    "whose base is a leaf, too": _whose_base_is_a_leaf_too,
    "a view of such a leaf": _view_of_such_a_leaf,
}
"""By name: a base and a view of it."""
REFUSED = {"a view of such a leaf"}
"""Those of which no view can be returned, whatever the sizes are (META-8)."""
FIRST = {"diagonal": 2}
"""Entries for sizes of 2 and more: a stride of no product of sizes shows at the second (DYN-7)."""
ON_HISTORY = {"whose base is a leaf, too", "under no_grad"}


# ------------------------------------------------------------------------------------- programs
def reads(x: Any) -> list[Any]:
    return [x * 2, (x * x).sum(0), x.requires_grad, x.is_leaf]


def views(x: Any) -> list[Any]:
    with al.no_grad():
        v = x[:1]
    return [x, x[1:], x[..., None], x.detach(), v.requires_grad, x.unsqueeze(0) * 1.0]


def writes(x: Any) -> list[Any]:
    v = x[1:]
    with al.no_grad():
        x.mul_(2)
    return [x * 3, v * 1, v]


def writes_behind(x: Any) -> list[Any]:
    v = x[1:]
    x.detach().add_(1)
    return [(v * x[1:]).sum(), x[:1]]


def is_refused(x: Any) -> list[Any]:
    x.mul_(2)
    return [x]


def view_is_refused(x: Any) -> list[Any]:
    x[:1].mul_(2)
    return [x]


def leaves_off(x: Any) -> list[Any]:
    x.requires_grad_(False)
    return [x, x * 2, x.requires_grad]


def turns(x: Any) -> list[Any]:
    with al.no_grad():
        x.unsqueeze_(0)
    return [x * 2, x[0]]


def asks_inside(x: Any) -> list[Any]:
    (grad,) = al.autograd.grad((x * x).sum(), [x])
    return [grad, x * 1]


def hooks_inside(x: Any) -> list[Any]:
    with al.no_grad():
        x.mul_(2)
    if x.requires_grad:
        x.register_hook(lambda grad: grad * 3)
    return [x * 2]


def base_is_read(x: Any, b: Any) -> list[Any]:
    return [x * 2, b * 1, x[:1], b[:1]]


def base_is_written(x: Any, b: Any) -> list[Any]:
    v, with_x = x[1:], x * 3
    with al.no_grad():
        b.mul_(2)
    return [v, v * 2, with_x, x * 1, b]


def both_are_written(x: Any, b: Any) -> list[Any]:
    with al.no_grad():
        x.add_(1)
        b.mul_(2)
    return [x * 1, x.sum() * b.sum()]


def base_is_written_with_grad_mode(x: Any, b: Any) -> list[Any]:
    b.mul_(2)
    return [x * 1, b]


def with_a_history(x: Any, b: Any, w: Any) -> list[Any]:
    v = x[1:]
    b.mul_(w)
    return [v.sum(), x * 2, b]


FUNCTIONS: list[Callable[..., list[Any]]] = [
    reads,
    views,
    writes,
    writes_behind,
    is_refused,
    view_is_refused,
    leaves_off,
    turns,
    asks_inside,
    hooks_inside,
    base_is_read,
    base_is_written,
    both_are_written,
    base_is_written_with_grad_mode,
    with_a_history,
]
CASES = [(function, kind) for function in FUNCTIONS for kind in VIEWS]


# ------------------------------------------------------------------------------------- the law
def given(function: Callable[..., Any], kind: str, n: int) -> Arguments:
    base, view = VIEWS[kind](n)
    made = [view, base, numbers(1).requires_grad_()]
    return Arguments(made[: function.__code__.co_argcount])


def compared(function: Callable[..., Any], kind: str, sizes: Sequence[int] = SIZES) -> Any:
    """The compiled function, after its calls did what eager does, and the count of its entries for
    sizes of 2 and more."""
    compiled = al.compile(function, dynamic=True, backend="reference")
    count = 0
    for n in sizes:
        expected = observed(function, given(function, kind, n))
        found = observed(compiled, given(function, kind, n))
        is_refused = kind in REFUSED and found[0] == "UnsupportedError"
        assert is_refused or is_same(expected, found), f"{n}:\n{expected}\n{found}"
        count = len(compiled.entries) if n > 1 else count
    return compiled, count


def needs_numbers(function: Callable[..., Any], kind: str) -> bool:
    is_read = function in (reads, views, leaves_off, asks_inside, base_is_read)
    return function is with_a_history or (not is_read and kind in ON_HISTORY)


def check(function: Callable[..., Any], kind: str) -> None:
    compiled, count = compared(function, kind)
    if not needs_numbers(function, kind):
        assert count <= FIRST.get(kind, 1), str(compiled.explain_recompiles())
        assert len(compiled.entries) <= count + 2  # those of 0 and 1, which ops ask for
    elif count > 1:
        assert "are numbers where" in reasons(compiled)


def reasons(compiled: Any) -> str:
    return " ".join(str(compiled.explain_recompiles()).replace("│", " ").split())


@pytest.mark.rules("SYN-13")
@pytest.mark.parametrize(("function", "kind"), CASES[3::34])
def test_leaves_that_are_views_have_symbols_and_are_eagers(
    function: Callable[..., Any], kind: str
) -> None:
    check(function, kind)


@pytest.mark.long
@pytest.mark.rules("SYN-13")
@pytest.mark.parametrize(("function", "kind"), CASES)
def test_all_of_them_are_eagers(function: Callable[..., Any], kind: str) -> None:
    check(function, kind)


# ----------------------------------------------------------------------------- what needs numbers
def written_with_hooks(x: Any) -> list[Any]:
    with al.no_grad():
        x.mul_(2)
    return [x * 1]


def _hooked(n: int) -> Any:
    view = (numbers(n, 3).requires_grad_() * 1)[1:]
    view.retain_grad()
    return [view]


def _left(n: int) -> Any:
    base = numbers(n, 3).requires_grad_() * 1
    view = base[1:]
    base.detach_()
    return [view]


def _both(n: int) -> Any:
    base, view = leaf(numbers(n, 3), lambda b: b.t())
    base.requires_grad_()
    return [view]


def _pair(n: int) -> Any:
    base = numbers(n, 3)
    return [base, base[1:]]


def becomes_a_leaf(base: Any, view: Any) -> list[Any]:
    base.requires_grad_()
    return [view * 2, view.requires_grad]


def turned(base: Any, view: Any) -> list[Any]:
    base.t_()
    return [view * 2, base]


def multiplied(base: Any, view: Any) -> list[Any]:
    base.mul_(al.ones(1).requires_grad_())
    return [view * 2]


NUMBERS: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "one that is written has hooks": (written_with_hooks, _hooked),
    "one is written whose base has left its history": (written_with_hooks, _left),
    "one that is written is a leaf, and its base has a history": (written_with_hooks, _both),
    "one becomes a leaf or ceases to be one": (becomes_a_leaf, _pair),
    "the geometry of one changes": (turned, _pair),
    "a write to one has a gradient": (multiplied, _pair),
}


@pytest.mark.rules("SYN-13", "SYN-12")
@pytest.mark.parametrize("why", NUMBERS)
def test_what_needs_numbers_says_why(why: str) -> None:
    function, make = NUMBERS[why]
    compiled: Any = al.compile(function, dynamic=True, backend="reference")
    for n in (4, 3):
        assert is_same(observed(function, make(n)), observed(compiled, make(n)))
    assert len(compiled.entries) == 2
    assert f"(sizes of views of one base are numbers where {why})" in reasons(compiled)


@pytest.mark.rules("SYN-12")
def test_views_of_which_one_alone_has_symbols_share_their_history() -> None:
    def written(a: Any, b: Any) -> Any:
        a.mul_(2)
        return (b * b).sum()

    found: list[Any] = []
    for function in (written, al.compile(written, dynamic=True, backend="reference")):
        leaf = al.ones(6).requires_grad_()
        base = leaf * 1
        a = base[:3]
        al.mark_static(a, 0)
        function(a, base[2:]).backward()
        assert leaf.grad is not None
        found.append(leaf.grad.tolist())
    assert found[0] == found[1] == [0, 0, 8, 2, 2, 2]


@pytest.mark.rules("SYN-12")
def test_an_error_for_want_of_the_family_is_none() -> None:
    def asked(a: Any, b: Any, w: Any) -> Any:
        a.mul_(w)
        if not b.requires_grad:
            raise ValueError("b has no history")
        return b * 1

    compiled = al.compile(asked, dynamic=True, backend="reference")
    for n in (4, 3):
        base = al.ones(n)
        assert compiled(base, base[1:], al.ones(1).requires_grad_()).requires_grad


@pytest.mark.rules("GRD-1", "TEN-23")
@pytest.mark.parametrize("dynamic", [False, True])
def test_whether_the_base_of_a_leaf_requires_grad_is_a_guard(dynamic: bool) -> None:
    def asked(x: Any) -> Any:
        with al.no_grad():
            return x[:1].requires_grad

    compiled = al.compile(asked, dynamic=dynamic, backend="reference")
    for _ in range(2):
        for makes_leaf in (False, True):
            base, view = leaf(al.ones(2, 3), lambda b: b.t())
            base.requires_grad_(makes_leaf)
            assert compiled(view) is asked(view) is makes_leaf
    assert len(compiled.entries) == 2


@pytest.mark.rules("TEN-23")
@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_a_leaf_whose_base_is_one_follow_the_base_after_a_write(dynamic: bool) -> None:
    def written(x: Any) -> Any:
        v = x[:1]
        with al.no_grad():
            x.mul_(2)
        return v, (v * 3).sum()

    for function in (written, al.compile(written, dynamic=dynamic, backend="reference")):
        base, view = leaf(al.ones(2, 3), lambda b: b.t())
        base.requires_grad_()
        v, total = function(view)
        (total + v.sum()).backward()
        assert view.grad is None
        assert base.grad.tolist() == [[4, 0, 0], [4, 0, 0]]


@pytest.mark.rules("GEN-10", "SYN-12")
def test_views_with_symbols_are_verified() -> None:
    compiled = al.compile(lambda a, b: a * b.sum(), dynamic=True, backend="reference", verify=True)
    for n in (2, 3):
        x = al.ones(5)
        assert compiled(x[:n], x[n:]).tolist() == [5.0 - n] * n
    assert len(compiled.entries) == 1


@pytest.mark.rules("SYN-13", "DYN-3")
def test_a_mark_on_a_view_that_needs_a_number_is_an_error() -> None:
    (view,) = _both(4)
    al.mark_dynamic(view, 1)
    with pytest.raises(al.GuardError, match=r"argument 0, which is a view of one base: mul_"):
        al.compile(written_with_hooks, backend="reference")(view)
