"""A call that would need one entry too many says why each of the entries is no use (GRD-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al


def ones(*shape: int) -> Any:
    return al.ones(*(shape or (2,)))


def leaves(count: int) -> list[Any]:
    return [ones().requires_grad_() for _ in range(count)]


def reason(function: Callable[..., Any], first: tuple[Any, ...], then: Callable[..., Any]) -> str:
    """Why the entry of a first call is not valid for what `then` does with the function."""
    compiled = al.compile(function, recompile_limit=1, recompile_limit_is_error=True)
    compiled(*first)
    with pytest.raises(al.GuardError, match="none is valid for this call") as caught:
        then(compiled)
    assert 1 == len(compiled.entries)
    why, advice = caught.value.__notes__
    assert "(GRD-4)" in advice
    assert compiled(*first) is not None, "the entry is as good as before"
    return str(why)


@pytest.mark.rules("GRD-4")
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_error_itself_names_the_size_and_the_mark(limit: int) -> None:
    def counted(x: Any) -> Any:
        return sum([x for _ in range(x.shape[0])], x)

    compiled = al.compile(
        counted, recompile_limit=limit, recompile_limit_is_error=True, backend="reference"
    )
    for n in range(2, 2 + limit):
        compiled(ones(n))
    with pytest.raises(al.GuardError) as caught:
        compiled(ones(9))
    assert "size 0 of argument 0 is 9" in str(caught.value)
    assert "mark_dynamic(argument, dim)" in str(caught.value)
    named = al.compile(scaled, recompile_limit=1, recompile_limit_is_error=True)
    named(ones(), True)
    with pytest.raises(al.GuardError, match="argument 1 is None, expected True") as caught:
        named(ones(), None)
    assert "mark_dynamic" not in str(caught.value)


X, Y = ones(), ones()
FOUR = tuple(ones() for _ in range(4))


def scaled(x: Any, n: Any) -> Any:
    return x * n


def total(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a + b + c + d


def written(a: Any, b: Any) -> Any:
    return a.clone().add_(b), b.detach().mul_(1.0)


@pytest.mark.rules("GRD-4")
@pytest.mark.parametrize(
    ("function", "first", "then", "expected"),
    [
        (scaled, (X, 1), lambda f: f(X, 2), "argument 1 is 2, expected 1"),
        (scaled, (X, 1), lambda f: f(X, 1.0), "argument 1 is 1.0, expected 1"),
        (scaled, (X, 1), lambda f: f(X, True), "argument 1 is True, expected 1"),
        (scaled, (X, 1), lambda f: f(X, Y), "argument 1 is f32[2], expected 1"),
        (scaled, (X, Y), lambda f: f(X, 1), "argument 1 is 1, expected f32[2]"),
        (scaled, (X, Y), lambda f: f(X, X), "which arguments are one object"),
        (scaled, (X, 1), lambda f: f(ones(3), 1), "argument 0 is f32[3], expected f32[2]"),
        (scaled, (X, 1), lambda f: f(*leaves(1), 1), "argument 0 is f32[2], a leaf that requires"),
        (scaled, (X, 1), lambda f: f(X, n=1), "arguments is PyTreeSpec(((*,), {'n': *})"),
        (scaled, (X, 1), lambda f: al.no_grad()(f)(X, 1), "grad mode is False, expected True"),
        (scaled, (X, 1), lambda f: f.prepare(ones(3), 1), "argument 0 is f32[3], expected f32[2]"),
        (total, FOUR, lambda f: f(*FOUR[:3], ones(3)), "argument 3 is f32[3], expected f32[2]"),
        (total, FOUR, lambda f: f(*FOUR[:3], 1), "argument 3 is 1, expected f32[2]"),
        (total, FOUR, lambda f: f(*FOUR[:3], FOUR[0]), "which arguments are one object"),
        (total, FOUR, lambda f: f(*leaves(4)), "argument 0 is f32[2], a leaf that requires grad"),
        (written, (X, Y), lambda f: f(*ones(4).chunk(2)), "an output of an op that returns sev"),
    ],
)
def test_the_reason_is_named(
    function: Any, first: tuple[Any, ...], then: Callable[..., Any], expected: str
) -> None:
    why = reason(function, first, then)
    assert why.startswith("entry 0: ")
    assert expected in why


@pytest.mark.rules("GRD-4")
def test_every_entry_has_its_reason() -> None:
    compiled = al.compile(scaled, recompile_limit=3, recompile_limit_is_error=True)
    for number in (1, 2.0, True):
        compiled(X, number)
    with pytest.raises(al.GuardError, match="has 3 entries") as caught:
        compiled(X, 4)
    assert [
        "entry 0: argument 1 is 4, expected 1",
        "entry 1: argument 1 is 4, expected 2.0",
        "entry 2: argument 1 is 4, expected True",
    ] == caught.value.__notes__[:3]


def test_what_lies_outside_is_named_by_its_place() -> None:
    box: list[Any] = [2]
    factor = 3

    def function(x: Any) -> Any:
        return x * factor + box[0]

    compiled = al.compile(function, recompile_limit=1, recompile_limit_is_error=True)
    compiled(X)
    factor = 4
    with pytest.raises(al.GuardError) as caught:
        compiled(X)
    assert "cell 1 is 4, expected 3" in caught.value.__notes__[0]
    factor = 3
    box.append(1)
    with pytest.raises(al.GuardError) as caught:
        compiled(X)
    assert "cell 0 is [2, 1], not [2], expected as it was" in caught.value.__notes__[0]
    box.pop()
    assert [5.0, 5.0] == compiled(X).tolist()


@pytest.mark.rules("GRD-4")
def test_the_limit_counts_entries_and_not_calls() -> None:
    compiled = al.compile(scaled, recompile_limit=2, recompile_limit_is_error=True)
    for _ in range(5):
        for number in (1, 2):
            compiled(X, number)
    assert 2 == len(compiled.entries)


def test_entries_that_are_prepared_count() -> None:
    limit: Any = {"recompile_limit": 2, "recompile_limit_is_error": True}
    compiled = al.compile(scaled, dynamic=False, **limit)
    compiled.prepare(X, 1)
    compiled.prepare(X, 1)
    assert 1 == len(compiled.entries)
    assert 2.0 == compiled(X * 2, 1).sum().item() / 2
    compiled.prepare(X, 2)
    with pytest.raises(al.GuardError, match="at most 2"):
        compiled.prepare(X, 3)
