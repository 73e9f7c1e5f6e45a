"""What a function reads outside that is no tensor: numbers, texts, functions, any object.

By whichever way it is read, another value is seen, and none that was met compiles anything again.
No method of a user's object runs that the function did not call.
"""

from __future__ import annotations

import enum
import itertools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from tests.rules.test_cap_places import WAYS, Body, Put, of_function_in_a_list, of_gradient


class Gone(enum.Enum):
    """Stands for a name that is not bound."""

    GONE = 1


GONE = Gone.GONE


class Shy:
    """An object that raises for whatever it is asked but for its number."""

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "number", number)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("it was asked")

    __repr__ = __str__ = __eq__ = __ne__ = __hash__ = __bool__ = __len__ = __iter__ = _refuse
    __getattr__ = __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __call__ = _refuse


class Slots:
    """The same without a dictionary of its own."""

    __slots__ = ("number",)
    __getattr__ = __repr__ = __eq__ = __hash__ = Shy._refuse

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "number", number)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def one() -> int:
    return 1


def two() -> int:
    return 2


LONG = "a" * 90
FAMILIES: tuple[tuple[Any, ...], ...] = (
    (1, True, 1.0, np.float64(1.0), np.int64(1), "1", b"1", 1 + 0j, None, [1], (1,)),
    (0.0, -0.0, 0, False, math.nan, None, 0j, complex(0.0, -0.0), "", b"", [], {}),
    (math.inf, -math.inf, "inf", 1e308, np.float32(math.inf), 1 << 1023),
    (1 << 63, (1 << 63) - 1, 1 << 64, -(1 << 64), 1 << 300, (1 << 300) + 1, 0),
    (LONG, LONG + "b", LONG.encode(), "a\n'\"\ud800", "a\n'\"", [LONG]),
    (one, two, len, abs, Color, Shy, math, itertools, types),
    (Color.RED, Color.BLUE, al.float32, al.float64, 1, "RED"),
    (Shy(1), Shy(2), Slots(1), Slots(2), [Shy(1)], {"a": Slots(2)}, (Shy(3), one), 1),
    ([1, 2], [1, 2.0], [2, 1], (1, 2), {"a": 1, "b": 2}, {"b": 2, "a": 1}, [[1], 2], {1, 2}),
    (range(3), range(4), slice(1), slice(2), frozenset({1}), frozenset({True}), {1}, {1.0}),
    ({0.0: 1}, {-0.0: 1}, {0: 1}, {False: 1}, {(1,): 1}, {(True,): 1}, {((1.0,),): 1}, {one: 1}),
    ({0.0}, {-0.0}, {(1,)}, {(True,)}, {8, 0}, {0, 8}, frozenset((8, 0)), frozenset((0, 8))),
    (np.arange(2), np.arange(2.0), np.arange(3), np.zeros((2, 1)), [0, 1]),
)
"""Values by families: their members are easily taken for each other."""


def text_of(value: Any) -> str:
    """What tells a value from others, by nothing that an object of a user's could answer."""
    kind = type(value)
    if kind in (Shy, Slots):
        return f"{kind.__name__}{value.number}"
    if kind in (list, tuple):
        return f"{kind.__name__}{[text_of(part) for part in value]}"
    if kind is dict:
        return f"{[(key, text_of(part)) for key, part in value.items()]}"
    if kind is types.FunctionType:
        return f"{value.__name__}{value()}"
    if kind is np.ndarray:
        return f"{value.dtype}{value.shape}{value.tolist()}"
    if kind in (type, enum.EnumMeta, types.ModuleType, types.BuiltinFunctionType):
        return str(value.__name__)
    return f"{kind.__name__}{value!a}"


def body(x: Any, value: Any) -> Any:
    """A result that says which value was read."""
    text = text_of(value)
    return x + float(sum((place + 1) * ord(letter) for place, letter in enumerate(text)))


def of_global_or_none(value: Any, body: Body) -> tuple[Callable[[Any], Any], Put]:
    names: dict[str, Any] = {"body": body, "GONE": GONE, "__name__": "elsewhere"}
    lines = ("try: seen = w", "except NameError: seen = GONE", "return body(x, seen)")
    exec("def function(x):" + "".join(f"\n    {line}" for line in lines), names)
    put = _bound(names)
    put(value)
    return names["function"], put


