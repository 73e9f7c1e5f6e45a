"""DYN-33: what looks at the object of a number finds an int or float, as in eager.

A compiled function of a number is called at several numbers, and gives what eager gives: with
`dynamic=None`, where the second compilation would make a symbol of it, and with `dynamic=True`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import operator
import pickle
import types
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.pipeline.size_regions.exact_types import type_question
from tests.ir.helpers import size_programs
from tests.ir.helpers.concrete_sizes import form
from tests.ir.helpers.size_snippets import DIFFERENT, RAISING, SNIPPETS

MODES = (None, True)
NUMBERS = (6, 2, 7, 0)


def outcome(function: Callable[..., Any], *args: object) -> tuple[str, str, str]:
    """("gives", the results) or ("raises", class and text) of a call."""
    try:
        tensor, found = function(*args)
    except al.UnsupportedError:
        raise
    except Exception as error:
        return "raises", type(error).__name__, str(error)
    return "gives", str(tensor.tolist()), form(found)


def check(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """Asserts that the compiled function is eager's in these calls."""
    for mode in MODES:
        compiled = al.compile(function, dynamic=mode, backend="reference")
        for args in calls:
            assert outcome(function, *args) == outcome(compiled, *args), (mode, args)


# ------------------------------------------------------------------------- forms that users write
def of_snippet(text: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions of a number, and of a size, that a snippet is."""
    scope = {**vars(size_programs), "__name__": "a_users_module"}
    of_number = eval(f"lambda x, n: (x * 2, repr({text}))", scope)
    of_size = eval(f"lambda x: (lambda n: (x * 2, repr({text})))(x.shape[0])", scope)
    return of_number, of_size


def lines(*groups: str) -> list[str]:
    return [line.strip() for group in groups for line in group.splitlines() if line.strip()]


RANDOM = ("permutation", "object at")
DRAWN = [text for text in lines(RAISING, DIFFERENT) if not any(word in text for word in RANDOM)]
ALL = lines(*SNIPPETS.values())


@pytest.mark.rules("DYN-33")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("text", [*DRAWN, *ALL[::12]])
def test_number_of_a_call_is_an_int_to_python(text: str) -> None:
    of_number, of_size = of_snippet(text)
    check(of_number, [(al.ones(3), n) for n in NUMBERS])
    check(of_size, [(al.ones(n),) for n in NUMBERS])


@pytest.mark.long
@pytest.mark.rules("DYN-33")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("text", ALL)
def test_number_of_a_call_is_an_int_in_every_snippet(text: str) -> None:
    test_number_of_a_call_is_an_int_to_python(text)


# ----------------------------------------------------------------------- where a function may ask
kind_of = type
BY_TYPE = {int: "int", float: "float"}


def kind(n: object) -> str:
    return BY_TYPE.get(type(n), "other")


class Asks:
    """An object whose method asks."""

    def __init__(self, depth: int = 0) -> None:
        self.inner = Asks(depth - 1) if depth else None

    def name_of(self, n: object) -> str:
        return type(n).__name__ if self.inner is None else self.inner.name_of(n)

    def __getitem__(self, n: object) -> bool:
        return type(n) is int

    @property
    def asking(self) -> Callable[[object], str]:
        return kind

    @staticmethod
    def static(n: object) -> str:
        return kind(n)


ASKS = Asks(2)
TABLE = {"asks": [kind]}
MODULE = types.ModuleType("a_users_module_that_asks")
MODULE.kind = kind  # type: ignore[attr-defined]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: object) -> object:
        return function(*args)

    return call


@decorated
def wrapped(n: object) -> str:
    return kind(n)


@functools.lru_cache
def cached(n: object) -> str:
    return kind(n)


@functools.singledispatch
def dispatched(n: object) -> str:
    return "object"


@dispatched.register
def _(n: int) -> str:
    return kind(n)


def caught(n: Any) -> str:
    try:
        return json.dumps(n)
    except TypeError:
        return "no JSON"


class Doubled(al.autograd.Function):
    """A function whose forward asks, and which another method calls."""

    @staticmethod
    def forward(ctx: Any, x: al.Tensor, n: object) -> al.Tensor:
        return x * (2.0 if type(n) is int else 3.0)

    @staticmethod
    def backward(ctx: Any, grad: al.Tensor) -> tuple[al.Tensor, None]:
        return grad * 2.0, None


class Listed(list[object]):
    """A container of a user's class."""

    def of(self, n: object) -> str:
        return kind(n)


class Lazy:
    """An object that must not be asked."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("asked")


DEVICE = al.ones(1).device


class Holds:
    """An object with one."""

    count = 2.0

    def __init__(self) -> None:
        self.lazy = Lazy()


HOLDS = Holds()


def has(n: object) -> bool:
    return hasattr(n, "__array__") or getattr(n, "with_value", None) is not None


def imports(n: object) -> bool:
    import operator as op

    return op.is_(n, 6)


FORMS: dict[str, Callable[[Any], object]] = {
    "type": lambda n: type(n) is int,
    "type of a branch": lambda n: 1 if type(n) in (int, float) else 2,
    "alias": lambda n: kind_of(n) is int,
    "function": kind,
    "method": lambda n: ASKS.name_of(n),
    "operator": lambda n: ASKS[n],
    "property": lambda n: ASKS.asking(n),
    "static method": lambda n: Asks.static(n),
    "new object": lambda n: Asks().name_of(n),
    "container": lambda n: TABLE["asks"][0](n),
    "module": lambda n: MODULE.kind(n),
    "wrapped": wrapped,
    "cached": cached,
    "dispatched": dispatched,
    "partial": functools.partial(kind),
    "map": lambda n: list(map(kind, [n])),
    "name by text": lambda n: getattr(ASKS, "name_of")(n),  # noqa: B009
    "identity": lambda n: n is 6 or n is 2.5,  # noqa: F632
    "identity of two": lambda n: (lambda a, b: a is b)(n, n + 0),
    "id": lambda n: id(n) == id(n + 0),
    "operator.is_": lambda n: operator.is_(n, 6),
    "import inside": imports,
    "own function": lambda n: Doubled.apply(al.ones(2), n),
    "list of a user's": lambda n: Listed([1]).of(n),
    "attributes": has,
    "caught": caught,
    "pickle": lambda n: pickle.dumps(n),
    "eval": lambda n: eval("type(n) is int", {"n": n}),
    "class": lambda n: n.__class__ is int,
    "isinstance": lambda n: [isinstance(n, case) for case in (int, float)],
}


@pytest.mark.rules("DYN-33")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FORMS)
def test_type_and_identity_of_numbers_are_eagers(name: str) -> None:
    asks = FORMS[name]

    def of_number(x: al.Tensor, n: float) -> tuple[al.Tensor, object]:
        return x * n, asks(n)

    def of_size(x: al.Tensor) -> tuple[al.Tensor, object]:
        return x * 2, asks(x.shape[0])

    def of_both(x: al.Tensor, n: float) -> tuple[al.Tensor, object]:
        return x * n, (asks(x.shape[0] + 1), asks(n))

    x = al.ones(3)
    floats: list[tuple[Any, ...]] = [(x, n) for n in (0.5, 2.5, 1e300, 7.0)]
    check(of_number, [(x, n) for n in NUMBERS])
    check(of_number, floats)
    check(of_size, [(al.ones(n),) for n in NUMBERS])
    check(of_both, [(al.ones(n), n + 1) for n in NUMBERS])


@pytest.mark.rules("DYN-33")
@pytest.mark.parametrize("name", FORMS)
def test_what_asks_is_found_with_its_line(name: str) -> None:
    asked = type_question(FORMS[name], [])
    assert (asked is None) == (name in ("class", "isinstance"))


def test_a_module_is_searched_with_its_parts() -> None:
    class Layer(al.nn.Module):
        def __init__(self, helper: object) -> None:
            super().__init__()
            self.inner = al.nn.Sequential(al.nn.Linear(3, 2))
            self.helper = helper

        def forward(self, x: al.Tensor) -> tuple[al.Tensor, object]:
            return self.inner(x), self.helper.name_of(x.shape[0])  # type: ignore[attr-defined]

    check(Layer(Asks()), [(al.ones(n, 3),) for n in NUMBERS])


# ---------------------------------------------------------------------------- what is no question
class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass(frozen=True)
class Config:
    """An object of a class whose `==` compares classes."""

    mode: Mode = Mode.FAST
    scale: float = 2.0


CONFIG = Config()


@attrs.define
class Settings:
    """A class of attrs, whose parts are checked and converted."""

    scale: float = attrs.field(default=2, validator=attrs.validators.gt(0))
    name: str = attrs.field(default="", converter=attrs.converters.optional(str))


SETTINGS = Settings()


class Named(al.nn.Module):
    """A module that asks for its own class."""

    def forward(self, x: al.Tensor) -> al.Tensor:
        return x * 2 if type(self).__name__ == "Named" else x

    def extra_repr(self) -> str:
        return type(self).__name__


def checked(x: Any) -> al.Tensor:
    if not isinstance(x, al.Tensor):
        raise TypeError(f"x is a {type(x).__name__}")
    assert x.ndim == 1, type(x)
    return x * x.shape[0]


SILENT: dict[str, Callable[[Any], Any]] = {
    "None": lambda x: x * 2 if x is not None and (x.grad is None) is True else x,
    "own class": Named(),
    "error": checked,
    "enum": lambda x: x * 2 if CONFIG.mode is Mode.FAST else x,
    "dtype": lambda x: x * 2 if x.dtype is al.float32 else x,
    "dataclass": lambda x: x * CONFIG.scale if CONFIG == Config() else x,
    "attrs": lambda x: x * SETTINGS.scale * Settings(scale=x.shape[0]).scale,
    "isinstance": lambda x: x * x.shape[0] if isinstance(x.shape[0], int) else x,
    "device": lambda x: x * 2 + al.ones(x.shape[0], device=DEVICE),
    "lazy object": lambda x: x * HOLDS.count,
    "json": lambda x: (x * 2, json.dumps({"a": 1}))[0],
}


@pytest.mark.rules("DYN-33")
@pytest.mark.parametrize("name", SILENT)
def test_symbols_stay_where_nothing_asks(name: str) -> None:
    compiled = al.compile(SILENT[name], backend="reference")
    for n in (4, 5, 6, 9):
        assert compiled(al.ones(n)).tolist() == SILENT[name](al.ones(n)).tolist()
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-33")
@pytest.mark.parametrize("mode", MODES)
def test_class_in_the_text_of_an_error_is_eagers(mode: Any) -> None:
    def refused(x: al.Tensor, n: int) -> al.Tensor:
        if n > 3:
            raise ValueError(f"n is a {type(n).__name__}, {type(n)}")
        return x * n

    compiled = al.compile(refused, dynamic=mode, backend="reference")
    for n in (1, 2, 3):
        assert compiled(al.ones(2), n).tolist() == [n, n]
    assert len(compiled.entries) == (1 if mode else 2)
    with pytest.raises(ValueError, match=r"^n is a int, <class 'int'>$"):
        compiled(al.ones(2), 4)


@pytest.mark.parametrize("mode", MODES)
def test_error_of_any_class_that_c_code_raises_for_a_symbol_is_not_raised(mode: Any) -> None:
    def day(x: al.Tensor, n: int) -> tuple[al.Tensor, str]:
        return x * n, str(np.datetime64(n, "D"))

    compiled = al.compile(day, dynamic=mode, backend="reference")
    assert [compiled(al.ones(1), n)[1] for n in (1, 2)] == ["1970-01-02", "1970-01-03"]


def test_marked_numbers_are_symbols_where_a_function_asks() -> None:
    compiled = al.compile(
        lambda x, n: x * (n + (type(n) is int)), dynamic_shapes={"n": True}, backend="reference"
    )
    assert compiled(al.ones(1), 4).tolist() == [4.0]  # docs/limits.md


# ---------------------------------------------------------------------------- messages at the limit
def told(compiled: Any, calls: list[tuple[Any, ...]]) -> str:
    """The one warning of these calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for args in calls:
            compiled(*args)
    (warning,) = caught
    return str(warning.message)


@pytest.mark.rules("GRD-4")
def test_warning_names_the_size_the_line_that_pins_it_and_the_mark() -> None:
    def counted(w: al.Tensor, x: al.Tensor) -> al.Tensor:
        for k in range(x.shape[1]):
            w = w + k
        return w

    compiled = al.compile(counted, backend="reference", recompile_limit=3)
    text = told(compiled, [(al.ones(2), al.ones(3, n)) for n in range(1, 6)])
    line = "in counted: for k in range(x.shape[1]):"
    assert "size 1 of argument 1 is 4 (s0), expected s0 == 2 (" in text
    assert text.count(line) == 2
    assert "mark_dynamic(argument, dim)" in text


@pytest.mark.rules("GRD-4")
def test_warning_names_the_line_that_keeps_sizes_numbers() -> None:
    def asked(x: al.Tensor) -> al.Tensor:
        return x * 2 if type(x.shape[0]) is int else x

    compiled = al.compile(asked, backend="reference", recompile_limit=2)
    text = told(compiled, [(al.ones(n),) for n in range(1, 5)])
    assert "size 0 of argument 0 is 3, expected 1 or 2 (2 of 2 entries)" in text
    assert "no size or number is a symbol, because of type (test_dyn_exact_types.py:" in text
    assert "in asked: return x * 2 if type(x.shape[0]) is int else x)" in text
