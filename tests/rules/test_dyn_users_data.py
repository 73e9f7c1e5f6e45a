"""DYN-41: what a user keeps changes nothing that a compiled function does, nor is kept by it."""

from __future__ import annotations

import gc
import math
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al

pytestmark = pytest.mark.rules("DYN-41")


def error() -> Exception:
    """An error of aotlite's that a user has caught."""
    try:
        al.ones(3).view(2, 2)
    except al.ShapeError as caught:
        return caught
    raise AssertionError


def other() -> Any:
    """Another compiled function, with symbols of its own."""
    compiled = al.compile(lambda x: x.sum() * x.shape[0], dynamic=True, backend="reference")
    compiled(al.ones(3, 2))
    return compiled


def cyclic(kind: type) -> Any:
    """A container that holds itself."""
    made: Any = kind()
    made.append(made) if kind is list else made.update(itself=made)
    return made


def nested(depth: int) -> Any:
    """Lists in lists."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


class Odd:
    """Has every attribute, and equals nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError(f"{name} is looked at")

    __hash__ = None  # type: ignore[assignment]


KEPT: dict[str, Callable[[], Any]] = {
    "an error": error,
    "a graph": lambda: other().forward_graph,
    "a meta of a function": lambda: other().meta,
    "a partition": lambda: other().entries[0].partition,
    "a meta": lambda: other().forward_graph.placeholders[0].meta,
    "a symbol": lambda: other().forward_graph.placeholders[0].meta.shape[0],
    "a cyclic list": lambda: cyclic(list),
    "a cyclic dict": lambda: cyclic(dict),
    "lists in lists": lambda: nested(5000),
    "an object": Odd,
}
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "itself": lambda kept: kept,
    "in a list": lambda kept: [kept],
    "in a dict": lambda kept: {"kept": (1, kept)},
}


def of_globals(kept: Any, scale: Any) -> tuple[Any, Callable[[Any], None]]:
    """A function beside which `kept` is a global, and what sets its other global."""
    inside: dict[str, Any] = {"kept": kept, "scale": scale, "__name__": "users"}
    exec("def function(x): return x * scale", inside)
    return inside["function"], lambda value: inside.update(scale=value)


def of_module(kept: Any, scale: Any) -> tuple[Any, Callable[[Any], None]]:
    """A Module with `kept` as an attribute."""

    class Scaled(al.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept, self.scale = kept, scale

        def forward(self, x: Any) -> Any:
            return x * self.scale

    made = Scaled()
    return made, lambda value: setattr(made, "scale", value)


def of_closure(kept: Any, scale: Any) -> tuple[Any, Callable[[Any], None]]:
    """A function that closes over `kept`, and does not read it where it is called."""

    def function(x: Any, reads: bool = False) -> Any:
        return kept if reads else x * scale

    def change(value: Any) -> None:
        nonlocal scale
        scale = value

    return function, change


@pytest.mark.thinned(16)
@pytest.mark.parametrize("place", [of_globals, of_module, of_closure], ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("kept", KEPT)
def test_what_is_kept_beside_a_function_changes_nothing(
    kept: str, wrapped: str, place: Callable[..., Any]
) -> None:
    function, change = place(WRAPPED[wrapped](KEPT[kept]()), 2.0)
    compiled = al.compile(function, backend="reference")
    for n in (3, 4, 5):
        assert compiled(al.ones(n)).tolist() == function(al.ones(n)).tolist()
    for value in (9.0, al.full((1,), 5.0), al.full((1,), 6.0)):
        change(value)
        for n in (4, 6):
            assert compiled(al.ones(n)).tolist() == function(al.ones(n)).tolist()


class Big:
    """Something that a user drops."""


@pytest.mark.parametrize("kept", [lambda big: [big], lambda big: {"a": [big]}, lambda big: {big}])
def test_what_is_kept_beside_a_function_dies_with_its_name(kept: Callable[[Big], Any]) -> None:
    big = Big()
    function, _ = of_globals(kept(big), 2.0)
    compiled = al.compile(function, backend="reference")
    for n in (3, 4, 5):
        compiled(al.ones(n))
    alive = weakref.ref(big)
    del big, function.__globals__["kept"]
    gc.collect()
    assert alive() is None


def test_what_is_kept_beside_a_function_is_not_walked() -> None:
    """A list that is looked into raises."""

    class Closed(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError

    function, _ = of_globals([Closed(), {"a": Closed()}], 2.0)
    inside = types.SimpleNamespace(compiled=al.compile(function, backend="reference"))
    for n in (3, 4, 5):
        assert inside.compiled(al.ones(n)).tolist() == [2.0] * n


def test_a_symbol_of_another_function_is_a_number() -> None:
    """A function that reads one computes with the number that it has for eager."""
    foreign = other().forward_graph.placeholders[0].meta.shape[0]
    function, _ = of_globals(None, foreign)
    compiled = al.compile(function, backend="reference", dynamic=True)
    for n in (3, 4, 5):
        assert compiled(al.ones(n)).tolist() == function(al.ones(n)).tolist()
    root = al.compile(lambda x: x * math.sqrt(x.shape[0]), dynamic=True, backend="reference")
    for n in (3, 4, 5):
        assert root(al.ones(n)).tolist() == (al.ones(n) * math.sqrt(n)).tolist()
