"""DYN-24: a guard is dropped where the program is the same whichever way its branch goes."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation.outcomes import GivenAnswers

Function = Callable[..., Any]


def compiled_at(function: Function, *arguments: Any, backend: str = "reference") -> Any:
    compiled = al.compile(function, dynamic=True, backend=backend)
    compiled(*arguments)
    return compiled


def guards(compiled: Any, *, witnesses: bool = True, is_known: bool = True) -> list[str]:
    """The guards of the one region."""
    (region,) = compiled.regions(witnesses=witnesses)
    assert not (is_known and region.unknown)
    return [guard.text for guard in region.guards]


# ------------------------------------------------------------------------------ what is dropped
def same(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        return x * 2
    return x * 2


def unread(x: al.Tensor) -> al.Tensor:
    rows = x.shape[0]
    factor = 3 if rows % 2 == 0 else 5
    del factor
    return x[1:] * rows if rows else x


def checked(x: al.Tensor) -> al.Tensor:
    rows = x.shape[0]
    assert max(rows, 2) > 1
    return x.sum(0) + rows


def nested(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        if x.shape[1] == 2:
            return x + 1
    return x + 1


@pytest.mark.rules("DYN-24")
@pytest.mark.parametrize(
    ("function", "shape", "left"),
    [
        (same, (5,), []),
        (unread, (6,), ["s0 != 0"]),
        (checked, (3, 4), []),
        (nested, (5, 2), ["not (s0 == 0 and s1 == 1)"]),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_guard_whose_branch_changes_nothing_is_dropped(
    function: Function, shape: tuple[int, ...], left: list[str]
) -> None:
    """Then the region serves the sizes of the other way, too, by one compilation."""
    compiled = compiled_at(function, al.ones(*shape))
    before = guards(compiled, witnesses=False)
    assert guards(compiled) == left != before
    assert guards(compiled, witnesses=False) == left
    for sizes in itertools.product(range(1, 7), repeat=len(shape)):
        x = al.arange(al.ones(*sizes).numel()).reshape(*sizes) * 1.0
        assert compiled(x).tolist() == function(x).tolist(), sizes
    assert len(compiled.entries) == 1
    (region,) = compiled.regions(witnesses=True)
    dead = [need for need in region.needs if need.is_dead]
    assert dead and not any(need.is_open for need in region.needs)
    assert "dropped: the program is the same where it is false" in str(dead[0])


@pytest.mark.rules("DYN-24")
def test_several_guards_are_dropped_together_for_all_answers() -> None:
    def two(x: al.Tensor) -> al.Tensor:
        rows, columns = x.shape
        if rows > 3 or columns > 3:
            return x * 2
        return x * 2

    def mixed(x: al.Tensor) -> al.Tensor:
        rows, columns = x.shape
        big = rows > 3
        if columns > 3:
            return x * 3 if big else x * 2
        return x * 2

    for function, entries in ((two, 1), (mixed, 4)):
        compiled = compiled_at(function, al.ones(2, 2))
        guards(compiled)
        for sizes in itertools.product(range(1, 6), repeat=2):
            assert compiled(al.ones(*sizes)).tolist() == function(al.ones(*sizes)).tolist()
            if len(compiled.entries) < entries:
                compiled.regions(witnesses=True)
        assert len(compiled.entries) <= entries


@pytest.mark.rules("DYN-24", "DYN-10", "DBL-1")
def test_gradients_of_gradients_at_the_new_sizes_are_eagers() -> None:
    def cube(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 3:
            return x * x * x
        return x * x * x

    compiled = compiled_at(cube, al.ones(5, requires_grad=True))
    assert guards(compiled) == []
    for n in (5, 2, 0, 7):
        found = []
        for function in (compiled, cube):
            x = al.arange(n) * 1.0
            x.requires_grad_()
            first: Any = al.autograd.grad(function(x).sum(), [x], create_graph=True)[0]
            second: Any = al.autograd.grad(first.sum(), [x])[0]
            found.append((first.tolist(), second.tolist()))
        assert found[0] == found[1]
    assert len(compiled.entries) == 1


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.rules("DYN-24", "SIZ-6")
def test_kernels_for_the_new_sizes_are_not_those_for_the_old_ones() -> None:
    """A kernel that knew of at least 17 elements takes no more for granted."""

    def long(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 16:
            return x * 2 + 1
        return x * 2 + 1

    compiled = compiled_at(long, al.ones(40), backend="cpu")
    assert guards(compiled) == []
    for n in (40, 1, 0, 16, 17, 3):
        assert compiled(al.ones(n)).tolist() == [3.0] * n
    assert len(compiled.entries) == 1


# ------------------------------------------------------------------------------- what is not
SEEN: list[object] = []
BOX = types.SimpleNamespace(value=0)
COUNT = 0


def prints(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        print("many")
    return x * 2


def appends(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        SEEN.append(1)
    return x * 2


def extends(x: al.Tensor) -> al.Tensor:
    seen = SEEN
    if x.shape[0] > 3:
        seen += [1]
    return x * 2


def puts(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        BOX.value = 3
    return x * 2


def counts(x: al.Tensor) -> al.Tensor:
    global COUNT
    if x.shape[0] > 3:
        COUNT = 3
    return x * 2


def raises(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        return x * 2
    raise ValueError("few")


def strides(x: al.Tensor) -> al.Tensor:
    return (x * 2).t().contiguous() if x.shape[0] > 3 else (x * 2).t()


@pytest.mark.rules("DYN-24")
@pytest.mark.parametrize(
    "function", [prints, appends, extends, puts, counts, raises, strides], ids=lambda f: f.__name__
)
def test_a_branch_that_does_something_keeps_its_guard(function: Function) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    x = al.ones(5, 3)
    try:
        compiled(x)
    except al.UnsupportedError:  # what it changes is read
        return
    is_known = function in (raises, strides)
    assert "s0 > 3" in guards(compiled, is_known=is_known)


@pytest.mark.rules("DYN-24")
def test_a_function_that_is_another_one_by_now_keeps_its_guards() -> None:
    scale = 2.0

    def scaled(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 3:
            return x * scale
        return x * scale

    compiled = compiled_at(scaled, al.ones(5))
    scale = 3.0
    assert guards(compiled) == ["s0 > 3"]
    assert compiled(al.ones(2)).tolist() == [3.0, 3.0]
    scale = 2.0
    assert compiled(al.ones(5)).tolist() == [2.0] * 5


@pytest.mark.rules("DYN-24", "GEN-8")
def test_the_grad_mode_is_that_of_the_call_that_was_captured() -> None:
    x = al.ones(5, requires_grad=True)
    compiled = al.compile(same, dynamic=True, backend="reference")
    with al.no_grad():
        assert not compiled(x).requires_grad
    assert guards(compiled) == []
    with al.no_grad():
        assert not compiled(al.ones(2, requires_grad=True)).requires_grad
    assert len(compiled.entries) == 1
    assert compiled(al.ones(2, requires_grad=True)).requires_grad
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-24", "GEN-8")
def test_a_view_that_is_a_leaf_requires_grad_when_it_is_traced_again() -> None:
    def both(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        if y.shape[0] > 3:
            return x * 2
        return x * 2

    x = al.ones(5)[1:-1].requires_grad_()
    compiled = compiled_at(both, x, al.ones(5))
    assert guards(compiled, witnesses=False) == ["s1 > 3"]
    assert guards(compiled) == []
    assert compiled(x, al.ones(2)).requires_grad
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-24")
def test_a_guard_that_others_imply_is_dropped_by_who_looks_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a region is made, only a quick search is made for those, which may find none."""

    def twice(x: al.Tensor) -> al.Tensor:
        return x * 2 if x.shape[0] > 2 and x.shape[0] > 4 else x

    monkeypatch.setattr("aotlite.ir.symbols.validation.weakest.implied", lambda *_, **__: [])
    compiled = compiled_at(twice, al.ones(6))
    assert guards(compiled, witnesses=False) == ["s0 > 2", "s0 > 4"]
    assert guards(compiled) == ["s0 > 4"]


