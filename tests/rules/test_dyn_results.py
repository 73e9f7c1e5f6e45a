"""DYN-6: sizes that were symbols in the function that returned a tensor are symbols in the next."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor


def arguments(compiled: al.CompiledFunction) -> list[tuple[str, ...]]:
    return [row.arguments for row in compiled.regions()]


def made(n: int, how: Any = True) -> Any:
    """A result of n rows, of a function with symbols."""
    return al.compile(lambda x: x * 2, dynamic=how, backend="reference")(al.ones(n, 2))


@pytest.mark.rules("DYN-6")
def test_the_next_function_has_symbols_at_its_first_compilation() -> None:
    first = al.compile(
        lambda x: [x * 2, {"t": x.t(), "sum": x.sum(0)}, x], dynamic=True, backend="reference"
    )
    al.mark_static(x := al.ones(5, 2), 1)
    whole, views, same = first(x)
    for tensor, wanted in (
        (whole, "f32[s0, 2]"),
        (views["t"], "f32[2, s0][1, 2]"),
        (views["sum"], "f32[2]"),
        (same, "f32[5, 2]"),  # the caller's own tensor
    ):
        second = al.compile(lambda y: y + 1, backend="reference")
        second(tensor)
        assert arguments(second) == [(f"argument 0: {wanted}",)]


@pytest.mark.rules("DYN-6")
def test_a_chain_of_functions_compiles_once_each() -> None:
    first = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    second = al.compile(lambda y: y.sum(1), backend="reference")
    for n in (5, 3, 0, 7):
        assert second(first(al.ones(n, 2))).tolist() == [4.0] * n
    assert len(second.entries) == 1


@pytest.mark.rules("DYN-6", "DYN-30")
def test_sizes_that_depend_on_values_are_symbols_in_the_next_function() -> None:
    chosen = al.compile(lambda x: x[x > 0], backend="reference")
    doubled = al.compile(lambda y: y * 2, backend="reference")
    for values in ([1.0, -1.0], [3.0, 4.0], [-1.0, -1.0]):
        found = doubled(chosen(al.tensor(values)))
        assert found.tolist() == [2 * value for value in values if value > 0]
    assert arguments(doubled) == [("argument 0: f32[s0]",)]


@pytest.mark.rules("DYN-6", "SUB-18")
def test_results_that_are_wrappers_are_noted_too() -> None:
    first = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    second = al.compile(lambda y: y + 1, backend="reference")
    for n in (5, 3):
        found = second(first(TwoTensor(al.ones(n), al.zeros(n))))
        assert found.b.tolist() == [1.0] * n
    assert arguments(second) == [
        ("argument 0.a: f32[s0]", "argument 0.b: f32[s0]", "argument 0: f32[s0]")
    ]


@pytest.mark.rules("DYN-6", "DYN-3")
def test_marks_and_options_are_stronger() -> None:
    static = made(5)
    al.mark_static(static, 0)
    second = al.compile(lambda y: y + 1, backend="reference")
    second(static)
    assert arguments(second) == [("argument 0: f32[5, s0]",)]
    without = al.compile(lambda y: y + 1, dynamic=False, backend="reference")
    without(made(5))
    assert arguments(without) == [("argument 0: f32[5, 2]",)]
    plain = al.compile(lambda y: y + 1, backend="reference")
    plain(made(5, how=False))
    assert arguments(plain) == [("argument 0: f32[5, 2]",)]


@pytest.mark.rules("DYN-6")
def test_the_next_function_may_fix_such_a_size() -> None:
    """Nobody marked it: it is a condition of the entry, and no error."""
    second = al.compile(lambda y: y if y.shape[0] == 5 else y + 1, backend="reference")
    second(made(5))
    assert [guard.text for guard in second.regions().rows[0].guards] == ["s0 == 5"]


@pytest.mark.rules("DYN-6")
def test_nothing_that_a_user_sees_of_the_tensor_is_another() -> None:
    found, plain = made(5), al.ones(5, 2) * 2
    assert repr(found) == repr(plain)
    assert pickle.dumps(found) == pickle.dumps(plain)
    assert not hasattr(found, "__dict__")
    for copied in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        second = al.compile(lambda y: y + 1, backend="reference")
        second(copied)
        assert arguments(second) == [("argument 0: f32[5, 2]",)]