def of_attribute_or_none(value: Any, body: Body) -> tuple[Callable[[Any], Any], Put]:
    net = nn.Module()
    put = _bound(vars(net))
    put(value)
    return (lambda x: body(x, getattr(net, "w", GONE))), put


def of_key_or_none(value: Any, body: Body) -> tuple[Callable[[Any], Any], Put]:
    box: dict[str, Any] = {}
    put = _bound(box)
    put(value)
    return (lambda x: body(x, box.get("w", GONE))), put


def of_cell_or_none(value: Any, body: Body) -> tuple[Callable[[Any], Any], Put]:
    def put(other: Any) -> None:
        nonlocal value
        value = other
        if other is GONE:
            del value

    def function(x: Any) -> Any:
        try:
            seen = value
        except NameError:
            seen = GONE
        return body(x, seen)

    put(value)
    return function, put


def _bound(names: dict[str, Any]) -> Put:
    def put(other: Any) -> None:
        if other is GONE:
            names.pop("w", None)
        else:
            names["w"] = other

    return put


ALWAYS = tuple(way for way in WAYS if way not in (of_function_in_a_list, of_gradient))
MAYBE = (of_global_or_none, of_attribute_or_none, of_key_or_none, of_cell_or_none)


class Values(list[Any]):
    """Values that print whatever they are."""

    def __repr__(self) -> str:
        return f"[{', '.join(map(text_of, self))}]"


@st.composite
def values_met(draw: Any) -> tuple[Any, list[Any]]:
    """A way, and the values that are there in turn."""
    way = draw(st.sampled_from((*ALWAYS, *MAYBE)))
    number = draw(st.integers(0, len(FAMILIES) - 1))
    family = (*FAMILIES[number], *((GONE,) if way in MAYBE else ()))
    chosen = draw(st.lists(st.integers(0, len(family) - 1), min_size=2, max_size=5))
    return way, Values([family[place] for place in chosen])


@pytest.mark.draws(long=400)
@pytest.mark.rules("CAP-3", "CAP-5", "CAP-12", "GRD-1")
@settings(max_examples=50)
@given(values_met())
def test_a_value_is_read_anew_and_what_was_met_compiles_nothing(met: tuple[Any, list[Any]]) -> None:
    _check_that_it_is_read_anew(*met)


@pytest.mark.rules("CAP-12")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("family", FAMILIES, ids=[type(family[0]).__name__ for family in FAMILIES])
def test_values_that_are_taken_for_each_other_are_told_apart(family: tuple[Any, ...]) -> None:
    _check_that_it_is_read_anew(of_cell_or_none, Values(family))


@pytest.mark.rules("GEN-7")
def test_keys_of_arguments_that_are_equal_are_told_apart() -> None:
    compiled = al.compile(lambda tree: body(al.ones(2), tree))
    keys = (0.0, -0.0, 0, False, (1,), (True,), ((1.0,),), "a", b"a", frozenset({1.0}))
    for _ in range(2):
        for key in keys:
            assert body(al.ones(2), {key: 1}).tolist() == compiled({key: 1}).tolist()
        assert len(keys) == len(compiled.entries)


def _check_that_it_is_read_anew(way: Any, values: list[Any]) -> None:
    function, put = way(values[0], body)
    compiled, x = al.compile(function), al.ones(2)
    entries = 0
    for turn in range(2):
        for value in values:
            put(value)
            expected = function(x).tolist()
            assert expected == compiled(x).tolist()
            assert expected == compiled(x).tolist()
        assert turn == 0 or entries == len(compiled.entries), "compiled again"
        entries = len(compiled.entries)
    assert entries <= len(set(map(text_of, values))) + _repeated(values)


def _repeated(values: list[Any]) -> int:
    """How many of the values are told by identity, where two of one text may be two."""
    return sum(type(value) in (Shy, Slots) or type(value) in (list, dict) for value in values)