@pytest.mark.rules("DYN-24")
def test_floats_that_are_inputs_stay_inputs() -> None:
    def scaled(x: al.Tensor, factor: float) -> al.Tensor:
        if x.shape[0] > 3:
            return x * factor
        return x * factor

    compiled = compiled_at(scaled, al.ones(5), 2.5)
    guards(compiled)
    for n, factor in ((5, 3.5), (2, 4.5)):
        assert compiled(al.ones(n), factor).tolist() == [factor] * n


# ------------------------------------------------------------------------------- given answers
@pytest.mark.rules("DYN-24")
def test_code_of_the_library_gets_no_given_answer() -> None:
    """It may take the answer of the hints for granted."""
    table = GivenAnswers(given={"s0 > 3": False})
    size = table.size(5, lower=0)
    fact = size > 3
    assert fact is not True and not bool(fact)  # this file is user code
    assert table.log == []
    with table.rule_of("an op"):
        assert table.decide(fact)
    assert [guard.text for guard in table.log] == ["s0 > 3"]
    assert bool(fact)  # what is known is no question


@pytest.mark.rules("DYN-24")
def test_a_given_answer_is_to_the_fact_in_either_form() -> None:
    for given, answer in ((True, True), (False, False)):
        table = GivenAnswers(given={"s0 > 3": given})
        size = table.size(5, lower=0)
        assert bool(size > 3) is answer
        assert bool(size <= 3) is not answer
        assert bool(size > 4) is True  # another fact
        assert [guard.text for guard in table.log] == ["s0 > 4"]
    assert isinstance(table, SymbolTable)
